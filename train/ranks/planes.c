/* Gives checkpoint/ an engine's planes as source and sink. */
#include "train/ranks/planes.h"

#include "base/err.h"
#include "base/mem.h"
#include "comm/world.h"

static int write_plane(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	return engine_write(context, tensor, plane, first, count, src);
}

enum adamw_state planes_state(const struct config *c)
{
	return (enum adamw_state)c->optimizer_state;
}

static void *plane_at(void *context, int tensor, enum plane plane, int64_t first, int64_t count)
{
	return engine_plane_at(context, tensor, plane, first, count);
}

static int64_t run_of(void *context, int tensor, int64_t first, int64_t count)
{
	return unit_map_run(engine_units(context), tensor, first, count);
}

void planes_sink(struct plane_sink *sink, struct engine *e)
{
	*sink = (struct plane_sink){.context = e,
	        .write = write_plane,
	        .at = plane_at,
	        .run = run_of,
	        .is_zero = 1,
	        .keeps_formats = 1,
	        .compute_dtype = engine_units(e)->compute_dtype};
}

static int read_plane(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	return engine_read(context, tensor, plane, first, count, dst);
}

static int source_at(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void **at)
{
	int rc = engine_flush(context);

	*at = rc ? NULL : engine_plane_at(context, tensor, plane, first, count);
	return rc;
}

void planes_source(struct plane_source *source, struct engine *e)
{
	*source = (struct plane_source){.context = e, .read = read_plane, .at = source_at};
}

static int read_snapshot(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	return snapshot_read(context, tensor, plane, first, count, dst);
}

static int snapshot_plane_at(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void **at)
{
	return snapshot_at(context, tensor, plane, first, count, at);
}

static void done_snapshot(void *context, int tensor, int64_t first)
{
	if (tensor == PLANE_SOURCE_END)
		snapshot_end(context);
	else
		snapshot_done(context, tensor, first);
}

void planes_snapshot_source(struct plane_source *source, struct engine *e)
{
	*source = (struct plane_source){.context = engine_snapshot(e),
	        .read = read_snapshot,
	        .at = snapshot_plane_at,
	        .done = done_snapshot};
}

/* ---- ranges of a rank ---- */

/* The part of a range that one of several holders writes. Cuts only at blocks of the optimizer state. */
static void range_cut(struct plane_range *range, int part, int parts)
{
	int64_t blocks = (range->count + ADAMW_BLOCK - 1) / ADAMW_BLOCK;
	int64_t begin = blocks * part / parts * ADAMW_BLOCK, end = blocks * (part + 1) / parts * ADAMW_BLOCK;

	range->count = (end < range->count ? end : range->count) - begin;
	range->first += begin;
}

int planes_held(struct plane_range **out, int64_t *range_count, const struct unit_map *map,
        enum planes_purpose purpose)
{
	int parts = purpose == PLANES_WRITE ? world_self()->size / map->shard_ranks : 1;
	int part = purpose == PLANES_WRITE ? world_self()->rank / map->shard_ranks : 0;
	struct plane_range *ranges = mem_alloc((size_t)map->piece_count, sizeof(*ranges));

	*range_count = 0;
	if (!ranges)
		return ERR_NOMEM;
	for (int n = 0; n < map->piece_count; n++) {
		const struct unit_piece *piece = &map->pieces[n];
		int64_t at, held, skipped;
		struct plane_range range;

		if (purpose == PLANES_LOAD) {
			unit_map_needed(map, piece, &skipped, &held);
			skipped -= piece->first;
		} else {
			unit_map_locate(map, piece->tensor, piece->first, piece->count, &at, &held, &skipped);
		}
		range = (struct plane_range){piece->tensor, piece->first + skipped, held};
		range_cut(&range, part, parts);
		if (range.count > 0)
			ranges[(*range_count)++] = range;
	}
	*out = ranges;
	return 0;
}

int planes_load(struct engine *e, plane_fill *fill, void *context)
{
	struct plane_range *ranges = NULL;
	struct plane_sink sink;
	int64_t range_count = 0;
	int rc = planes_held(&ranges, &range_count, engine_units(e), PLANES_LOAD);

	planes_sink(&sink, e);
	if (!rc)
		rc = fill(context, &sink, ranges, range_count);
	mem_free(ranges);
	return rc;
}
