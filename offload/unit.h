/* Units: groups of tensors that move, shard and update together.
 *
 * Mental model. A unit map puts every piece of a tensor into exactly one unit, at an element offset in the
 * unit's flat range. A tensor is one piece, unless the model divides its experts among several stages: then
 * each of these has a piece, and its experts are in a unit of their own. Pieces keep table order inside a
 * unit, but joined tensors (model/join.h) are in one unit and lie side by side. Pieces start at multiples of
 * UNIT_ALIGN elements; the gaps are zero in every plane. A unit's range is padded so that it divides evenly
 * into world_size shards; shard r is elements [r * shard_count, (r + 1) * shard_count). Units are in the
 * order of their first use in forward.
 *
 * Trained and frozen tensors never share a unit, nor do frozen ones of two formats (optim/weight_format.h),
 * nor those whose products read codes and others. If the policy groups them, each kind becomes its own unit.
 * So a unit is frozen or trained as a whole. A table whose rows are looked up (KIND_ROWS) is a unit of its
 * own where ranks do not divide units: only the rows that a micro-batch uses need cross to the device.
 *
 * This file is pure arithmetic: it allocates no planes and uses no device. `size` follows
 * size_based_auto_wrap_policy of torch.distributed.fsdp.wrap on the module tree given by the tensor names,
 * but for joined tensors.
 */
#ifndef FERRY_OFFLOAD_UNIT_H
#define FERRY_OFFLOAD_UNIT_H

#include "model/model.h"
#include "optim/weight_format.h"

enum wrap_policy { WRAP_TRANSFORMER, WRAP_SIZE, WRAP_NONE };
enum { UNIT_ALIGN = 256 }; /* in elements; a block of 8-bit optimizer state never crosses a tensor or shard */

struct unit {
	int trainable;                      /* 0: frozen; the same for all its tensors */
	const struct weight_format *format; /* of the weights in memory; the same for all its tensors */
	/* Codes that products read, the same for all: in memory, or made on the device of HI; or NULL */
	const struct weight_format *multiplied;
	int *pieces; /* indices into the map's, in the order of offsets */
	int piece_count;
	int64_t count;       /* elements, padding included: shard_ranks * shard_count */
	int64_t shard_count; /* elements of one rank */
	int64_t scale_bytes; /* of all pieces, with codes; padded as count is, and divided as evenly */
	int64_t first;       /* first element of this rank's shard in a store plane */
	int64_t row_count;   /* elements of a row of its only tensor, whose rows are looked up; else 0 */
	int64_t rows;        /* that this tensor has */
	int table;           /* its place among such units */
	char *name; /* name of its module ("block 3", "head"; by size: "model.layers.3"), for messages */
};

/* Elements [first, first + count) of a tensor. */
struct unit_piece {
	int tensor, unit;
	int64_t first, count;
	int64_t offset; /* elements from the start of its unit */
	int64_t scale;  /* with codes, bytes from the start of its unit's scales */
};

struct unit_map {
	const struct model *model;
	enum dtype compute_dtype; /* of the stages; the formats of frozen weights follow from it */
	struct unit *units;
	int unit_count;
	int table_count; /* units with rows that are looked up */
	/* This rank and their number, among the ranks that share one copy of the model; other replicas do not
	 * count. */
	int shard_rank, shard_ranks;
	struct unit_piece *pieces; /* in the order of tensors and elements */
	int piece_count;
	int *tensor_piece;   /* per tensor, and one more at the end: its first piece */
	int64_t shard_total; /* sum of shard_count: elements of one store plane */
};

/* min_num_params: WRAP_SIZE only. ERR_NOMEM, ERR_RANGE. The model must outlive the map. */
int unit_map_open(struct unit_map **map, const struct model *model, enum wrap_policy policy,
        int64_t min_num_params, enum dtype compute_dtype, int rank, int world_size);
void unit_map_close(struct unit_map *map);

/* The set of planes (bits) of the unit in a training run, without the gradient. */
unsigned unit_planes(const struct unit *unit, enum adamw_state state);

/* The format of the unit's codes, in memory or on the device; NULL: it has none. */
const struct weight_format *unit_codes(const struct unit *unit);

/* Bytes of a plane of PLANES_CODED: of the whole unit, and of one rank's shard. Ranks cut the plane of scales
 * on its own, so a code and its scale may belong to two ranks; both are gathered before EXPAND. */
int64_t unit_coded_bytes(const struct unit *unit, enum plane plane);
int64_t unit_coded_shard_bytes(const struct unit *unit, enum plane plane);

/* Where codes or scales of whole granules of a piece lie in the plane of its unit, in bytes. NESTED scales
 * are those of the whole piece. */
struct unit_bytes {
	int64_t begin, end;
};
struct unit_bytes unit_map_coded(
        const struct unit_map *map, int tensor, enum plane plane, int64_t first, int64_t count);

/* The part of them that a shard holds. */
struct unit_bytes unit_bytes_held(
        const struct unit *unit, enum plane plane, int shard, struct unit_bytes bytes);

/* Elements of the tensor that make what this rank holds of a piece. Of a coded format these are whole
 * granules: all whose codes or scales it holds. NESTED scales need all elements. */
void unit_map_needed(
        const struct unit_map *map, const struct unit_piece *piece, int64_t *first, int64_t *count);

/* The format of a tensor in memory. */
const struct weight_format *unit_map_format(const struct unit_map *map, int tensor);

/* 1 if the stage reads a trained tensor. */
int unit_map_stage_trains(const struct unit_map *map, int stage);

/* The piece of one of its tensors that a stage reads. */
const struct unit_piece *unit_map_stage_piece(const struct unit_map *map, int stage, int tensor);

/* The piece with this element. */
const struct unit_piece *unit_map_piece(const struct unit_map *map, int tensor, int64_t element);

/* Elements of the range [first, first + count) of a tensor that are in the piece of its first one. */
int64_t unit_map_run(const struct unit_map *map, int tensor, int64_t first, int64_t count);

/* Finds the part of tensor elements [first, first + count), which are in one piece, in this rank's shard:
 * *shard_at is its position in a store plane, *held its length (0 if none), *skipped the number of elements
 * of the range before it. */
void unit_map_locate(const struct unit_map *map, int tensor, int64_t first, int64_t count, int64_t *shard_at,
        int64_t *held, int64_t *skipped);

#endif
