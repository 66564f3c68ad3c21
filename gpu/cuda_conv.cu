/* The short convolution over tokens: reads x once and writes y once; backward reads dy and x and writes dx.
 */
#include "gpu/act.cuh"

extern "C" {
#include "base/err.h"
#include "device/op_recurrent.h"
}

OP_RECURRENT_LIST(CUDA_DECLARE)

namespace
{

enum { CONV_THREADS = 128, CONV_TOKENS = 64 };

template <class T> struct conv_args {
	const T *x, *weight, *bias; /* bias NULL: none */
	const int32_t *doc_start;
	int64_t tokens, cols, x_stride, y_stride;
	int taps, is_silu;
};

template <class T, class O> conv_args<T> conv_args_of(const O *o)
{
	return {dev_ptr<const T>(o->x), dev_ptr<const T>(o->weight),
	        dev_is_none(o->bias) ? nullptr : dev_ptr<const T>(o->bias),
	        dev_ptr<const int32_t>(o->doc_start), o->tokens, o->cols, o->x_stride, o->y_stride,
	        (int)o->taps, o->act == CONV_SILU};
}

/* A column's weights, and its last inputs: window[CONV_TAPS_MAX - 1] is the present one. The weights stand at
 * the end too, so that tap j of `taps` is at CONV_TAPS_MAX - taps + j. */
struct conv_column {
	float weight[CONV_TAPS_MAX], window[CONV_TAPS_MAX], bias;
};

template <class T>
__device__ __forceinline__ void column_load(conv_column *c, const conv_args<T> &p, int64_t col)
{
#pragma unroll
	for (int j = 0; j < CONV_TAPS_MAX; j++) {
		const int tap = j - (CONV_TAPS_MAX - p.taps);

		c->weight[j] = tap >= 0 ? to_float(p.weight[col * p.taps + tap]) : 0.0f;
		c->window[j] = 0.0f;
	}
	c->bias = p.bias ? to_float(p.bias[col]) : 0.0f;
}

__device__ __forceinline__ void window_push(float (&window)[CONV_TAPS_MAX], float x)
{
#pragma unroll
	for (int j = 0; j + 1 < CONV_TAPS_MAX; j++)
		window[j] = window[j + 1];
	window[CONV_TAPS_MAX - 1] = x;
}

/* `seen` tokens of the window belong to the document. Taps beyond `taps` have weight 0. */
__device__ __forceinline__ float column_sum(const conv_column &c, int64_t seen)
{
	float sum = c.bias;

#pragma unroll
	for (int j = 0; j < CONV_TAPS_MAX; j++)
		if (CONV_TAPS_MAX - 1 - j < seen)
			sum = fmaf(c.weight[j], c.window[j], sum);
	return sum;
}

template <class T> __device__ __forceinline__ float silu_if(float x, int is_silu, float *slope)
{
	float value = x;

	*slope = 1.0f;
	if (is_silu)
		act_both<float, ACT_SILU>(x, ACT_SILU, &value, slope);
	return value;
}

template <class T> __global__ void __launch_bounds__(CONV_THREADS) conv_kernel(conv_args<T> p, T *y)
{
	const int64_t col = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x;
	const int64_t first = (int64_t)blockIdx.y * CONV_TOKENS;
	const int64_t end = first + CONV_TOKENS < p.tokens ? first + CONV_TOKENS : p.tokens;
	conv_column c;

	if (col >= p.cols)
		return;
	column_load(&c, p, col);
	for (int64_t t = first > p.taps - 1 ? first - (p.taps - 1) : 0; t < end; t++) {
		float slope;

		window_push(c.window, to_float(p.x[t * p.x_stride + col]));
		if (t >= first)
			y[t * p.y_stride + col] = from_float<T>(
			        silu_if<T>(column_sum(c, t - p.doc_start[t] + 1), p.is_silu, &slope));
	}
}

/* dx of the block's tokens, and its sums of dweight and dbias. The gradients of the sums of the taps - 1
 * tokens behind the block are computed too, for they read inputs of the block. */
template <class T>
__global__ void __launch_bounds__(CONV_THREADS)
        conv_grad_kernel(conv_args<T> p, T *dx, const T *dy, float *scratch, int64_t block_tokens)
{
	const int64_t col = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x;
	const int64_t first = (int64_t)blockIdx.y * block_tokens;
	const int64_t end = first + block_tokens < p.tokens ? first + block_tokens : p.tokens;
	const int64_t stop = end + p.taps - 1;
	float *partial = scratch + ((int64_t)blockIdx.y * p.cols + col) * (p.taps + 1);
	float slopes[CONV_TAPS_MAX] = {}, sums[CONV_TAPS_MAX + 1] = {};
	int64_t reach[CONV_TAPS_MAX] = {}; /* the first token that the token of slopes[j] reads */
	conv_column c;

	if (col >= p.cols)
		return;
	column_load(&c, p, col);
	for (int64_t t = first > p.taps - 1 ? first - (p.taps - 1) : 0; t < stop; t++) {
		const int is_token = t < p.tokens;
		const int64_t start = is_token ? p.doc_start[t] : p.tokens, done = t - (p.taps - 1);
		float ds = 0.0f, sum = 0.0f;

		window_push(c.window, is_token ? to_float(p.x[t * p.x_stride + col]) : 0.0f);
		if (is_token && t >= first) {
			float slope;

			silu_if<T>(column_sum(c, t - start + 1), p.is_silu, &slope);
			ds = to_float(dy[t * p.y_stride + col]) * slope;
		}
		window_push(slopes, ds);
#pragma unroll
		for (int j = 0; j + 1 < CONV_TAPS_MAX; j++)
			reach[j] = reach[j + 1];
		reach[CONV_TAPS_MAX - 1] = start;
		if (t >= first && t < end) {
#pragma unroll
			for (int j = 0; j < CONV_TAPS_MAX; j++)
				if (CONV_TAPS_MAX - 1 - j < t - start + 1)
					sums[j] = fmaf(ds, c.window[j], sums[j]);
			sums[CONV_TAPS_MAX] += ds;
		}
		if (done < first || done >= end)
			continue;
#pragma unroll
		for (int i = 0; i < CONV_TAPS_MAX; i++) {
			/* token done + i reads `done` by tap taps - 1 - i */
			const int at = CONV_TAPS_MAX - p.taps + i;

			if (i < p.taps) {
				float w = 0.0f, s = 0.0f;
				int64_t from = 0;

#pragma unroll
				for (int j = 0; j < CONV_TAPS_MAX; j++) {
					w = j == CONV_TAPS_MAX - 1 - i ? c.weight[j] : w;
					s = j == at ? slopes[j] : s;
					from = j == at ? reach[j] : from;
				}
				if (from <= done)
					sum = fmaf(w, s, sum);
			}
		}
		dx[done * p.x_stride + col] = from_float<T>(sum);
	}
#pragma unroll
	for (int j = 0; j < CONV_TAPS_MAX; j++)
		if (j >= CONV_TAPS_MAX - p.taps)
			partial[j - (CONV_TAPS_MAX - p.taps)] = sums[j];
	partial[p.taps] = sums[CONV_TAPS_MAX];
}

__global__ void __launch_bounds__(CONV_THREADS) conv_combine(
        float *dweight, float *dbias, const float *scratch, int64_t cols, int taps, int64_t blocks)
{
	const int64_t item = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x, col = item / (taps + 1);
	const int tap = (int)(item % (taps + 1));
	float *to = tap < taps ? dweight + col * taps + tap : dbias ? dbias + col : nullptr;
	double sum = 0;

	if (col >= cols || !to)
		return;
	for (int64_t b = 0; b < blocks; b++)
		sum += (double)scratch[b * cols * (taps + 1) + item];
	*to = (float)((double)*to + sum);
}

template <class T>
__global__ void __launch_bounds__(CONV_THREADS)
        conv_cached_kernel(conv_args<T> p, T *y, T *kept, const int32_t *doc_end, int64_t text_rows)
{
	const int64_t col = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x, text = blockIdx.y;
	T *window = kept + text * (p.taps - 1) * p.cols + col;
	int is_here = 0;
	conv_column c;

	if (col >= p.cols)
		return;
	column_load(&c, p, col);
#pragma unroll
	for (int j = 0; j < CONV_TAPS_MAX; j++)
		if (j > CONV_TAPS_MAX - p.taps) /* the present token comes last */
			c.window[j] = to_float(window[(j - (CONV_TAPS_MAX - p.taps) - 1) * p.cols]);
	for (int64_t t = 0; t < p.tokens; t++) {
		const int64_t seen = doc_end[t] - p.doc_start[t];
		float slope;

		if (p.doc_start[t] / text_rows != text)
			continue;
		is_here = 1;
		if (seen == 1)
#pragma unroll
			for (int j = 0; j < CONV_TAPS_MAX; j++)
				c.window[j] = 0.0f;
		window_push(c.window, to_float(p.x[t * p.x_stride + col]));
		y[t * p.y_stride + col] = from_float<T>(silu_if<T>(column_sum(c, seen), p.is_silu, &slope));
	}
	if (!is_here)
		return;
#pragma unroll
	for (int j = 0; j < CONV_TAPS_MAX; j++)
		if (j > CONV_TAPS_MAX - p.taps)
			window[(j - (CONV_TAPS_MAX - p.taps) - 1) * p.cols] = from_float<T>(c.window[j]);
}

int conv_check(const char *what, int64_t tokens, int64_t cols)
{
	if (ceil_div(tokens, CONV_TOKENS) <= 65535 && cols <= INT32_MAX)
		return 0;
	return err_set(ERR_UNSUPPORTED, "%s: %lld tokens of %lld columns are too many", what,
	        (long long)tokens, (long long)cols);
}

template <class T> int conv_start(const struct cuda_launch *at, const struct op_conv *o)
{
	const dim3 grid(
	        (unsigned)ceil_div(o->cols, CONV_THREADS), (unsigned)ceil_div(o->tokens, CONV_TOKENS));
	int rc = conv_check("conv", o->tokens, o->cols);

	return rc ? rc
	          : cuda_start(at, "conv", conv_kernel<T>, grid, CONV_THREADS, 0, conv_args_of<T>(o),
	                    dev_ptr<T>(o->y));
}

template <class T> int grad_start(const struct cuda_launch *at, const struct op_conv_grad *o)
{
	const int64_t most = conv_scratch_count(o->tokens, 1, 0), each = ceil_div(o->tokens, most);
	const int64_t blocks = ceil_div(o->tokens, each);
	const dim3 grid((unsigned)ceil_div(o->cols, CONV_THREADS), (unsigned)blocks);
	int rc = conv_check("conv_grad", o->tokens, o->cols);

	if (!rc)
		rc = cuda_start(at, "conv_grad", conv_grad_kernel<T>, grid, CONV_THREADS, 0,
		        conv_args_of<T>(o), dev_ptr<T>(o->dx), dev_ptr<const T>(o->dy),
		        dev_ptr<float>(o->scratch), each);
	if (!rc)
		rc = cuda_start(at, "conv_grad", conv_combine,
		        dim3((unsigned)ceil_div(o->cols * (o->taps + 1), CONV_THREADS)), CONV_THREADS, 0,
		        dev_ptr<float>(o->dweight),
		        dev_is_none(o->dbias) ? nullptr : dev_ptr<float>(o->dbias),
		        dev_ptr<const float>(o->scratch), o->cols, (int)o->taps, blocks);
	return rc;
}

template <class T> int cached_start(const struct cuda_launch *at, const struct op_conv_cached *o)
{
	const dim3 grid((unsigned)ceil_div(o->cols, CONV_THREADS), (unsigned)o->texts);

	return cuda_start(at, "conv_cached", conv_cached_kernel<T>, grid, CONV_THREADS, 0, conv_args_of<T>(o),
	        dev_ptr<T>(o->y), dev_ptr<T>(o->window), dev_ptr<const int32_t>(o->doc_end), o->text_rows);
}

} // namespace

extern "C" int cuda_conv(const struct cuda_launch *at, const struct op_conv *o)
{
	return o->dtype == DTYPE_BF16 ? conv_start<bf16>(at, o) : conv_start<float>(at, o);
}

extern "C" int cuda_conv_grad(const struct cuda_launch *at, const struct op_conv_grad *o)
{
	return o->dtype == DTYPE_BF16 ? grad_start<bf16>(at, o) : grad_start<float>(at, o);
}

extern "C" int cuda_conv_cached(const struct cuda_launch *at, const struct op_conv_cached *o)
{
	return o->dtype == DTYPE_BF16 ? cached_start<bf16>(at, o) : cached_start<float>(at, o);
}
