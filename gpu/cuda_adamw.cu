/* AdamW in device memory. */
#include "gpu/adamw_usual.cuh"
#include "gpu/map.cuh"

extern "C" {
#include "base/err.h"
#include "device/op_optim.h"
}

OP_OPTIM_LIST(CUDA_DECLARE)

/* The functions of optim/adamw_state.h run on the device. Each operation is rounded once, none is contracted,
 * and division and square root are exact. So the bits are the host's for every format of state. A block's
 * scale is a maximum, which does not depend on order. If all elements of a thread are in the usual range
 * (adamw_usual.cuh), shorter code gives the same bits.
 *
 * Bytes moved for an element: 4 read and 4 written of the weight; 8, 4 or 2 read and written of the state; 2
 * or 4 read of the gradient. */

enum {
	ADAMW_THREADS = 256,
	ADAMW_VEC = 4, /* 16 bytes of m, v and an fp32 gradient, 8 of the others: a warp moves whole lines */
	ADAMW_TURNS = 2,   /* vectors of a thread, all loaded before the first is used: 112 bytes and more */
	ADAMW_SINGLES = 8, /* the same if the arrays are not aligned */
};

/* The arrays of an update, here called planes: the weight's upper and lower halves, m, v, scales, gradient.
 */
struct adamw_planes {
	uint16_t *hi;
	int16_t *lo;
	void *m, *v;
	float *m_scale, *v_scale;
	const void *grad;
	int64_t count, first;
};

/* ---- 16-bit planes, by words ---- */

template <int N> static __device__ __forceinline__ uint32_t half_get(const span<bf16, N> &s, int j)
{
	return j % 2 ? s.word(j / 2) >> 16 : s.word(j / 2) & 0xffff;
}

static __device__ __forceinline__ uint32_t half_get(const span<bf16, 1> &s, int)
{
	return s.one.bits;
}

template <int N> static __device__ __forceinline__ void half_put(span<bf16, N> &s, int j, uint32_t half)
{
	uint32_t other = s.word(j / 2) & (j % 2 ? 0xffffu : 0xffff0000u);

	s.word(j / 2) = other | half << (j % 2 * 16);
}

static __device__ __forceinline__ void half_put(span<bf16, 1> &s, int, uint32_t half)
{
	s.one.bits = (uint16_t)half;
}

/* The upper halves of N words. */
template <int N>
static __device__ __forceinline__ void halves_put(span<bf16, N> &s, const uint32_t (&word)[N])
{
#pragma unroll
	for (int j = 0; j < N; j += 2)
		s.word(j / 2) = __byte_perm(word[j], word[j + 1], 0x7632);
}

template <int N> struct weight_planes {
	span<bf16, N> hi, lo; /* as bf16 for their size only */

	__device__ __forceinline__ void load(const struct adamw_planes &p, int64_t i)
	{
		span_load(hi, (const bf16 *)p.hi + i);
		span_load(lo, (const bf16 *)p.lo + i);
	}
	__device__ __forceinline__ void store(const struct adamw_planes &p, int64_t i) const
	{
		span_store((bf16 *)p.hi + i, hi);
		span_store((bf16 *)p.lo + i, lo);
	}
	__device__ __forceinline__ float get(int j) const
	{
		return __uint_as_float((half_get(hi, j) << 16) + (uint32_t)(int32_t)(int16_t)half_get(lo, j));
	}
	__device__ __forceinline__ void put(int j, float w)
	{
		half_put(hi, j, (__float_as_uint(w) + 0x8000) >> 16);
		half_put(lo, j, __float_as_uint(w) & 0xffff);
	}
	__device__ __forceinline__ void put_all(const float (&w)[N])
	{
		uint32_t upper[N];

#pragma unroll
		for (int j = 0; j < N; j++)
			upper[j] = __float_as_uint(w[j]) + 0x8000;
		halves_put(hi, upper);
#pragma unroll
		for (int j = 0; j < N; j++)
			upper[j] = __float_as_uint(w[j]) << 16;
		halves_put(lo, upper);
	}
};

/* ---- fp32 and bf16: each element by itself ---- */

