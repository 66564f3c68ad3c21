/* Fills the planes of all ranks from files, read by each rank or by rank 0. */
#include "train/ranks/ranks_load.h"

#include "train/ranks/planes.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/quantity.h"
#include "checkpoint/file/load_memory.h"
#include "comm/link.h"
#include "comm/world.h"

#include <string.h>

enum { PIECE_BYTES = LOAD_CHUNK_BYTES, RING_PIECES = LOAD_RING_PIECES };

/* The header of a message with values; tensor -1: the end. Of codes and their scales, tensor is a unit, and
 * first and count are bytes of its plane; else elements of the tensor. */
struct piece {
	int32_t tensor, plane;
	int64_t first, count;
};

/* Rank 0's sink for all ranks' planes. Only one loader thread at a time calls write. */
struct scatter {
	const struct unit_map *map;
	struct plane_sink own;
	struct link *link;
	enum adamw_state state;
	int copies; /* ranks that hold the same shard */
	struct {
		struct piece piece;
		int shard;
	} ring[RING_PIECES];
	int filled;
	char *values;            /* [RING_PIECES][PIECE_BYTES] */
	struct link_part *parts; /* [RING_PIECES][copies][2] */
};

/* The part of a range, which is in one piece, that a shard holds. */
static struct plane_range range_part(const struct unit_map *map, int shard, const struct plane_range *whole)
{
	struct unit_map other = *map;
	int64_t at, held, skipped;

	other.shard_rank = shard;
	unit_map_locate(&other, whole->tensor, whole->first, whole->count, &at, &held, &skipped);
	return (struct plane_range){whole->tensor, whole->first + skipped, held};
}

/* ---- rank 0 ---- */

/* Sends all pieces in the ring to the ranks that hold them. */
static int ring_send(struct scatter *s)
{
	int count = 0;

	for (int i = 0; i < s->filled; i++)
		for (int c = 0; c < s->copies; c++) {
			const struct piece *piece = &s->ring[i].piece;
			int rank = s->ring[i].shard + c * s->map->shard_ranks;

			if (!rank)
				continue;
			s->parts[count++] = (struct link_part){
			        LINK_SEND, rank, &s->ring[i].piece, sizeof(s->ring[i].piece)};
			s->parts[count++] =
			        (struct link_part){LINK_SEND, rank, s->values + (int64_t)i * PIECE_BYTES,
			                plane_bytes((enum plane)piece->plane, s->state, piece->count)};
		}
	s->filled = 0;
	return count ? link_exchange(s->link, s->parts, count) : 0;
}

static int ring_add(
        struct scatter *s, int shard, enum plane plane, const struct plane_range *range, const char *src)
{
	int64_t most = PIECE_BYTES / plane_width(plane, s->state) * plane_block(plane, s->state), part;
	int rc = 0;

	for (int64_t at = 0; at < range->count && !rc; at += part) {
		part = range->count - at < most ? range->count - at : most;
		s->ring[s->filled].shard = shard;
		s->ring[s->filled].piece =
		        (struct piece){range->tensor, (int32_t)plane, range->first + at, part};
		memcpy(s->values + (int64_t)s->filled * PIECE_BYTES, src + plane_bytes(plane, s->state, at),
		        (size_t)plane_bytes(plane, s->state, part));
		if (++s->filled == RING_PIECES)
			rc = ring_send(s);
	}
	return rc;
}

/* Codes or scales of whole granules of a piece: each shard gets its bytes of them. */
static int scatter_coded(struct scatter *s, enum plane plane, const struct plane_range *part,
        const struct unit_bytes *all, const char *src)
{
	int unit = unit_map_piece(s->map, part->tensor, part->first)->unit;
	int rc = s->own.write(s->own.context, part->tensor, plane, part->first, part->count, src);

	for (int shard = 0; shard < s->map->shard_ranks && !rc; shard++) {
		struct unit_bytes held = unit_bytes_held(&s->map->units[unit], plane, shard, *all);

		if (held.end > held.begin && (shard != s->map->shard_rank || s->copies > 1))
			rc = ring_add(s, shard, plane,
			        &(struct plane_range){unit, held.begin, held.end - held.begin},
			        src + (held.begin - all->begin));
	}
	return rc;
}

