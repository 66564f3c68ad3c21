/* The loss of each row of logits, and its gradient. */
#include "gpu/map.cuh"

#include <float.h>

extern "C" {
#include "device/op_loss.h"
}

OP_LOSS_LIST(CUDA_DECLARE)

/* There are two kernels. The first takes a block for a row and reads it once. It finds the largest logit, the
 * sum of exponentials relative to the largest so far (corrected in double when that grows), and the loss. It
 * leaves the numbers for the second kernel in scratch. The second turns logits into gradients, element by
 * element.
 *
 * Packed bf16: gradient i lies on the bytes of logit i / 2. So the elements go in waves [0, W), [W, 2W), [2W,
 * 4W) ..., one launch each. A wave [a, b) with b <= 2a overwrites logits [a / 2, b / 2), all of them below a.
 * Earlier launches have read them, and this one does not. The wave [0, W) is a single block: it reads all its
 * logits into registers and passes a barrier before it writes. The first kernel is done with all rows by
 * then. The small waves cost a launch each, some 10 in all.
 *
 * Bytes moved for an element: 4 read by the first kernel; 4 read and 2 or 4 written by the second. */

enum {
	ROW_THREADS = 256,
	ROW_WARPS = ROW_THREADS / WARP,
	ELEMENTS = 16, /* of a thread at once: 64 bytes in flight */
	GRAD_THREADS = 256,
	FIRST_THREADS = 1024, /* of the block of the first wave */
	FIRST_WAVE = FIRST_THREADS * ELEMENTS,
};

/* The arrays of scratch, with one element per row each. */
enum { ROW_MAX, ROW_FACTOR, ROW_AT_LABEL };

static __device__ __forceinline__ float soft_cap(float logit, float cap)
{
	return cap > 0 ? cap * tanhf(logit / cap) : logit;
}

/* A warp's sum of exp(logit - max). */
struct exp_sum {
	float max;
	double sum;
};

/* Adds the thread's vectors of N logits, every ROW_THREADS-th of the row. The lanes of a warp agree on max.
 */
template <int N>
static __device__ __forceinline__ void exp_sum_row(
        struct exp_sum *part, const float *logits, int64_t vocab, float cap)
{
	const int64_t step = (int64_t)ROW_THREADS * N;

	for (int64_t at = 0; at < vocab; at += step * (ELEMENTS / N)) {
		vec<float, N> v[ELEMENTS / N];
		float max = -FLT_MAX; /* -inf - -inf would be NaN */

#pragma unroll
		for (int k = 0; k < ELEMENTS / N; k++) {
			int64_t c = at + k * step + (int64_t)threadIdx.x * N;

			if (c < vocab) {
				v[k] = *(const vec<float, N> *)(logits + c);
#pragma unroll
				for (int j = 0; j < N; j++)
					v[k].at[j] = soft_cap(v[k].at[j], cap);
			} else {
#pragma unroll
				for (int j = 0; j < N; j++)
					v[k].at[j] = -INFINITY;
			}
		}
#pragma unroll
		for (int k = 0; k < ELEMENTS / N; k++)
#pragma unroll
			for (int j = 0; j < N; j++)
				max = fmaxf(max, v[k].at[j]);
		max = warp_max(max);
		if (max > part->max) {
			part->sum *= exp((double)part->max - (double)max);
			part->max = max;
		}
#pragma unroll
		for (int k = 0; k < ELEMENTS / N; k++)
#pragma unroll
			for (int j = 0; j < N; j++)
				part->sum += (double)expf(v[k].at[j] - part->max);
	}
}

/* The thread's part of the sum of the row's logits. */
template <int N> static __device__ double logit_sum_row(const float *logits, int64_t vocab, float cap)
{
	double sum = 0;

	for (int64_t c = (int64_t)threadIdx.x * N; c < vocab; c += (int64_t)ROW_THREADS * N) {
		vec<float, N> v = *(const vec<float, N> *)(logits + c);

#pragma unroll
		for (int j = 0; j < N; j++)
			sum += (double)soft_cap(v.at[j], cap);
	}
	return sum;
}

template <int N>
static __global__ void __launch_bounds__(ROW_THREADS) cross_entropy_rows(struct op_cross_entropy o)
{
	SHARED(float, maxima, ROW_WARPS);
	SHARED(double, sums, ROW_WARPS);
	SHARED(double, totals, ROW_WARPS);
	const int64_t row = blockIdx.x;
	const float *logits = dev_ptr<const float>(o.logits) + row * o.vocab;
	const float *weight = dev_ptr<const float>(o.weight);
	const int warp = (int)threadIdx.x / WARP;
	struct exp_sum part = {-FLT_MAX, 0};
	float max = -FLT_MAX, *scratch = dev_ptr<float>(o.scratch) + row;
	double sum = 0, total = 0, label_logit, wanted, scale = (double)o.grad_scale;
	const double even = o.smoothing / (double)o.vocab;

	exp_sum_row<N>(&part, logits, o.vocab, (float)o.cap);
	part.sum = warp_sum(part.sum);
	if (o.smoothing > 0) /* a second reading, so that the usual loss does not pay for it */
		total = warp_sum(logit_sum_row<N>(logits, o.vocab, (float)o.cap));
	if (threadIdx.x % WARP == 0) {
		maxima[warp] = part.max;
		sums[warp] = part.sum;
		totals[warp] = total;
	}
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	for (int w = 0; w < ROW_WARPS; w++)
		max = fmaxf(max, maxima[w]);
	for (int w = 0; w < ROW_WARPS; w++)
		sum += sums[w] * exp((double)maxima[w] - (double)max);
	label_logit = soft_cap(logits[dev_ptr<const int32_t>(o.label)[row]], (float)o.cap);
	wanted = label_logit;
	if (o.smoothing > 0) {
		total = 0;
		for (int w = 0; w < ROW_WARPS; w++)
			total += totals[w];
		wanted = (1 - o.smoothing) * label_logit + even * total;
	}
	dev_ptr<float>(o.loss)[row] = (float)((double)max - wanted + log(sum));
	scratch[ROW_MAX * o.rows] = max;
	if (weight)
		scale *= (double)weight[row];
	scratch[ROW_FACTOR * o.rows] = (float)(scale / sum);
	/* p - 1 in double, because p may be close to 1 */
	scratch[ROW_AT_LABEL * o.rows] =
	        (float)((exp(label_logit - (double)max) / sum - (1 - o.smoothing) - even) * scale);
}

