/* Formats of weights: how the store holds them, and the one list of them.
 *
 * Mental model. A file has weights in some number format (base/dtype.h). What ferry keeps in memory is
 * another matter, and a fact of a unit: its weight format. The format names the planes of a weight. The plan
 * copies those that a step reads to the device, where EXPAND makes weights in compute_dtype of them.
 *
 * Trained weights are always fp32, in two halves, because AdamW needs them all. Frozen weights take the
 * smallest format that keeps what the run reads and writes.
 *
 * A format with codes (base/codes.h) is not in this list: it is a struct of its own, which the tensors'
 * `kept` names (model/model.h); everything else follows from its fields. weight_format_coded has those that
 * files and the key base_format name; tests/test_weight_format.c has another.
 *
 * A row gives the identifier, the name, the widest numbers that the format keeps exactly, and its planes.
 */
#ifndef FERRY_OPTIM_WEIGHT_FORMAT_H
#define FERRY_OPTIM_WEIGHT_FORMAT_H

#include "base/codes.h"
#include "optim/plane.h"

#define WEIGHT_FORMATS(ROW)                                                                                  \
	ROW(FP32, "fp32", F32, 1 << PLANE_HI | 1 << PLANE_LO)                                                \
	ROW(BF16, "bf16", BF16, 1 << PLANE_HI)

#define WEIGHT_FORMAT_ENUM(id, ...) WEIGHT_##id,
enum weight_format_id { WEIGHT_FORMATS(WEIGHT_FORMAT_ENUM) WEIGHT_FORMAT_COUNT };
#undef WEIGHT_FORMAT_ENUM

struct weight_format {
	const char *name;
	enum dtype keeps; /* numbers of this type are kept exactly; codes: none, so an integer */
	unsigned planes;  /* of a weight: bits 1 << enum plane */
	/* With CODES: what a code and a scale are, and the rows and columns of a matrix that share a scale,
	 * from its first element on. block_cols 0: a whole row. Flat: blocks pass over the ends of rows; the
	 * matrix counts as one row. */
	enum code code;
	enum code_scale scale;
	int64_t block_rows, block_cols;
	int is_flat;
	/* Makes codes and fp32 scales of whole blocks: rows [rows, cols] of a matrix. Scales are then stored
	 * as `scale` says. */
	void (*put)(const struct weight_format *format, void *codes, float *scales, const float *src,
	        int64_t rows, int64_t cols);
};
extern const struct weight_format weight_formats[WEIGHT_FORMAT_COUNT];

/* 1 if every number that a file has in `format` is kept. */
int weight_format_keeps(const struct weight_format *kept, enum format format);

/* The smallest format of the list that keeps them all. */
const struct weight_format *weight_format_for(enum format format);

static inline int weight_format_is_coded(const struct weight_format *format)
{
	return (format->planes & PLANES_CODED) != 0;
}

/* The rows and columns of a matrix as its blocks see them. */
void weight_format_shape(const struct weight_format *format, int64_t *rows, int64_t *cols);

/* Scales of a matrix in a coded format; and elements that its codes are made of at once: rows of blocks. */
int64_t weight_format_scales(const struct weight_format *format, int64_t rows, int64_t cols);
int64_t weight_format_granule(const struct weight_format *format, int64_t cols);

/* In a flat format: a part of a matrix that begins at a multiple of this has scales of its own. */
int64_t weight_format_align(const struct weight_format *format);

/* Bytes of a matrix in plane CODE_SCALE: for NESTED the fp32 numbers of nested_outer_count, then the scales;
 * rounded up so that the next matrix is aligned. And where the scales begin. */
int64_t weight_format_scale_bytes(const struct weight_format *format, int64_t rows, int64_t cols);
int64_t weight_format_scale_begin(const struct weight_format *format, int64_t rows, int64_t cols);

/* The format with these codes: NF4 and FP4 in blocks of 32 to 4096 elements, scales F32 or NESTED; E4M3 in
 * blocks of 128 x 128 or by row (WEIGHT_BLOCK_ROW); I8 by row; E2M1 in blocks of 32. block 0: the usual one.
 * NULL: there is none. */
enum { WEIGHT_BLOCK_ROW = -1 };
const struct weight_format *weight_format_coded(enum code code, enum code_scale scale, int64_t block);

/* The planes of weights in this format, and of their optimizer state if they train; without the gradient. */
unsigned planes_of_unit(const struct weight_format *format, int trainable, enum adamw_state state);

#endif