static int scatter_write(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	struct scatter *s = context;
	const struct plane_range whole = {tensor, first, unit_map_run(s->map, tensor, first, count)};
	int is_coded = plane_is_in(plane, PLANES_CODED), rc = 0;
	int64_t bytes = plane_bytes(plane, s->state, whole.count);

	if (is_coded) {
		struct unit_bytes all = unit_map_coded(s->map, tensor, plane, first, whole.count);

		bytes = all.end - all.begin;
		rc = scatter_coded(s, plane, &whole, &all, src);
	}
	for (int shard = 0; shard < s->map->shard_ranks && !rc && !is_coded; shard++) {
		struct plane_range part = range_part(s->map, shard, &whole);
		const char *at = (const char *)src + plane_bytes(plane, s->state, part.first - first);

		if (!part.count)
			continue;
		if (shard == s->map->shard_rank)
			rc = s->own.write(s->own.context, tensor, plane, part.first, part.count, at);
		if (!rc && (shard != s->map->shard_rank || s->copies > 1))
			rc = ring_add(s, shard, plane, &part, at);
	}
	if (rc || whole.count == count)
		return rc;
	return scatter_write(
	        s, tensor, plane, first + whole.count, count - whole.count, (const char *)src + bytes);
}

static void *scatter_at(void *context, int tensor, enum plane plane, int64_t first, int64_t count)
{
	const struct scatter *s = context;

	return s->copies > 1 ? NULL : s->own.at(s->own.context, tensor, plane, first, count);
}

static int64_t scatter_run(void *context, int tensor, int64_t first, int64_t count)
{
	const struct scatter *s = context;

	return unit_map_run(s->map, tensor, first, count);
}

/* Lists all pieces, cut where shards end, so that each range belongs to one shard. Codes are not cut. */
static int ranges_all(struct plane_range **out, int64_t *out_count, const struct unit_map *map)
{
	struct plane_range *ranges = NULL;
	int64_t count = 0;

	for (int fills = 0; fills < 2; fills++) {
		if (fills && !(ranges = mem_alloc((size_t)count, sizeof(*ranges))))
			return ERR_NOMEM;
		count = 0;
		for (int n = 0; n < map->piece_count; n++)
			for (int shard = 0; shard < map->shard_ranks; shard++) {
				const struct unit_piece *piece = &map->pieces[n];
				struct plane_range range = {piece->tensor, piece->first, piece->count};

				if (!weight_format_is_coded(map->units[piece->unit].format))
					range = range_part(map, shard, &range);
				else if (shard)
					continue;

				if (range.count && fills)
					ranges[count] = range;
				count += range.count > 0;
			}
	}
	*out = ranges;
	*out_count = count;
	return 0;
}

/* Sends the end to the other ranks, which wait for it. */
static int scatter_end(struct scatter *s)
{
	struct piece end = {.tensor = -1};
	int rc = 0;

	for (int rank = 1; rank < world_self()->size && !rc; rank++)
		rc = link_exchange(s->link, &(struct link_part){LINK_SEND, rank, &end, sizeof(end)}, 1);
	return rc;
}

static int scatter_all(struct scatter *s, plane_fill *fill, void *context)
{
	const struct plane_sink sink = {.context = s,
	        .write = scatter_write,
	        .at = scatter_at,
	        .run = scatter_run,
	        .is_zero = s->own.is_zero,
	        .keeps_formats = s->own.keeps_formats,
	        .compute_dtype = s->own.compute_dtype};
	struct plane_range *ranges = NULL;
	int64_t range_count = 0;
	struct err why = {0};
	int rc = ranges_all(&ranges, &range_count, s->map);

	s->values = mem_alloc(RING_PIECES, PIECE_BYTES);
	s->parts = mem_alloc(2 * RING_PIECES * (size_t)s->copies, sizeof(*s->parts));
	if (!rc && (!s->values || !s->parts))
		rc = ERR_NOMEM;
	if (!rc)
		rc = fill(context, &sink, ranges, range_count);
	if (!rc)
		rc = ring_send(s);
	mem_free(ranges);
	mem_free(s->values);
	mem_free(s->parts);
	err_take(&why, rc);
	(void)scatter_end(s); /* if that fails, all ranks know why */
	return err_give(&why);
}

