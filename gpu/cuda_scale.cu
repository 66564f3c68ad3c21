/* Multiples of an array: moves 2 elements for each of its output. */
#include "gpu/map.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

namespace
{

template <class T> struct scale_map {
	T *dst;
	const T *src, *by;
	float factor, cap;

	enum { WIDTH = vec_count<T>, DEPTH = 4 };
	template <int N> struct in {
		span<T, N> x;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &piece, int64_t at) const
	{
		span_load(piece.x, src + at);
	}
	template <int N> __device__ __forceinline__ void store(const in<N> &piece, int64_t at) const
	{
		float value[N], all = by ? factor * to_float(*by) : factor;
		span<T, N> y;

#pragma unroll
		for (int i = 0; i < N; i++) {
			value[i] = all * span_get(piece.x, i);
			if (cap > 0)
				value[i] = cap * tanhf(value[i] / cap);
		}
		span_put(y, value);
		span_store(dst + at, y);
	}
};

template <class T> int scale_start(const struct cuda_launch *at, const struct op_scale *o)
{
	struct scale_map<T> f = {
		dev_ptr<T>(o->dst), dev_ptr<const T>(o->src), dev_ptr<const T>(o->by), (float)o->factor,
		        (float)o->cap
	};

	return map_start(at, "scale", f, o->count, f.dst, f.src);
}

} // namespace

extern "C" int cuda_scale(const struct cuda_launch *at, const struct op_scale *o)
{
	return o->dtype == DTYPE_BF16 ? scale_start<bf16>(at, o) : scale_start<float>(at, o);
}
