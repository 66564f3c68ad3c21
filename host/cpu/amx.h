/* Tiles of AMX-BF16, the matrix unit of Intel CPUs, for files that are compiled for it. A tile has 16 rows of
 * 64 bytes. A tile of the left operand a holds 16 rows of 32 elements. A tile of the right operand b holds 16
 * pairs of rows; a word has the two elements of one column. A tile of sums holds 16 x 16 fp32. */
#ifndef FERRY_HOST_CPU_AMX_H
#define FERRY_HOST_CPU_AMX_H

#include <immintrin.h>
#include <stdint.h>

#define AMX_INLINE static inline __attribute__((always_inline))

enum {
	AMX_SIDE = 16,                  /* rows of a tile; columns in words */
	AMX_STEP = 32,                  /* of k, elements of bf16 in a row */
	AMX_LINE = 64,                  /* bytes of a row */
	AMX_TILE = AMX_SIDE * AMX_STEP, /* elements of bf16 */
	AMX_BLOCK = 2 * AMX_SIDE,       /* rows and columns of sums */
};

/* Call on a thread before it uses tiles; call _tile_release() after. */
AMX_INLINE void amx_begin(void)
{
	_Alignas(64) uint8_t config[64] = {
	        1}; /* palette 1; from 16 on the row bytes of each tile, from 48 on its rows */

	for (int i = 0; i < 8; i++) {
		config[16 + 2 * i] = AMX_LINE;
		config[48 + i] = AMX_SIDE;
	}
	_tile_loadconfig(config);
}

/* Two tiles of an operand. row, other and step are distances in bytes between rows, between the two tiles,
 * and between steps of AMX_STEP along k. */
struct amx_tiles {
	const void *at;
	int64_t row, other, step;
};

/* 32 x 32 sums: set to zero, added to over `steps` steps of k, and stored to fp32 rows that are row_bytes
 * apart. */
AMX_INLINE void amx_sums_zero(void)
{
	_tile_zero(0);
	_tile_zero(1);
	_tile_zero(2);
	_tile_zero(3);
}

AMX_INLINE void amx_sums_add(struct amx_tiles a, struct amx_tiles b, int64_t steps)
{
	const char *x = a.at, *y = b.at;

	for (int64_t l = 0; l < steps; l++, x += a.step, y += b.step) {
		_tile_loadd(4, x, a.row);
		_tile_loadd(6, y, b.row);
		_tile_dpbf16ps(0, 4, 6);
		_tile_loadd(7, y + b.other, b.row);
		_tile_dpbf16ps(1, 4, 7);
		_tile_loadd(5, x + a.other, a.row);
		_tile_dpbf16ps(2, 5, 6);
		_tile_dpbf16ps(3, 5, 7);
	}
}

AMX_INLINE void amx_sums_store(float *to, int64_t row_bytes)
{
	char *low = (char *)to + AMX_SIDE * row_bytes;

	_tile_stored(0, to, row_bytes);
	_tile_stored(1, (char *)to + AMX_LINE, row_bytes);
	_tile_stored(2, low, row_bytes);
	_tile_stored(3, low + AMX_LINE, row_bytes);
}

#endif
