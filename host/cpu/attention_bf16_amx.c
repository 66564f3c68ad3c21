/* attention_bf16.h for AMX. */
#include "host/cpu/attention_bf16.h"

#include "base/size.h"
#include "host/cpu/amx.h"
#include "host/cpu/transpose16.h"

#include <string.h>

#define INLINE AMX_INLINE

enum {
	COLUMNS = ATTENTION_BF16_COLUMNS,
	BLOCK = AMX_BLOCK,
	STEPS = COLUMNS / AMX_STEP, /* most steps of a sum in attention_amx_add */
};

/* Queries are tiles of a in place. Packed keys are tiles of b: 16 rows of COLUMNS words each. */
void attention_amx_scores(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs,
        int64_t m, int64_t n, int64_t d, float factor)
{
	_Alignas(64) uint16_t rows[BLOCK * ATTENTION_AMX_HEAD];
	_Alignas(64) float sum[BLOCK * BLOCK];
	const __m512 by = _mm512_set1_ps(factor);

	amx_begin();
	for (int64_t i = 0; i < m; i += BLOCK) {
		int64_t count = min_i64(BLOCK, m - i);
		struct amx_tiles left = {a + i * a_stride, 2 * a_stride, AMX_SIDE * 2 * a_stride, AMX_LINE};

		if (count < BLOCK) {
			left = (struct amx_tiles){rows, 2 * d, AMX_SIDE * 2 * d, AMX_LINE};
			for (int64_t r = 0; r < count; r++)
				memcpy(rows + r * d, a + (i + r) * a_stride, (size_t)d * sizeof *a);
			memset(rows + count * d, 0, (size_t)((BLOCK - count) * d) * sizeof *a);
		}
		for (int64_t j = 0; j < n; j += BLOCK) {
			int has_both = n - j > AMX_SIDE; /* else the second tile is the first again */
			struct amx_tiles right = {
			        pairs + j, 4 * COLUMNS, has_both * AMX_LINE, AMX_SIDE * 4 * COLUMNS};

			amx_sums_zero();
			amx_sums_add(left, right, d / AMX_STEP);
			amx_sums_store(sum, 4 * BLOCK);
			for (int64_t r = 0; r < count; r++)
				for (int half = 0; half <= has_both; half++)
					_mm512_storeu_ps(scores + (i + r) * COLUMNS + j + half * AMX_SIDE,
					        _mm512_mul_ps(by,
					                _mm512_load_ps(sum + r * BLOCK + half * AMX_SIDE)));
		}
	}
	_tile_release();
}

/* Factors as tiles of a, [m / 16][STEPS]. */
INLINE void factors_rows(uint16_t *tiles, const float *a, int64_t a_row, int64_t m, int64_t n)
{
	for (int64_t i = 0; i < m; i++)
		for (int64_t l = 0; l < n; l += AMX_STEP) {
			const float *x = a + i * a_row + l;

			_mm512_store_si512(tiles + (i / AMX_SIDE * STEPS + l / AMX_STEP) * AMX_TILE +
			                           i % AMX_SIDE * AMX_STEP,
			        (__m512i)_mm512_cvtne2ps_pbh(
			                _mm512_maskz_loadu_ps(first16(n - l - AMX_SIDE), x + AMX_SIDE),
			                _mm512_maskz_loadu_ps(first16(n - l), x)));
		}
}

/* The same if a is stored by columns: pairs of columns, transposed. */
INLINE void factors_columns(uint16_t *tiles, const float *a, int64_t a_col, int64_t m, int64_t n)
{
	for (int64_t i = 0; i < m; i += AMX_SIDE)
		for (int64_t l = 0; l < n; l += AMX_STEP) {
			uint16_t *tile = tiles + (i / AMX_SIDE * STEPS + l / AMX_STEP) * AMX_TILE;
			__mmask16 here = first16(m - i);
			__m512i pairs[AMX_SIDE];

			for (int p = 0; p < AMX_SIDE; p++) {
				int64_t row = l + 2 * p;
				const float *x = a + row * a_col + i;

				pairs[p] = round_pairs(_mm512_maskz_loadu_ps(row < n ? here : 0, x),
				        _mm512_maskz_loadu_ps(row + 1 < n ? here : 0, x + a_col));
			}
			transpose16(pairs);
			for (int r = 0; r < AMX_SIDE; r++)
				_mm512_store_si512(tile + r * AMX_STEP, pairs[r]);
		}
}

/* 32 columns of b as tiles: [2][STEPS]. */
INLINE void pack_columns(uint16_t *to, const uint16_t *b, int64_t b_stride, int64_t n)
{
	for (int64_t l = 0; l < n; l += 2) {
		uint16_t *pair = to + l / AMX_STEP * AMX_TILE + l % AMX_STEP / 2 * AMX_STEP;
		__m512i even = _mm512_loadu_si512(b + l * b_stride);
		__m512i odd = l + 1 < n ? _mm512_loadu_si512(b + (l + 1) * b_stride) : _mm512_setzero_si512();

		_mm512_store_si512(pair, pairs16(even, odd, 0));
		_mm512_store_si512(pair + STEPS * AMX_TILE, pairs16(even, odd, 1));
	}
}

void attention_amx_add(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t d)
{
	enum { OTHER = 2 * STEPS * AMX_TILE }; /* bytes */
	_Alignas(64) uint16_t factors[COLUMNS * COLUMNS], columns[BLOCK * COLUMNS];
	_Alignas(64) float part[BLOCK * BLOCK];
	int64_t steps = (n + AMX_STEP - 1) / AMX_STEP;

	/* tiles are 0 beyond m and n, those of b too: 0 times NaN would be NaN */
	for (int64_t i = m / AMX_SIDE; i < round_up(m, BLOCK) / AMX_SIDE; i++)
		memset(factors + i * STEPS * AMX_TILE, 0, OTHER);
	if (n % AMX_STEP)
		memset(columns, 0, sizeof columns);
	if (a_col == 1)
		factors_rows(factors, a, a_row, m, n);
	else
		factors_columns(factors, a, a_col, m, n);
	amx_begin();
	for (int64_t j = 0; j < d; j += BLOCK) {
		struct amx_tiles right = {columns, AMX_LINE, OTHER, 2 * AMX_TILE};

		pack_columns(columns, b + j, b_stride, n);
		for (int64_t i = 0; i < m; i += BLOCK) {
			struct amx_tiles left = {
			        factors + i / AMX_SIDE * STEPS * AMX_TILE, AMX_LINE, OTHER, 2 * AMX_TILE};

			amx_sums_zero();
			amx_sums_add(left, right, steps);
			amx_sums_store(part, 4 * BLOCK);
			for (int64_t r = 0; r < min_i64(BLOCK, m - i); r++)
				for (int half = 0; half < 2; half++) {
					float *to = sum + (i + r) * d + j + half * AMX_SIDE;

					_mm512_storeu_ps(to,
					        _mm512_add_ps(_mm512_loadu_ps(to),
					                _mm512_load_ps(part + r * BLOCK + half * AMX_SIDE)));
				}
		}
	}
	_tile_release();
}
