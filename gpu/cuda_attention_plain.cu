/* Attention in plain fp32 arithmetic, forward and backward, for ops that tiles cannot compute. */
#include "gpu/attention.cuh"

/* For F32 (tensor cores would round to tf32), and for ops that the tiles of attention.cuh cannot compute: any
 * head_dim, any strides, any mask, score caps, sinks and biases.
 *
 * 256 threads hold 64 x 64 scores, 4 x 4 each, computed from 32 columns of head_dim at a time. A block
 * computes 64 columns of its result. So the scores of a head of 128 are computed twice, and no array depends
 * on head_dim. Thread (y, x) of 16 x 16 has rows 4 y + i. Of scores it has columns x + 16 j: 16 lanes share a
 * row, so the maximum takes 4 shuffles. Of results it has columns 4 x + j, for 16-byte accesses. */
enum {
	SIDE = 64,
	DEPTH = 32,
	SPAN = SIDE / 16, /* of a thread */
	PART_PITCH = DEPTH + 4,
	SIDE_PITCH = SIDE + 4,
	PLAIN_THREADS = 256,
	PARTS_COUNT = 2 * SIDE * PART_PITCH, /* floats: room for two parts, or one square */
	SQUARE_COUNT = SIDE * SIDE_PITCH
};

/* Up to 64 rows of an operand. */
template <class T> struct plain_rows {
	const T *at;
	int64_t stride;
	int count;
};

/* Loads columns [column, column + COLUMNS) of the rows as fp32; missing elements become 0. */
template <int COLUMNS, class T>
static __device__ __forceinline__ void plain_load(
        float *to, const plain_rows<T> &rows, int column, int head_dim)
{
	constexpr int TO_PITCH = COLUMNS + 4;

	for (int i = (int)threadIdx.x; i < SIDE * COLUMNS; i += PLAIN_THREADS) {
		int r = i / COLUMNS, c = i % COLUMNS;
		bool there = r < rows.count && column + c < head_dim;

		to[r * TO_PITCH + c] = there ? to_float(rows.at[r * rows.stride + column + c]) : 0.0f;
	}
}

/* s = a b^T over head_dim, in ascending order. All threads call it. parts has PARTS_COUNT floats, free before
 * and after.
 */
template <class T>
static __device__ __forceinline__ void plain_scores(
        float (&s)[SPAN][SPAN], float *parts, const plain_rows<T> &a, const plain_rows<T> &b, int head_dim)
{
	float *a_part = parts, *b_part = parts + SIDE * PART_PITCH;
	int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;

#pragma unroll
	for (int i = 0; i < SPAN; i++)
		for (int j = 0; j < SPAN; j++)
			s[i][j] = 0;
	for (int d = 0; d < head_dim; d += DEPTH) {
		plain_load<DEPTH>(a_part, a, d, head_dim);
		plain_load<DEPTH>(b_part, b, d, head_dim);
		__syncthreads();
#pragma unroll
		for (int c = 0; c < DEPTH; c += 4) {
			vec<float, 4> va[SPAN], vb[SPAN];

#pragma unroll
			for (int i = 0; i < SPAN; i++) {
				va[i] = *(const vec<float, 4> *)(a_part + (y * SPAN + i) * PART_PITCH + c);
				vb[i] = *(const vec<float, 4> *)(b_part + (x + 16 * i) * PART_PITCH + c);
			}
#pragma unroll
			for (int n = 0; n < 4; n++)
#pragma unroll
				for (int i = 0; i < SPAN; i++)
#pragma unroll
					for (int j = 0; j < SPAN; j++)
						s[i][j] = fmaf(va[i].at[n], vb[j].at[n], s[i][j]);
		}
		__syncthreads();
	}
}

static __device__ __forceinline__ void plain_put(float *square, const float (&s)[SPAN][SPAN])
{
	int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;

#pragma unroll
	for (int i = 0; i < SPAN; i++)
#pragma unroll
		for (int j = 0; j < SPAN; j++)
			square[(y * SPAN + i) * SIDE_PITCH + x + 16 * j] = s[i][j];
}

