/* Sums of squares of gradients, and AdamW in device memory (device/op.h has the rules for all ops). */
#ifndef FERRY_DEVICE_OP_OPTIM_H
#define FERRY_DEVICE_OP_OPTIM_H

#include "base/dtype.h"
#include "device/addr.h"
#include "optim/adamw_step.h"
#include "optim/state_format.h"

#define OP_OPTIM_LIST(ROW)                                                                                   \
	ROW(SUMSQ, sumsq, sumsq)                                                                             \
	ROW(CAST_SUMSQ, cast_sumsq, cast_sumsq)                                                              \
	ROW(ADAMW, adamw, adamw)

/* partial[b] (F64), b < ceil(count / SUMSQ_BLOCK): sum of squares of block b (optim/adamw.h sumsq_blocks). x
 * F32 or BF16. */
struct op_sumsq {
	dev_addr partial, x;
	int64_t count;
	enum dtype dtype;
};

/* In one pass: dst[i] (BF16) = src[i] (F32), as op_cast does, and partial as op_sumsq computes it for dst.
 * The bits are those of the two ops. */
struct op_cast_sumsq {
	dev_addr dst, partial, src;
	int64_t count;
};

/* AdamW on weights and optimizer state in device memory. Arithmetic and bits are those of optim/adamw.h. m
 * and v have the format `state` (optim/state_format.h). m_scale and v_scale hold one scale per block; they
 * are DEV_NONE if the format has none. step.rounding_key, tensor and first choose how an element is rounded
 * in BF16. */
struct op_adamw {
	dev_addr hi, lo, m, v, m_scale, v_scale, grad;
	int64_t count;
	int64_t first; /* index of element 0 in its tensor; with scales a multiple of the block */
	int tensor;    /* index in the model's table */
	int decay;
	enum dtype grad_dtype;
	enum adamw_state state;
	struct adamw_step step;
};

#endif
