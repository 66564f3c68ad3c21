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

/* Gradient storage in the store. */
enum grad_kind { GRAD_BF16, GRAD_F32 };

/* One contiguous run of elements of one tensor. Planes need only the alignment of their element, and no two
 * may overlap. An update writes only `count` elements and the scales of their blocks. count may be 0 and may
 * exceed 2^31. */
struct adamw_span {
	uint16_t *hi;
	int16_t *lo;
	void *m, *v;              /* of `state`: float, bf16 (uint16_t), codes (uint8_t) */
	float *m_scale, *v_scale; /* 8BIT: one per ADAMW_BLOCK elements, the last may be short; else unused */
	const void *grad;         /* of grad_kind */
	int64_t count;
	int64_t first; /* index of element 0 in its tensor: 8BIT: a multiple of ADAMW_BLOCK, F32: unused */
	int tensor;    /* index in the model's table: BF16 only */
	int decay;     /* 1: decay_factor applies */
	enum grad_kind grad_kind;
	enum adamw_state state;
};

/* Removes the first `count` elements; 8BIT: a multiple of ADAMW_BLOCK. */
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

/* Sums of squares of a gradient: one double per block of SUMSQ_BLOCK elements, written to partial[ceil(count
 * / SUMSQ_BLOCK)]. The order of additions is fixed, so every device, ISA and thread count gives the same
 * bits. A block is 16 runs of 4096 elements. In a run, lane j < 64 adds elements j, j + 64, j + 128 ... Then
 * lanes from 32 on are added to lanes from 0 on, lanes from 16 on to lanes from 0 on, and so on to one lane.
 * The runs are added in the same way; a missing run is 0. These chains are few enough for a CPU's registers,
 * and 1024 for a GPU. The sum is not finite if any element is not. */
void sumsq_blocks(double *partial, const void *grad, int64_t count, enum grad_kind kind, enum adamw_isa isa);

#endif
