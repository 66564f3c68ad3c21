/* AdamW on an element in the usual range, without branches or subroutines. It gives the bits of
 * optim/adamw_state.h, or it reports that the bits may differ. Then the caller computes the element again
 * with that header.
 *
 * The usual range, after the update: m is 0 or 2^-80 to 2^20 in size, v the same, w at most 2^20, and the
 * step's scalars are in the bounds of adamw_is_usual. There, d = fma(sqrt(v), root_factor, root_offset) is
 * -2^44 to -2^-40, and a quotient m / d is at least 2^-124 in size (or -0). Nothing is subnormal, infinite or
 * NaN. v is kept as it is, m as m + 0, which is +0 if m is -0.
 *
 * Square root and quotient are the instructions that nvcc makes of sqrtf and / for most arguments, without
 * its tests for the others (two branches an element):
 *
 *   sqrt   Any 1 / sqrt(v) with an error of at most 2^-22.9, as in PTX, gives the correctly rounded root for
 *          all v except two significands. For these the instruction must return the nearest float (all
 *          tried: tests/simt/test_cuda_exact.c). nvcc's own root needs that too.
 *   m / d  Any 1 / d within a unit in the last place is refined to the nearest float. Then the quotient is
 *          the nearest too (Markstein, "Computation of elementary functions on the IBM RISC System/6000
 *          processor", 1990), except for a power of two divided by a d of all ones. nvcc's own division
 *          needs that too.
 */
#ifndef FERRY_GPU_ADAMW_USUAL_CUH
#define FERRY_GPU_ADAMW_USUAL_CUH

#include "gpu/kernel.cuh"

#define ADAMW_FN static __device__ __forceinline__
#include "optim/adamw_state.h"

struct adamw_scalars {
	struct adamw_step step;
	float decay_factor; /* 1: the tensor does not decay */
	int tensor;
	int is_usual; /* adamw_is_usual */
};

static inline int adamw_is_usual(const struct adamw_step *s)
{
	return s->one_minus_beta1 >= 0x1p-30f && s->root_offset <= -0x1p-40f && s->root_offset >= -0x1p43f &&
	       s->root_factor <= 0 && s->root_factor >= -0x1p33f;
}

/* Bounds of the elements of a thread. */
struct adamw_seen {
	uint32_t least = UINT32_MAX; /* of 2 * bits - 1, for the bits of |m| and v; 0 becomes the largest */
	float sum = 0;               /* of |m|, v and |w|: NaN if any is */
};

static __device__ __forceinline__ int adamw_seen_usual(const struct adamw_seen &seen)
{
	return seen.least >= (127u - 80) << 24 && seen.sum <= 0x1p20f;
}

/* sqrt(v). root is 1 / sqrt(v), or any finite number if v is 0. */
static __device__ __forceinline__ float adamw_root(float v, float root)
{
	float near = v * root;

	return fmaf(fmaf(-near, near, v), 0.5f * root, near);
}

/* m / d. inverse is 1 / d. */
static __device__ __forceinline__ float adamw_quotient(float m, float d, float inverse)
{
	float near;

	inverse = fmaf(inverse, fmaf(-d, inverse, 1.0f), inverse);
	near = m * inverse;
	return fmaf(inverse, fmaf(-d, near, m), near);
}

/* adamw_next, and the root of the new v. In the usual range v + 2^-126 is v, except for v = 0, where 1 /
 * sqrt(v) would be infinite. */
static __device__ __forceinline__ struct adamw_element adamw_usual_next(struct adamw_element e, float grad,
        const struct adamw_scalars &s, struct adamw_seen *seen, float *root)
{
	float g = grad * s.step.clip_scale, d;

	if (fabsf(g) < s.step.least_grad)
		g = 0;
	e.m = fmaf(s.step.one_minus_beta1, g - e.m, e.m);
	e.v = fmaf(s.step.one_minus_beta2, fmaf(g, g, -e.v), e.v);
	*root = adamw_root(e.v, rsqrt_fast(e.v + FLT_MIN));
	d = fmaf(*root, s.step.root_factor, s.step.root_offset);
	e.w = fmaf(e.w, s.decay_factor, adamw_quotient(e.m, d, reciprocal_fast(d)));
	seen->least = min(seen->least, 2 * adamw_bits(e.m) - 1);
	seen->least = min(seen->least, 2 * adamw_bits(e.v) - 1);
	seen->sum += fabsf(e.m);
	seen->sum += e.v;
	seen->sum += fabsf(e.w);
	return e;
}

#endif
