/* attention_bf16.h for AVX512-BF16. */
#include "host/cpu/attention_bf16.h"

#include "host/cpu/transpose16.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { COLUMNS = ATTENTION_BF16_COLUMNS, ROWS = 6, VECTORS = 4, ADD_ROWS = 12, ADD_COLUMNS = 32 };

void attention_bf16_pack(uint32_t *pairs, const uint16_t *x, int64_t stride, int64_t rows, int64_t d)
{
	for (int64_t j = 0; j < COLUMNS; j += 16)
		for (int64_t at = 0; at < d / 2; at += 16) {
			int64_t count = d / 2 - at < 16 ? d / 2 - at : 16;
			__mmask16 here = (__mmask16)((1u << count) - 1);
			__m512i r[16];

			for (int i = 0; i < 16; i++)
				r[i] = j + i < rows
				               ? _mm512_maskz_loadu_epi32(here, x + (j + i) * stride + 2 * at)
				               : _mm512_setzero_si512();
			transpose16(r);
			for (int i = 0; i < 16; i++)
				if (i < count)
					_mm512_storeu_si512(pairs + (at + i) * COLUMNS + j, r[i]);
		}
}

/* rows x 16 * vectors scores. Callers pass rows and vectors as constants. */
INLINE void tile(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs, int64_t d,
        float factor, int rows, int vectors)
{
	__m512 sum[ROWS][VECTORS];

	for (int i = 0; i < rows; i++)
		for (int v = 0; v < vectors; v++)
			sum[i][v] = _mm512_setzero_ps();
	for (int64_t l = 0; l < d / 2; l++) {
		__m512bh key[VECTORS];

		for (int v = 0; v < vectors; v++)
			key[v] = (__m512bh)_mm512_loadu_si512(pairs + l * COLUMNS + 16 * v);
		for (int i = 0; i < rows; i++) {
			int32_t pair;
			__m512bh query;

			memcpy(&pair, a + i * a_stride + 2 * l, sizeof(pair));
			query = (__m512bh)_mm512_set1_epi32(pair);
			for (int v = 0; v < vectors; v++)
				sum[i][v] = _mm512_dpbf16_ps(sum[i][v], query, key[v]);
		}
	}
	for (int i = 0; i < rows; i++)
		for (int v = 0; v < vectors; v++)
			_mm512_storeu_ps(scores + i * COLUMNS + 16 * v,
			        _mm512_mul_ps(sum[i][v], _mm512_set1_ps(factor)));
}

INLINE void tile_rows(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs, int64_t m,
        int64_t d, float factor, int vectors)
{
	for (; m >= ROWS; m -= ROWS, a += ROWS * a_stride, scores += ROWS * COLUMNS)
		tile(scores, a, a_stride, pairs, d, factor, ROWS, vectors);
	for (; m >= 2; m -= 2, a += 2 * a_stride, scores += 2 * COLUMNS)
		tile(scores, a, a_stride, pairs, d, factor, 2, vectors);
	if (m)
		tile(scores, a, a_stride, pairs, d, factor, 1, vectors);
}

void attention_bf16_scores(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs,
        int64_t m, int64_t n, int64_t d, float factor)
{
	int64_t vectors = (n + 15) / 16, j = 0;

	for (; j + VECTORS <= vectors; j += VECTORS)
		tile_rows(scores + 16 * j, a, a_stride, pairs + 16 * j, m, d, factor, VECTORS);
	for (; j < vectors; j++)
		tile_rows(scores + 16 * j, a, a_stride, pairs + 16 * j, m, d, factor, 1);
}

/* Adds 32 columns of `rows` rows. Each word of b has an even column in its low half and the next odd column
 * in its high half. A shift or a mask turns them into fp32; the end interleaves the sums again.
 */
INLINE void add_tile(float *sum, int64_t sum_stride, const float *a, int64_t a_row, int64_t a_col,
        const uint16_t *b, int64_t b_stride, int64_t n, __mmask32 here, int rows)
{
	const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
	const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
	const __m512i odd_half = _mm512_set1_epi32((int)0xffff0000);
	__m512 even[ADD_ROWS], odd[ADD_ROWS];

	for (int i = 0; i < rows; i++)
		even[i] = odd[i] = _mm512_setzero_ps();
	for (int64_t l = 0; l < n; l++) {
		__m512i pairs = _mm512_maskz_loadu_epi16(here, b + l * b_stride);
		__m512 x = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
		__m512 y = _mm512_castsi512_ps(_mm512_and_si512(pairs, odd_half));

		for (int i = 0; i < rows; i++) {
			__m512 factor = _mm512_set1_ps(a[i * a_row + l * a_col]);

			even[i] = _mm512_fmadd_ps(factor, x, even[i]);
			odd[i] = _mm512_fmadd_ps(factor, y, odd[i]);
		}
	}
	for (int i = 0; i < rows; i++) {
		__m512 first = _mm512_permutex2var_ps(even[i], low, odd[i]);
		__m512 second = _mm512_permutex2var_ps(even[i], high, odd[i]);
		float *to = sum + i * sum_stride;
		__mmask16 here_low = (__mmask16)here, here_high = (__mmask16)(here >> 16);

		_mm512_mask_storeu_ps(
		        to, here_low, _mm512_add_ps(_mm512_maskz_loadu_ps(here_low, to), first));
		_mm512_mask_storeu_ps(
		        to + 16, here_high, _mm512_add_ps(_mm512_maskz_loadu_ps(here_high, to + 16), second));
	}
}

void attention_bf16_add(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t d)
{
	for (int64_t c = 0; c < d; c += ADD_COLUMNS) {
		__mmask32 here = d - c < ADD_COLUMNS ? (__mmask32)((1u << (d - c)) - 1) : (__mmask32)-1;
		int64_t i = 0;

		for (; i + ADD_ROWS <= m; i += ADD_ROWS)
			add_tile(sum + i * d + c, d, a + i * a_row, a_row, a_col, b + c, b_stride, n, here,
			        ADD_ROWS);
		for (; i + 4 <= m; i += 4)
			add_tile(
			        sum + i * d + c, d, a + i * a_row, a_row, a_col, b + c, b_stride, n, here, 4);
		for (; i < m; i++)
			add_tile(
			        sum + i * d + c, d, a + i * a_row, a_row, a_col, b + c, b_stride, n, here, 1);
	}
}