/* o[row, column] += sum over k of a[row, k] b[k, column], in ascending order of k */
static __device__ __forceinline__ void plain_product(float (&o)[SPAN][SPAN], const float *a, const float *b)
{
	int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;

#pragma unroll 4
	for (int k = 0; k < SIDE; k += 4) {
		vec<float, 4> va[SPAN], vb[4];

#pragma unroll
		for (int i = 0; i < SPAN; i++) {
			va[i] = *(const vec<float, 4> *)(a + (y * SPAN + i) * SIDE_PITCH + k);
			vb[i] = *(const vec<float, 4> *)(b + (k + i) * SIDE_PITCH + x * SPAN);
		}
#pragma unroll
		for (int n = 0; n < 4; n++)
#pragma unroll
			for (int i = 0; i < SPAN; i++)
#pragma unroll
				for (int j = 0; j < SPAN; j++)
					o[i][j] = fmaf(va[i].at[n], vb[n].at[j], o[i][j]);
	}
}

/* o[row, column] += sum over k of a[k, row] b[k, column], in ascending order of k */
static __device__ __forceinline__ void plain_product_transposed(
        float (&o)[SPAN][SPAN], const float *a, const float *b)
{
	int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;

#pragma unroll 8
	for (int k = 0; k < SIDE; k++) {
		const vec<float, 4> va = *(const vec<float, 4> *)(a + k * SIDE_PITCH + y * SPAN);
		const vec<float, 4> vb = *(const vec<float, 4> *)(b + k * SIDE_PITCH + x * SPAN);

#pragma unroll
		for (int i = 0; i < SPAN; i++)
#pragma unroll
			for (int j = 0; j < SPAN; j++)
				o[i][j] = fmaf(va.at[i], vb.at[j], o[i][j]);
	}
}

/* Stores rows [0, row_count) of a result, 64 columns from `column` on, with row i times factor[i]. */
template <class T>
static __device__ __forceinline__ void plain_store(T *to, int64_t stride, int row_count, int column,
        int head_dim, const float (&o)[SPAN][SPAN], const float (&factor)[SPAN])
{
	int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;

#pragma unroll
	for (int i = 0; i < SPAN; i++)
		for (int j = 0; j < SPAN; j++) {
			int row = y * SPAN + i, c = column + x * SPAN + j;

			if (row < row_count && c < head_dim)
				to[row * stride + c] = from_float<T>(o[i][j] * factor[i]);
		}
}

static __device__ __forceinline__ void plain_zero(float (&o)[SPAN][SPAN])
{
#pragma unroll
	for (int i = 0; i < SPAN; i++)
#pragma unroll
		for (int j = 0; j < SPAN; j++)
			o[i][j] = 0;
}

/* The score of a query and a key that it sees, from their product. */
template <class T>
static __device__ __forceinline__ float plain_score(
        float product, const attention_shape &p, int head, int query, int key)
{
	float s = product * p.scale;

	if (p.bias)
		return s + to_float(((const T *)p.bias)[bias_at(p, head, key - query)]);
	return p.score_cap > 0 ? p.score_cap * tanhf(s / p.score_cap) : s;
}

/* The maximum, and the sum, over the 16 lanes that share rows. */
static __device__ __forceinline__ float row_max(float x)
{
	for (int lanes = 8; lanes; lanes /= 2)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
	return x;
}

static __device__ __forceinline__ float row_sum(float x)
{
	for (int lanes = 8; lanes; lanes /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, lanes);
	return x;
}

/* ---- forward: a block computes 64 columns of 64 queries ---- */

enum { PLAIN_BYTES = (PARTS_COUNT + SQUARE_COUNT) * 4 };