template <int N>
static __device__ __forceinline__ void adamw_keep(span<float, N> &m, span<float, N> &v, int j,
        const struct adamw_element &e, struct adamw_keys, int64_t)
{
	if constexpr (N == 1) {
		m.one = adamw_kept(e.m);
		v.one = adamw_kept(e.v);
	} else {
		m.word(j) = adamw_bits(adamw_kept(e.m));
		v.word(j) = adamw_bits(adamw_kept(e.v));
	}
}

template <int N>
static __device__ __forceinline__ void adamw_keep(span<bf16, N> &m, span<bf16, N> &v, int j,
        const struct adamw_element &e, struct adamw_keys keys, int64_t element)
{
	uint32_t random = adamw_random(keys, element);

	half_put(m, j, adamw_round(e.m, random & 0xffff));
	half_put(v, j, adamw_round(e.v, random >> 16));
}

/* Stores m and v of N neighbours in the usual range. */
template <class S, int N> struct adamw_keeper {
	__device__ __forceinline__ adamw_keeper(struct adamw_keys, int64_t) {}
	__device__ __forceinline__ int is_for(struct adamw_keys, int64_t) { return 1; }
	__device__ __forceinline__ void keep(
	        span<S, N> &m, span<S, N> &v, const float (&new_m)[N], const float (&new_v)[N]) const
	{
		float kept[N];

#pragma unroll
		for (int j = 0; j < N; j++)
			kept[j] = new_m[j] + 0.0f;
		span_put(m, kept);
		span_put(v, new_v);
	}
};

/* adamw_random in two parts, the words of N places in a row of ADAMW_ROW and the word of the row; then
 * adamw_round.
 */
template <int N> struct adamw_keeper<bf16, N> {
	uint32_t place[N], row;

	__device__ __forceinline__ adamw_keeper(struct adamw_keys keys, int64_t element)
	{
#pragma unroll
		for (int j = 0; j < N; j++)
			place[j] = adamw_mix32(keys.place, ((uint32_t)element + j) % ADAMW_ROW);
	}

	/* Computes the word of the row of `element`. Its place must be that of the constructor's element.
	 * Returns 0 if not all neighbours are in that row. */
	__device__ __forceinline__ int is_for(struct adamw_keys keys, int64_t element)
	{
		row = adamw_mix32(keys.row, (uint32_t)((uint64_t)element / ADAMW_ROW));
		return (uint32_t)element % ADAMW_ROW <= ADAMW_ROW - N;
	}

	__device__ __forceinline__ void keep(
	        span<bf16, N> &m, span<bf16, N> &v, const float (&new_m)[N], const float (&new_v)[N]) const
	{
		uint32_t rounded[N];

#pragma unroll
		for (int j = 0; j < N; j++)
			rounded[j] = adamw_bits(new_m[j] + 0.0f) + ((place[j] ^ row) & 0xffff);
		halves_put(m, rounded);
#pragma unroll
		for (int j = 0; j < N; j++)
			rounded[j] = adamw_bits(new_v[j]) + ((place[j] ^ row) >> 16);
		halves_put(v, rounded);
	}
};

/* G: gradient, S: state. */
template <class G, class S, int N> struct adamw_elements {
	weight_planes<N> weight;
	span<S, N> m, v;
	span<G, N> grad;

	__device__ __forceinline__ void load(const struct adamw_planes &p, int64_t i)
	{
		weight.load(p, i);
		span_load(m, (const S *)p.m + i);
		span_load(v, (const S *)p.v + i);
		span_load(grad, (const G *)p.grad + i);
	}

	__device__ __forceinline__ void store(const struct adamw_planes &p, int64_t i) const
	{
		weight.store(p, i);
		span_store((S *)p.m + i, m);
		span_store((S *)p.v + i, v);
	}

	__device__ __forceinline__ void update(
	        const struct adamw_scalars &s, struct adamw_keys keys, int64_t element)
	{
#pragma unroll
		for (int j = 0; j < N; j++) {
			struct adamw_element e = {span_get(m, j), span_get(v, j), weight.get(j)};

			e = adamw_next(e, span_get(grad, j), s.decay_factor, &s.step);
			weight.put(j, e.w);
			adamw_keep(m, v, j, e, keys, element + j);
		}
	}

	/* Returns 0 if an element is not in the usual range. Then the results of the others are of no use
	 * either. */
	__device__ __forceinline__ int update_usual(
	        const struct adamw_scalars &s, const struct adamw_keeper<S, N> &keeper)
	{
		float new_m[N], new_v[N], w[N], root;
		struct adamw_seen seen;

#pragma unroll
		for (int j = 0; j < N; j++) {
			struct adamw_element e = {span_get(m, j), span_get(v, j), weight.get(j)};

			e = adamw_usual_next(e, span_get(grad, j), s, &seen, &root);
			new_m[j] = e.m;
			new_v[j] = e.v;
			w[j] = e.w;
		}
		weight.put_all(w);
		keeper.keep(m, v, new_m, new_v);
		return adamw_seen_usual(seen);
	}
};

