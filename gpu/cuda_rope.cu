/* Rotary position embedding, forward and backward. */
#include "gpu/map.cuh"

extern "C" {
#include "device/op_rope.h"
}

OP_ROPE_LIST(CUDA_DECLARE)

namespace
{

enum { ROPE_BLOCK = 128, ROPE_HEADS = 4 };

struct rope_shape {
	int64_t tokens, heads, stride, head_stride, half;
	float sign; /* -1 rotates back */
};

/* A thread has N neighbouring pairs of ROPE_HEADS heads of one token and loads their cosines and sines once.
 * Of its 2 N elements `a` has the first N, `b` the others. Pair i has elements i and N + i, or with
 * NEIGHBOURS 2 i and 2 i + 1. Elements are read and written once. The table takes 4 rotary bytes a token; for
 * further heads they come from the cache. */
template <class T, int N, int NEIGHBOURS>
__global__ void __launch_bounds__(ROPE_BLOCK)
        rope_kernel(T *x, const float *table, const int32_t *position, struct rope_shape s)
{
	const int64_t pieces = s.half / N, each = pieces * ((s.heads + ROPE_HEADS - 1) / ROPE_HEADS);
	const int64_t item = (int64_t)blockIdx.x * ROPE_BLOCK + threadIdx.x;
	const int64_t token = item / each, head = item % each / pieces * ROPE_HEADS;
	const int64_t j = item % pieces * N;
	const float *row;
	T *low = x + token * s.stride + head * s.head_stride + (NEIGHBOURS ? 2 * j : j);
	T *high = low + (NEIGHBOURS ? N : s.half);
	span<T, N> a[ROPE_HEADS], b[ROPE_HEADS];
	span<float, N> cosine, sine;

	if (token >= s.tokens)
		return;
	row = table + position[token] * 2 * s.half + j;
#pragma unroll
	for (int h = 0; h < ROPE_HEADS; h++)
		if (head + h < s.heads) {
			span_load(a[h], low + h * s.head_stride);
			span_load(b[h], high + h * s.head_stride);
		}
	span_load(cosine, row);
	span_load(sine, row + s.half);
#pragma unroll
	for (int h = 0; h < ROPE_HEADS; h++)
		if (head + h < s.heads) {
			float p[N], q[N], e[2 * N];

#pragma unroll
			for (int i = 0; i < N; i++) {
				float c = span_get(cosine, i), n = s.sign * span_get(sine, i);
				const int l = NEIGHBOURS ? 2 * i : i, m = NEIGHBOURS ? 2 * i + 1 : N + i;
				float u = l < N ? span_get(a[h], l % N) : span_get(b[h], l % N);
				float v = m < N ? span_get(a[h], m % N) : span_get(b[h], m % N);

				e[l] = fmaf(u, c, -(v * n));
				e[m] = fmaf(v, c, u * n);
			}
#pragma unroll
			for (int i = 0; i < N; i++) {
				p[i] = e[i];
				q[i] = e[N + i];
			}
			span_put(a[h], p);
			span_put(b[h], q);
			span_store(low + h * s.head_stride, a[h]);
			span_store(high + h * s.head_stride, b[h]);
		}
}

template <class T, int NEIGHBOURS> int rope_start(const struct cuda_launch *at, const struct op_rope *o)
{
	const struct rope_shape s = {o->tokens, o->heads, o->stride, o->head_stride, o->rotary / 2,
	        o->direction == ROPE_FORWARD ? 1.0f : -1.0f};
	const int64_t groups = ceil_div(s.heads, ROPE_HEADS) * s.tokens, wide = vec_count<T>;
	T *x = dev_ptr<T>(o->x);
	const float *table = dev_ptr<const float>(o->table);
	const int32_t *position = dev_ptr<const int32_t>(o->position);

	if (is_aligned(x, 16) && is_aligned(table, 16) && s.half % wide == 0 &&
	        (s.tokens == 1 || s.stride % wide == 0) && (s.heads == 1 || s.head_stride % wide == 0))
		return cuda_start(at, "rope", rope_kernel<T, vec_count<T>, NEIGHBOURS>,
		        dim3((unsigned)ceil_div(groups * (s.half / wide), ROPE_BLOCK)), ROPE_BLOCK, 0, x,
		        table, position, s);
	return cuda_start(at, "rope", rope_kernel<T, 1, NEIGHBOURS>,
	        dim3((unsigned)ceil_div(groups * s.half, ROPE_BLOCK)), ROPE_BLOCK, 0, x, table, position, s);
}

} // namespace

extern "C" int cuda_rope(const struct cuda_launch *at, const struct op_rope *o)
{
	if (o->pairs == ROPE_NEIGHBOURS)
		return o->dtype == DTYPE_BF16 ? rope_start<bf16, 1>(at, o) : rope_start<float, 1>(at, o);
	return o->dtype == DTYPE_BF16 ? rope_start<bf16, 0>(at, o) : rope_start<float, 0>(at, o);
}
