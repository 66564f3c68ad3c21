/* Tiles of grouped products: which expert a tile of rows belongs to. */
#ifndef FERRY_GPU_GROUPED_CUH
#define FERRY_GPU_GROUPED_CUH

#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_experts.h"
}

struct grouped_sizes {
	int64_t experts, m, n, k;
	int accumulate;
};

/* The expert of a tile of `rows` rows, and the tile's first row within the expert's; 0: there is no such
 * tile. Tiles are those of expert 0, of expert 1, ... All lanes of a warp call it together. */
static __device__ __forceinline__ int tile_find(
        int64_t *expert, int64_t *row0, const int32_t *first, int64_t experts, int64_t tile, int32_t rows)
{
	const int lane = (int)threadIdx.x % WARP;

	for (int64_t base = 0; base < experts; base += WARP) {
		const int64_t e = base + lane;
		int64_t own = 0, before;
		unsigned found;

		if (e < experts)
			own = (first[e + 1] - first[e] + rows - 1) / rows;
		before = own;
		for (int away = 1; away < WARP; away *= 2) {
			const int64_t other = __shfl_up_sync(0xffffffffu, before, away);

			before += lane >= away ? other : 0;
		}
		found = __ballot_sync(0xffffffffu, tile < before);
		if (found) {
			const int at = __ffs((int)found) - 1;

			*expert = base + at;
			*row0 = (tile - __shfl_sync(0xffffffffu, before - own, at)) * rows;
			return 1;
		}
		tile -= __shfl_sync(0xffffffffu, before, WARP - 1);
	}
	return 0;
}

/* Products of bf16 on tensor cores: 1 if rows and addresses are multiples of 16 bytes and the GPU has the
 * instructions; and their start. */
int grouped_mma_fits(const struct cuda_launch *at, const struct op_grouped *o);
int grouped_mma_start(const struct cuda_launch *at, const struct op_grouped *o);

#endif
