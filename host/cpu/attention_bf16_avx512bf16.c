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
			__mmask16 here = first16(count);
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

/* Factors rounded to bf16 as pairs along the sum: pair l of row i is at i * row + l * col. */
struct factors {
	_Alignas(64) uint32_t pairs[COLUMNS / 2 * COLUMNS];
	int64_t row, col;
};

INLINE void factors_rows(struct factors *f, const float *a, int64_t a_row, int64_t m, int64_t n)
{
	f->row = COLUMNS / 2;
	f->col = 1;
	for (int64_t i = 0; i < m; i++)
		for (int64_t l = 0; l < n; l += 32) {
			const float *x = a + i * a_row + l;

			_mm512_store_si512(f->pairs + i * f->row + l / 2,
			        (__m512i)_mm512_cvtne2ps_pbh(
			                _mm512_maskz_loadu_ps(first16(n - l - 16), x + 16),
			                _mm512_maskz_loadu_ps(first16(n - l), x)));
		}
}

/* The same if a is stored by columns. */
INLINE void factors_columns(struct factors *f, const float *a, int64_t a_col, int64_t m, int64_t n)
{
	f->row = 1;
	f->col = COLUMNS;
	for (int64_t l = 0; l < n; l += 2)
		for (int64_t i = 0; i < m; i += 16) {
			__mmask16 here = first16(m - i), here_odd = l + 1 < n ? here : 0;
			const float *x = a + l * a_col + i;

			_mm512_store_si512(f->pairs + l / 2 * f->col + i,
			        round_pairs(_mm512_maskz_loadu_ps(here, x),
			                _mm512_maskz_loadu_ps(here_odd, x + a_col)));
		}
}

/* Adds 32 columns of `rows` rows, from row `i` on. */
INLINE void add_tile(float *sum, int64_t sum_stride, const struct factors *f, int64_t i, const uint16_t *b,
        int64_t b_stride, int64_t n, __mmask32 here, int rows)
{
	const __m512i low = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
	const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
	__m512 left[ADD_ROWS], right[ADD_ROWS];

	for (int r = 0; r < rows; r++)
		left[r] = right[r] = _mm512_setzero_ps();
	for (int64_t l = 0; l < n; l += 2, b += 2 * b_stride) {
		__m512i even = _mm512_maskz_loadu_epi16(here, b);
		__m512i odd = _mm512_maskz_loadu_epi16(l + 1 < n ? here : 0, b + b_stride);
		__m512bh x = (__m512bh)_mm512_unpacklo_epi16(even, odd);
		__m512bh y = (__m512bh)_mm512_unpackhi_epi16(even, odd);

		for (int r = 0; r < rows; r++) {
			__m512bh pair =
			        (__m512bh)_mm512_set1_epi32((int)f->pairs[(i + r) * f->row + l / 2 * f->col]);

			left[r] = _mm512_dpbf16_ps(left[r], pair, x);
			right[r] = _mm512_dpbf16_ps(right[r], pair, y);
		}
	}
	for (int r = 0; r < rows; r++) {
		__m512 first = _mm512_permutex2var_ps(left[r], low, right[r]);
		__m512 second = _mm512_permutex2var_ps(left[r], high, right[r]);
		float *to = sum + (i + r) * sum_stride;
		__mmask16 here_left = (__mmask16)here, here_right = (__mmask16)(here >> 16);

		_mm512_mask_storeu_ps(
		        to, here_left, _mm512_add_ps(_mm512_maskz_loadu_ps(here_left, to), first));
		_mm512_mask_storeu_ps(to + 16, here_right,
		        _mm512_add_ps(_mm512_maskz_loadu_ps(here_right, to + 16), second));
	}
}

void attention_bf16_add(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t d)
{
	struct factors f;

	if (a_col == 1)
		factors_rows(&f, a, a_row, m, n);
	else
		factors_columns(&f, a, a_col, m, n);
	for (int64_t c = 0; c < d; c += ADD_COLUMNS) {
		__mmask32 here = d - c < ADD_COLUMNS ? (__mmask32)((1u << (d - c)) - 1) : (__mmask32)-1;
		int64_t i = 0;

		for (; i + ADD_ROWS <= m; i += ADD_ROWS)
			add_tile(sum + c, d, &f, i, b + c, b_stride, n, here, ADD_ROWS);
		for (; i + 4 <= m; i += 4)
			add_tile(sum + c, d, &f, i, b + c, b_stride, n, here, 4);
		for (; i < m; i++)
			add_tile(sum + c, d, &f, i, b + c, b_stride, n, here, 1);
	}
}