/* ---- the other ranks ---- */

static int receive_all(struct scatter *s)
{
	struct piece piece, next;
	const struct link_part first = {LINK_RECEIVE, 0, &piece, sizeof(piece)};
	void *staged = mem_alloc(PIECE_BYTES, 1);
	int rc = staged ? link_exchange(s->link, &first, 1) : link_fail(ERR_NOMEM);

	for (; !rc && piece.tensor >= 0; piece = next) {
		enum plane plane = (enum plane)piece.plane;
		int is_bytes = plane_is_in(plane, PLANES_CODED);
		void *at = is_bytes
		                   ? NULL
		                   : s->own.at(s->own.context, piece.tensor, plane, piece.first, piece.count);
		const struct link_part parts[] = {
		        {LINK_RECEIVE, 0, at ? at : staged, plane_bytes(plane, s->state, piece.count)},
		        {LINK_RECEIVE, 0, &next, sizeof(next)}};

		rc = link_exchange(s->link, parts, 2);
		if (!rc && is_bytes)
			rc = engine_write_coded(s->own.context, piece.tensor, plane,
			        (struct unit_bytes){piece.first, piece.first + piece.count}, staged);
		else if (!rc && !at)
			rc = s->own.write(
			        s->own.context, piece.tensor, plane, piece.first, piece.count, staged);
		if (rc)
			link_fail(rc);
	}
	mem_free(staged);
	return rc;
}

/* ---- all ranks ---- */

/* Logs time and memory on rank 0, because a host short of memory fails while loading. */
static int peak_report(int64_t begin_ns)
{
	const struct world *w = world_self();
	double *peaks = mem_alloc((size_t)w->size, sizeof(*peaks));
	struct str text = {0};
	int most = 0, rc = world_agree(peaks ? 0 : ERR_NOMEM);

	if (!rc) {
		peaks[w->rank] = (double)process_peak_bytes();
		rc = world_sum(peaks, w->size);
	}
	for (int rank = 1; rank < w->size && !rc; rank++)
		if (peaks[rank] > peaks[most])
			most = rank;
	if (!rc)
		quantity_bytes(&text, (int64_t)peaks[most]);
	if (text.data)
		log_info("loaded in %.1f s; largest host memory of a rank: %s (rank %d)",
		        1e-9 * (double)(clock_now_ns() - begin_ns), text.data, most);
	str_free(&text);
	mem_free(peaks);
	return rc;
}

static int load_by_rank0(struct engine *e, enum adamw_state state, plane_fill *fill, void *context)
{
	struct scatter scatter = {.map = engine_units(e), .state = state};
	const struct world *w = world_self();
	int rc;

	scatter.copies = w->size / scatter.map->shard_ranks;
	planes_sink(&scatter.own, e);
	rc = world_agree(link_open(&scatter.link, 0, 1, w->size));
	if (rc)
		return rc;
	link_name(scatter.link, "what rank 0 reads");
	rc = w->rank ? receive_all(&scatter) : scatter_all(&scatter, fill, context);
	link_close(scatter.link);
	return rc;
}

int ranks_load(struct engine *e, const struct config *c, plane_fill *fill, void *context)
{
	int64_t begin_ns = clock_now_ns();
	int rc;

	if (world_self()->size == 1)
		return planes_load(e, fill, context);
	rc = c->load == CONFIG_LOAD_RANK0_ONLY ? load_by_rank0(e, planes_state(c), fill, context)
	                                       : planes_load(e, fill, context);
	rc = world_agree(rc);
	return rc ? rc : peak_report(begin_ns);
}
