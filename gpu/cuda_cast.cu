/* Conversions between fp32, bf16 and split weights: cast moves 6 bytes an element, join 8. */
#include "gpu/map.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

namespace
{

template <class TO, class FROM> struct cast_map {
	TO *dst;
	const FROM *src;

	enum { WIDTH = 4, DEPTH = sizeof(FROM) == 4 ? 4 : 8 };
	template <int N> struct in {
		span<FROM, N> x;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &x, int64_t at) const
	{
		span_load(x.x, src + at);
	}
	template <int N> __device__ __forceinline__ void store(const in<N> &x, int64_t at) const
	{
		float y[N];
		span<TO, N> out;

#pragma unroll
		for (int i = 0; i < N; i++)
			y[i] = span_get(x.x, i);
		span_put_exact(out, y);
		span_store(dst + at, out);
	}
};

/* hi and lo are read as bf16 for their size only. */
struct join_map {
	float *dst;
	const bf16 *hi, *lo;

	enum { WIDTH = 4, DEPTH = 4 };
	template <int N> struct in {
		span<bf16, N> hi, lo;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &x, int64_t at) const
	{
		span_load(x.hi, hi + at);
		span_load(x.lo, lo + at);
	}
	template <int N> __device__ __forceinline__ void store(const in<N> &x, int64_t at) const
	{
		float y[N];
		span<float, N> out;

#pragma unroll
		for (int i = 0; i < N; i++) /* base/num.h plane_join: lo is signed */
			y[i] = __uint_as_float(__float_as_uint(span_get(x.hi, i)) +
			                       (uint32_t)((int32_t)__float_as_uint(span_get(x.lo, i)) >> 16));
		span_put(out, y);
		span_store(dst + at, out);
	}
};

template <class TO, class FROM> int cast_start(const struct cuda_launch *at, const struct op_cast *o)
{
	struct cast_map<TO, FROM> f = {
		dev_ptr<TO>(o->dst), dev_ptr<const FROM>(o->src)
	};

	return map_start(at, "cast", f, o->count, f.dst, f.src);
}

} // namespace

extern "C" int cuda_cast(const struct cuda_launch *at, const struct op_cast *o)
{
	const struct op_copy copy = {o->dst, o->src, o->count * dtype_bytes(o->src_dtype)};

	if (o->dst_dtype != o->src_dtype)
		return o->dst_dtype == DTYPE_F32 ? cast_start<float, bf16>(at, o)
		                                 : cast_start<bf16, float>(at, o);
	return cuda_copy(at, &copy);
}

extern "C" int cuda_join(const struct cuda_launch *at, const struct op_join *o)
{
	struct join_map f = {dev_ptr<float>(o->dst), dev_ptr<const bf16>(o->hi), dev_ptr<const bf16>(o->lo)};

	return map_start(at, "join", f, o->count, f.dst, f.hi, f.lo);
}