/* Updates vectors of N elements from element `head` on, where all planes are aligned. Block 0 also updates
 * the elements before and after them, fewer than N each. */
template <class G, class S, int N, int TURNS>
static __global__ void __launch_bounds__(ADAMW_THREADS)
        adamw_kernel(struct adamw_planes p, struct adamw_scalars s, int head)
{
	struct adamw_keys keys = adamw_keys_of(s.step.rounding_key, s.tensor);
	int64_t vectors = (p.count - head) / N,
	        first = (int64_t)blockIdx.x * ADAMW_THREADS * TURNS + threadIdx.x;
	adamw_elements<G, S, N> e[TURNS];
	adamw_keeper<S, N> keeper(keys, p.first + head + first * N);

	static_assert(N == 1 || ADAMW_THREADS * N % ADAMW_ROW == 0, "each turn has the places of the first");

#pragma unroll
	for (int k = 0; k < TURNS; k++)
		if (first + k * ADAMW_THREADS < vectors)
			e[k].load(p, head + (first + k * ADAMW_THREADS) * N);
#pragma unroll
	for (int k = 0; k < TURNS; k++)
		if (first + k * ADAMW_THREADS < vectors) {
			int64_t i = head + (first + k * ADAMW_THREADS) * N;
			int is_done = 0;

			if constexpr (N > 1)
				is_done = s.is_usual && keeper.is_for(keys, p.first + i) &&
				          e[k].update_usual(s, keeper);
			if (!is_done) {
				if (N > 1)
					e[k].load(p, i);
				e[k].update(s, keys, p.first + i);
			}
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

/* The number of elements before the first at which all planes are aligned to their vectors; -1: there is
 * none. */
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

/* ---- 8 bits: a warp updates a block of elements, a thread 8 of them ---- */

enum {
	BLOCK_VEC = ADAMW_BLOCK_8BIT / WARP,
	BLOCK_THREADS = 128,
	BLOCK_WARPS = BLOCK_THREADS / WARP,
};

/* Updates a block element by element, if planes are not aligned, or the block is short or not in the usual
 * range. A lane has every WARP-th element. Elements beyond the end count as 0 and add nothing to the scale.
 */
template <class G>
static __device__ __forceinline__ void block_update(
        const struct adamw_planes &p, const struct adamw_scalars &s, int64_t block)
{
	const int lane = threadIdx.x % WARP;
	const int64_t i = block * ADAMW_BLOCK_8BIT + lane, end = p.count;
	float new_m[BLOCK_VEC], root[BLOCK_VEC], m_scale = p.m_scale[block], v_scale = p.v_scale[block];
	uint32_t m_size = 0, v_size = 0;

#pragma unroll
	for (int j = 0; j < BLOCK_VEC; j++) {
		const int64_t at = i + j * WARP;

		new_m[j] = root[j] = 0;
		if (at < end) {
			struct adamw_element e = {adamw_decode_m(((const uint8_t *)p.m)[at], m_scale),
			        adamw_decode_r(((const uint8_t *)p.v)[at], v_scale), 0};
			weight_planes<1> weight;

			weight.load(p, at);
			e.w = weight.get(0);
			e = adamw_next(e, to_float(((const G *)p.grad)[at]), s.decay_factor, &s.step);
			weight.put(0, e.w);
			weight.store(p, at);
			new_m[j] = e.m;
			root[j] = adamw_plain_nan(sqrtf(e.v));
		}
		m_size = max(m_size, adamw_size(new_m[j]));
		v_size = max(v_size, adamw_size(root[j]));
	}
	m_scale = adamw_scale(__reduce_max_sync(0xffffffffu, m_size), ADAMW_TOP_M);
	v_scale = adamw_scale(__reduce_max_sync(0xffffffffu, v_size), ADAMW_TOP_R);
#pragma unroll
	for (int j = 0; j < BLOCK_VEC; j++)
		if (i + j * WARP < end) {
			((uint8_t *)p.m)[i + j * WARP] = adamw_encode_m(
			        new_m[j], adamw_inverse(m_scale), adamw_offset_m(&s.step, i + j * WARP));
			((uint8_t *)p.v)[i + j * WARP] = adamw_encode_r(
			        root[j], adamw_inverse(v_scale), adamw_offset_r(&s.step, i + j * WARP));
		}
	__syncwarp(); /* all have read the scales */
	if (lane == 0) {
		p.m_scale[block] = m_scale;
		p.v_scale[block] = v_scale;
	}
}

static __device__ __forceinline__ uint32_t byte_get(uint32_t word, int i)
{
	return __byte_perm(word, 0, 0x4440 + i);
}

/* The lower bytes of four words. */
static __device__ __forceinline__ uint32_t bytes_join(const uint32_t (&word)[4])
{
	return __byte_perm(
	        __byte_perm(word[0], word[1], 0x0040), __byte_perm(word[2], word[3], 0x0040), 0x5410);
}

/* The same for a whole block in vectors. Returns 0, and writes nothing, if the block is not in the usual
 * range. */
template <class G>
static __device__ __forceinline__ int block_update_usual(
        const struct adamw_planes &p, const struct adamw_scalars &s, int64_t block)
{
	const int lane = threadIdx.x % WARP;
	const int64_t i = block * ADAMW_BLOCK_8BIT + lane * BLOCK_VEC;
	weight_planes<BLOCK_VEC> weight;
	vec<uint32_t, 2> m = *(const vec<uint32_t, 2> *)((const uint8_t *)p.m + i);
	vec<uint32_t, 2> v = *(const vec<uint32_t, 2> *)((const uint8_t *)p.v + i);
	span<G, BLOCK_VEC> grad;
	float w[BLOCK_VEC];
	float new_m[BLOCK_VEC], root[BLOCK_VEC], m_scale = p.m_scale[block], v_scale = p.v_scale[block];
	float m_inverse, v_inverse;
	uint32_t m_size = 0, v_size = 0;
	struct adamw_seen seen;

	weight.load(p, i);
	span_load(grad, (const G *)p.grad + i);
#pragma unroll
	for (int j = 0; j < BLOCK_VEC; j++) {
		struct adamw_element e = {adamw_decode_m((uint8_t)byte_get(m.at[j / 4], j % 4), m_scale),
		        adamw_decode_r((uint8_t)byte_get(v.at[j / 4], j % 4), v_scale), weight.get(j)};

		e = adamw_usual_next(e, span_get(grad, j), s, &seen, &root[j]);
		w[j] = e.w;
		new_m[j] = e.m;
		m_size = max(m_size, adamw_size(e.m));
		v_size = max(v_size, adamw_size(root[j]));
	}
	if (!adamw_seen_usual(seen))
		m_size = UINT32_MAX;
	m_size = __reduce_max_sync(0xffffffffu, m_size);
	v_size = __reduce_max_sync(0xffffffffu, v_size);
	if (m_size == UINT32_MAX) {
		__syncwarp(); /* all lanes have read what other lanes will write */
		return 0;
	}
	m_scale = adamw_scale(m_size, ADAMW_TOP_M);
	v_scale = adamw_scale(v_size, ADAMW_TOP_R);
	m_inverse = adamw_inverse(m_scale);
	v_inverse = adamw_inverse(v_scale);
#pragma unroll
	for (int j = 0; j < BLOCK_VEC; j += 4) {
		uint32_t m_code[4], v_code[4];

#pragma unroll
		for (int k = 0; k < 4; k++) {
			m_code[k] = adamw_encode_m(
			        new_m[j + k], m_inverse, adamw_offset_m(&s.step, lane * BLOCK_VEC + j + k));
			v_code[k] = adamw_encode_r(
			        root[j + k], v_inverse, adamw_offset_r(&s.step, lane * BLOCK_VEC + j + k));
		}
		m.at[j / 4] = bytes_join(m_code);
		v.at[j / 4] = bytes_join(v_code);
	}
	weight.put_all(w);
	weight.store(p, i);
	*(vec<uint32_t, 2> *)((uint8_t *)p.m + i) = m;
	*(vec<uint32_t, 2> *)((uint8_t *)p.v + i) = v;
	__syncwarp(); /* all have read the scales */
	if (lane == 0) {
		p.m_scale[block] = m_scale;
		p.v_scale[block] = v_scale;
	}
	return 1;
}

template <class G, int N>
static __global__ void __launch_bounds__(BLOCK_THREADS)
        adamw_block_kernel(struct adamw_planes p, struct adamw_scalars s)
{
	int64_t block = (int64_t)blockIdx.x * BLOCK_WARPS + threadIdx.x / WARP;

	if (block * ADAMW_BLOCK_8BIT >= p.count)
		return;
	if (N == 1 || !s.is_usual || (block + 1) * ADAMW_BLOCK_8BIT > p.count ||
	        !block_update_usual<G>(p, s, block))
		block_update<G>(p, s, block);
}

template <class G>
static int adamw_start_blocks(
        const struct cuda_launch *at, const struct adamw_planes *p, const struct adamw_scalars *s)
{
	int aligned = is_aligned(p->hi, 2 * BLOCK_VEC) && is_aligned(p->lo, 2 * BLOCK_VEC) &&
	              is_aligned(p->m, BLOCK_VEC) && is_aligned(p->v, BLOCK_VEC) &&
	              is_aligned(p->grad, sizeof(G) * BLOCK_VEC);
	dim3 grid((unsigned)ceil_div(p->count, ADAMW_BLOCK_8BIT * BLOCK_WARPS));

	if (!aligned)
		return cuda_start(at, "adamw", adamw_block_kernel<G, 1>, grid, BLOCK_THREADS, 0, *p, *s);
	return cuda_start(at, "adamw", adamw_block_kernel<G, BLOCK_VEC>, grid, BLOCK_THREADS, 0, *p, *s);
}

template <class G>
static int adamw_start_state(const struct cuda_launch *at, const struct adamw_planes *p,
        const struct adamw_scalars *s, enum adamw_state state)
{
	switch (state) {
	case ADAMW_STATE_F32:
		return adamw_start<G, float>(at, p, s);
	case ADAMW_STATE_BF16:
		return adamw_start<G, bf16>(at, p, s);
	case ADAMW_STATE_8BIT:
		return adamw_start_blocks<G>(at, p, s);
	case ADAMW_STATE_COUNT:
		break;
	}
	return ERR_INTERNAL; /* op_check refuses it */
}

extern "C" int cuda_adamw(const struct cuda_launch *at, const struct op_adamw *o)
{
	struct adamw_planes p = {dev_ptr<uint16_t>(o->hi), dev_ptr<int16_t>(o->lo), dev_ptr<void>(o->m),
	        dev_ptr<void>(o->v), dev_ptr<float>(o->m_scale), dev_ptr<float>(o->v_scale),
	        dev_ptr<void>(o->grad), o->count, o->first};
	struct adamw_scalars s = {
	        o->step, o->decay ? o->step.decay_factor : 1.0f, o->tensor, adamw_is_usual(&o->step)};

	return o->grad_dtype == DTYPE_F32 ? adamw_start_state<float>(at, &p, &s, o->state)
	                                  : adamw_start_state<bf16>(at, &p, &s, o->state);
}
