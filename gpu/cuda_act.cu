/* Activations and their gradients: act moves 2 elements for each element of its output, act_grad 3. */
#include "gpu/act.cuh"

OP_ACT_LIST(CUDA_DECLARE)

namespace
{

template <class T, int ACT> struct act_map {
	T *out;
	const T *x;
	int act;

	enum { WIDTH = vec_count<T>, DEPTH = 4 };
	template <int N> struct in {
		span<T, N> x;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &piece, int64_t at) const
	{
		span_load(piece.x, x + at);
	}
	template <int N> __device__ __forceinline__ void store(const in<N> &piece, int64_t at) const
	{
		float value[N], slope;
		span<T, N> y;

#pragma unroll
		for (int i = 0; i < N; i++)
			act_both<T, ACT>(span_get(piece.x, i), act, &value[i], &slope);
		span_put(y, value);
		span_store(out + at, y);
	}
};

template <class T, int ACT> struct act_grad_map {
	T *dx;
	const T *dout, *x;
	int act;

	enum { WIDTH = vec_count<T>, DEPTH = 2 };
	template <int N> struct in {
		span<T, N> dout, x;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &piece, int64_t at) const
	{
		span_load(piece.dout, dout + at);
		span_load(piece.x, x + at);
	}
	template <int N> __device__ __forceinline__ void store(const in<N> &piece, int64_t at) const
	{
		float d[N], value, slope;
		span<T, N> y;

#pragma unroll
		for (int i = 0; i < N; i++) {
			act_both<T, ACT>(span_get(piece.x, i), act, &value, &slope);
			d[i] = span_get(piece.dout, i) * slope;
		}
		span_put(y, d);
		span_store(dx + at, y);
	}
};

template <class T> int act_forward(const struct cuda_launch *at, const struct op_act *o)
{
	return act_start<act_map, T>(at, "act", o->act, o->count, dev_ptr<T>(o->out), dev_ptr<const T>(o->x));
}

template <class T> int act_backward(const struct cuda_launch *at, const struct op_act_grad *o)
{
	return act_start<act_grad_map, T>(at, "act_grad", o->act, o->count, dev_ptr<T>(o->dx),
	        dev_ptr<const T>(o->dout), dev_ptr<const T>(o->x));
}

} // namespace

extern "C" int cuda_act(const struct cuda_launch *at, const struct op_act *o)
{
	return o->dtype == DTYPE_BF16 ? act_forward<bf16>(at, o) : act_forward<float>(at, o);
}

extern "C" int cuda_act_grad(const struct cuda_launch *at, const struct op_act_grad *o)
{
	return o->dtype == DTYPE_BF16 ? act_backward<bf16>(at, o) : act_backward<float>(at, o);
}