template <class T>
static __global__ void __launch_bounds__(PLAIN_THREADS) attention_plain_kernel(const attention_shape p,
        T *__restrict__ out, float *__restrict__ lse, const T *__restrict__ q, const T *__restrict__ k,
        const T *__restrict__ v, const T *__restrict__ sink)
{
	SHARED_DYNAMIC(float, parts);
	float *square = parts + PARTS_COUNT;
	int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16, column = (int)blockIdx.y * SIDE;
	int head = (int)blockIdx.x % p.heads, kv_head = head / (p.heads / p.kv_heads);
	int q0 = (int)((gridDim.x - 1 - blockIdx.x) / (unsigned)p.heads) * SIDE;
	int q_end = min(q0 + SIDE, p.tokens), k_end = key_end(p, q_end - 1), first[SPAN], end[SPAN];
	float s[SPAN][SPAN], o[SPAN][SPAN], high[SPAN], factor[SPAN];
	double sum[SPAN];
	plain_rows<T> queries = {q + q0 * p.qkv_stride + head * p.q_head_stride, p.qkv_stride, q_end - q0};

	plain_zero(o);
#pragma unroll
	for (int i = 0; i < SPAN; i++) {
		first[i] = first_key(p, min(q0 + y * SPAN + i, p.tokens - 1));
		end[i] = key_end(p, min(q0 + y * SPAN + i, p.tokens - 1));
		high[i] = sink ? to_float(sink[head]) : -INFINITY; /* the first score, without a value */
		sum[i] = sink ? 1 : 0;
	}
	for (int k0 = first_key(p, q0) / SIDE * SIDE; k0 < k_end; k0 += SIDE) {
		int64_t at = k0 * p.qkv_stride + kv_head * p.kv_head_stride;
		plain_rows<T> keys = {k + at, p.qkv_stride, k_end - k0},
		              values = {v + at, p.qkv_stride, k_end - k0};

		plain_scores(s, parts, queries, keys, p.head_dim);
		plain_load<SIDE>(parts, values, column, p.head_dim);
#pragma unroll
		for (int i = 0; i < SPAN; i++) {
			float top = high[i], keep, part = 0;

#pragma unroll
			for (int j = 0; j < SPAN; j++) {
				int key = k0 + x + 16 * j;

				s[i][j] = key >= first[i] && key < end[i]
				                  ? plain_score<T>(s[i][j], p, head, q0 + y * SPAN + i, key)
				                  : -INFINITY;
				top = fmaxf(top, s[i][j]);
			}
			top = row_max(top);
			/* a row that has seen no key yet has nothing to keep, and gets nothing */
			keep = top == -INFINITY ? 1.0f : expf(high[i] - top);
			high[i] = top;
#pragma unroll
			for (int j = 0; j < SPAN; j++) {
				s[i][j] = s[i][j] == -INFINITY ? 0.0f : expf(s[i][j] - top);
				part += s[i][j];
				o[i][j] *= keep;
			}
			sum[i] = sum[i] * keep + row_sum(part);
		}
		plain_put(square, s);
		__syncthreads();
		plain_product(o, square, parts);
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < SPAN; i++) {
		int row = q0 + y * SPAN + i;

		factor[i] = (float)(1 / sum[i]);
		if (x == 0 && column == 0 && row < q_end)
			lse[(int64_t)row * p.heads + head] = (float)(high[i] + log(sum[i]));
	}
	plain_store(out + q0 * p.out_stride + (int64_t)head * p.head_dim, p.out_stride, q_end - q0, column,
	        p.head_dim, o, factor);
}

template <class T>
static int plain_start(const struct cuda_launch *at, const struct op_attention *o, const attention_shape &p)
{
	dim3 grid((unsigned)(ceil_div(p.tokens, SIDE) * p.heads), (unsigned)ceil_div(p.head_dim, SIDE));

	return cuda_start(at, "attention", attention_plain_kernel<T>, grid, PLAIN_THREADS, PLAIN_BYTES, p,
	        dev_ptr<T>(o->out), dev_ptr<float>(o->lse), dev_ptr<T>(o->q), dev_ptr<T>(o->k),
	        dev_ptr<T>(o->v), dev_ptr<T>(o->sink));
}

int attention_plain(const struct cuda_launch *at, const struct op_attention *o, const attention_shape &p)
{
	return o->dtype == DTYPE_F32 ? plain_start<float>(at, o, p) : plain_start<bf16>(at, o, p);
}

/* ---- backward ---- */

/* The inputs of both passes of backward. */
template <class T> struct plain_inputs {
	const T *dout, *q, *k, *v;
	const float *lse, *delta; /* [tokens, heads]; [heads, tokens] */
};

enum { PLAIN_GRAD_BYTES = (PARTS_COUNT + 2 * SQUARE_COUNT) * 4 };

