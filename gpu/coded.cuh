/* Numbers of E4M3 on a device, with the bits of base/codes.h. */
#ifndef FERRY_GPU_CODED_CUH
#define FERRY_GPU_CODED_CUH

#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_coded.h"
}

/* The upper half of the fp32 that a code is; the lower half is 0, so this is its bf16. */
static __device__ __forceinline__ uint32_t e4m3_bf16(uint32_t code)
{
	const uint32_t size = code & 0x7f;
	/* exponents differ by 120, for subnormal numbers too */
	const float value = __fmul_rn(__uint_as_float(size << 20), 0x1p120f);

	return (size == 0x7f ? 0x7fc0u : __float_as_uint(value) >> 16) | (code & 0x80) << 8;
}

/* code_e4m3 of a number that is no NaN. */
static __device__ __forceinline__ uint32_t e4m3_code(float x)
{
	const uint32_t bits = __float_as_uint(x), size = bits & 0x7fffffff;
	const uint32_t low = __float_as_uint(__fadd_rn(__uint_as_float(size), 16384.0f)) - 0x46800000u;
	const uint32_t high = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120u << 3);
	const uint32_t code = size < 0x3c800000u ? low : high;

	return (code > 0x7e ? 0x7e : code) | (bits >> 24 & 0x80);
}

/* code_e4m3_scale, code_e4m3_is_used */
static __device__ __forceinline__ float e4m3_scale(uint32_t largest)
{
	return largest > 0x7f800000u ? __uint_as_float(0x7fc00000u)
	                             : __fdiv_rn(__uint_as_float(largest), 448.0f);
}

static __device__ __forceinline__ int e4m3_is_used(float scale)
{
	const uint32_t bits = __float_as_uint(scale);

	return bits > 0 && bits < 0x7f800000u;
}

#endif
