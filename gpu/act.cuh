/* The activations of enum act_kind and their slopes, for cuda_act.cu and cuda_glu.cu.
 *
 * For fp32 the formulas are those of host/cpu/elementary.inc. Errors are a few units in the last place, in
 * the tails too. For bf16 exponentials are the hardware's: their error is 6e-6 relative, a 600th of bf16's
 * rounding. An H200 moves a bf16 element in the time of about 25 instructions of a lane, so exact ones would
 * be slower than the memory.
 */
#ifndef FERRY_GPU_ACT_CUH
#define FERRY_GPU_ACT_CUH

#include "gpu/map.cuh"

extern "C" {
#include "base/err.h"
#include "device/op_act.h"
}

/* The kind is known only when the kernel runs; for kernels that need not be fast. */
enum { ACT_ANY = -1 };

/* e^x to the precision that T needs. */
template <class T> static __device__ __forceinline__ float act_exp(float x);

template <> __device__ __forceinline__ float act_exp<float>(float x)
{
	return expf(x);
}

template <> __device__ __forceinline__ float act_exp<bf16>(float x)
{
	return exp2_fast(1.44269504f * x);
}

/* Far below 0 the exponential is infinite and the result 0. */
template <class T> static __device__ __forceinline__ float act_sigmoid(float x)
{
	return reciprocal_fast(1.0f + act_exp<T>(-x));
}

/* The normal distribution function at -a, 0 <= a <= 14.5, and exp(-a^2 / 2). */
template <class T> static __device__ __forceinline__ float act_normal_tail(float a, float *bell);

/* exp(-a^2 / 2) * q(t) / (1 + 2z) / 2 with z = a / sqrt(2), t = (z - 2) / (z + 2). The rounding error of a^2
 * is added to the exponential in first order. */
template <> __device__ __forceinline__ float act_normal_tail<float>(float a, float *bell)
{
	float z = a * 0.707106781f;
	float t = (z - 2.0f) * reciprocal_fast(z + 2.0f);
	float q = -0.0004042093933094293f;
	float square = a * a, rest = fmaf(a, a, -square), e;

	q = fmaf(q, t, -0.0012313489569351077f);
	q = fmaf(q, t, 0.0013211139012128115f);
	q = fmaf(q, t, 0.00863498356193304f);
	q = fmaf(q, t, -0.008064119145274162f);
	q = fmaf(q, t, -0.05420585349202156f);
	q = fmaf(q, t, 0.1640561819076538f);
	q = fmaf(q, t, -0.16603122651576996f);
	q = fmaf(q, t, -0.09276402741670609f);
	q = fmaf(q, t, 1.2769783735275269f);
	e = expf(-0.5f * square);
	*bell = fmaf(-0.5f * rest, e, e);
	return 0.5f * *bell * q * reciprocal_fast(fmaf(2.0f, z, 1.0f));
}

/* exp(-a^2 / 2) * t * q(t) with t = 1 / (1 + 0.36 a), q fitted to 1.3e-6 relative. The square of a bf16 is
 * exact. */
template <> __device__ __forceinline__ float act_normal_tail<bf16>(float a, float *bell)
{
	float t = reciprocal_fast(fmaf(0.36f, a, 1.0f));
	float q = 0.0467822328209877f;

	q = fmaf(q, t, -0.17882609367370605f);
	q = fmaf(q, t, 0.179677352309227f);
	q = fmaf(q, t, 0.027426643297076225f);
	q = fmaf(q, t, 0.13940009474754333f);
	q = fmaf(q, t, 0.14183036983013153f);
	q = fmaf(q, t, 0.1437089741230011f);
	*bell = exp2_fast(-0.72134752f * (a * a));
	return *bell * (q * t);
}

/* act(x) and act'(x); the compiler drops the one that is not used. In the tanh form x^2 is capped, so that
 * infinity is never multiplied by 0; the sigmoid is 0 or 1 long before. */
template <class T, int ACT>
static __device__ __forceinline__ void act_both(float x, int act, float *value, float *slope)
{
	float s, a, bell, square;

	switch ((enum act_kind)(ACT == ACT_ANY ? act : ACT)) {
	case ACT_SILU:
		s = act_sigmoid<T>(x);
		*value = x * s;
		*slope = s * fmaf(x, 1.0f - s, 1.0f);
		break;
	case ACT_GELU:
		a = fminf(fabsf(x), 14.5f);
		s = act_normal_tail<T>(a, &bell);
		*value = fmaf(-a, s, x < 0 ? 0 : x);
		*slope = fmaf(x, 0.398942280f * bell, x < 0 ? s : 1.0f - s);
		break;
	case ACT_GELU_TANH: /* tanh as a sigmoid of twice the argument */
		square = fminf(x * x, 1e4f);
		s = act_sigmoid<T>(x * fmaf(0.0713548162726f, square, 1.59576912f));
		*value = x * s;
		*slope = s * fmaf(x * (1.0f - s), fmaf(0.2140644488178f, square, 1.59576912f), 1.0f);
		break;
	case ACT_GELU_QUICK:
		s = act_sigmoid<T>(1.702f * x);
		*value = x * s;
		*slope = s * fmaf(1.702f * x, 1.0f - s, 1.0f);
		break;
	case ACT_RELU:
		*value = x < 0 ? 0 : x;
		*slope = x <= 0 ? 0 : 1.0f;
		break;
	case ACT_RELU2:
		s = x < 0 ? 0 : x;
		*value = s * s;
		*slope = 2.0f * s;
		break;
	case ACT_SIGMOID:
		s = act_sigmoid<T>(x);
		*value = s;
		*slope = s * act_sigmoid<T>(-x);
		break;
	case ACT_TANH:
		*value = tanhf(x);
		s = act_sigmoid<T>(2.0f * x);
		*slope = 4.0f * s * act_sigmoid<T>(-2.0f * x);
		break;
	case ACT_LINEAR:
		*value = x;
		*slope = 1.0f;
		break;
	}
}

/* Queues MAP<T, act>, an elementwise kernel (map.cuh). Its members are the operands and then the kind. */
template <template <class, int> class MAP, class T, int ACT, class... P>
static int act_start_kind(
        const struct cuda_launch *at, const char *what, int act, int64_t count, P *...operand)
{
	return map_start_either(
	        at, what, MAP<T, ACT>{operand..., act}, MAP<T, ACT_ANY>{operand..., act}, count, operand...);
}

template <template <class, int> class MAP, class T, class... P>
static int act_start(const struct cuda_launch *at, const char *what, int act, int64_t count, P *...operand)
{
#define ACT_START(name, more)                                                                                \
	case ACT_##name:                                                                                     \
		return act_start_kind<MAP, T, ACT_##name>(at, what, act, count, operand...);
	switch ((enum act_kind)act) {
		ACT_KINDS(ACT_START, )
	}
#undef ACT_START
	return err_set(ERR_INTERNAL, "%s: no activation %d", what, act);
}

#endif
