/* The gated activation of gpt-oss and its gradient: a thread has one gate and its up. */
#include "gpu/act.cuh"
#include "gpu/rows.cuh"

OP_ACT_LIST(CUDA_DECLARE)

namespace
{

enum { LIMITED_BLOCK = 256 };

struct limited {
	float gate, up, sigmoid;
	int gate_is_cut, up_is_cut;
};

/* Comparisons are such that NaN stays NaN. */
template <class T>
__device__ __forceinline__ limited limited_of(float gate, float up, float alpha, float limit)
{
	limited v;

	v.gate_is_cut = gate > limit;
	v.up_is_cut = up > limit || up < -limit;
	v.gate = v.gate_is_cut ? limit : gate;
	v.up = up > limit ? limit : up < -limit ? -limit : up;
	v.sigmoid = act_sigmoid<T>(alpha * v.gate);
	return v;
}

/* Without dgate_up it computes out. */
template <class T>
__global__ void __launch_bounds__(LIMITED_BLOCK)
        limited_kernel(T *out, T *dgate_up, const T *dout, const T *gate_up, int64_t count, int64_t cols,
                float alpha, float limit, int is_halves, rows_used rows)
{
	const int64_t i = (int64_t)blockIdx.x * LIMITED_BLOCK + threadIdx.x;

	if (i >= count || !rows.has(i / cols))
		return;
	const int64_t at = is_halves ? i / cols * 2 * cols + i % cols : 2 * i,
	              up_at = is_halves ? at + cols : at + 1;
	const limited v = limited_of<T>(to_float(gate_up[at]), to_float(gate_up[up_at]), alpha, limit);

	if (!dgate_up) {
		out[i] = from_float<T>((v.up + 1) * (v.gate * v.sigmoid));
		return;
	}
	const float d = to_float(dout[i]), slope = v.sigmoid * fmaf(alpha * v.gate, 1 - v.sigmoid, 1.0f);

	dgate_up[at] = from_float<T>(v.gate_is_cut ? 0 : d * (v.up + 1) * slope);
	dgate_up[up_at] = from_float<T>(v.up_is_cut ? 0 : d * (v.gate * v.sigmoid));
}

template <class T>
int limited_start(const struct cuda_launch *at, const struct op_glu_limited_grad *o, dev_addr out)
{
	return cuda_start(at, "glu_limited", limited_kernel<T>,
	        dim3((unsigned)ceil_div(o->rows * o->cols, LIMITED_BLOCK)), LIMITED_BLOCK, 0, dev_ptr<T>(out),
	        dev_ptr<T>(o->dgate_up), dev_ptr<const T>(o->dout), dev_ptr<const T>(o->gate_up),
	        o->rows * o->cols, o->cols, (float)o->alpha, (float)o->limit, (int)(o->order == GLU_HALVES),
	        rows_used_of(&o->range));
}

} // namespace

extern "C" int cuda_glu_limited(const struct cuda_launch *at, const struct op_glu_limited *o)
{
	struct op_glu_limited_grad same = {DEV_NONE, DEV_NONE, o->gate_up, o->rows, o->cols, o->alpha,
	        o->limit, o->order, o->dtype, o->range};

	return o->dtype == DTYPE_BF16 ? limited_start<bf16>(at, &same, o->out)
	                              : limited_start<float>(at, &same, o->out);
}

extern "C" int cuda_glu_limited_grad(const struct cuda_launch *at, const struct op_glu_limited_grad *o)
{
	return o->dtype == DTYPE_BF16 ? limited_start<bf16>(at, o, DEV_NONE)
	                              : limited_start<float>(at, o, DEV_NONE);
}
