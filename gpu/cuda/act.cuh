/* The activations of enum act_kind and their slopes, in fp32: what cuda_act.cu and cuda_glu.cu share. The
 * formulas are those of host/cpu/kernels.inc; errors are relative to the value, in its tails too.
 * Instructions are counted, because an H200 has about 25 for each bf16 element that it reads and writes.
 */
#ifndef FERRY_GPU_CUDA_ACT_CUH
#define FERRY_GPU_CUDA_ACT_CUH

#include "gpu/cuda/map.cuh"

/* act is known only when the kernel runs: for the kernels whose speed does not matter. */
enum { ACT_ANY = -1 };

/* 1 / x for x >= 1, within a unit in the last place; 0 from 2^126 on. */
static __device__ __forceinline__ float act_reciprocal(float x)
{
#ifdef FERRY_SIMT
	return 1.0f / x;
#else
	float y;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

/* Far below 0 the exponential is infinite and the result 0. */
static __device__ __forceinline__ float act_sigmoid(float x)
{
	return act_reciprocal(1.0f + expf(-x));
}

/* The normal distribution function and its density, by the tail exp(-x^2 / 2) * q(t) / (1 + 2z) / 2 with z =
 * |x| / sqrt(2), t = (z - 2) / (z + 2). The rounding error of x^2 is added to the exponential in first order.
 */
static __device__ __forceinline__ void act_normal(float x, float *distribution, float *density)
{
	float a = fminf(fabsf(x), 14.5f);
	float z = a * 0.707106781f;
	float t = (z - 2.0f) * act_reciprocal(z + 2.0f);
	float q = -0.0004042093933094293f;
	float square = a * a, rest = fmaf(a, a, -square), e, tail;

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
	e = fmaf(-0.5f * rest, e, e);
	tail = 0.5f * e * q * act_reciprocal(fmaf(2.0f, z, 1.0f));
	*distribution = x < 0 ? tail : 1.0f - tail;
	*density = e * 0.398942280f;
}

/* act(x) and act'(x); the compiler drops the one that is not used. x^2 of the tanh form is capped where its
 * sigmoid is 0 or 1 long before, so that no infinity meets a 0. */
template <int ACT>
static __device__ __forceinline__ void act_both(float x, int act, float *value, float *slope)
{
	float s, density, square;

	switch (ACT == ACT_ANY ? act : ACT) {
	case ACT_SILU:
		s = act_sigmoid(x);
		*value = x * s;
		*slope = s * fmaf(x, 1.0f - s, 1.0f);
		break;
	case ACT_GELU:
		act_normal(x, &s, &density);
		*value = x * s;
		*slope = fmaf(x, density, s);
		break;
	case ACT_GELU_TANH: /* tanh as a sigmoid of twice the argument */
		square = fminf(x * x, 1e4f);
		s = act_sigmoid(x * fmaf(0.0713548162726f, square, 1.59576912f));
		*value = x * s;
		*slope = s * fmaf(x * (1.0f - s), fmaf(0.2140644488178f, square, 1.59576912f), 1.0f);
		break;
	case ACT_GELU_QUICK:
		s = act_sigmoid(1.702f * x);
		*value = x * s;
		*slope = s * fmaf(1.702f * x, 1.0f - s, 1.0f);
		break;
	case ACT_RELU:
		*value = x < 0 ? 0 : x;
		*slope = x <= 0 ? 0 : 1.0f;
		break;
	case ACT_RELU2:
	default:
		s = x < 0 ? 0 : x;
		*value = s * s;
		*slope = 2.0f * s;
		break;
	}
}

/* Queues MAP<T, act>, an elementwise kernel (map.cuh) whose members are its operands and then the kind. */
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
	switch (act) {
	case ACT_SILU:
		return act_start_kind<MAP, T, ACT_SILU>(at, what, act, count, operand...);
	case ACT_GELU:
		return act_start_kind<MAP, T, ACT_GELU>(at, what, act, count, operand...);
	case ACT_GELU_TANH:
		return act_start_kind<MAP, T, ACT_GELU_TANH>(at, what, act, count, operand...);
	case ACT_GELU_QUICK:
		return act_start_kind<MAP, T, ACT_GELU_QUICK>(at, what, act, count, operand...);
	case ACT_RELU:
		return act_start_kind<MAP, T, ACT_RELU>(at, what, act, count, operand...);
	default:
		return act_start_kind<MAP, T, ACT_RELU2>(at, what, act, count, operand...);
	}
}

#endif
