#include "gpu/cuda/kernel.cuh"

#define ADAMW_FN static __device__ __forceinline__
#ifdef FERRY_SIMT
#define ADAMW_TABLE static const
#else
#define ADAMW_TABLE static __device__ const
#endif
#include "optim/adamw_state.h"

/* optim/adamw_state.h on the device: the same functions on an element, each operation rounded once, none of
 * them contracted, division and square root the exact ones. So the bits are the host's, in every form of
 * state; a block's scale is a largest value, which has no order.
 *
 * Bytes of an element: 4 read and 4 written of the weight, 8, 4 or 2 read and written of the state, and the
 * gradient's 2 or 4 read. */

enum {
	ADAMW_THREADS = 256,
	ADAMW_VEC = 4,   /* 16 bytes of m, v and an fp32 gradient, 8 of the others: whole lines a warp */
	ADAMW_TURNS = 2, /* vectors of a thread, all asked for before the first is used: 112 bytes and more */
	ADAMW_SINGLES = 8, /* the same where planes are not aligned; of a thread of a block's warp, too */
};

struct adamw_planes {
	uint16_t *hi;
	int16_t *lo;
	void *m, *v;
	float *m_scale, *v_scale;
	const void *grad;
	int64_t count, first;
};

struct adamw_scalars {
	struct adamw_step step;
	float decay_factor; /* 1 where the tensor does not decay */
	int tensor;
};

/* `e` has m and v; the weight is read from its planes and written to them. */
static __device__ __forceinline__ struct adamw_element adamw_updated(
        struct adamw_element e, uint16_t *hi, int16_t *lo, float grad, const struct adamw_scalars &s)
{
	uint32_t bits;

	e.w = __uint_as_float(((uint32_t)*hi << 16) + (uint32_t)(int32_t)*lo);
	e = adamw_next(e, grad, s.decay_factor, &s.step);
	bits = __float_as_uint(e.w);
	*hi = (uint16_t)((bits + 0x8000) >> 16);
	*lo = (int16_t)(uint16_t)bits;
	return e;
}

/* ---- fp32 and bf16: each element by itself ---- */

static __device__ __forceinline__ void adamw_keep(
        float *m, float *v, const struct adamw_element &e, struct adamw_keys, int64_t)
{
	*m = adamw_kept(e.m);
	*v = adamw_kept(e.v);
}

static __device__ __forceinline__ void adamw_keep(
        bf16 *m, bf16 *v, const struct adamw_element &e, struct adamw_keys keys, int64_t element)
{
	uint32_t random = adamw_random(keys, element);

	m->bits = adamw_round(e.m, random & 0xffff);
	v->bits = adamw_round(e.v, random >> 16);
}

/* G: gradient, S: state. */
template <class G, class S, int N> struct adamw_elements {
	vec<uint16_t, N> hi;
	vec<int16_t, N> lo;
	vec<S, N> m, v;
	vec<G, N> grad;

	__device__ __forceinline__ void load(const struct adamw_planes &p, int64_t i)
	{
		hi = *(const vec<uint16_t, N> *)(p.hi + i);
		lo = *(const vec<int16_t, N> *)(p.lo + i);
		m = *(const vec<S, N> *)((const S *)p.m + i);
		v = *(const vec<S, N> *)((const S *)p.v + i);
		grad = *(const vec<G, N> *)((const G *)p.grad + i);
	}

	__device__ __forceinline__ void store(const struct adamw_planes &p, int64_t i) const
	{
		*(vec<uint16_t, N> *)(p.hi + i) = hi;
		*(vec<int16_t, N> *)(p.lo + i) = lo;
		*(vec<S, N> *)((S *)p.m + i) = m;
		*(vec<S, N> *)((S *)p.v + i) = v;
	}

	__device__ __forceinline__ void update(
	        const struct adamw_scalars &s, struct adamw_keys keys, int64_t element)
	{
#pragma unroll
		for (int j = 0; j < N; j++) {
			struct adamw_element e = {to_float(m.at[j]), to_float(v.at[j]), 0};

			e = adamw_updated(e, &hi.at[j], &lo.at[j], to_float(grad.at[j]), s);
			adamw_keep(&m.at[j], &v.at[j], e, keys, element + j);
		}
	}
};

/* Vectors of N elements from element `head` on, which is where all planes are aligned; block 0 also has the
 * fewer than N elements before and behind them. */