/* Computes probabilities and gradients of scores (without the factor scale) of 64 queries and 64 keys. */
template <class T>
static __device__ __forceinline__ void plain_tile(float (&s)[SPAN][SPAN], float (&ds)[SPAN][SPAN],
        float *parts, const attention_shape &p, const plain_inputs<T> &in, int head, int q0, int k0)
{
	int x = (int)threadIdx.x % 16, y = (int)threadIdx.x / 16;
	int64_t keys_at = k0 * p.qkv_stride + head / (p.heads / p.kv_heads) * p.kv_head_stride;
	plain_rows<T> queries = {
	        in.q + q0 * p.qkv_stride + head * p.q_head_stride, p.qkv_stride, p.tokens - q0};
	plain_rows<T> dout = {
	        in.dout + q0 * p.out_stride + (int64_t)head * p.head_dim, p.out_stride, p.tokens - q0};
	plain_rows<T> keys = {in.k + keys_at, p.qkv_stride, p.tokens - k0};
	plain_rows<T> values = {in.v + keys_at, p.qkv_stride, p.tokens - k0};

	plain_scores(s, parts, queries, keys, p.head_dim);
	plain_scores(ds, parts, dout, values, p.head_dim);
#pragma unroll
	for (int i = 0; i < SPAN; i++) {
		int row = q0 + y * SPAN + i, last = min(row, p.tokens - 1);
		int first = first_key(p, last), end = key_end(p, last);
		float lse = in.lse[(int64_t)last * p.heads + head];
		float delta = in.delta[(int64_t)head * p.tokens + last];

#pragma unroll
		for (int j = 0; j < SPAN; j++) {
			int key = k0 + x + 16 * j;
			bool sees = row < p.tokens && key >= first && key < end;
			float score = plain_score<T>(s[i][j], p, head, last, key);

			s[i][j] = sees ? expf(score - lse) : 0.0f;
			ds[i][j] = sees ? s[i][j] * (ds[i][j] - delta) : 0.0f;
			if (p.score_cap > 0) /* the slope of the cap */
				ds[i][j] *= 1 - score / p.score_cap * (score / p.score_cap);
		}
	}
}

template <class T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
        attention_plain_dq(const attention_shape p, T *__restrict__ dq, const plain_inputs<T> in)
{
	SHARED_DYNAMIC(float, parts);
	float *square = parts + PARTS_COUNT;
	int head = (int)blockIdx.x % p.heads, kv_head = head / (p.heads / p.kv_heads);
	int column = (int)blockIdx.y * SIDE;
	int q0 = (int)((gridDim.x - 1 - blockIdx.x) / (unsigned)p.heads) * SIDE;
	int q_end = min(q0 + SIDE, p.tokens), k_end = key_end(p, q_end - 1);
	float s[SPAN][SPAN], ds[SPAN][SPAN], o[SPAN][SPAN], factor[SPAN];

	plain_zero(o);
	for (int k0 = first_key(p, q0) / SIDE * SIDE; k0 < k_end; k0 += SIDE) {
		plain_rows<T> keys = {
		        in.k + k0 * p.qkv_stride + kv_head * p.kv_head_stride, p.qkv_stride, k_end - k0};

		plain_tile(s, ds, parts, p, in, head, q0, k0);
		plain_load<SIDE>(parts, keys, column, p.head_dim);
		plain_put(square, ds);
		__syncthreads();
		plain_product(o, square, parts);
		__syncthreads();
	}
	for (int i = 0; i < SPAN; i++)
		factor[i] = p.scale;
	plain_store(dq + q0 * p.qkv_stride + head * p.q_head_stride, p.qkv_stride, q_end - q0, column,
	        p.head_dim, o, factor);
}

template <class T>
static __global__ void __launch_bounds__(PLAIN_THREADS) attention_plain_dkv(
        const attention_shape p, T *__restrict__ dk, T *__restrict__ dv, const plain_inputs<T> in)
{
	SHARED_DYNAMIC(float, parts);
	float *p_square = parts + PARTS_COUNT, *ds_square = p_square + SQUARE_COUNT;
	int kv_head = (int)blockIdx.x % p.kv_heads, group = p.heads / p.kv_heads;
	int column = (int)blockIdx.y * SIDE;
	int k0 = (int)(blockIdx.x / (unsigned)p.kv_heads) * SIDE, k_end = min(k0 + SIDE, p.tokens);
	int64_t at = k0 * p.qkv_stride + kv_head * p.kv_head_stride;
	float s[SPAN][SPAN], ds[SPAN][SPAN], k_sum[SPAN][SPAN], v_sum[SPAN][SPAN], factor[SPAN];

	plain_zero(k_sum);
	plain_zero(v_sum);
	for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
		for (int q0 = first_query(p, k0) / SIDE * SIDE; q0 < query_end(p, k_end - 1); q0 += SIDE) {
			plain_rows<T> queries = {in.q + q0 * p.qkv_stride + head * p.q_head_stride,
			        p.qkv_stride, p.tokens - q0};
			plain_rows<T> dout = {in.dout + q0 * p.out_stride + (int64_t)head * p.head_dim,
			        p.out_stride, p.tokens - q0};

			plain_tile(s, ds, parts, p, in, head, q0, k0);
			plain_put(p_square, s);
			plain_put(ds_square, ds);
			plain_load<SIDE>(parts, dout, column, p.head_dim);
			__syncthreads();
			plain_product_transposed(v_sum, p_square, parts);
			__syncthreads();
			plain_load<SIDE>(parts, queries, column, p.head_dim);
			__syncthreads();
			plain_product_transposed(k_sum, ds_square, parts);
			__syncthreads();
		}
	for (int i = 0; i < SPAN; i++)
		factor[i] = p.scale;
	plain_store(dk + at, p.qkv_stride, k_end - k0, column, p.head_dim, k_sum, factor);
	for (int i = 0; i < SPAN; i++)
		factor[i] = 1;
	plain_store(dv + at, p.qkv_stride, k_end - k0, column, p.head_dim, v_sum, factor);
}

