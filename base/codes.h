/* Codes: numbers of 4 and 8 bits that stand for weights, and the scales that belong to them; one list of
 * each.
 *
 * Mental model. A matrix is cut into blocks. Each element has a code, each block a scale. A weight is
 *
 *     code_values[code] * scale        one fp32 product, rounded once to the dtype of the stages
 *
 * Codes of 4 bits lie two to a byte. Which half is first is a fact of the code. Scales are fp32 (F32), a
 * power of two in a byte (E8M0), or codes again (NESTED, bitsandbytes' double quantization): a byte for each
 * block, which is map[byte] * outer + offset, each operation rounded to fp32. `outer` is fp32, one for
 * NESTED_BLOCK scales; `offset` is one for the matrix.
 *
 * I8 is an integer. E4M3 is the float of DeepSeek's and Qwen's FP8 files (OCP FP8, no infinity). NF4 and FP4
 * are the tables of bitsandbytes. E2M1 is the element of MXFP4 (OCP Microscaling Formats 1.0).
 */
#ifndef FERRY_BASE_CODES_H
#define FERRY_BASE_CODES_H

#include "base/num.h"

#include <stdint.h>

/* ROW(NAME, bits, 1: the first of two codes is in the high half of their byte) */
#define CODE_LIST(ROW)                                                                                       \
	ROW(I8, 8, 0)                                                                                        \
	ROW(E4M3, 8, 0)                                                                                      \
	ROW(NF4, 4, 1)                                                                                       \
	ROW(FP4, 4, 1)                                                                                       \
	ROW(E2M1, 4, 0)

/* ROW(NAME, bytes of a scale) */
#define CODE_SCALE_LIST(ROW)                                                                                 \
	ROW(F32, 4)                                                                                          \
	ROW(E8M0, 1)                                                                                         \
	ROW(NESTED, 1)

#define CODE_ENUM(NAME, ...) CODE_##NAME,
enum code { CODE_LIST(CODE_ENUM) CODE_COUNT };
#undef CODE_ENUM
#define CODE_SCALE_ENUM(NAME, ...) CODE_SCALE_##NAME,
enum code_scale { CODE_SCALE_LIST(CODE_SCALE_ENUM) CODE_SCALE_COUNT };
#undef CODE_SCALE_ENUM

enum { NESTED_BLOCK = 256 };

int code_bits(enum code code);
int code_first_is_high(enum code code);
int code_scale_bytes(enum code_scale scale);

/* The value of every code: [16] for 4 bits, [256] for 8. NaN where a code is no number. */
const float *code_values(enum code code);

/* The code of E4M3 nearest to x, ties to the even code; the largest beyond it; NaN for NaN. */
static inline uint8_t code_e4m3(float x)
{
	uint32_t bits = f32_bits(x), magnitude = bits & 0x7fffffff, code;

	if (magnitude < 0x3c800000) /* subnormal: a sum with 2^14 rounds to steps of 2^-9 */
		code = f32_bits(f32_from_bits(magnitude) + 16384.0F) - 0x46800000;
	else
		code = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120U << 3);
	if (code > 0x7e)
		code = magnitude > 0x7f800000 ? 0x7f : 0x7e;
	return (uint8_t)(code | (bits >> 24 & 0x80));
}

/* Blocks of products in FP8: CODE_BLOCK elements along k share an fp32 scale, in rows (activations) or in
 * squares (weights). The scale gives the largest of the block, whose size has these bits, the largest code.
 * Sizes compare as integers, so a NaN is the largest. A scale that is 0, infinite or NaN has codes of 0: a
 * block of zeros is 0, and one with an infinity or a NaN is NaN. */
enum { CODE_BLOCK = 128 };
static inline float code_e4m3_scale(uint32_t largest)
{
	return largest > 0x7f800000 ? f32_from_bits(0x7fc00000) : f32_from_bits(largest) / 448;
}

static inline int code_e4m3_is_used(float scale)
{
	uint32_t bits = f32_bits(scale);

	return bits > 0 && bits < 0x7f800000;
}

/* Bytes of `count` codes; the last byte may be filled in half. */
static inline int64_t code_bytes(enum code code, int64_t count)
{
	return code_bits(code) == 8 ? count : (count + 1) / 2;
}

/* The code of element `index` in a row of codes. */
static inline int code_at(enum code code, const void *codes, int64_t index)
{
	const uint8_t *byte = (const uint8_t *)codes;

	if (code_bits(code) == 8)
		return byte[index];
	return byte[index / 2] >> 4 * ((index % 2) ^ code_first_is_high(code)) & 15;
}

/* The map of NESTED scales: 256 values, rising; index 127 is 0. */
const float *nested_map(void);

/* The fp32 numbers of NESTED scales, as op EXPAND reads them: the offset, then `outer` of each
 * NESTED_BLOCK. */
static inline int64_t nested_outer_count(int64_t scales)
{
	return 1 + (scales + NESTED_BLOCK - 1) / NESTED_BLOCK;
}

/* 2 to the power `code` - 127; NaN for 255. */
float code_e8m0(uint8_t code);

/* `count` scales as fp32, from those of blocks first to first + count. `outer` for NESTED alone. */
void code_scales_read(enum code_scale kind, float *dst, const void *scales, const float *outer, int64_t first,
        int64_t count);

/* Makes NESTED scales of all `count` of a matrix: `outer` [nested_outer_count], `codes` [count]. The offset
 * is their mean, summed in fp64. */
void nested_make(float *outer, uint8_t *codes, const float *scales, int64_t count);

#endif