template <class G, class S, int N, int TURNS>
static __global__ void __launch_bounds__(ADAMW_THREADS)
        adamw_kernel(struct adamw_planes p, struct adamw_scalars s, int head)
{
	struct adamw_keys keys = adamw_keys_of(s.step.rounding_key, s.tensor);
	int64_t vectors = (p.count - head) / N,
	        first = (int64_t)blockIdx.x * ADAMW_THREADS * TURNS + threadIdx.x;
	adamw_elements<G, S, N> e[TURNS];

#pragma unroll
	for (int k = 0; k < TURNS; k++)
		if (first + k * ADAMW_THREADS < vectors)
			e[k].load(p, head + (first + k * ADAMW_THREADS) * N);
#pragma unroll
	for (int k = 0; k < TURNS; k++)
		if (first + k * ADAMW_THREADS < vectors) {
			int64_t i = head + (first + k * ADAMW_THREADS) * N;

			e[k].update(s, keys, p.first + i);
			e[k].store(p, i);
		}
	if (N > 1 && blockIdx.x == 0 && threadIdx.x < 2 * N) {
		int64_t i = threadIdx.x < N ? threadIdx.x : head + vectors * N + threadIdx.x - N;

		if (i < (threadIdx.x < N ? head : p.count)) {
			adamw_elements<G, S, 1> one;

			one.load(p, i);
			one.update(s, keys, p.first + i);
			one.store(p, i);
		}
	}
}

/* Elements to go until all planes are aligned to their vectors; -1 if they never are. */
static int adamw_head(const struct adamw_planes *p, int grad_bytes, int state_bytes)
{
	for (int head = 0; head < ADAMW_VEC; head++)
		if (is_aligned(p->hi + head, 2 * ADAMW_VEC) && is_aligned(p->lo + head, 2 * ADAMW_VEC) &&
		        is_aligned((char *)p->m + head * state_bytes, state_bytes * ADAMW_VEC) &&
		        is_aligned((char *)p->v + head * state_bytes, state_bytes * ADAMW_VEC) &&
		        is_aligned((const char *)p->grad + head * grad_bytes, grad_bytes * ADAMW_VEC))
			return head < p->count ? head : (int)p->count;
	return -1;
}

template <class G, class S>
static int adamw_start(
        const struct cuda_launch *at, const struct adamw_planes *p, const struct adamw_scalars *s)
{
	int head = adamw_head(p, sizeof(G), sizeof(S));
	int64_t elements = ADAMW_THREADS * (head < 0 ? ADAMW_SINGLES : ADAMW_TURNS * ADAMW_VEC);
	dim3 grid((unsigned)ceil_div(p->count, elements));

	if (head < 0)
		return cuda_start(
		        at, "adamw", adamw_kernel<G, S, 1, ADAMW_SINGLES>, grid, ADAMW_THREADS, 0, *p, *s, 0);
	return cuda_start(at, "adamw", adamw_kernel<G, S, ADAMW_VEC, ADAMW_TURNS>, grid, ADAMW_THREADS, 0, *p,
	        *s, head);
}

/* ---- 8 bits: a block of elements has a warp, 8 elements a thread ---- */

enum { BLOCK_VEC = ADAMW_BLOCK / WARP };

/* N elements of a thread from `i` on: one access each where N is BLOCK_VEC, else every WARPth one that there
 * is. */
template <int N, class T>
static __device__ __forceinline__ void block_load(vec<T, BLOCK_VEC> *x, const T *from, int64_t i, int64_t end)
{
	if constexpr (N == BLOCK_VEC) {
		*x = *(const vec<T, BLOCK_VEC> *)(from + i);
	} else {
#pragma unroll
		for (int j = 0; j < BLOCK_VEC; j++)
			x->at[j] = i + j * WARP < end ? from[i + j * WARP] : T{};
	}
}

template <int N, class T>
static __device__ __forceinline__ void block_store(T *to, const vec<T, BLOCK_VEC> &x, int64_t i, int64_t end)
{
	if constexpr (N == BLOCK_VEC) {
		*(vec<T, BLOCK_VEC> *)(to + i) = x;
	} else {
#pragma unroll
		for (int j = 0; j < BLOCK_VEC; j++)
			if (i + j * WARP < end)
				to[i + j * WARP] = x.at[j];
	}
}

