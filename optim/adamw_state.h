/* The definition of AdamW on one element in plain C: its arithmetic and the storage of its state.
 *
 * The kernels of adamw.h and their device twins give these bits. All operations are +, -, *, /, sqrt and fma
 * with one rounding each, comparisons and integer arithmetic. Build without contraction and without FTZ. A
 * device compiler sets ADAMW_FN and ADAMW_TABLE before it includes this.
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
#ifndef ADAMW_TABLE
#define ADAMW_TABLE static const
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

/* The dynamic maps of Dettmers, Lewis, Shleifer and Zettlemoyer, "8-bit optimizers via block-wise
 * quantization" (ICLR 2022), as bitsandbytes publishes them (create_dynamic_map, 8 bits, 7 exponent bits):
 * seven decades [10^(i-7), 10^(i-6)], decade i cut into n = 2^i equal parts (2^(i+1) where nothing is
 * negative), whose middles are the values, and 0 and 1; the values in ascending order have the codes 0 ...
 * 255. Signed, the middles are there with both signs, but -1 is not. Neither direction needs a table of codes
 * here:
 *
 *     p = n + (part in decade i); 1 is the first part of an eighth decade; 0 is p = 0, unsigned 1
 *     value = (9 * (2 p + 1) - 16 n) * 10^(i-6) / (20 n)         (two roundings away from the definition)
 *     code = 127 + p with the sign of the value, unsigned p - 1
 *
 * A value stands for x / scale, scale being the largest |x| of the block. The code of x is that of the
 * nearest value (found in fp32, so between two values to about 2^-16 of their distance; unsigned, what is
 * not below FLT_MIN is not 0); midway, of the larger one inside a decade and of the smaller one between
 * decades (in size). Largest error, as a share of scale: 0.9 / 128 = 0.00703 signed (highest decade, and -1),
 * 0.9 / 256 = 0.00352 unsigned. */
struct adamw_map {
	/* By the number of edges below x, of which the first seven count; edge i is midway between the last
	 * value below decade i and its first; above `one` x is 1. p = trunc(min(fma(x, scale, start), last)),
	 * and one more above `one`. */
	float edge[8], scale[8], start[8], last[8], one;
	float minus[8], unit[8]; /* by the lowest 3 bits of the exponent of 2 p + 1: value =
	                            fma(9, 2 p + 1, -minus) * unit, the fma being exact */
};

