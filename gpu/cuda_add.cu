/* Sums of two arrays. Moves 3 elements for each element added. */
#include "gpu/map.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

namespace
{

/* The NaN that the host's CPU makes of infinity - infinity. */
#ifdef __aarch64__
const uint32_t MADE_NAN = 0x7fc00000;
#else
const uint32_t MADE_NAN = 0xffc00000;
#endif

/* a + b. A NaN gets the host's bits: the first NaN operand, made quiet, or MADE_NAN. */
__device__ __forceinline__ float add_one(float a, float b)
{
	float sum = a + b;

	if (sum != sum)
		sum = __uint_as_float(a != a   ? __float_as_uint(a) | 0x400000
		                      : b != b ? __float_as_uint(b) | 0x400000
		                               : MADE_NAN);
	return sum;
}

template <class T> struct add_map {
	T *dst;
	const T *a, *b;

	enum { WIDTH = vec_count<T>, DEPTH = 2 };
	template <int N> struct in {
		span<T, N> a, b;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &x, int64_t at) const
	{
		span_load(x.a, a + at);
		span_load(x.b, b + at);
	}
	template <int N> __device__ __forceinline__ void store(const in<N> &x, int64_t at) const
	{
		float sum[N];
		span<T, N> out;

#pragma unroll
		for (int i = 0; i < N; i++)
			sum[i] = add_one(span_get(x.a, i), span_get(x.b, i));
		span_put_exact(out, sum);
		span_store(dst + at, out);
	}
};

template <class T> int add_start(const struct cuda_launch *at, const struct op_add *o)
{
	struct add_map<T> f = {
		dev_ptr<T>(o->dst), dev_ptr<const T>(o->a), dev_ptr<const T>(o->b)
	};

	return map_start(at, "add", f, o->count, f.dst, f.a, f.b);
}

} // namespace

extern "C" int cuda_add(const struct cuda_launch *at, const struct op_add *o)
{
	return o->dtype == DTYPE_BF16 ? add_start<bf16>(at, o) : add_start<float>(at, o);
}