/* The warp's block. What lies behind the end is 0 here and adds nothing to the scale. */
template <class G, int N>
static __device__ __forceinline__ void block_update(
        const struct adamw_planes &p, const struct adamw_scalars &s, int64_t block)
{
	const int lane = threadIdx.x % WARP;
	const int64_t i = block * ADAMW_BLOCK + lane * N, end = p.count;
	vec<uint16_t, BLOCK_VEC> hi;
	vec<int16_t, BLOCK_VEC> lo;
	vec<uint8_t, BLOCK_VEC> m, v;
	vec<G, BLOCK_VEC> grad;
	float new_m[BLOCK_VEC], new_v[BLOCK_VEC], m_scale = p.m_scale[block], v_scale = p.v_scale[block];
	uint32_t m_size = 0, v_size = 0;

	block_load<N>(&hi, p.hi, i, end);
	block_load<N>(&lo, p.lo, i, end);
	block_load<N>(&m, (const uint8_t *)p.m, i, end);
	block_load<N>(&v, (const uint8_t *)p.v, i, end);
	block_load<N>(&grad, (const G *)p.grad, i, end);
#pragma unroll
	for (int j = 0; j < BLOCK_VEC; j++) {
		struct adamw_element e = {adamw_unscale(adamw_decode_signed(m.at[j]), m_scale),
		        adamw_unscale(adamw_decode_unsigned(v.at[j]), v_scale), 0};
		int is_there = N == BLOCK_VEC || i + j * WARP < end;

		e = adamw_updated(e, &hi.at[j], &lo.at[j], to_float(grad.at[j]), s);
		new_m[j] = is_there ? adamw_kept(e.m) : 0;
		new_v[j] = is_there ? adamw_kept(e.v) : 0;
		m_size = max(m_size, adamw_size(new_m[j]));
		v_size = max(v_size, adamw_size(new_v[j]));
	}
	m_scale = __uint_as_float(__reduce_max_sync(0xffffffffu, m_size));
	v_scale = __uint_as_float(__reduce_max_sync(0xffffffffu, v_size));
#pragma unroll
	for (int j = 0; j < BLOCK_VEC; j++) {
		m.at[j] = adamw_encode_signed(new_m[j] * adamw_inverse(m_scale));
		v.at[j] = adamw_encode_unsigned(new_v[j] * adamw_inverse(v_scale));
	}
	block_store<N>(p.hi, hi, i, end);
	block_store<N>(p.lo, lo, i, end);
	block_store<N>((uint8_t *)p.m, m, i, end);
	block_store<N>((uint8_t *)p.v, v, i, end);
	__syncwarp(); /* all have read the scales */
	if (lane == 0) {
		p.m_scale[block] = m_scale;
		p.v_scale[block] = v_scale;
	}
}

template <class G, int N>
static __global__ void __launch_bounds__(ADAMW_THREADS)
        adamw_block_kernel(struct adamw_planes p, struct adamw_scalars s)
{
	int64_t block = (int64_t)blockIdx.x * (ADAMW_THREADS / WARP) + threadIdx.x / WARP;

	if (block * ADAMW_BLOCK >= p.count)
		return;
	if (N == 1 || (block + 1) * ADAMW_BLOCK > p.count)
		block_update<G, 1>(p, s, block);
	else
		block_update<G, N>(p, s, block);
}

template <class G>
static int adamw_start_blocks(
        const struct cuda_launch *at, const struct adamw_planes *p, const struct adamw_scalars *s)
{
	int aligned = is_aligned(p->hi, 2 * BLOCK_VEC) && is_aligned(p->lo, 2 * BLOCK_VEC) &&
	              is_aligned(p->m, BLOCK_VEC) && is_aligned(p->v, BLOCK_VEC) &&
	              is_aligned(p->grad, sizeof(G) * BLOCK_VEC);
	dim3 grid((unsigned)ceil_div(p->count, ADAMW_BLOCK * (ADAMW_THREADS / WARP)));

	if (!aligned)
		return cuda_start(at, "adamw", adamw_block_kernel<G, 1>, grid, ADAMW_THREADS, 0, *p, *s);
	return cuda_start(at, "adamw", adamw_block_kernel<G, BLOCK_VEC>, grid, ADAMW_THREADS, 0, *p, *s);
}

template <class G>
static int adamw_start_state(const struct cuda_launch *at, const struct adamw_planes *p,
        const struct adamw_scalars *s, enum dtype state_dtype)
{
	if (state_dtype == DTYPE_U8)
		return adamw_start_blocks<G>(at, p, s);
	return state_dtype == DTYPE_F32 ? adamw_start<G, float>(at, p, s) : adamw_start<G, bf16>(at, p, s);
}

extern "C" int cuda_adamw(const struct cuda_launch *at, const struct op *op)
{
	const struct op_adamw *o = &op->adamw;
	struct adamw_planes p = {dev_ptr<uint16_t>(o->hi), dev_ptr<int16_t>(o->lo), dev_ptr<void>(o->m),
	        dev_ptr<void>(o->v), dev_ptr<float>(o->m_scale), dev_ptr<float>(o->v_scale),
	        dev_ptr<void>(o->grad), o->count, o->first};
	struct adamw_scalars s = {o->step, o->decay ? o->step.decay_factor : 1.0f, o->tensor};

	return o->grad_dtype == DTYPE_F32 ? adamw_start_state<float>(at, &p, &s, o->state_dtype)
	                                  : adamw_start_state<bf16>(at, &p, &s, o->state_dtype);
}