ADAMW_TABLE struct adamw_map adamw_map_signed = {
        .edge = {(float)(1e-6 * (0.05 + 0.225 / 1)), (float)(1e-6 * (1 + 0.9 / 1)),
                (float)(1e-5 * (1 + 0.9 / 2)), (float)(1e-4 * (1 + 0.9 / 4)), (float)(1e-3 * (1 + 0.9 / 8)),
                (float)(1e-2 * (1 + 0.9 / 16)), (float)(1e-1 * (1 + 0.9 / 32)), FLT_MAX},
        .scale = {0, (float)(1 * 1e6 / 0.9), (float)(2 * 1e5 / 0.9), (float)(4 * 1e4 / 0.9),
                (float)(8 * 1e3 / 0.9), (float)(16 * 1e2 / 0.9), (float)(32 * 1e1 / 0.9),
                (float)(64 * 1e0 / 0.9)},
        .start = {0, (float)(1 * 8 / 9.0), (float)(2 * 8 / 9.0), (float)(4 * 8 / 9.0), (float)(8 * 8 / 9.0),
                (float)(16 * 8 / 9.0), (float)(32 * 8 / 9.0), (float)(64 * 8 / 9.0)},
        .last = {0, 1.5f, 3.5f, 7.5f, 15.5f, 31.5f, 63.5f, 127.5f},
        .one = (float)(1 - 0.225 / 64),
        .minus = {16, 32, 64, 128, 256, 512, 1024, 9},
        .unit = {(float)(1e-6 / 20), (float)(1e-5 / 40), (float)(1e-4 / 80), (float)(1e-3 / 160),
                (float)(1e-2 / 320), (float)(1e-1 / 640), (float)(1e0 / 1280), (float)(1.0 / 2304)},
};
ADAMW_TABLE struct adamw_map adamw_map_unsigned = {
        .edge = {(float)(1e-6 * (0.05 + 0.225 / 2)), (float)(1e-6 * (1 + 0.9 / 2)),
                (float)(1e-5 * (1 + 0.9 / 4)), (float)(1e-4 * (1 + 0.9 / 8)), (float)(1e-3 * (1 + 0.9 / 16)),
                (float)(1e-2 * (1 + 0.9 / 32)), (float)(1e-1 * (1 + 0.9 / 64)), FLT_MAX},
        .scale = {0x1p126f, (float)(2 * 1e6 / 0.9), (float)(4 * 1e5 / 0.9), (float)(8 * 1e4 / 0.9),
                (float)(16 * 1e3 / 0.9), (float)(32 * 1e2 / 0.9), (float)(64 * 1e1 / 0.9),
                (float)(128 * 1e0 / 0.9)}, /* of FLT_MIN: 1 */
        .start = {1, (float)(2 * 8 / 9.0), (float)(4 * 8 / 9.0), (float)(8 * 8 / 9.0), (float)(16 * 8 / 9.0),
                (float)(32 * 8 / 9.0), (float)(64 * 8 / 9.0), (float)(128 * 8 / 9.0)},
        .last = {2, 3.5f, 7.5f, 15.5f, 31.5f, 63.5f, 127.5f, 255.5f},
        .one = (float)(1 - 0.225 / 128),
        .minus = {27, 32, 64, 128, 256, 512, 1024, 2048},
        .unit = {(float)(1.0 / 4590), (float)(1e-6 / 40), (float)(1e-5 / 80), (float)(1e-4 / 160),
                (float)(1e-3 / 320), (float)(1e-2 / 640), (float)(1e-1 / 1280), (float)(1e0 / 2560)},
};

/* |x| of at most about 1, or NaN. */
ADAMW_FN uint32_t adamw_position(const struct adamw_map *map, float x)
{
	int above = 0;
	float p;

	for (int i = 0; i < 7; i++)
		above += x > map->edge[i];
	p = fmaf(x, map->scale[above], map->start[above]);
	p = p < map->last[above] ? p : map->last[above];
	return (uint32_t)(int32_t)p + (x > map->one);
}

ADAMW_FN float adamw_value(const struct adamw_map *map, uint32_t position)
{
	float x = (float)(2 * position + 1);
	int slot = adamw_bits(x) >> 23 & 7;

	return fmaf(9.0f, x, -map->minus[slot]) * map->unit[slot];
}

/* x is already divided by its block's scale, through a multiplication with adamw_inverse(scale). */
ADAMW_FN uint8_t adamw_encode_signed(float x)
{
	int32_t p = (int32_t)adamw_position(&adamw_map_signed, fabsf(x));

	return (uint8_t)(127 + (x < 0 ? -(p < 127 ? p : 127) : p));
}

/* A value above 0 does not become 0: with a nonzero m, a later update would be m / epsilon. */
ADAMW_FN uint8_t adamw_encode_unsigned(float x)
{
	return (uint8_t)(adamw_position(&adamw_map_unsigned, x) - 1);
}

ADAMW_FN float adamw_decode_signed(uint8_t code)
{
	float size = adamw_value(&adamw_map_signed, code < 127 ? 127u - code : code - 127u);

	return code < 127 ? -size : size;
}

ADAMW_FN float adamw_decode_unsigned(uint8_t code)
{
	return adamw_value(&adamw_map_unsigned, code + 1u);
}

/* The scale of a block is the largest adamw_size of its values after adamw_kept. Sizes compare as integers,
 * so a NaN is the largest and makes the whole block NaN. */
ADAMW_FN uint32_t adamw_size(float x)
{
	return adamw_bits(x) & 0x7fffffff;
}

ADAMW_FN float adamw_inverse(float scale)
{
	return scale == 0 ? 0.0f : 1 / scale;
}

/* m and v as an update reads them: flushed after the multiplication. */
ADAMW_FN float adamw_unscale(float value, float scale)
{
	return adamw_flush(value * scale);
}

#endif
