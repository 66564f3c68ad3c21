/* Gated activations of arrays with gaps: a block computes a row, in accesses of 16 bytes where it can. */
#include "gpu/act.cuh"
#include "gpu/rows.cuh"

OP_ACT_LIST(CUDA_DECLARE)

namespace
{

enum { GATE_BLOCK = 256 };

template <class T> struct gate_args {
	const T *x, *gate;
	int64_t x_stride, y_stride, gate_stride, gate_group_stride;
	int32_t groups, cols;
	int act;
	rows_used rows;
};

template <class T, class O> gate_args<T> gate_args_of(const O *o)
{
	return {dev_ptr<const T>(o->x), dev_ptr<const T>(o->gate), o->x_stride, o->y_stride, o->gate_stride,
	        o->gate_group_stride, (int32_t)o->groups, (int32_t)o->cols, (int)o->act,
	        rows_used_of(&o->range)};
}

template <class T, int N> __global__ void __launch_bounds__(GATE_BLOCK) gate_kernel(gate_args<T> p, T *y)
{
	const int64_t row = blockIdx.x;
	const int32_t parts = p.cols / N;

	if (!p.rows.has(row))
		return;
	for (int32_t i = (int32_t)threadIdx.x; i < p.groups * parts; i += GATE_BLOCK) {
		const int32_t group = i / parts, col = i % parts * N;
		span<T, N> x, gate, out;
		float product[N], value, slope;

		if (p.x)
			span_load(x, p.x + row * p.x_stride + (int64_t)group * p.cols + col);
		span_load(gate, p.gate + row * p.gate_stride + group * p.gate_group_stride + col);
#pragma unroll
		for (int j = 0; j < N; j++) {
			act_both<T, ACT_ANY>(span_get(gate, j), p.act, &value, &slope);
			product[j] = p.x ? value * span_get(x, j) : value;
		}
		span_put(out, product);
		span_store(y + row * p.y_stride + (int64_t)group * p.cols + col, out);
	}
}

template <class T, int N>
__global__ void __launch_bounds__(GATE_BLOCK) gate_grad_kernel(gate_args<T> p, T *dx, T *dgate, const T *dy)
{
	const int64_t row = blockIdx.x;
	const int32_t parts = p.cols / N;

	if (!p.rows.has(row))
		return;
	for (int32_t i = (int32_t)threadIdx.x; i < p.groups * parts; i += GATE_BLOCK) {
		const int32_t group = i / parts, col = i % parts * N;
		const int64_t x_at = row * p.x_stride + (int64_t)group * p.cols + col;
		const int64_t gate_at = row * p.gate_stride + group * p.gate_group_stride + col;
		span<T, N> x, gate, dout, out;
		float x_d[N], gate_d[N], value, slope;

		if (p.x)
			span_load(x, p.x + x_at);
		span_load(gate, p.gate + gate_at);
		span_load(dout, dy + row * p.y_stride + (int64_t)group * p.cols + col);
#pragma unroll
		for (int j = 0; j < N; j++) {
			const float d = span_get(dout, j);

			act_both<T, ACT_ANY>(span_get(gate, j), p.act, &value, &slope);
			x_d[j] = d * value;
			gate_d[j] = (p.x ? d * span_get(x, j) : d) * slope;
		}
		if (p.x) {
			span_put(out, x_d);
			span_store(dx + x_at, out);
		}
		span_put(out, gate_d);
		span_store(dgate + gate_at, out);
	}
}

int gate_check(int64_t rows, int64_t groups, int64_t cols)
{
	if (rows <= INT32_MAX && groups * cols <= INT32_MAX - GATE_BLOCK)
		return 0;
	return err_set(ERR_UNSUPPORTED, "gate: %lld rows of %lld x %lld are too many", (long long)rows,
	        (long long)groups, (long long)cols);
}

template <class T, class O> int is_wide(const O *o)
{
	const int64_t n = vec_count<T>;

	return o->cols % n == 0 && o->x_stride % n == 0 && o->y_stride % n == 0 && o->gate_stride % n == 0 &&
	       o->gate_group_stride % n == 0 && is_aligned(dev_ptr<T>(o->x), 16) &&
	       is_aligned(dev_ptr<T>(o->gate), 16);
}

template <class T> int gate_forward(const struct cuda_launch *at, const struct op_gate *o)
{
	const int wide = is_wide<T>(o) && is_aligned(dev_ptr<T>(o->y), 16);
	int rc = gate_check(o->rows, o->groups, o->cols);

	return rc ? rc
	          : cuda_start(at, "gate", wide ? gate_kernel<T, vec_count<T>> : gate_kernel<T, 1>,
	                    dim3((unsigned)o->rows), GATE_BLOCK, 0, gate_args_of<T>(o), dev_ptr<T>(o->y));
}

template <class T> int gate_backward(const struct cuda_launch *at, const struct op_gate_grad *o)
{
	const int wide = is_wide<T>(o) && is_aligned(dev_ptr<T>(o->dx), 16) &&
	                 is_aligned(dev_ptr<T>(o->dgate), 16) && is_aligned(dev_ptr<T>(o->dy), 16);
	int rc = gate_check(o->rows, o->groups, o->cols);

	return rc ? rc
	          : cuda_start(at, "gate_grad",
	                    wide ? gate_grad_kernel<T, vec_count<T>> : gate_grad_kernel<T, 1>,
	                    dim3((unsigned)o->rows), GATE_BLOCK, 0, gate_args_of<T>(o), dev_ptr<T>(o->dx),
	                    dev_ptr<T>(o->dgate), dev_ptr<const T>(o->dy));
}

} // namespace

extern "C" int cuda_gate(const struct cuda_launch *at, const struct op_gate *o)
{
	return o->dtype == DTYPE_BF16 ? gate_forward<bf16>(at, o) : gate_forward<float>(at, o);
}

extern "C" int cuda_gate_grad(const struct cuda_launch *at, const struct op_gate_grad *o)
{
	return o->dtype == DTYPE_BF16 ? gate_backward<bf16>(at, o) : gate_backward<float>(at, o);
}
