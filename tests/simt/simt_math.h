/* Functions that a GPU does not round correctly, with the largest errors that NVIDIA allows.
 *
 * Each takes the correctly rounded result (in practice the host's). It moves the result by that many units in
 * the last place, up or down by the bits of the argument. So code that passes here passes with any last bits
 * of a GPU. Bounds: the CUDA C++ Programming Guide, "Mathematical Functions", and the PTX ISA for the .approx
 * instructions. Results are exact if the GPU's are: e^0, log(1), infinity, NaN.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_MATH_H
#define FERRY_TESTS_SIMT_SIMT_MATH_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

template <class T, class BITS> static inline T simt_moved(T right, T argument, int units)
{
	BITS bits, seed;

	if (!(fabs(right) >= FLT_MIN) || !(fabs(right) <= FLT_MAX) || argument == 0 || argument == 1)
		return right;
	memcpy(&bits, &right, sizeof(bits));
	memcpy(&seed, &argument, sizeof(seed));
	bits += (BITS)((uint64_t)seed * 0x9e3779b97f4a7c15u >> 63 ? units : -units);
	memcpy(&right, &bits, sizeof(right));
	return right;
}

static inline float simt_flushed(float x)
{
	return fabsf(x) < FLT_MIN ? 0.0f : x;
}

#define SIMT_INEXACT(name, type, bits, units)                                                                \
	static inline type simt_##name(type x)                                                               \
	{                                                                                                    \
		return simt_moved<type, bits>(name(x), x, units);                                            \
	}
SIMT_INEXACT(expf, float, uint32_t, 2)
SIMT_INEXACT(tanhf, float, uint32_t, 2)
SIMT_INEXACT(log1pf, float, uint32_t, 1)
SIMT_INEXACT(log2f, float, uint32_t, 1)
SIMT_INEXACT(exp, double, uint64_t, 1)
SIMT_INEXACT(log, double, uint64_t, 1)
SIMT_INEXACT(log1p, double, uint64_t, 1)
#undef SIMT_INEXACT

static inline double rsqrt(double x)
{
	return simt_moved<double, uint64_t>(1 / sqrt(x), x, 1);
}

static inline float simt_rcp_approx(float x) /* rcp.approx.ftz.f32 */
{
	return simt_flushed(simt_moved<float, uint32_t>(1 / simt_flushed(x), x, 1));
}

/* rsqrt.approx.ftz.f32, with a relative error of 2^-22.9: one unit, or nearly two. */
static inline float simt_rsqrt_approx(float x)
{
	return simt_moved<float, uint32_t>((float)(1 / sqrt((double)simt_flushed(x))), x, 1);
}

/* ex2.approx.ftz.f32, with a relative error of 2^-22: two to four units. */
static inline float simt_ex2_approx(float x)
{
	return simt_flushed(simt_moved<float, uint32_t>(exp2f(x), x, 2));
}

#define expf(x) simt_expf(x)
#define log1pf(x) simt_log1pf(x)
#define tanhf(x) simt_tanhf(x)
#define log2f(x) simt_log2f(x)
#define exp(x) simt_exp(x)
#define log(x) simt_log(x)
#define log1p(x) simt_log1p(x)

#endif