/* A sink has the probability exp(sink - lse) in each row and no value, so dsink -= sum(exp(sink - lse)
 * delta). A block computes a head; thread t has tokens t, t + SINK_THREADS, ... */
enum { SINK_THREADS = 256 };

template <class T>
static __global__ void __launch_bounds__(SINK_THREADS)
        attention_sink_kernel(const attention_shape p, float *__restrict__ dsink, const T *__restrict__ sink,
                const float *__restrict__ lse, const float *__restrict__ delta)
{
	SHARED(double, sums, SINK_THREADS);
	int head = (int)blockIdx.x, me = (int)threadIdx.x;
	float score = to_float(sink[head]);
	double sum = 0;

	for (int t = me; t < p.tokens; t += SINK_THREADS)
		sum += (double)(expf(score - lse[(int64_t)t * p.heads + head]) *
		                delta[(int64_t)head * p.tokens + t]);
	sums[me] = sum;
	for (int half = SINK_THREADS / 2; half; half /= 2) {
		__syncthreads();
		if (me < half)
			sums[me] += sums[me + half];
	}
	if (!me)
		dsink[head] -= (float)sums[0];
}

template <class T>
static int sink_grad_start(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p)
{
	return cuda_start(at, "attention_grad", attention_sink_kernel<T>, dim3((unsigned)p.heads),
	        SINK_THREADS, 0, p, dev_ptr<float>(o->dsink), dev_ptr<T>(o->sink), dev_ptr<float>(o->lse),
	        dev_ptr<float>(o->scratch));
}

int attention_sink_grad(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p)
{
	if (dev_is_none(o->sink))
		return 0;
	return o->dtype == DTYPE_F32 ? sink_grad_start<float>(at, o, p) : sink_grad_start<bf16>(at, o, p);
}

/* ---- the gradient of a bias ---- */

/* Tiles of scores with the same distance share a block, which adds their gradients up element by element, in
 * ascending order of queries. So the sum has no atomic addition, and the same bits each time. Then a thread
 * each adds the elements of one distance. Several blocks have a part of the queries each, because short
 * documents leave few diagonals with work. parts_sum: [part, diagonal, head, 2 SIDE]. */
static_assert((int)SIDE == (int)ATTENTION_BIAS_SIDE, "attention_bias_scratch_count");

template <class T>
static __global__ void __launch_bounds__(PLAIN_THREADS) attention_plain_dbias(
        const attention_shape p, float *__restrict__ parts_sum, const plain_inputs<T> in)
{
	SHARED_DYNAMIC(float, parts);
	float *square = parts + PARTS_COUNT;
	int head = (int)blockIdx.x % p.heads, diagonal = (int)blockIdx.x / p.heads, me = (int)threadIdx.x;
	int tiles = (p.tokens - 1) / SIDE + 1, each = (tiles - 1) / ATTENTION_BIAS_PARTS + 1;
	int n_end = min(((int)blockIdx.y + 1) * each, tiles);
	float s[SPAN][SPAN], ds[SPAN][SPAN], sum[SPAN][SPAN];

	plain_zero(sum);
	for (int n = (int)blockIdx.y * each; n < n_end; n++) {
		int q0 = n * SIDE, q_last = min(q0 + SIDE, p.tokens) - 1;
		int k0 = (n + diagonal - (tiles - 1)) * SIDE;

		if (k0 < 0 || k0 >= p.tokens || k0 >= key_end(p, q_last) || k0 + SIDE <= first_key(p, q0))
			continue;
		plain_tile(s, ds, parts, p, in, head, q0, k0);
#pragma unroll
		for (int i = 0; i < SPAN; i++)
#pragma unroll
			for (int j = 0; j < SPAN; j++)
				sum[i][j] += ds[i][j];
	}
	plain_put(square, sum);
	__syncthreads();
	if (me < 2 * SIDE) { /* distance me - SIDE within the tiles */
		float total = 0;

		for (int row = max(SIDE - me, 0); row < min(2 * SIDE - me, (int)SIDE); row++)
			total += square[row * SIDE_PITCH + row + me - SIDE];
		parts_sum[((int64_t)blockIdx.y * gridDim.x + blockIdx.x) * 2 * SIDE + me] = total;
	}
}

