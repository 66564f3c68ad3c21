/* Queued work: the checks of ops, copies, calls and collectives before the backend gets them. */
#include "base/err.h"
#include "device/backend.h"

#include <inttypes.h>

static const char *const work_names[WORK_KIND_COUNT] = {
        [WORK_OP] = "op",
        [WORK_COPY_IN] = "copy_in",
        [WORK_COPY_OUT] = "copy_out",
        [WORK_CALL] = "call",
        [WORK_DISCARD] = "discard",
        [WORK_STAMP] = "stamp",
        [WORK_ALL_GATHER] = "all_gather",
        [WORK_REDUCE_SCATTER] = "reduce_scatter",
        [WORK_ALL_REDUCE] = "all_reduce",
        [WORK_BROADCAST] = "broadcast",
};

const char *work_name(const struct work *work)
{
	return work->kind == WORK_OP ? op_name(work->op.kind) : work_names[work->kind];
}

void work_traffic(struct comm_traffic *traffic, const struct work *work)
{
	static const enum comm_kind kinds[WORK_KIND_COUNT] = {
	        [WORK_ALL_GATHER] = COMM_ALL_GATHER,
	        [WORK_REDUCE_SCATTER] = COMM_REDUCE_SCATTER,
	        [WORK_ALL_REDUCE] = COMM_ALL_REDUCE,
	        [WORK_BROADCAST] = COMM_BROADCAST,
	};

	comm_traffic_find(traffic, kinds[work->kind], work->collective.bytes,
	        dtype_bytes(work->collective.dtype), &work->collective.comm->links);
}

/* Checks that [base, base + bytes) lies in the arena, and sets *end_bytes to the offset of its end. */
static int check_range(const struct device *device, int64_t *end_bytes, dev_addr base, int64_t bytes)
{
	uint64_t offset = base.value - device->arena_base.value;

	if (bytes <= 0)
		return err_set(ERR_RANGE, "%" PRId64 " bytes, must be positive", bytes);
	if (!device->arena_bytes)
		return err_set(ERR_RANGE, "the device has no arena");
	if (base.value < device->arena_base.value || offset > (uint64_t)device->arena_bytes ||
	        (uint64_t)bytes > (uint64_t)device->arena_bytes - offset)
		return err_set(ERR_RANGE,
		        "%" PRId64 " bytes at arena offset %" PRId64 " do not lie in the arena of %" PRId64
		        " bytes",
		        bytes, (int64_t)offset, device->arena_bytes);
	*end_bytes = (int64_t)offset + bytes;
	return 0;
}

/* Checks that a host range that begins in a slab also ends in it. Other host memory is not checked. */
static int check_host_range(const struct device *device, const void *host, int64_t bytes)
{
	if (!host)
		return err_set(ERR_RANGE, "no host address");
	for (int i = 0; i < device->slab_count; i++) {
		const struct device_slab *s = &device->slabs[i];
		uint64_t offset = (uint64_t)(uintptr_t)host - (uint64_t)(uintptr_t)s->base;

		if (offset < (uint64_t)s->bytes && (uint64_t)bytes > (uint64_t)s->bytes - offset)
			return err_set(ERR_RANGE,
			        "%" PRId64 " bytes at offset %" PRId64
			        " run over the end of a slab of %" PRId64 " bytes",
			        bytes, (int64_t)offset, s->bytes);
	}
	return 0;
}

/* Names the memory around an address, for messages. */
static const char *place_of(const struct device *device, uint64_t *offset, uint64_t address)
{
	*offset = address - device->arena_base.value;
	if (*offset < (uint64_t)device->arena_bytes)
		return "the arena";
	for (int i = 0; i < device->slab_count; i++) {
		*offset = address - (uint64_t)(uintptr_t)device->slabs[i].base;
		if (*offset < (uint64_t)device->slabs[i].bytes)
			return "a slab";
	}
	*offset = address;
	return "host memory";
}

