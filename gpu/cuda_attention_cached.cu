/* Attention of new tokens over a cache of keys and values. */
#include "gpu/kernel.cuh"

extern "C" {
#include "base/err.h"
#include "device/op_attention.h"
}

OP_ATTENTION_LIST(CUDA_DECLARE)

namespace
{

enum { CACHED_BLOCK = 128, CACHED_WARPS = CACHED_BLOCK / WARP, CHUNK = 128, STORE_BLOCK = 256 };

struct cached_shape {
	const int32_t *doc_start, *doc_end;
	int64_t tokens, qkv_stride, q_head_stride, kv_head_stride, out_stride;
	int heads, kv_heads, head_dim, has_sink;
	int64_t window; /* INT64_MAX / 2: all */
	int64_t text_rows, kept_rows;
	float scale, score_cap;
};

/* Returns the place of row j of the text that begins at row `start`. *count is lowered to the rows that
 * follow each other there. */
static __device__ __forceinline__ int64_t cached_row(
        const cached_shape &p, int64_t start, int64_t j, int *count)
{
	int64_t at;

	if (!p.kept_rows)
		return j;
	at = (j - start) % p.kept_rows;
	if (p.kept_rows - at < *count)
		*count = (int)(p.kept_rows - at);
	return start / p.text_rows * p.kept_rows + at;
}

/* Stores k and v of a token in its row; a block has one token. */
template <class T>
static __global__ void __launch_bounds__(STORE_BLOCK) cached_store(
        const cached_shape p, T *__restrict__ cache, const T *__restrict__ k, const T *__restrict__ v)
{
	int64_t t = blockIdx.x, count = (int64_t)p.kv_heads * p.head_dim;
	int one = 1;
	T *row = cache + cached_row(p, p.doc_start[t], p.doc_end[t] - 1, &one) * 2 * count;

	for (int64_t i = threadIdx.x; i < count; i += STORE_BLOCK) {
		int64_t at = t * p.qkv_stride + i / p.head_dim * p.kv_head_stride + i % p.head_dim;

		row[i] = k[at];
		row[count + i] = v[at];
	}
}

/* Computes score[j] of `count` keys; a warp has every CACHED_WARPS-th. */
template <class T>
static __device__ __forceinline__ void cached_scores(
        float *score, const cached_shape &p, const float *query, const T *keys, int64_t stride, int count)
{
	int lane = (int)threadIdx.x % WARP;

	for (int j = (int)threadIdx.x / WARP; j < count; j += CACHED_WARPS) {
		const T *key = keys + j * stride;
		float sum = 0;

		for (int d = lane; d < p.head_dim; d += WARP)
			sum = fmaf(query[d], to_float(key[d]), sum);
		sum = warp_sum(sum) * p.scale;
		if (p.score_cap > 0)
			sum = p.score_cap * tanhf(sum / p.score_cap);
		if (!lane)
			score[j] = sum;
	}
}

/* The largest of score[0 .. count) and `most`, for every thread. */
static __device__ __forceinline__ float cached_max(float *parts, const float *score, int count, float most)
{
	int me = (int)threadIdx.x;

	for (int j = me; j < count; j += CACHED_BLOCK)
		most = fmaxf(most, score[j]);
	most = warp_max(most);
	if (me % WARP == 0)
		parts[me / WARP] = most;
	__syncthreads();
	for (int w = 0; w < CACHED_WARPS; w++)
		most = fmaxf(most, parts[w]);
	return most;
}

/* A block has one query of one head. It reads the keys once, CHUNK at a time, with the running maximum and
 * sum of the other attention kernels. Dynamic shared memory: query [head_dim], then the sum of values
 * [head_dim]. */
template <class T>
static __global__ void __launch_bounds__(CACHED_BLOCK) cached_attend(const cached_shape p,
        T *__restrict__ out, const T *__restrict__ q, const T *__restrict__ cache, const T *__restrict__ sink)
{
	SHARED(float, score, CHUNK);
	SHARED(float, parts, CACHED_WARPS);
	SHARED_DYNAMIC(float, query);
	float *acc = query + p.head_dim;
	int64_t t = blockIdx.x / (unsigned)p.heads, count = (int64_t)p.kv_heads * p.head_dim;
	int head = (int)(blockIdx.x % (unsigned)p.heads), group = head / (p.heads / p.kv_heads);
	int me = (int)threadIdx.x;
	int64_t end = p.doc_end[t], first = p.doc_start[t];
	float most = p.has_sink ? to_float(sink[head]) : -INFINITY, sum = p.has_sink ? 1.0f : 0.0f;

	if (end - p.window > first)
		first = end - p.window;
	for (int d = me; d < p.head_dim; d += CACHED_BLOCK) {
		query[d] = to_float(q[t * p.qkv_stride + head * p.q_head_stride + d]);
		acc[d] = 0;
	}
	__syncthreads();
	for (int64_t j0 = first, next; j0 < end; j0 = next) {
		int keys_count = end - j0 < CHUNK ? (int)(end - j0) : (int)CHUNK;
		int64_t row = cached_row(p, p.doc_start[t], j0, &keys_count);
		const T *keys = cache + row * 2 * count + (int64_t)group * p.head_dim, *values = keys + count;
		float before = most, keep;

		next = j0 + keys_count;
		cached_scores(score, p, query, keys, 2 * count, keys_count);
		__syncthreads();
		most = cached_max(parts, score, keys_count, most);
		keep = expf(before - most);
		sum *= keep;
		__syncthreads(); /* parts were read: the next chunk may write them */
		for (int j = me; j < keys_count; j += CACHED_BLOCK)
			score[j] = expf(score[j] - most);
		__syncthreads();
		for (int j = 0; j < keys_count; j++) /* every thread adds the same sum in the same order */
			sum += score[j];
		for (int d = me; d < p.head_dim; d += CACHED_BLOCK) {
			float a = acc[d] * keep;

			for (int j = 0; j < keys_count; j++)
				a = fmaf(score[j], to_float(values[j * 2 * count + d]), a);
			acc[d] = a;
		}
		__syncthreads(); /* scores were read: the next chunk may write them */
	}
	for (int d = me; d < p.head_dim; d += CACHED_BLOCK)
		out[t * p.out_stride + head * p.head_dim + d] = from_float<T>(acc[d] / sum);
}

template <class T> int cached_start(const struct cuda_launch *at, const struct op_attention_cached *o)
{
	const cached_shape p = {dev_ptr<int32_t>(o->doc_start), dev_ptr<int32_t>(o->doc_end), o->tokens,
	        o->qkv_stride, o->q_head_stride, o->kv_head_stride, o->out_stride, (int)o->heads,
	        (int)o->kv_heads, (int)o->head_dim, !dev_is_none(o->sink),
	        o->window > 0 ? o->window : INT64_MAX / 2, o->text_rows, o->kept_rows, (float)o->scale,
	        (float)o->score_cap};
	int rc = cuda_start(at, "attention_cached", cached_store<T>, dim3((unsigned)o->tokens), STORE_BLOCK,
	        0, p, dev_ptr<T>(o->cache), dev_ptr<T>(o->k), dev_ptr<T>(o->v));

	if (rc)
		return rc;
	return cuda_start(at, "attention_cached", cached_attend<T>, dim3((unsigned)(o->tokens * o->heads)),
	        CACHED_BLOCK, 8 * o->head_dim, p, dev_ptr<T>(o->out), dev_ptr<T>(o->q), dev_ptr<T>(o->cache),
	        dev_ptr<T>(o->sink));
}

} // namespace

extern "C" int cuda_attention_cached(const struct cuda_launch *at, const struct op_attention_cached *o)
{
	if (o->heads > INT32_MAX || o->head_dim > INT32_MAX || o->tokens * o->heads > INT32_MAX)
		return err_set(ERR_UNSUPPORTED, "attention: %lld tokens, %lld heads of %lld are too many",
		        (long long)o->tokens, (long long)o->heads, (long long)o->head_dim);
	return o->dtype == DTYPE_BF16 ? cached_start<bf16>(at, o) : cached_start<float>(at, o);
}