/* A thread adds the parts of a distance, which lies in two diagonals of tiles, or in one. */
static __global__ void __launch_bounds__(PLAIN_THREADS) attention_bias_sum(
        const attention_shape p, float *__restrict__ dbias, const float *__restrict__ parts_sum)
{
	int n = (int)(blockIdx.x * PLAIN_THREADS + threadIdx.x), head = (int)blockIdx.y;
	int tiles = (p.tokens - 1) / SIDE + 1, diagonals = 2 * tiles - 1;
	int from = n - p.tokens + tiles * SIDE, low = from / SIDE - 1;
	float total = 0;

	if (n < 1 || n >= 2 * p.tokens)
		return;
	for (int part = 0; part < ATTENTION_BIAS_PARTS; part++)
		for (int diagonal = low; diagonal <= low + 1; diagonal++) {
			int64_t at = ((int64_t)part * diagonals + diagonal) * p.heads + head;

			/* distance in the tiles + SIDE; that of the tiles is (diagonal - tiles + 1) SIDE */
			if (diagonal >= 0 && diagonal < diagonals)
				total += parts_sum[at * 2 * SIDE + from - diagonal * SIDE];
		}
	dbias[(int64_t)head * 2 * p.tokens + n] += total;
}

template <class T>
static int bias_grad_start(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p)
{
	float *delta = dev_ptr<float>(o->scratch),
	      *parts = delta + attention_scratch_count(p.tokens, p.heads, p.head_dim);
	unsigned diagonals = 2 * (unsigned)ceil_div(p.tokens, SIDE) - 1;
	plain_inputs<T> in = {dev_ptr<T>(o->dout), dev_ptr<T>(o->q), dev_ptr<T>(o->k), dev_ptr<T>(o->v),
	        dev_ptr<float>(o->lse), delta};
	int rc = cuda_start(at, "attention_grad", attention_plain_dbias<T>,
	        dim3(diagonals * (unsigned)p.heads, ATTENTION_BIAS_PARTS), PLAIN_THREADS, PLAIN_GRAD_BYTES, p,
	        parts, in);

	if (rc)
		return rc;
	return cuda_start(at, "attention_grad", attention_bias_sum,
	        dim3((unsigned)ceil_div(2 * p.tokens, PLAIN_THREADS), (unsigned)p.heads), PLAIN_THREADS, 0, p,
	        dev_ptr<float>(o->dbias), (const float *)parts);
}

int attention_bias_grad(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p)
{
	if (dev_is_none(o->dbias))
		return 0;
	return o->dtype == DTYPE_F32 ? bias_grad_start<float>(at, o, p) : bias_grad_start<bf16>(at, o, p);
}

template <class T>
static int plain_grad_start(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p)
{
	unsigned parts = (unsigned)ceil_div(p.head_dim, SIDE), tiles = (unsigned)ceil_div(p.tokens, SIDE);
	plain_inputs<T> in = {dev_ptr<T>(o->dout), dev_ptr<T>(o->q), dev_ptr<T>(o->k), dev_ptr<T>(o->v),
	        dev_ptr<float>(o->lse), dev_ptr<float>(o->scratch)};
	int rc = cuda_start(at, "attention_grad", attention_plain_dq<T>,
	        dim3(tiles * (unsigned)p.heads, parts), PLAIN_THREADS, PLAIN_GRAD_BYTES, p, dev_ptr<T>(o->dq),
	        in);
	if (rc)
		return rc;
	return cuda_start(at, "attention_grad", attention_plain_dkv<T>,
	        dim3(tiles * (unsigned)p.kv_heads, parts), PLAIN_THREADS, PLAIN_GRAD_BYTES, p,
	        dev_ptr<T>(o->dk), dev_ptr<T>(o->dv), in);
}

int attention_plain_grad(
        const struct cuda_launch *at, const struct op_attention_grad *o, const attention_shape &p)
{
	return o->dtype == DTYPE_F32 ? plain_grad_start<float>(at, o, p) : plain_grad_start<bf16>(at, o, p);
}
