/* Gated activations: glu moves 3 elements for each of out, glu_grad 5 for each of dout. */
#include "gpu/act.cuh"

OP_ACT_LIST(CUDA_DECLARE)

namespace
{

template <class T, int ACT> struct glu_map {
	T *out;
	const T *gate, *up;
	int act;

	enum { WIDTH = vec_count<T>, DEPTH = 2 };
	template <int N> struct in {
		span<T, N> gate, up;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &piece, int64_t at) const
	{
		span_load(piece.gate, gate + at);
		span_load(piece.up, up + at);
	}
	template <int N> __device__ __forceinline__ void store(const in<N> &piece, int64_t at) const
	{
		float product[N], value, slope;
		span<T, N> y;

#pragma unroll
		for (int i = 0; i < N; i++) {
			act_both<T, ACT>(span_get(piece.gate, i), act, &value, &slope);
			product[i] = value * span_get(piece.up, i);
		}
		span_put(y, product);
		span_store(out + at, y);
	}
};

template <class T, int ACT> struct glu_grad_map {
	T *dgate, *dup;
	const T *dout, *gate, *up;
	int act;

	enum { WIDTH = vec_count<T>, DEPTH = 2 };
	template <int N> struct in {
		span<T, N> dout, gate, up;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &piece, int64_t at) const
	{
		span_load(piece.dout, dout + at);
		span_load(piece.gate, gate + at);
		span_load(piece.up, up + at);
	}
	template <int N> __device__ __forceinline__ void store(const in<N> &piece, int64_t at) const
	{
		float gate_d[N], up_d[N], value, slope;
		span<T, N> y;

#pragma unroll
		for (int i = 0; i < N; i++) {
			float d = span_get(piece.dout, i);

			act_both<T, ACT>(span_get(piece.gate, i), act, &value, &slope);
			gate_d[i] = d * span_get(piece.up, i) * slope;
			up_d[i] = d * value;
		}
		span_put(y, gate_d);
		span_store(dgate + at, y);
		span_put(y, up_d);
		span_store(dup + at, y);
	}
};

template <class T> int glu_forward(const struct cuda_launch *at, const struct op_glu *o)
{
	return act_start<glu_map, T>(at, "glu", o->act, o->count, dev_ptr<T>(o->out),
	        dev_ptr<const T>(o->gate), dev_ptr<const T>(o->up));
}

template <class T> int glu_backward(const struct cuda_launch *at, const struct op_glu_grad *o)
{
	return act_start<glu_grad_map, T>(at, "glu_grad", o->act, o->count, dev_ptr<T>(o->dgate),
	        dev_ptr<T>(o->dup), dev_ptr<const T>(o->dout), dev_ptr<const T>(o->gate),
	        dev_ptr<const T>(o->up));
}

} // namespace

extern "C" int cuda_glu(const struct cuda_launch *at, const struct op_glu *o)
{
	return o->dtype == DTYPE_BF16 ? glu_forward<bf16>(at, o) : glu_forward<float>(at, o);
}

extern "C" int cuda_glu_grad(const struct cuda_launch *at, const struct op_glu_grad *o)
{
	return o->dtype == DTYPE_BF16 ? glu_backward<bf16>(at, o) : glu_backward<float>(at, o);
}
