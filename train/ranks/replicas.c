/* Compares hashes of the weights between the ranks that hold the same shards. */
#include "train/ranks/replicas.h"

#include "train/ranks/planes.h"

#include "base/err.h"
#include "base/mem.h"
#include "comm/world.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

enum { PIECE = 65536 };

static int is_coded(const struct engine *e, int tensor)
{
	return weight_format_is_coded(unit_map_format(engine_units(e), tensor));
}

/* Hashes codes and scales of a piece that this rank holds. */
static int coded_hash(uint64_t *hash, struct engine *e, const struct unit_piece *p, void *piece)
{
	const struct unit_map *map = engine_units(e);
	int rc = 0;

	for (int plane = PLANE_CODES; plane <= PLANE_CODE_SCALE && !rc; plane++) {
		struct unit_bytes b = unit_map_coded(map, p->tensor, (enum plane)plane, p->first, p->count);

		b = unit_bytes_held(&map->units[p->unit], (enum plane)plane, map->shard_rank, b);
		for (int64_t at = b.begin, end; at < b.end && !rc; at = end) {
			end = at + PIECE < b.end ? at + PIECE : b.end;
			rc = engine_read_coded(
			        e, p->unit, (enum plane)plane, (struct unit_bytes){at, end}, piece);
			*hash = XXH3_64bits_withSeed(piece, (size_t)(end - at), *hash);
		}
	}
	return rc;
}

/* Hashes this rank's weights of each tensor; 0 if it holds none. */
static int tensors_hash(
        uint64_t *hashes, struct engine *e, const struct plane_range *ranges, int64_t range_count)
{
	struct plane_source source;
	uint16_t *piece = mem_alloc(PIECE, sizeof(*piece));
	int rc = piece ? 0 : ERR_NOMEM;

	planes_source(&source, e);
	for (int n = 0; n < engine_units(e)->piece_count && !rc; n++) {
		const struct unit_piece *p = &engine_units(e)->pieces[n];

		if (is_coded(e, p->tensor))
			rc = coded_hash(&hashes[p->tensor], e, p, piece);
	}
	for (int64_t r = 0; r < range_count && !rc; r++)
		for (int64_t at = is_coded(e, ranges[r].tensor) ? ranges[r].count : 0;
		        at < ranges[r].count && !rc; at += PIECE) {
			int64_t left = ranges[r].count - at, count = left < PIECE ? left : PIECE;
			uint64_t *hash = &hashes[ranges[r].tensor];

			for (int plane = 0; plane < PLANE_SAVED_COUNT && !rc; plane++) {
				if (!plane_is_in((enum plane)plane, PLANES_WEIGHT))
					continue;
				rc = source.read(source.context, ranges[r].tensor, (enum plane)plane,
				        ranges[r].first + at, count, piece);
				*hash = XXH3_64bits_withSeed(piece, (size_t)count * sizeof(*piece), *hash);
			}
		}
	mem_free(piece);
	return rc;
}

/* The ranks of the first group broadcast their hashes in turn. */
static int hashes_compare(const struct unit_map *map, const uint64_t *hashes, uint64_t *first, int64_t step)
{
	int count = map->model->tensor_count, at = -1, rc = 0;

	for (int shard = 0; shard < map->shard_ranks && !rc; shard++) {
		memcpy(first, hashes, (size_t)count * sizeof(*first));
		rc = world_broadcast(first, count * (int64_t)sizeof(*first), shard);
		for (int t = 0; t < count && at < 0 && map->shard_rank == shard; t++)
			at = first[t] == hashes[t] ? -1 : t;
	}
	if (!rc && at >= 0)
		rc = err_set(ERR_INTERNAL,
		        "after step %" PRId64 " %s differs from rank %d, which has the same shards (memory "
		        "error?); resume an older checkpoint",
		        step, map->model->tensors[at].name, map->shard_rank);
	return world_agree(rc);
}

int replicas_check(struct engine *e, int64_t step)
{
	const struct unit_map *map = engine_units(e);
	size_t count = (size_t)map->model->tensor_count;
	struct plane_range *ranges = NULL;
	uint64_t *hashes, *first;
	int64_t range_count = 0;
	int rc;

	if (world_self()->size == map->shard_ranks)
		return 0;
	hashes = mem_alloc(count, sizeof(*hashes));
	first = mem_alloc(count, sizeof(*first));
	rc = hashes && first ? planes_held(&ranges, &range_count, map, PLANES_READ) : ERR_NOMEM;
	if (!rc)
		rc = tensors_hash(hashes, e, ranges, range_count);
	rc = world_agree(rc);
	if (!rc)
		rc = hashes_compare(map, hashes, first, step);
	mem_free(ranges);
	mem_free(hashes);
	mem_free(first);
	return rc;
}