static const char *queue_of_race(const struct device *device, int race_stream)
{
	for (const struct stream *s = device->streams; s; s = s->next)
		if (s->race_stream == race_stream)
			return queue_name(s->queue);
	return "closed";
}

static int race_error(const struct device *device, const struct race_conflict *c)
{
	uint64_t offset;
	const char *place = place_of(device, &offset, c->begin);

	return err_set(ERR_DEVICE,
	        "race: %s (work %u of the %s stream) %s %" PRIu64 " bytes at offset %" PRIu64
	        " of %s, which %s (work %u of the %s stream) %s, and nothing orders the two",
	        c->later.name, c->later.number, queue_of_race(device, c->later.stream),
	        c->later.writes ? "writes" : "reads", c->end - c->begin, offset, place, c->earlier.name,
	        c->earlier.number, queue_of_race(device, c->earlier.stream),
	        c->earlier.writes ? "writes" : "reads");
}

/* Hands checked work to the backend. */
static int submit(struct stream *stream, const struct work *work, const struct op_access *list, int count)
{
	struct device *device = stream->device;
	struct race_conflict conflict;
	int rc = 0;

	if (device->race)
		rc = race_work(device->race, &conflict, stream->race_stream, work_name(work), list, count);
	if (rc)
		return rc > 0 ? race_error(device, &conflict) : rc;
	return device->backend->queue(stream, work);
}

static dev_addr host_addr(const void *host)
{
	return (dev_addr){(uint64_t)(uintptr_t)host};
}

/* Puts the call's name before a check's text. */
static int named(const struct work *work, int rc)
{
	return rc ? err_note(rc, "%s", work_name(work)) : 0;
}

int stream_op(struct stream *stream, const struct op *op)
{
	struct work work = {.kind = WORK_OP, .op = *op};
	struct op_access list[OP_ACCESS_MAX];
	int rc = 0, count = op_access_list(op, list);

	if (count < 0)
		return count;
	for (int i = 0; i < count; i++) {
		int64_t end_bytes = 0;

		rc = check_range(stream->device, &end_bytes, list[i].base, list[i].bytes);
		if (rc)
			return named(&work, rc);
		if (work.touched_bytes < end_bytes)
			work.touched_bytes = end_bytes;
	}
	return submit(stream, &work, list, count);
}

int stream_copy_in(struct stream *stream, dev_addr dst, const void *src, int64_t bytes)
{
	struct work work = {.kind = WORK_COPY_IN, .copy_in = {dst, src, bytes}};
	int rc = check_range(stream->device, &work.touched_bytes, dst, bytes);

	if (!rc)
		rc = check_host_range(stream->device, src, bytes);
	return rc ? named(&work, rc)
	          : submit(stream, &work, (struct op_access[]){{dst, bytes, 1}, {host_addr(src), bytes, 0}},
	                    2);
}

int stream_copy_out(struct stream *stream, void *dst, dev_addr src, int64_t bytes)
{
	struct work work = {.kind = WORK_COPY_OUT, .copy_out = {dst, src, bytes}};
	int rc = check_range(stream->device, &work.touched_bytes, src, bytes);

	if (!rc)
		rc = check_host_range(stream->device, dst, bytes);
	return rc ? named(&work, rc)
	          : submit(stream, &work, (struct op_access[]){{host_addr(dst), bytes, 1}, {src, bytes, 0}},
	                    2);
}

int stream_call(struct stream *stream, stream_fn *fn, void *context, const struct op_cost *cost)
{
	struct work work = {.kind = WORK_CALL, .call = {.fn = fn, .context = context}};

	if (!fn)
		return err_set(ERR_RANGE, "call: no function");
	if (cost)
		work.call.cost = *cost;
	return submit(stream, &work, NULL, 0);
}

int stream_repeat(struct stream *stream, uint64_t name, const dev_addr *bases, int base_count)
{
	const struct device *device = stream->device;

	return device->race || !device->backend->repeat
	               ? 0
	               : device->backend->repeat(stream, name, bases, base_count);
}

