/* Reads and writes planes of an engine in host and device memory. */
#include "offload/engine_parts.h"
#include "offload/run_parts.h"

#include "base/err.h"
#include "base/num.h"

#include <inttypes.h>
#include <string.h>

/* The part of a range that this rank holds, in bytes. at_bytes counts from the unit's shard start. */
struct plane_part {
	int unit;
	int64_t at_bytes, skipped_bytes, bytes;
};

/* The same for codes and scales: a range of bytes in the plane of a unit. */
static void coded_find(
        const struct engine *e, struct plane_part *part, int unit, enum plane plane, struct unit_bytes bytes)
{
	const struct unit *u = &e->map->units[unit];
	struct unit_bytes held = unit_bytes_held(u, plane, e->map->shard_rank, bytes);

	*part = (struct plane_part){.unit = unit,
	        .at_bytes = held.begin - unit_coded_shard_bytes(u, plane) * e->map->shard_rank,
	        .skipped_bytes = held.begin - bytes.begin,
	        .bytes = held.end - held.begin};
}

static int part_find(const struct engine *e, struct plane_part *part, int tensor, enum plane plane,
        int64_t first, int64_t count)
{
	const struct plan_policy *policy = &engine_any_plan(e)->policy;
	int64_t block = plane_block(plane, policy->state), at, held, skipped, total;

	total = tensor < 0 || tensor >= e->map->model->tensor_count ? -1
	                                                            : e->map->model->tensors[tensor].count;
	if (first < 0 || count < 0 || first > total - count || first % block ||
	        (count % block && first + count != total))
		return err_set(
		        ERR_RANGE, "elements %" PRId64 "+%" PRId64 " of tensor %d", first, count, tensor);
	unit_map_locate(e->map, tensor, first, count, &at, &held, &skipped);
	part->unit = unit_map_piece(e->map, tensor, first)->unit;
	if (plane_is_in(plane, PLANES_CODED)) {
		coded_find(e, part, part->unit, plane, unit_map_coded(e->map, tensor, plane, first, count));
		return 0;
	}
	part->at_bytes = plan_plane_bytes(policy, plane, at - e->map->units[part->unit].first);
	part->skipped_bytes = plan_plane_bytes(policy, plane, skipped);
	part->bytes = plan_plane_bytes(policy, plane, held);
	return 0;
}

/* A low half without a plane is zero, because the frozen weight is a bf16 number. */
static int is_zero_plane(const struct engine *e, int unit, enum plane plane)
{
	return plane == PLANE_LO &&
	       !(unit_planes(&e->map->units[unit], e->options.policy.state) >> plane & 1);
}

/* Data for a plane that does not exist must be zero. */
static int zero_check(const struct engine *e, int tensor, const char *bytes, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		if (bytes[i])
			return err_set(ERR_INTERNAL, "frozen %s was taken for bf16 and holds more than that",
			        e->map->model->tensors[tensor].name);
	return 0;
}

/* Bytes of `count` elements as they cross the interface: codes and scales of whole rows of blocks. */
static int64_t range_bytes(const struct engine *e, int tensor, enum plane plane, int64_t first, int64_t count)
{
	struct unit_bytes bytes;

	if (!plane_is_in(plane, PLANES_CODED))
		return plan_plane_bytes(&engine_any_plan(e)->policy, plane, count);
	bytes = unit_map_coded(e->map, tensor, plane, first, count);
	return bytes.end - bytes.begin;
}

/* Elements of a range that are in one piece: all, unless it goes over the end of one. */
static int64_t range_run(const struct engine *e, int tensor, int64_t first, int64_t count)
{
	return tensor >= 0 && tensor < e->map->model->tensor_count && first >= 0 && count > 0
	               ? unit_map_run(e->map, tensor, first, count)
	               : count;
}

static int part_write(
        struct engine *e, int tensor, enum plane plane, const struct plane_part *part, const void *src)
{
	char *host = store_borrow(e->dock.store, plane, part->unit);
	dev_addr device = e->device_planes[part->unit][plane];
	int rc = 0;

	if (e->has_codes) /* many threads load, also the best model after steps */
		e->has_codes = 0;
	if (!host && dev_is_none(device) && is_zero_plane(e, part->unit, plane))
		return zero_check(e, tensor, (const char *)src + part->skipped_bytes, part->bytes);
	if (host && device_has_bytes(e->dock.device))
		memcpy(host + part->at_bytes, (const char *)src + part->skipped_bytes, (size_t)part->bytes);
	if (host)
		store_return(e->dock.store, plane, part->unit, STORE_WRITTEN);
	if (!dev_is_none(device)) {
		rc = stream_copy_in(engine_main_stream(e), dev_at(device, part->at_bytes),
		        (const char *)src + part->skipped_bytes, part->bytes);
		rc = rc ? rc : stream_sync(engine_main_stream(e));
	}
	return rc;
}

static int piece_write(
        struct engine *e, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	struct plane_part part;
	int rc = part_find(e, &part, tensor, plane, first, count);

	return rc || !part.bytes ? rc : part_write(e, tensor, plane, &part, src);
}

