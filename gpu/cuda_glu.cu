/* Gated activations: glu moves 3 elements for each of out, glu_grad 5 for each of dout, or 6 with out. */
#include "gpu/act.cuh"

OP_ACT_LIST(CUDA_DECLARE)

namespace
{

/* Where gate and up have element `at` of out. */
struct glu_place {
	int64_t cols, gap; /* cols 0: at the same index */

	__device__ __forceinline__ int64_t of(int64_t at) const
	{
		if (!cols)
			return at;
		if (at >> 32 || cols >> 32)
			return at + at / cols * gap;
		return at + (int64_t)((uint32_t)at / (uint32_t)cols) * gap;
	}
};

template <class T, int ACT> struct glu_map {
	T *out;
	const T *gate, *up;
	int act;
	glu_place place;

	enum { WIDTH = vec_count<T>, DEPTH = 2 };
	template <int N> struct in {
		span<T, N> gate, up;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &piece, int64_t at) const
	{
		span_load(piece.gate, gate + place.of(at));
		span_load(piece.up, up + place.of(at));
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
	T *dgate, *dup, *out; /* out NULL: not wanted */
	const T *dout, *gate, *up;
	int act;
	glu_place place;

	enum { WIDTH = vec_count<T>, DEPTH = 2 };
	template <int N> struct in {
		span<T, N> dout, gate, up;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &piece, int64_t at) const
	{
		span_load(piece.dout, dout + at);
		span_load(piece.gate, gate + place.of(at));
		span_load(piece.up, up + place.of(at));
	}
	template <int N> __device__ __forceinline__ void store(const in<N> &piece, int64_t at) const
	{
		float gate_d[N], up_d[N], product[N], value, slope;
		span<T, N> y;

#pragma unroll
		for (int i = 0; i < N; i++) {
			float d = span_get(piece.dout, i), u = span_get(piece.up, i);

			act_both<T, ACT>(span_get(piece.gate, i), act, &value, &slope);
			gate_d[i] = d * u * slope;
			up_d[i] = d * value;
			product[i] = value * u;
		}
		span_put(y, gate_d);
		span_store(dgate + place.of(at), y);
		span_put(y, up_d);
		span_store(dup + place.of(at), y);
		if (!out)
			return;
		span_put(y, product);
		span_store(out + at, y);
	}
};

/* Queues a map with any of the kinds: wide accesses if each lies in one row and all are aligned. */
template <class F, class S, class... P>
int glu_queue(const struct cuda_launch *at, const char *what, F f, S single, int64_t count, glu_place place,
        const P *...operand)
{
	if (place.cols && (place.cols % F::WIDTH || place.gap % F::WIDTH || map_head(F::WIDTH, operand...)))
		return map_start_single(at, what, single, count);
	return map_start_either(at, what, f, single, count, operand...);
}

template <class T> int glu_forward(const struct cuda_launch *at, const struct op_glu *o)
{
	T *out = dev_ptr<T>(o->out);
	const T *gate = dev_ptr<const T>(o->gate), *up = dev_ptr<const T>(o->up);
	const glu_place place = {o->cols, o->stride - o->cols};

#define GLU_START(name, more)                                                                                \
	case ACT_##name:                                                                                     \
		return glu_queue(at, "glu", glu_map<T, ACT_##name>{out, gate, up, o->act, place},            \
		        glu_map<T, ACT_ANY>{out, gate, up, o->act, place}, o->count, place, out, gate, up);
	switch (o->act) {
		ACT_KINDS(GLU_START, )
	}
#undef GLU_START
	return err_set(ERR_INTERNAL, "glu: no activation %d", (int)o->act);
}

/* An absent `out` has dout's alignment. */
template <class T> int glu_backward(const struct cuda_launch *at, const struct op_glu_grad *o)
{
	T *dgate = dev_ptr<T>(o->dgate), *dup = dev_ptr<T>(o->dup),
	  *out = dev_is_none(o->out) ? NULL : dev_ptr<T>(o->out);
	const T *dout = dev_ptr<const T>(o->dout), *gate = dev_ptr<const T>(o->gate),
	        *up = dev_ptr<const T>(o->up), *also = out ? out : dout;
	const glu_place place = {o->cols, o->stride - o->cols};

#define GLU_START(name, more)                                                                                \
	case ACT_##name:                                                                                     \
		return glu_queue(at, "glu_grad",                                                             \
		        glu_grad_map<T, ACT_##name>{dgate, dup, out, dout, gate, up, o->act, place},         \
		        glu_grad_map<T, ACT_ANY>{dgate, dup, out, dout, gate, up, o->act, place}, o->count,  \
		        place, dgate, dup, also, dout, gate, up);
	switch (o->act) {
		ACT_KINDS(GLU_START, )
	}
#undef GLU_START
	return err_set(ERR_INTERNAL, "glu_grad: no activation %d", (int)o->act);
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
