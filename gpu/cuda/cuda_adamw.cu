#include "gpu/cuda/kernel.cuh"

/* optim/adamw.h on the device: the same operations on an element in the same order, each rounded once, none
 * of them contracted: no product is added to but by fmaf, and division and square root are the exact ones. So
 * the bits are the host's.
 *
 * Bytes of an element: 12 read and 12 written, and the gradient's 2 or 4 read. */

enum {
	ADAMW_THREADS = 256,
	ADAMW_VEC = 4,   /* 16 bytes of m, v and an fp32 gradient, 8 of the others: whole lines a warp */
	ADAMW_TURNS = 2, /* vectors of a thread, all asked for before the first is used: 112 bytes and more */
	ADAMW_SINGLES = 8, /* the same where planes are not aligned */
};

static __device__ __forceinline__ float adamw_flush(float x)
{
	uint32_t bits = __float_as_uint(x);

	return (bits & 0x7fffffff) < 0x00800000 ? 0.0f : x;
}

/* What goes to memory has one NaN, and no infinity. */
static __device__ __forceinline__ float adamw_saturate(float x)
{
	if (x != x)
		return __uint_as_float(0x7fc00000);
	return fabsf(x) > 0x1.fffffep127f ? copysignf(0x1.fffffep127f, x) : x;
}

struct adamw_planes {
	uint16_t *hi;
	int16_t *lo;
	float *m, *v;
	const void *grad;
	int64_t count;
};

struct adamw_scalars {
	float one_minus_beta1, one_minus_beta2, decay_factor, rsqrt_correction2, step_size, epsilon,
	        clip_scale;
};

template <class G, int N> struct adamw_elements {
	vec<uint16_t, N> hi;
	vec<int16_t, N> lo;
	vec<float, N> m, v;
	vec<G, N> grad;

	__device__ __forceinline__ void load(const struct adamw_planes &p, int64_t i)
	{
		hi = *(const vec<uint16_t, N> *)(p.hi + i);
		lo = *(const vec<int16_t, N> *)(p.lo + i);
		m = *(const vec<float, N> *)(p.m + i);
		v = *(const vec<float, N> *)(p.v + i);
		grad = *(const vec<G, N> *)((const G *)p.grad + i);
	}

	__device__ __forceinline__ void store(const struct adamw_planes &p, int64_t i) const
	{
		*(vec<uint16_t, N> *)(p.hi + i) = hi;
		*(vec<int16_t, N> *)(p.lo + i) = lo;
		*(vec<float, N> *)(p.m + i) = m;
		*(vec<float, N> *)(p.v + i) = v;
	}

	__device__ __forceinline__ void update(const struct adamw_scalars &s)
	{
#pragma unroll
		for (int j = 0; j < N; j++) {
			uint32_t joined = ((uint32_t)hi.at[j] << 16) + (uint32_t)(int32_t)lo.at[j], bits;
			float g = adamw_flush(to_float(grad.at[j]) * s.clip_scale);
			float w = __uint_as_float(joined) * s.decay_factor;
			float new_m = adamw_saturate(fmaf(s.one_minus_beta1, g - m.at[j], m.at[j]));
			float new_v = adamw_flush(
			        adamw_saturate(fmaf(s.one_minus_beta2, fmaf(g, g, -v.at[j]), v.at[j])));
			float d = fmaf(sqrtf(new_v), s.rsqrt_correction2, s.epsilon);

			w = fmaf(-s.step_size, new_m / d, w);
			bits = w != w ? 0x7fc00000 : __float_as_uint(w);
			m.at[j] = adamw_flush(new_m);
			v.at[j] = new_v;
			hi.at[j] = (uint16_t)((bits + 0x8000) >> 16);
			lo.at[j] = (int16_t)(uint16_t)bits;
		}
	}
};

/* Vectors of N elements from element `head` on, which is where all planes are aligned; block 0 also has the
 * fewer than N elements before and behind them. */
template <class G, int N, int TURNS>
static __global__ void __launch_bounds__(ADAMW_THREADS)
        adamw_kernel(struct adamw_planes p, struct adamw_scalars s, int head)
{
	int64_t vectors = (p.count - head) / N,
	        first = (int64_t)blockIdx.x * ADAMW_THREADS * TURNS + threadIdx.x;
	adamw_elements<G, N> e[TURNS];

#pragma unroll
	for (int k = 0; k < TURNS; k++)
		if (first + k * ADAMW_THREADS < vectors)
			e[k].load(p, head + (first + k * ADAMW_THREADS) * N);
#pragma unroll
	for (int k = 0; k < TURNS; k++)
		if (first + k * ADAMW_THREADS < vectors) {
			e[k].update(s);
			e[k].store(p, head + (first + k * ADAMW_THREADS) * N);
		}
	if (N > 1 && blockIdx.x == 0 && threadIdx.x < 2 * N) {
		int64_t i = threadIdx.x < N ? threadIdx.x : head + vectors * N + threadIdx.x - N;

		if (i < (threadIdx.x < N ? head : p.count)) {
			adamw_elements<G, 1> one;

			one.load(p, i);
			one.update(s);
			one.store(p, i);
		}
	}
}

/* Elements to go until all planes are aligned to their vectors; -1 if they never are. */
static int adamw_head(const struct adamw_planes *p, int grad_bytes)
{
	for (int head = 0; head < ADAMW_VEC; head++)
		if (is_aligned(p->hi + head, 2 * ADAMW_VEC) && is_aligned(p->lo + head, 2 * ADAMW_VEC) &&
		        is_aligned(p->m + head, 4 * ADAMW_VEC) && is_aligned(p->v + head, 4 * ADAMW_VEC) &&
		        is_aligned((const char *)p->grad + head * grad_bytes, grad_bytes * ADAMW_VEC))
			return head < p->count ? head : (int)p->count;
	return -1;
}

template <class G>
static int adamw_start(
        const struct cuda_launch *at, const struct adamw_planes *p, const struct adamw_scalars *s)
{
	int head = adamw_head(p, sizeof(G));
	int64_t elements = ADAMW_THREADS * (head < 0 ? ADAMW_SINGLES : ADAMW_TURNS * ADAMW_VEC);
	dim3 grid((unsigned)ceil_div(p->count, elements));

	if (head < 0)
		return cuda_start(
		        at, "adamw", adamw_kernel<G, 1, ADAMW_SINGLES>, grid, ADAMW_THREADS, 0, *p, *s, 0);
	return cuda_start(
	        at, "adamw", adamw_kernel<G, ADAMW_VEC, ADAMW_TURNS>, grid, ADAMW_THREADS, 0, *p, *s, head);
}

extern "C" int cuda_adamw(const struct cuda_launch *at, const struct op *op)
{
	const struct op_adamw *o = &op->adamw;
	struct adamw_planes p = {dev_ptr<uint16_t>(o->hi), dev_ptr<int16_t>(o->lo), dev_ptr<float>(o->m),
	        dev_ptr<float>(o->v), dev_ptr<void>(o->grad), o->count};
	struct adamw_scalars s = {o->one_minus_beta1, o->one_minus_beta2, o->decay ? o->decay_factor : 1.0f,
	        o->rsqrt_correction2, o->step_size, o->epsilon, o->clip_scale};

	return o->grad_dtype == DTYPE_F32 ? adamw_start<float>(at, &p, &s) : adamw_start<bf16>(at, &p, &s);
}