int engine_codes_make(struct engine *e)
{
	struct stream *q = engine_main_stream(e);
	int rc = 0;

	if (e->has_codes || !device_has_bytes(e->dock.device))
		return 0;
	for (int u = 0; u < e->map->unit_count && !rc; u++) {
		void *codes[2] = {store_at(e->dock.store, PLANE_CODES, u),
		        store_at(e->dock.store, PLANE_CODE_SCALE, u)};

		if (!codes[0] || !e->map->units[u].trainable)
			continue;
		run_codes_make(
		        e->map, u, store_at(e->dock.store, PLANE_HI, u), codes[0], codes[1], e->dock.pool);
		for (int i = 0; i < 2 && !rc; i++) {
			enum plane plane = i ? PLANE_CODE_SCALE : PLANE_CODES;
			dev_addr device = e->device_planes[u][plane];

			if (!dev_is_none(device))
				rc = stream_copy_in(q, device, codes[i],
				        unit_coded_shard_bytes(&e->map->units[u], plane));
		}
	}
	rc = rc ? rc : stream_sync(q);
	e->has_codes = !rc;
	return rc;
}

int engine_write_coded(struct engine *e, int unit, enum plane plane, struct unit_bytes bytes, const void *src)
{
	struct plane_part part;

	coded_find(e, &part, unit, plane, bytes);
	return part.bytes ? part_write(e, -1, plane, &part, src) : 0;
}

int engine_write(
        struct engine *e, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	int64_t run = range_run(e, tensor, first, count);
	int rc = piece_write(e, tensor, plane, first, run, src);

	while (!rc && run < count) {
		src = (const char *)src + range_bytes(e, tensor, plane, first, run);
		first += run;
		count -= run;
		run = range_run(e, tensor, first, count);
		rc = piece_write(e, tensor, plane, first, run, src);
	}
	return rc;
}

void *engine_plane_at(const struct engine *e, int tensor, enum plane plane, int64_t first, int64_t count)
{
	struct plane_part part;
	char *host;

	if (plane_is_in(plane, PLANES_CODED) || range_run(e, tensor, first, count) < count ||
	        part_find(e, &part, tensor, plane, first, count) ||
	        part.bytes != plan_plane_bytes(&engine_any_plan(e)->policy, plane, count))
		return NULL;
	host = store_at(e->dock.store, plane, part.unit);
	if (!host || !device_has_bytes(e->dock.device) || !dev_is_none(e->device_planes[part.unit][plane]))
		return NULL;
	return host + part.at_bytes;
}

static int part_read(struct engine *e, enum plane plane, const struct plane_part *part, void *dst)
{
	const char *host = store_borrow(e->dock.store, plane, part->unit);
	dev_addr device = e->device_planes[part->unit][plane];
	int is_there = host && device_has_bytes(e->dock.device), rc;

	if (is_there)
		memcpy((char *)dst + part->skipped_bytes, host + part->at_bytes, (size_t)part->bytes);
	if (host)
		store_return(e->dock.store, plane, part->unit, STORE_READ);
	if (is_there)
		return 0;
	if (dev_is_none(device) && is_zero_plane(e, part->unit, plane)) {
		memset((char *)dst + part->skipped_bytes, 0, (size_t)part->bytes);
		return 0;
	}
	if (dev_is_none(device))
		return err_set(ERR_RANGE, "no plane holds what was asked for");
	rc = stream_copy_out(engine_main_stream(e), (char *)dst + part->skipped_bytes,
	        dev_at(device, part->at_bytes), part->bytes);
	return rc ? rc : stream_sync(engine_main_stream(e));
}

static int piece_read(struct engine *e, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	struct plane_part part;
	int rc = part_find(e, &part, tensor, plane, first, count);

	return rc || !part.bytes ? rc : part_read(e, plane, &part, dst);
}

int engine_read_coded(struct engine *e, int unit, enum plane plane, struct unit_bytes bytes, void *dst)
{
	struct plane_part part;

	coded_find(e, &part, unit, plane, bytes);
	return part.bytes ? part_read(e, plane, &part, dst) : 0;
}

static int plane_read(struct engine *e, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	int64_t run = range_run(e, tensor, first, count);
	int rc = piece_read(e, tensor, plane, first, run, dst);

	while (!rc && run < count) {
		dst = (char *)dst + range_bytes(e, tensor, plane, first, run);
		first += run;
		count -= run;
		run = range_run(e, tensor, first, count);
		rc = piece_read(e, tensor, plane, first, run, dst);
	}
	return rc;
}

int engine_read(struct engine *e, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	int rc = engine_flush(e);

	return rc ? rc : plane_read(e, tensor, plane, first, count, dst);
}

int engine_read_gradient(struct engine *e, int tensor, int64_t first, int64_t count, float *dst)
{
	int rc = plane_read(e, tensor, PLANE_GRADIENT, first, count, dst);

	if (rc || plan_gradient_home_dtype(&engine_any_plan(e)->policy) == DTYPE_F32)
		return rc;
	for (int64_t i = count - 1; i >= 0; i--) {
		uint16_t half;

		memcpy(&half, (const char *)dst + 2 * i, 2);
		dst[i] = bf16_to_f32(half);
	}
	return 0;
}

struct snapshot *engine_snapshot(struct engine *e)
{
	return e->dock.snapshot;
}

void engine_snapshot_begin(struct engine *e)
{
	snapshot_begin(e->dock.snapshot, e->pending ? SNAPSHOT_UPDATES_PENDING : SNAPSHOT_UPDATES_NONE);
}

int engine_snapshot_settle(struct engine *e)
{
	int rc = snapshot_is_awaiting(e->dock.snapshot) ? engine_flush(e) : 0;

	if (rc)
		snapshot_cancel(e->dock.snapshot);
	return rc;
}
