/* Finds codes and scales of tensors in the planes of their units, and in the shards of ranks. */
#include "offload/unit.h"

#include "base/size.h"

const struct weight_format *unit_codes(const struct unit *u)
{
	return u->multiplied ? u->multiplied : weight_format_is_coded(u->format) ? u->format : NULL;
}

int64_t unit_coded_bytes(const struct unit *u, enum plane plane)
{
	return plane == PLANE_CODES ? code_bytes(unit_codes(u)->code, u->count) : u->scale_bytes;
}

int64_t unit_coded_shard_bytes(const struct unit *u, enum plane plane)
{
	return unit_coded_bytes(u, plane) / (u->count / u->shard_count);
}

struct unit_bytes unit_map_coded(
        const struct unit_map *map, int tensor, enum plane plane, int64_t first, int64_t count)
{
	const struct unit_piece *piece = unit_map_piece(map, tensor, first);
	const struct weight_format *f = map->units[piece->unit].format;
	int64_t cols = model_tensor_cols(&map->model->tensors[tensor]), rows = piece->count / cols,
	        begin = piece->scale, scales;

	first -= piece->first;
	if (plane == PLANE_CODES) {
		begin = code_bytes(f->code, piece->offset + first);
		return (struct unit_bytes){begin, begin + code_bytes(f->code, count)};
	}
	if (f->scale == CODE_SCALE_NESTED)
		return (struct unit_bytes){begin, begin + weight_format_scale_bytes(f, rows, cols)};
	if (f->is_flat) {
		begin += first / f->block_cols * code_scale_bytes(f->scale);
		scales = weight_format_scales(f, 1, count);
	} else {
		begin += weight_format_scales(f, first / cols, cols) * code_scale_bytes(f->scale);
		scales = weight_format_scales(f, count / cols, cols);
	}
	return (struct unit_bytes){begin, begin + scales * code_scale_bytes(f->scale)};
}

struct unit_bytes unit_bytes_held(
        const struct unit *unit, enum plane plane, int shard, struct unit_bytes bytes)
{
	int64_t share = unit_coded_shard_bytes(unit, plane);

	bytes.begin = max_i64(bytes.begin, share * shard);
	bytes.end = max_i64(bytes.begin, min_i64(bytes.end, share * (shard + 1)));
	return bytes;
}

/* The first granule of a piece whose codes or scales end after a byte of the unit's plane (begins 0), or
 * begin there or later. */
static int64_t granule_find(const struct unit_map *map, const struct unit_piece *piece, enum plane plane,
        int64_t granule, int64_t byte, int begins)
{
	int64_t low = 0, high = (piece->count + granule - 1) / granule;

	while (low < high) {
		int64_t middle = (low + high) / 2, at = middle * granule;
		struct unit_bytes b = unit_map_coded(
		        map, piece->tensor, plane, piece->first + at, min_i64(granule, piece->count - at));

		if (begins ? b.begin >= byte : b.end > byte)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* The part of a piece, from and to its elements, that makes what this rank holds of it. */
static void piece_needed(const struct unit_map *map, const struct unit_piece *piece, int64_t *from_element,
        int64_t *to_element)
{
	const struct unit *u = &map->units[piece->unit];
	int64_t granule =
	        weight_format_granule(u->format, model_tensor_cols(&map->model->tensors[piece->tensor]));
	int64_t begin = piece->count, end = 0;

	for (int plane = PLANE_CODES; plane <= PLANE_CODE_SCALE; plane++) {
		int64_t share = unit_coded_shard_bytes(u, (enum plane)plane), byte = share * map->shard_rank;
		int64_t from = granule_find(map, piece, (enum plane)plane, granule, byte, 0);
		int64_t to = granule_find(map, piece, (enum plane)plane, granule, byte + share, 1);

		if (from >= to)
			continue;
		begin = min_i64(begin, from * granule);
		end = max_i64(end, min_i64(to * granule, piece->count));
	}
	*from_element = begin;
	*to_element = max_i64(begin, end);
}

/* NESTED scales need all elements of the tensor, because their offset is a mean. */
static void coded_needed(
        const struct unit_map *map, const struct unit_piece *piece, int64_t *first, int64_t *count)
{
	int64_t begin, end;

	piece_needed(map, piece, &begin, &end);
	if (map->units[piece->unit].format->scale == CODE_SCALE_NESTED) {
		int t = piece->tensor, is_held = 0;

		for (int n = map->tensor_piece[t]; n < map->tensor_piece[t + 1] && !is_held; n++) {
			piece_needed(map, &map->pieces[n], &begin, &end);
			is_held = begin < end;
		}
		begin = 0;
		end = is_held ? piece->count : 0;
	}
	*first = piece->first + begin;
	*count = end - begin;
}

void unit_map_needed(
        const struct unit_map *map, const struct unit_piece *piece, int64_t *first, int64_t *count)
{
	int64_t at, skipped;

	if (weight_format_is_coded(map->units[piece->unit].format)) {
		coded_needed(map, piece, first, count);
		return;
	}
	unit_map_locate(map, piece->tensor, piece->first, piece->count, &at, count, &skipped);
	*first = piece->first + skipped;
}