int stream_repeat_end(struct stream *stream)
{
	const struct device *device = stream->device;

	return device->race || !device->backend->repeat ? 0 : device->backend->repeat_end(stream);
}

void stream_times(struct stream *stream, double times)
{
	stream->times = times;
}

int stream_discard(struct stream *stream, dev_addr base, int64_t bytes)
{
	struct work work = {.kind = WORK_DISCARD, .discard = {base, bytes}};
	int64_t end_bytes; /* not used: a discard touches no bytes */
	int rc = check_range(stream->device, &end_bytes, base, bytes);

	return rc ? named(&work, rc) : submit(stream, &work, &(struct op_access){base, bytes, 1}, 1);
}

int stream_stamp(struct stream *stream, int64_t *at_ns)
{
	struct work work = {.kind = WORK_STAMP, .at_ns = at_ns};

	if (!at_ns)
		return err_set(ERR_RANGE, "stamp: no place to write the time");
	return submit(stream, &work, NULL, 0);
}

/* ---- collectives ---- */

/* The buffer has `shards` pieces of shard_count elements; all of them count as touched. */
static int queue_collective(struct stream *stream, struct work *work, int shards, int64_t shard_count)
{
	struct device *device = stream->device;
	enum dtype dtype = work->collective.dtype;
	int64_t bytes = -1;
	int rc = device_check_same(work->collective.comm->device, device, work_name(work));

	if (rc)
		return rc;
	if ((unsigned)dtype >= DTYPE_COUNT || dtype_bits(dtype) % 8)
		return named(work, err_set(ERR_RANGE, "dtype %d does not exist", (int)dtype));
	if (shard_count <= 0 || __builtin_mul_overflow(shard_count, shards * dtype_bytes(dtype), &bytes))
		return named(work,
		        err_set(ERR_RANGE,
		                "%" PRId64 " elements in each of %d pieces: must be positive and fit memory",
		                shard_count, shards));
	work->collective.bytes = bytes;
	rc = check_range(device, &work->touched_bytes, work->collective.buffer, bytes);
	return rc ? named(work, rc)
	          : submit(stream, work, &(struct op_access){work->collective.buffer, bytes, 1}, 1);
}

int comm_all_gather(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t shard_count, enum dtype dtype)
{
	struct work work = {.kind = WORK_ALL_GATHER, .collective = {comm, buffer, 0, dtype, 0}};

	return queue_collective(stream, &work, comm->world_size, shard_count);
}

/* Sums are defined for compute dtypes only. */
static int check_sum_dtype(const struct work *work)
{
	enum dtype dtype = work->collective.dtype;

	if (dtype_computes(dtype))
		return 0;
	return named(work, err_set(ERR_RANGE, "sums of %s are not defined, only of %s", dtype_name(dtype),
	                           dtype_computes_text()));
}

int comm_reduce_scatter(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t shard_count, enum dtype dtype)
{
	struct work work = {.kind = WORK_REDUCE_SCATTER, .collective = {comm, buffer, 0, dtype, 0}};
	int rc = check_sum_dtype(&work);

	return rc ? rc : queue_collective(stream, &work, comm->world_size, shard_count);
}

int comm_all_reduce(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t count, enum dtype dtype)
{
	struct work work = {.kind = WORK_ALL_REDUCE, .collective = {comm, buffer, 0, dtype, 0}};
	int rc = check_sum_dtype(&work);

	return rc ? rc : queue_collective(stream, &work, 1, count);
}

int comm_broadcast(
        struct comm *comm, struct stream *stream, dev_addr buffer, int64_t count, enum dtype dtype, int root)
{
	struct work work = {.kind = WORK_BROADCAST, .collective = {comm, buffer, 0, dtype, root}};

	if (root < 0 || root >= comm->world_size)
		return err_set(
		        ERR_RANGE, "broadcast: rank %d of %d ranks does not exist", root, comm->world_size);
	return queue_collective(stream, &work, 1, count);
}
