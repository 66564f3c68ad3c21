/* AdamW on an element in the range where a GPU needs neither branches nor subroutines: the bits of
 * optim/adamw_state.h, or a word that says that they may be others, after which the caller computes the
 * element anew, by that header.
 *
 * The usual range, after the update: m is 0 or 2^-80 to 2^20 in size, v the same, w at most 2^20, and the
 * step's scalars are in the bounds of adamw_is_usual. There, d = fma(sqrt(v), root_factor, root_offset) is
 * -2^44 to -2^-40, a quotient m / d at least 2^-124 in size (or -0), and nothing is subnormal, infinite or
 * NaN: v is kept as it is, m as m + 0, which is +0 where m is -0.
 *
 * Square root and quotient are the instructions that nvcc makes of sqrtf and / for most arguments, without
 * its tests for the others (two branches an element):
 *
 *   sqrt   With any 1 / sqrt(v) that is 2^-22.9 off at most, as PTX has it, the result is rounded right for
 * all v, but for two significands of which the nearest float must come (all tried:
 * tests/simt/test_cuda_exact.c). nvcc's own root needs that, too. m / d  With any 1 / d that is a unit in the
 * last place off, the refined one is that to nearest, and then the quotient is (Markstein, "Computation of
 * elementary functions on the IBM RISC System/6000 processor", 1990), but for a power of two divided by a d
 * of all ones. Again nvcc's own needs it.
 */
#ifndef FERRY_GPU_ADAMW_USUAL_CUH
#define FERRY_GPU_ADAMW_USUAL_CUH

#include "gpu/kernel.cuh"

#define ADAMW_FN static __device__ __forceinline__
#include "optim/adamw_state.h"

struct adamw_scalars {
	struct adamw_step step;
	float decay_factor; /* 1 where the tensor does not decay */
	int tensor;
	int is_usual; /* adamw_is_usual */
};

static inline int adamw_is_usual(const struct adamw_step *s)
{
	return s->one_minus_beta1 >= 0x1p-30f && s->root_offset <= -0x1p-40f && s->root_offset >= -0x1p43f &&
	       s->root_factor <= 0 && s->root_factor >= -0x1p33f;
}

/* What was seen of the elements of a thread. */
struct adamw_seen {
	uint32_t least = UINT32_MAX; /* of 2 size - 1, size being the bits of |m| or v: 0 is the largest */
	float sum = 0;               /* of |m|, v and |w|: NaN if any is */
};

static __device__ __forceinline__ int adamw_seen_usual(const struct adamw_seen &seen)
{
	return seen.least >= (127u - 80) << 24 && seen.sum <= 0x1p20f;
}

/* sqrt(v), root being 1 / sqrt(v) or, of v = 0, anything finite. */
static __device__ __forceinline__ float adamw_root(float v, float root)
{
	float near = v * root;

	return fmaf(fmaf(-near, near, v), 0.5f * root, near);
}

/* m / d, inverse being 1 / d. */
static __device__ __forceinline__ float adamw_quotient(float m, float d, float inverse)
{
	float near;

	inverse = fmaf(inverse, fmaf(-d, inverse, 1.0f), inverse);
	near = m * inverse;
	return fmaf(inverse, fmaf(-d, near, m), near);
}

/* adamw_next, and the root of the new v. v + 2^-126 is v in the usual range, but for 0, whose 1 / sqrt(v)
 * would be infinite. */
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
