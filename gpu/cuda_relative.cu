/* Biases by distance from a table, and the way back. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_attention.h"
}

OP_ATTENTION_LIST(CUDA_DECLARE)

namespace
{

enum { RELATIVE_THREADS = 256 };

/* A thread writes one distance of one head. */
template <class T>
__global__ void __launch_bounds__(RELATIVE_THREADS)
        relative_kernel(T *out, const T *table, int64_t tokens, int heads, const relative_side side)
{
	int64_t n = (int64_t)blockIdx.x * RELATIVE_THREADS + threadIdx.x;
	int head = (int)blockIdx.y;

	if (n >= 2 * tokens)
		return;
	out[head * 2 * tokens + n] =
	        n ? table[(int64_t)relative_row(&side, n - tokens) * heads + head] : from_float<T>(0.0f);
}

template <class T> int relative_start(const struct cuda_launch *at, const struct op_relative *o)
{
	return cuda_start(at, "relative", relative_kernel<T>,
	        dim3((unsigned)ceil_div(2 * o->tokens, RELATIVE_THREADS), (unsigned)o->heads),
	        RELATIVE_THREADS, 0, dev_ptr<T>(o->out), dev_ptr<const T>(o->table), o->tokens, (int)o->heads,
	        relative_side_of(&o->rule));
}

/* The run of distances that share a row, from `low` on and below `high`. */
struct distances {
	int64_t low, high;
};

__device__ distances distances_of(const relative_side &side, int row, int64_t tokens)
{
	int of = row % side.rows;
	int64_t first = side.first[of],
	        end = of + 1 < side.rows ? min((int64_t)side.first[of + 1], tokens) : tokens;

	if (side.both_sides && row >= side.rows)
		return {max(first, (int64_t)1), end}; /* later tokens; a token itself is of the other side */
	return {1 - end, !side.both_sides && of == 0 ? tokens : 1 - first};
}

/* A block sums the distances of one row and head, in double and in a fixed order. */
__global__ void __launch_bounds__(RELATIVE_THREADS) relative_grad_kernel(
        float *dtable, const float *dout, int64_t tokens, int heads, const relative_side side)
{
	SHARED(double, sums, RELATIVE_THREADS);
	int row = (int)blockIdx.x, head = (int)blockIdx.y, me = (int)threadIdx.x;
	const distances run = distances_of(side, row, tokens);
	const float *from = dout + head * 2 * tokens + tokens;
	double sum = 0;

	for (int64_t d = run.low + me; d < run.high; d += RELATIVE_THREADS)
		sum += (double)from[d];
	sums[me] = sum;
	for (int half = RELATIVE_THREADS / 2; half; half /= 2) {
		__syncthreads();
		if (me < half)
			sums[me] += sums[me + half];
	}
	if (!me)
		dtable[(int64_t)row * heads + head] =
		        (float)((double)dtable[(int64_t)row * heads + head] + sums[0]);
}

} // namespace

extern "C" int cuda_relative(const struct cuda_launch *at, const struct op_relative *o)
{
	return o->dtype == DTYPE_BF16 ? relative_start<bf16>(at, o) : relative_start<float>(at, o);
}

extern "C" int cuda_relative_grad(const struct cuda_launch *at, const struct op_relative_grad *o)
{
	return cuda_start(at, "relative_grad", relative_grad_kernel,
	        dim3((unsigned)o->rule.rows, (unsigned)o->heads), RELATIVE_THREADS, 0,
	        dev_ptr<float>(o->dtable), dev_ptr<const float>(o->dout), o->tokens, (int)o->heads,
	        relative_side_of(&o->rule));
}
