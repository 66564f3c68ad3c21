/* Rows of some experts (device/row_range.h). */
#ifndef FERRY_GPU_ROWS_CUH
#define FERRY_GPU_ROWS_CUH

#include "gpu/kernel.cuh"

extern "C" {
#include "device/row_range.h"
}

struct rows_used {
	const int32_t *first;
	int64_t experts;

	__device__ __forceinline__ int has(int64_t row) const
	{
		return !first || (row >= first[0] && row < first[experts]);
	}
};

static inline rows_used rows_used_of(const struct row_range *range)
{
	return {dev_ptr<const int32_t>(range->first), range->experts};
}

#endif