/* Computes the gradients of elements [begin, end) of the matrix, ELEMENTS a thread. */
template <class T, int N>
static __global__ void __launch_bounds__(FIRST_THREADS)
        cross_entropy_grad(struct op_cross_entropy o, int64_t begin, int64_t end)
{
	const float *logits = dev_ptr<const float>(o.logits), *scratch = dev_ptr<const float>(o.scratch);
	const int32_t *label = dev_ptr<const int32_t>(o.label);
	const int64_t first = begin + (int64_t)blockIdx.x * blockDim.x * ELEMENTS;
	const int64_t first_row = first / o.vocab;
	const float cap = (float)o.cap, *weight = dev_ptr<const float>(o.weight);
	const double even = o.smoothing / (double)o.vocab * (double)o.grad_scale;
	const uint32_t vocab = (uint32_t)o.vocab; /* labels are int32 */
	const uint32_t skipped = (uint32_t)(first - first_row * o.vocab);
	vec<float, N> v[ELEMENTS / N];

#pragma unroll
	for (int k = 0; k < ELEMENTS / N; k++) {
		int64_t i = first + (k * blockDim.x + threadIdx.x) * N;

		if (i < end)
			v[k] = *(const vec<float, N> *)(logits + i);
	}
	if (begin == 0)
		__syncthreads();
#pragma unroll
	for (int k = 0; k < ELEMENTS / N; k++) {
		uint32_t at = (k * blockDim.x + threadIdx.x) * N, row_at = (skipped + at) / vocab;
		int64_t row = first_row + row_at;
		span<T, N> out;
		float max, factor, value[N];
		int at_label;

		if (first + at >= end)
			continue;
		max = scratch[ROW_MAX * o.rows + row];
		factor = scratch[ROW_FACTOR * o.rows + row];
		at_label = label[row] - (int)(skipped + at - row_at * vocab);
#pragma unroll
		for (int j = 0; j < N; j++) {
			v[k].at[j] = soft_cap(v[k].at[j], cap);
			value[j] = expf(v[k].at[j] - max) * factor;
		}
		if (o.smoothing > 0) {
			float share = (float)(weight ? even * (double)weight[row] : even);

#pragma unroll
			for (int j = 0; j < N; j++)
				value[j] -= share;
		}
		if (at_label >= 0 && at_label < N) {
			float here = scratch[ROW_AT_LABEL * o.rows + row];

#pragma unroll
			for (int j = 0; j < N; j++)
				value[j] = j == at_label ? here : value[j];
		}
		if (cap > 0)
#pragma unroll
			for (int j = 0; j < N; j++)
				value[j] *= 1 - v[k].at[j] / cap * (v[k].at[j] / cap);
		span_put(out, value);
		span_store(dev_ptr<T>(o.dlogits) + first + at, out);
	}
}

template <class T, int N>
static int grad_start(const struct cuda_launch *at, const struct op_cross_entropy *o)
{
	const int is_packed = sizeof(T) < sizeof(float) && o->dlogits.value == o->logits.value;
	const int64_t count = o->rows * o->vocab;
	int rc = 0;

	for (int64_t begin = 0, end; begin < count && !rc; begin = end) {
		int threads = begin || !is_packed ? (int)GRAD_THREADS : (int)FIRST_THREADS;

		end = !is_packed ? count : begin ? 2 * begin : (int64_t)FIRST_WAVE;
		end = end < count ? end : count;
		rc = cuda_start(at, "cross_entropy", cross_entropy_grad<T, N>,
		        dim3((unsigned)ceil_div(end - begin, (int64_t)threads * ELEMENTS)), threads, 0, *o,
		        begin, end);
	}
	return rc;
}

template <int N>
static int cross_entropy_start(const struct cuda_launch *at, const struct op_cross_entropy *o)
{
	int rc = cuda_start(
	        at, "cross_entropy", cross_entropy_rows<N>, dim3((unsigned)o->rows), ROW_THREADS, 0, *o);

	if (rc || dev_is_none(o->dlogits))
		return rc;
	return o->dlogits_dtype == DTYPE_F32 ? grad_start<float, N>(at, o) : grad_start<bf16, N>(at, o);
}

extern "C" int cuda_cross_entropy(const struct cuda_launch *at, const struct op_cross_entropy *o)
{
	if (o->vocab % 4 == 0 && is_aligned(dev_ptr<void>(o->logits), 16) &&
	        is_aligned(dev_ptr<void>(o->dlogits), 16))
		return cross_entropy_start<4>(at, o);
	return cross_entropy_start<1>(at, o);
}
