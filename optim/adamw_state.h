/* The definition of AdamW on one element in plain C: its arithmetic and the storage of its state.
 *
 * The kernels of adamw.h and their device twins give these bits. All operations are +, -, *, /, sqrt and fma
 * with one rounding each, comparisons and integer arithmetic. Build without contraction and without FTZ. A
 * device compiler sets ADAMW_FN before it includes this.
 *
 * The update in fp32, where w is the fp32 master weight that the planes hi and lo store (base/num.h):
 *
 *     g = grad * clip_scale, or 0 where its size is below least_grad
 *     m = fma(one_minus_beta1, g - m, m)
 *     v = floor(fma(one_minus_beta2, fma(g, g, -v), v))
 *     d = fma(sqrt(v), root_factor, root_offset)      (-(sqrt(v) / sqrt(1 - beta2^t) + epsilon) / step,
 *     w = fma(w, decay_factor, m / d)                  step being lr / (1 - beta1^t))
 *
 * beta * x + (1 - beta) * y is written as x + (1 - beta) * (y - x): fewer roundings, and the fp32 beta is
 * exactly 1 - one_minus_beta. floor(v) replaces values below the smallest normal number by +0. m is stored
 * flushed: subnormals and -0 become +0. An infinite m or v is stored as ADAMW_LARGEST, the largest finite
 * bf16, with its sign, so no finite gradient makes the state infinite. A NaN in w, m or v is stored as
 * 0x7fc00000.
 *
 * least_grad is the smallest gradient that alone gives a nonzero v. A smaller one would give v = 0 and an
 * update of m / epsilon. Its square is also a subnormal number, which takes some CPUs twenty times as long.
 */
#ifndef FERRY_OPTIM_ADAMW_STATE_H
#define FERRY_OPTIM_ADAMW_STATE_H

#include "optim/adamw_step.h"
#include "optim/state_format.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef ADAMW_FN
#define ADAMW_FN static inline
#endif

#define ADAMW_LARGEST 0x1.fep127f

ADAMW_FN uint32_t adamw_bits(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, 4);
	return bits;
}

ADAMW_FN float adamw_float(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, 4);
	return x;
}

ADAMW_FN float adamw_flush(float x)
{
	return fabsf(x) < FLT_MIN ? 0.0f : x;
}

/* v, with values below the smallest normal number replaced by 0; NaN stays NaN. */
ADAMW_FN float adamw_floor(float v)
{
	return v < FLT_MIN ? 0.0f : v;
}

ADAMW_FN float adamw_plain_nan(float x)
{
	return x != x ? adamw_float(0x7fc00000) : x;
}

struct adamw_element {
	float m, v, w;
};

/* decay_factor: step->decay_factor, or 1 if the tensor does not decay. Returns m and v unrounded; store them
 * with adamw_kept or adamw_round. */
ADAMW_FN struct adamw_element adamw_next(
        struct adamw_element e, float grad, float decay_factor, const struct adamw_step *s)
{
	float g = grad * s->clip_scale;

	if (fabsf(g) < s->least_grad)
		g = 0;
	e.m = fmaf(s->one_minus_beta1, g - e.m, e.m);
	e.v = adamw_floor(fmaf(s->one_minus_beta2, fmaf(g, g, -e.v), e.v));
	e.w = fmaf(e.w, decay_factor, e.m / fmaf(sqrtf(e.v), s->root_factor, s->root_offset));
	e.w = adamw_plain_nan(e.w);
	return e;
}

/* m or v as fp32 state stores it. */
ADAMW_FN float adamw_kept(float x)
{
	if (fabsf(x) > FLT_MAX)
		return copysignf(ADAMW_LARGEST, x);
	return adamw_plain_nan(adamw_flush(x));
}

/* ---- stochastic rounding to bf16 ---- */

/* Keys of one tensor in one update. */
struct adamw_keys {
	uint32_t place, row;
};

/* The finalizer of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
 * OOPSLA 2014). */
