/* AdamW on the planes of a tensor, elementwise: hi and lo are the fp32 master weights (base/num.h), m and v
 * the state.
 *
 * One update is torch.optim.AdamW with decoupled decay (Loshchilov and Hutter 2019). optim/adamw_state.h
 * defines the exact arithmetic of an element and the storage of m and v. The scalar, AVX2, AVX-512, NEON and
 * device kernels give the same bits. The host computes the scalars in double and rounds them to float once.
 * The caller must not pass gradients that are not finite; the norm detects them first.
 *
 * The kernels are one template in separate translation units. adamw_isa_find returns the widest instruction
 * set of this CPU.
 */
#ifndef FERRY_OPTIM_ADAMW_H
#define FERRY_OPTIM_ADAMW_H

#include "optim/adamw_options.h"
#include "optim/adamw_state.h"

#include <stdint.h>

/* One contiguous run of elements of one tensor. Planes need no alignment beyond their element's, no two may
 * overlap, and nothing outside of `count` elements is written, scales of their blocks aside. count may be 0
 * and may exceed 2^31. */
struct adamw_span {
	uint16_t *hi;
	int16_t *lo;
	void *m, *v; /* of `state`: float, bf16 (uint16_t), codes (uint8_t) */
	float *m_scale,
	        *v_scale; /* 8BIT: one per ADAMW_BLOCK_8BIT elements, the last may be short; else unused */
	const void *grad; /* of grad_dtype */
	int64_t count;
	int64_t first; /* index of element 0 in its tensor: 8BIT: a multiple of its block, F32: unused */
	int tensor;    /* index in the model's table: BF16 only */
	int decay;     /* 1: decay_factor applies */
	enum dtype grad_dtype; /* F32 or BF16 */
	enum adamw_state state;
};

/* Takes the first `count` elements away; 8BIT: a multiple of its block. */
void adamw_span_advance(struct adamw_span *span, int64_t count);

/* update_count is Adam's number of this update, from 1 (skipped steps do not count). clip_scale comes from
 * clip_scale_of. */
void adamw_step_init(struct adamw_step *step, const struct adamw_options *o, double learning_rate,
        int64_t update_count, double clip_scale);

/* Updates one span on the calling thread. */
void adamw_update(const struct adamw_span *span, const struct adamw_step *step, enum adamw_isa isa);

/* norm = sqrt(sum of squares); torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)); max_norm 0
 * = 1. */
double clip_scale_of(double norm, double max_norm);

/* Sum of squares of a gradient in blocks of SUMSQ_BLOCK elements, each in double with a fixed order of its
 * own, written to partial[ceil(count / SUMSQ_BLOCK)]: a block is 16 runs of 4096 elements; in a run, lane
 * j < 64 adds up elements j, j + 64, j + 128 ...; then lanes 32 and up are added to lanes 0 and up, 16 and up
 * to 0 and up, to the last, and the runs in the same way (a run that is not there is 0). Few enough chains
 * for a CPU's registers, and 1024 of them for a GPU. The same bits on every device, ISA and thread count. Not
 * finite if any element is not. */
void sumsq_blocks(double *partial, const void *grad, int64_t count, enum dtype dtype, enum adamw_isa isa);

#endif
