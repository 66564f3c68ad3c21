/* Formats of weights: how the store holds them, and the one list of them.
 *
 * Mental model. A file has weights in some number format (base/dtype.h). What ferry keeps in memory is
 * another matter, and a fact of a unit: its weight format. The format names the planes of a weight. The plan
 * copies those that a step reads to the device, where EXPAND makes weights in compute_dtype of them.
 *
 * Trained weights are always fp32, in two halves, because AdamW needs them all. Frozen weights take the
 * smallest format that keeps what the run reads and writes.
 *
 * A format need not be in the list. One with codes (8-bit rows, blocks of fp8) is a struct of its own, which
 * the tensors' `kept` names (model/model.h); everything else follows from its fields.
 * tests/test_weight_format.c has one.
 *
 * A row gives the identifier, the name, the widest numbers that the format keeps exactly, and its planes.
 */
#ifndef FERRY_OPTIM_WEIGHT_FORMAT_H
#define FERRY_OPTIM_WEIGHT_FORMAT_H

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
	/* With CODES: bits of a code, and the rows and columns of a matrix that share a scale (fp32),
	 * from its first element on. block_cols 0: a whole row. */
	int code_bits;
	int64_t block_rows, block_cols;
	/* Makes codes and scales of whole blocks: rows [rows, cols] of a matrix. */
	void (*put)(void *codes, float *scales, const float *src, int64_t rows, int64_t cols);
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

/* Scales of a matrix in a coded format; and elements that its codes are made of at once: rows of blocks. */
int64_t weight_format_scales(const struct weight_format *format, int64_t rows, int64_t cols);
int64_t weight_format_granule(const struct weight_format *format, int64_t cols);

/* The planes of weights in this format, and of their optimizer state if they train; without the gradient. */
unsigned planes_of_unit(const struct weight_format *format, int trainable, enum adamw_state state);

#endif
