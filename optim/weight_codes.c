/* Makes codes of weights, and lists the formats with codes. */
#include "optim/weight_codes.h"
#include "optim/weight_nearest.h"

#include "base/num.h"
#include "base/size.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- one block: values to codes, one a byte ---- */

static float largest(const float *x, int64_t n)
{
	return weight_nearest_kernels()->largest(x, n);
}

/* Thresholds between the sorted values of NF4: fp32 midpoints. */
static void nf4_middles(float middles[15])
{
	const float *value = code_values(CODE_NF4);

	for (int i = 0; i < 15; i++)
		middles[i] = (value[i] + value[i + 1]) * 0.5F;
}

/* bitsandbytes' tree for FP4 (csrc/kernels.cu): magnitudes by their thresholds, and their codes. */
static const float fp4_middles[7] = {
        0.00260417F, 0.0859375F, 0.20833333F, 0.29166667F, 0.4166667F, 0.583333F, 0.8333333F};
static const uint8_t fp4_codes[8] = {0, 1, 6, 7, 4, 5, 2, 3};

/* Halfway between magnitudes of E2M1, at and behind which the even code wins. */
static const float e2m1_middles[7] = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};

static uint8_t e2m1_code(float x)
{
	float size = fabsf(x);
	int code = 0;

	while (code < 7 && (size > e2m1_middles[code] || (size == e2m1_middles[code] && code % 2)))
		code++;
	return (uint8_t)(code | (signbit(x) ? 8 : 0));
}

static uint8_t e4m3_code(float x)
{
	uint32_t bits = f32_bits(x), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff, code;

	if (fabsf(x) < 0.015625F) { /* subnormal: steps of 2^-9 */
		code = (uint32_t)lrintf(fabsf(x) * 512);
	} else {
		size += 0x7ffff + (size >> 20 & 1);
		code = (size >> 20) - (120U << 3);
	}
	return (uint8_t)(sign | (code > 0x7e ? 0x7e : code));
}

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
	default:
		return most;
	}
}

/* Codes of `n` elements, one a byte, with the scale of their block. */
static void codes_of(enum code code, uint8_t *codes, const float *x, float scale, int64_t n)
{
	float middles[15], inverse = scale > 0 ? 1 / scale : 0;

	switch (code) {
	case CODE_NF4:
		nf4_middles(middles);
		weight_nearest_kernels()->nearest(codes, x, inverse, middles, n);
		return;
	case CODE_FP4:
		for (int64_t i = 0; i < n; i++) {
			float size = fabsf(x[i] * inverse);
			int at = 0;

			while (at < 7 && size > fp4_middles[at])
				at++;
			codes[i] = (uint8_t)(fp4_codes[at] | (x[i] * inverse < 0 ? 8 : 0));
		}
		return;
	case CODE_I8:
		for (int64_t i = 0; i < n; i++)
			codes[i] = (uint8_t)(int8_t)(scale > 0 ? lrintf(x[i] / scale) : 0);
		return;
	case CODE_E4M3:
		for (int64_t i = 0; i < n; i++)
			codes[i] = scale > 0 ? e4m3_code(x[i] / scale) : 0;
		return;
	case CODE_E2M1:
		for (int64_t i = 0; i < n; i++)
			codes[i] = e2m1_code(x[i] / scale);
		return;
	case CODE_COUNT:
		break;
	}
}

/* ---- a matrix ---- */

/* Packs codes that stand one a byte. */
static void pack(enum code code, uint8_t *dst, const uint8_t *codes, int64_t n)
{
	int high = code_first_is_high(code) ? 4 : 0, low = 4 - high;

	if (code_bits(code) == 8) {
		memcpy(dst, codes, (size_t)n);
		return;
	}
	for (int64_t i = 0; i + 1 < n; i += 2)
		dst[i / 2] = (uint8_t)(codes[i] << high | codes[i + 1] << low);
	if (n % 2)
		dst[n / 2] = (uint8_t)(codes[n - 1] << high | (code == CODE_NF4 ? 7 : 0) << low);
}

/* The scale of a block of rows and columns, and its codes. */
static void put_block(const struct weight_format *f, uint8_t *codes, float *scale, const float *src,
        int64_t rows, int64_t width, int64_t cols)
{
	enum { PIECE = 4096 };
	uint8_t wide[PIECE];
	float most = 0;

	for (int64_t r = 0; r < rows; r++)
		most = fmaxf(most, largest(src + r * cols, width));
	*scale = scale_of(f->code, most);
	for (int64_t r = 0; r < rows; r++)
		for (int64_t at = 0, n; at < width; at += n) {
			n = min_i64(PIECE, width - at);
			codes_of(f->code, wide, src + r * cols + at, *scale, n);
			pack(f->code, codes + r * code_bytes(f->code, cols) + code_bytes(f->code, at), wide,
			        n);
		}
}

void weight_codes_put(const struct weight_format *f, void *codes, float *scales, const float *src,
        int64_t rows, int64_t cols)
{
	int64_t block_cols = f->block_cols ? f->block_cols : cols;

	for (int64_t r = 0; r < rows; r += f->block_rows)
		for (int64_t c = 0; c < cols; c += block_cols)
			put_block(f,
			        (uint8_t *)codes + r * code_bytes(f->code, cols) + code_bytes(f->code, c),
			        scales++, src + r * cols + c, min_i64(f->block_rows, rows - r),
			        min_i64(block_cols, cols - c), cols);
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
