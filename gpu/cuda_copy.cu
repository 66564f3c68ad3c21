/* Copies by a kernel, because cudaMemcpyAsync may take a copy engine from weights and gradients. */
#include "gpu/map.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

namespace
{

template <class T> struct copy_map {
	T *dst;
	const T *src;

	enum { WIDTH = vec_count<T>, DEPTH = 4 };
	template <int N> struct in {
		span<T, N> x;
	};
	template <int N> __device__ __forceinline__ void load(in<N> &x, int64_t at) const
	{
		span_load(x.x, src + at);
	}
	template <int N> __device__ __forceinline__ void store(const in<N> &x, int64_t at) const
	{
		span_store(dst + at, x.x);
	}
};

template <class T> int copy_start(const struct cuda_launch *at, const struct op_copy *o)
{
	T *dst = dev_ptr<T>(o->dst);
	const T *src = dev_ptr<const T>(o->src);

	return map_start(at, "copy", copy_map<T>{dst, src}, o->bytes / (int64_t)sizeof(T), dst, src);
}

} // namespace

extern "C" int cuda_copy(const struct cuda_launch *at, const struct op_copy *o)
{
	uint64_t all = o->dst.value | o->src.value | (uint64_t)o->bytes;

	if (all % 4 == 0)
		return copy_start<uint32_t>(at, o);
	if (all % 2 == 0)
		return copy_start<uint16_t>(at, o);
	return copy_start<uint8_t>(at, o);
}