ADAMW_FN uint64_t adamw_mix64(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

ADAMW_FN struct adamw_keys adamw_keys_of(uint64_t rounding_key, int tensor)
{
	uint64_t key = adamw_mix64(rounding_key + UINT64_C(0x9e3779b97f4a7c15) * ((uint64_t)tensor + 1));
	struct adamw_keys keys;

	keys.place = (uint32_t)key;
	keys.row = (uint32_t)(key >> 32);
	return keys;
}

/* Wellons' lowbias32 (hash-prospector) of the index-th number behind key. */
ADAMW_FN uint32_t adamw_mix32(uint32_t key, uint32_t index)
{
	uint32_t x = key + index * 0x9e3779b9u;

	x = (x ^ x >> 16) * 0x7feb352du;
	x = (x ^ x >> 15) * 0x846ca68bu;
	return x ^ x >> 16;
}

/* 32 random bits of the element of that index in its tensor (below 2^42): the lower 16 round m, the upper 16
 * v. They are the bits of its place in a row of ADAMW_ROW elements, xor the bits of the row. So any two
 * elements are independent (four may not be), and so are any two updates. A kernel needs a table of
 * ADAMW_ROW words and one word per row: 1 operation instead of 10. */
enum { ADAMW_ROW = 1024 };
ADAMW_FN uint32_t adamw_random(struct adamw_keys keys, int64_t element)
{
	uint64_t at = (uint64_t)element; /* signed, a GPU takes 4 instructions more */

	return adamw_mix32(keys.place, (uint32_t)(at % ADAMW_ROW)) ^
	       adamw_mix32(keys.row, (uint32_t)(at / ADAMW_ROW));
}

/* The bf16 below x in size, or the one above with the probability that makes x the mean: random, below 2^16,
 * is added to the lower 16 bits. Flushed; infinite results become ADAMW_LARGEST. */
ADAMW_FN uint16_t adamw_round(float x, uint32_t random)
{
	uint32_t bits = adamw_bits(x), rounded = (bits + random) >> 16, size = rounded & 0x7fff;

	if (x != x)
		return 0x7fc0;
	if (size >= 0x7f80)
		return (uint16_t)((rounded & 0x8000) | 0x7f7f);
	return (uint16_t)(size < 0x0080 ? 0 : rounded);
}

/* ---- 8 bits ---- */

/* 8-bit state stores m and r = sqrt(v), a byte each. A block of elements has two scales, of m and of r. A
 * value is scale * number, and a number is a cut of fp32's own bits, less a constant:
 *
 *     m   code -128 ... 127:  number = sign * (f - 2^-16),  bits of f = 0x37800000 + (size << 20)
 *     r   code 0 ... 255:     number = f - 2^-8,            bits of f = 0x3b800000 + ((code + 1) << 18)
 *
 * f has 3 fraction bits (m) or 5 (r). The constant makes steps equal near 0; elsewhere they are relative. A
 * step of m is at most 1/8 of |m| + 2^-16 scale, a step of r at most 1/32 of r + 2^-8 scale. r has no code
 * for 0: a v above 0 stays above 0, or a later update would be m / epsilon. The largest of a block has the
 * largest number. A scale of 0 makes all of the block 0.
 *
 * An update moves r by a thousandth or so and m by a tenth of its distance from the gradient, often less than
 * half a step: to nearest they would stay where they are. So the addend before the cut is not one half but
 * adamw_offset_m and _r. They run through [0, 1) evenly, over the steps (multiples of an irrational number)
 * and over 32 neighbours, so m and r follow their gradients. The sequences differ, so that together they are
 * even too.
 */
#define ADAMW_TOP_M (0x1.ep-1f - 0x1p-16f) /* the largest numbers */
#define ADAMW_TOP_R (1 - 0x1p-8f)
#define ADAMW_LEAST_SCALE 0x1p-50f  /* the square of the least r is FLT_MIN */
#define ADAMW_LARGEST_SCALE 0x1p63f /* that of the largest is finite */
enum { ADAMW_OFFSETS = 32, ADAMW_NEAREST_M = 1 << 19, ADAMW_NEAREST_R = 1 << 17 };

/* Sizes compare as integers, so a NaN is the largest and makes the whole block NaN. */
ADAMW_FN uint32_t adamw_size(float x)
{
	return adamw_bits(x) & 0x7fffffff;
}

/* The scale of a block whose largest adamw_size is `largest`; top: ADAMW_TOP_M or ADAMW_TOP_R. */
ADAMW_FN float adamw_scale(uint32_t largest, float top)
{
	float scale = adamw_float(largest) * (1 / top);

	if (scale < ADAMW_LEAST_SCALE)
		return largest == 0 ? 0 : ADAMW_LEAST_SCALE;
	return scale > ADAMW_LARGEST_SCALE ? ADAMW_LARGEST_SCALE : adamw_plain_nan(scale);
}

/* 1 for a scale of 0 or NaN, where codes mean nothing: infinity times 0 would be a NaN of any sign. */
ADAMW_FN float adamw_inverse(float scale)
{
	return scale > 0 ? 1 / scale : 1.0f;
}

/* The addend of an element's m, below 2^20, a step. */
ADAMW_FN uint32_t adamw_offset_m(const struct adamw_step *s, int64_t element)
{
	return (s->offset_m + (uint32_t)element * (11u << 27)) >> 12;
}

ADAMW_FN uint8_t adamw_encode_m(float m, float inverse, uint32_t offset)
{
	uint32_t bits = adamw_bits(fmaf(fabsf(m), inverse, 0x1p-16f)) + offset;
	int32_t size = (int32_t)(bits >> 20) - 0x378, code = m < 0 ? -size : size;

	return (uint8_t)(code < -128 ? -128 : code < 127 ? code : 127);
}

ADAMW_FN float adamw_decode_m(uint8_t code, float scale)
{
	int32_t number = (int8_t)code, size = number < 0 ? -number : number;
	float m = fmaf(adamw_float((uint32_t)(0x378 + size) << 20), scale, -0x1p-16f * scale);

	return number < 0 ? -m : m;
}

/* The addend of an element's r, below 2^18, a step. */
ADAMW_FN uint32_t adamw_offset_r(const struct adamw_step *s, int64_t element)
{
	return (s->offset_r + (uint32_t)element * (19u << 27)) >> 14;
}

ADAMW_FN uint8_t adamw_encode_r(float root, float inverse, uint32_t offset)
{
	uint32_t bits = adamw_bits(fmaf(root, inverse, 0x1p-8f)) + offset;
	int32_t code = (int32_t)(bits >> 18) - (0xee0 + 1);

	return (uint8_t)(code < 0 ? 0 : code < 255 ? code : 255);
}

/* Returns v. */
ADAMW_FN float adamw_decode_r(uint8_t code, float scale)
{
	float root = fmaf(adamw_float((0xee0u + 1 + code) << 18), scale, -0x1p-8f * scale);

	return root * root;
}

#endif
