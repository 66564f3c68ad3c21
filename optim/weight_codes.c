/* Makes codes of weights, and lists the formats with codes. */
#include "optim/weight_codes.h"
#include "optim/weight_nearest.h"

#include "base/num.h"
#include "base/size.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

/* ---- codes of 4 bits: ranks among 15 thresholds ---- */

/* bitsandbytes' tree for FP4 (csrc/kernels.cu): magnitudes by their thresholds, and their codes. */
static const float fp4_middles[7] = {
        0.00260417F, 0.0859375F, 0.20833333F, 0.29166667F, 0.4166667F, 0.583333F, 0.8333333F};
static const uint8_t fp4_codes[8] = {0, 1, 6, 7, 4, 5, 2, 3};

/* Halfway between magnitudes of E2M1, where the even code wins: the second of each pair. */
static const float e2m1_middles[7] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};

/* A value has the rank of the thresholds that it is greater than. */
struct ranks {
	float thresholds[15];
	uint8_t code[16];  /* by rank */
	uint8_t byte[256]; /* of two codes in memory, by two ranks, the first in the high half */
};

static float below(float x)
{
	return nextafterf(x, -INFINITY);
}

/* Thresholds of codes with a sign: a magnitude equal to middles[i] has the larger code if takes[i]. */
static void signed_set(
        struct ranks *r, const float middles[7], int takes_every_second, const uint8_t codes[8])
{
	for (int i = 0; i < 7; i++) {
		int takes = takes_every_second && i % 2;

		r->thresholds[8 + i] = takes ? below(middles[i]) : middles[i];
		r->thresholds[6 - i] = takes ? -middles[i] : below(-middles[i]);
	}
	r->thresholds[7] = below(0);
	for (int i = 0; i < 8; i++) {
		r->code[8 + i] = codes[i];
		r->code[7 - i] = (uint8_t)(codes[i] | 8);
	}
}

static struct ranks of_code[CODE_COUNT];
static pthread_once_t ranks_once = PTHREAD_ONCE_INIT;

static void ranks_make(void)
{
	static const uint8_t in_order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	const float *nf4 = code_values(CODE_NF4);

	for (int i = 0; i < 16; i++)
		of_code[CODE_NF4].code[i] = (uint8_t)i;
	for (int i = 0; i < 15; i++) /* fp32 midpoints; at one the lower */
		of_code[CODE_NF4].thresholds[i] = (nf4[i] + nf4[i + 1]) * 0.5F;
	signed_set(&of_code[CODE_FP4], fp4_middles, 0, fp4_codes);
	signed_set(&of_code[CODE_E2M1], e2m1_middles, 1, in_order);
	for (int c = 0; c < CODE_COUNT; c++)
		for (int at = 0; at < 256 && code_bits((enum code)c) == 4; at++) {
			int high = code_first_is_high((enum code)c) ? 4 : 0;
			const uint8_t *code = of_code[c].code;

			of_code[c].byte[at] = (uint8_t)(code[at >> 4] << high | code[at & 15] << (4 - high));
		}
}

/* Codes of a block with factor 1 / scale. The last may be short; an odd element's byte is filled with a code
 * of 0. */
static void put_ranks(enum code code, uint8_t *codes, const float *x, float factor, int64_t n)
{
	const struct ranks *r = &of_code[code];
	int64_t whole = n / NEAREST_STEP * NEAREST_STEP;
	float rest[NEAREST_STEP] = {0};
	uint8_t last[NEAREST_STEP / 2];

	weight_nearest_kernels()->nearest(codes, x, factor, r->thresholds, r->byte, whole);
	if (whole == n)
		return;
	memcpy(rest, x + whole, (size_t)(n - whole) * sizeof(*rest));
	weight_nearest_kernels()->nearest(last, rest, factor, r->thresholds, r->byte, NEAREST_STEP);
	memcpy(codes + whole / 2, last, (size_t)(n - whole + 1) / 2);
}

/* ---- codes of 8 bits ---- */

/* The scale of a block whose largest magnitude is `most`. */
static float scale_of(enum code code, float most)
{
	int exponent;

	switch (code) {
	case CODE_I8:
		return most / 127;
	case CODE_E4M3:
		return most / 448;
	case CODE_E2M1:
		if (!(most > 0))
			return 1;
		(void)frexpf(most, &exponent);
		exponent = exponent - 3; /* frexp's fraction is below 1 */
		return ldexpf(1, exponent < -127 ? -127 : exponent);
	case CODE_NF4:
	case CODE_FP4:
	case CODE_COUNT:
		break;
	}
	return most;
}

/* Codes of `n` elements of a block with this scale. */
static void put_codes(enum code code, uint8_t *codes, const float *x, float scale, int64_t n)
{
	switch (code) {
	case CODE_I8:
		for (int64_t i = 0; i < n; i++)
			codes[i] = (uint8_t)(int8_t)(scale > 0 ? lrintf(x[i] / scale) : 0);
		return;
	case CODE_E4M3:
		weight_nearest_kernels()->e4m3(codes, x, scale, n);
		return;
	case CODE_NF4:
	case CODE_FP4:
	case CODE_E2M1:
	case CODE_COUNT:
		put_ranks(code, codes, x, scale > 0 ? 1 / scale : 0, n);
	}
}

/* ---- a matrix ---- */

/* The scale of a block of rows and columns, and its codes. */
static void put_block(const struct weight_format *f, uint8_t *codes, float *scale, const float *src,
        int64_t rows, int64_t width, int64_t cols)
{
	float most = 0;

	for (int64_t r = 0; r < rows; r++)
		most = fmaxf(most, weight_nearest_kernels()->largest(src + r * cols, width));
	*scale = scale_of(f->code, most);
	for (int64_t r = 0; r < rows; r++)
		put_codes(f->code, codes + r * code_bytes(f->code, cols), src + r * cols, *scale, width);
}

void weight_codes_put(const struct weight_format *f, void *codes, float *scales, const float *src,
        int64_t rows, int64_t cols)
{
	int64_t block_cols = f->block_cols ? f->block_cols : cols;

	pthread_once(&ranks_once, ranks_make);
	for (int64_t r = 0; r < rows; r += f->block_rows)
		for (int64_t c = 0; c < cols; c += block_cols)
			put_block(f,
			        (uint8_t *)codes + r * code_bytes(f->code, cols) + code_bytes(f->code, c),
			        scales++, src + r * cols + c, min_i64(f->block_rows, rows - r),
			        min_i64(block_cols, cols - c), cols);
}

void weight_codes_multiplied(uint8_t *codes, float *scales, const uint16_t *hi, int64_t rows, int64_t cols)
{
	const struct weight_nearest_kernels *k = weight_nearest_kernels();
	float value[CODE_BLOCK];

	for (int64_t c = 0; c < cols; c += CODE_BLOCK, scales++) {
		int64_t n = min_i64(CODE_BLOCK, cols - c);
		uint32_t most = 0;

		for (int64_t r = 0; r < rows; r++) {
			int is_odd = k->widen(value, hi + r * cols + c, n);
			uint32_t size = f32_bits(k->largest(value, n));

			for (int64_t i = 0; i < n && is_odd; i++) /* largest passes over NaN */
				size = (f32_bits(value[i]) & 0x7fffffff) > size
				               ? f32_bits(value[i]) & 0x7fffffff
				               : size;
			most = size > most ? size : most;
		}
		*scales = code_e4m3_scale(most);
		for (int64_t r = 0; r < rows; r++) {
			(void)k->widen(value, hi + r * cols + c, n);
			k->e4m3(codes + r * cols + c, value, *scales, n);
		}
	}
}

/* ---- the formats ---- */

#define CODED(title, element, scales, rows, columns, flat)                                                   \
	{.name = (title),                                                                                    \
	        .keeps = DTYPE_I8,                                                                           \
	        .planes = PLANES_CODED,                                                                      \
	        .code = CODE_##element,                                                                      \
	        .scale = CODE_SCALE_##scales,                                                                \
	        .block_rows = (rows),                                                                        \
	        .block_cols = (columns),                                                                     \
	        .is_flat = (flat),                                                                           \
	        .put = weight_codes_put},
#define OF_BLOCK(block)                                                                                      \
	CODED("nf4", NF4, F32, 1, block, 1)                                                                  \
	CODED("nf4, double quantized", NF4, NESTED, 1, block, 1)                                             \
	CODED("fp4", FP4, F32, 1, block, 1)                                                                  \
	CODED("fp4, double quantized", FP4, NESTED, 1, block, 1)

/* For block 0 the first that fits. */
static const struct weight_format formats[] = {
        OF_BLOCK(64) OF_BLOCK(32) OF_BLOCK(128) OF_BLOCK(256) OF_BLOCK(512) OF_BLOCK(1024) OF_BLOCK(2048)
                OF_BLOCK(4096) CODED("fp8", E4M3, F32, 128, 128, 0) CODED("fp8 by row", E4M3, F32, 1, 0, 0)
                        CODED("int8", I8, F32, 1, 0, 0) CODED("mxfp4", E2M1, E8M0, 1, 32, 0)};

const struct weight_format *weight_format_coded(enum code code, enum code_scale scale, int64_t block)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++)
		if (formats[i].code == code && formats[i].scale == scale &&
		        (!block ||
		                block == (formats[i].block_cols ? formats[i].block_cols : WEIGHT_BLOCK_ROW)))
			return &formats[i];
	return NULL;
}
