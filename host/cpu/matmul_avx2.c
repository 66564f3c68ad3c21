/* matmul_avx2.h: 6 x 16 sums in registers, over operands packed for the L1 and L2 caches. */
#include "host/cpu/matmul_avx2.h"

#include "base/num.h"
#include "base/size.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum {
	DEPTH = MATMUL_AVX2_DEPTH,
	LINE = 64, /* bytes that a prefetch loads */
	ROWS = 6,  /* with 16 columns 12 registers of sums; 2 of b and 1 of a fit beside */
	COLUMNS = 16,
	AHEAD_ROWS = 4,         /* prefetch distance when packing rows */
	NEAR_COUNT = 1 << 15,   /* elements of b that are in a cache already, as in attention */
	BLOCK_ROWS = 43 * ROWS, /* of a: 258 KiB stay in the L2 cache, 16 KiB of b in L1 */
};

struct operand {
	const void *x;
	int64_t stride;
	int is_transposed; /* stored as [columns][rows] */
	enum dtype dtype;
};

INLINE __m256 load8(const void *x, int64_t at, enum dtype dtype)
{
	if (dtype == DTYPE_F32)
		return _mm256_loadu_ps((const float *)x + at);
	return _mm256_castsi256_ps(_mm256_slli_epi32(
	        _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)((const uint16_t *)x + at))), 16));
}

INLINE float load1(const void *x, int64_t at, enum dtype dtype)
{
	return dtype == DTYPE_F32 ? ((const float *)x)[at] : bf16_to_f32(((const uint16_t *)x)[at]);
}

INLINE void transpose8(__m256 r[8])
{
	__m256 t[8], u[8];

	for (int i = 0; i < 8; i += 2) {
		t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
		t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
	}
	for (int i = 0; i < 8; i += 4) {
		u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
		u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
		u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
		u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
	}
	for (int i = 0; i < 4; i++) {
		r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
		r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
	}
}

INLINE int64_t bytes_of(enum dtype dtype)
{
	return dtype == DTYPE_F32 ? 4 : 2;
}

/* Prefetches a line. It may lie outside of x, because a prefetch does not fault. */
INLINE void ask(const void *x, int64_t at, enum dtype dtype)
{
	_mm_prefetch((const char *)((uintptr_t)x + (uintptr_t)(at * bytes_of(dtype))), _MM_HINT_T0);
}

/* to[i][j] = x[i][j] */
INLINE void pack_rows(float *to, int64_t to_stride, const void *x, int64_t at, int64_t stride, int64_t rows,
        int64_t cols, enum dtype dtype)
{
	for (int64_t i = 0; i < rows; i++, to += to_stride, at += stride) {
		int64_t j = 0;

		for (; j + 8 <= cols; j += 8) {
			ask(x, at + AHEAD_ROWS * stride + j, dtype);
			_mm256_storeu_ps(to + j, load8(x, at + j, dtype));
		}
		for (; j < cols; j++)
			to[j] = load1(x, at + j, dtype);
	}
}

/* to[j][i] = x[i][j] */
INLINE void pack_columns(float *to, int64_t to_stride, const void *x, int64_t at, int64_t stride,
        int64_t rows, int64_t cols, enum dtype dtype)
{
	int64_t whole_rows = rows / 8 * 8, whole_cols = cols / 8 * 8;

	for (int64_t i = 0; i < whole_rows; i += 8)
		for (int64_t j = 0; j < whole_cols; j += 8) {
			__m256 r[8];

			for (int l = 0; l < 8; l++)
				r[l] = load8(x, at + (i + l) * stride + j, dtype);
			transpose8(r);
			for (int l = 0; l < 8; l++)
				_mm256_storeu_ps(to + (j + l) * to_stride + i, r[l]);
		}
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = i < whole_rows ? whole_cols : 0; j < cols; j++)
			to[j * to_stride + i] = load1(x, at + i * stride + j, dtype);
}

/* Packs rows [row, row + rows) and columns [col, col + cols) of op(x). */
INLINE void pack_as(float *to, int64_t to_stride, const struct operand *o, int64_t row, int64_t col,
        int64_t rows, int64_t cols, enum dtype dtype)
{
	if (o->is_transposed)
		pack_columns(to, to_stride, o->x, col * o->stride + row, o->stride, cols, rows, dtype);
	else
		pack_rows(to, to_stride, o->x, row * o->stride + col, o->stride, rows, cols, dtype);
}

static void pack(float *to, int64_t to_stride, const struct operand *o, int64_t row, int64_t col,
        int64_t rows, int64_t cols)
{
	if (o->dtype == DTYPE_F32)
		pack_as(to, to_stride, o, row, col, rows, cols, DTYPE_F32);
	else
		pack_as(to, to_stride, o, row, col, rows, cols, DTYPE_BF16);
}

/* Computes rows x COLUMNS of c. Callers pass rows as a constant. */
INLINE void tile(float *c, int64_t c_stride, const float *a, const float *b, int64_t depth, float alpha,
        int accumulate, int rows)
{
	__m256 low[ROWS], high[ROWS], factor = _mm256_set1_ps(alpha);

	for (int i = 0; i < rows; i++)
		low[i] = high[i] = _mm256_setzero_ps();
#pragma GCC unroll 4
	for (int64_t l = 0; l < depth; l++) {
		__m256 x = _mm256_load_ps(b + l * COLUMNS), y = _mm256_load_ps(b + l * COLUMNS + 8);

		for (int i = 0; i < rows; i++) {
			__m256 one = _mm256_broadcast_ss(a + i * DEPTH + l);

			low[i] = _mm256_fmadd_ps(one, x, low[i]);
			high[i] = _mm256_fmadd_ps(one, y, high[i]);
		}
	}
	for (int i = 0; i < rows; i++, c += c_stride) {
		if (accumulate) {
			_mm256_storeu_ps(c, _mm256_fmadd_ps(factor, low[i], _mm256_loadu_ps(c)));
			_mm256_storeu_ps(c + 8, _mm256_fmadd_ps(factor, high[i], _mm256_loadu_ps(c + 8)));
		} else {
			_mm256_storeu_ps(c, _mm256_mul_ps(factor, low[i]));
			_mm256_storeu_ps(c + 8, _mm256_mul_ps(factor, high[i]));
		}
	}
}

static void tile_of(float *c, int64_t c_stride, const float *a, const float *b, int64_t depth, float alpha,
        int accumulate, int64_t rows)
{
	switch (rows) {
	case 1:
		tile(c, c_stride, a, b, depth, alpha, accumulate, 1);
		break;
	case 2:
		tile(c, c_stride, a, b, depth, alpha, accumulate, 2);
		break;
	case 3:
		tile(c, c_stride, a, b, depth, alpha, accumulate, 3);
		break;
	case 4:
		tile(c, c_stride, a, b, depth, alpha, accumulate, 4);
		break;
	case 5:
		tile(c, c_stride, a, b, depth, alpha, accumulate, 5);
		break;
	default:
		tile(c, c_stride, a, b, depth, alpha, accumulate, 6);
	}
}

/* The same if c ends within the columns. */
static void tile_at_border(float *c, int64_t c_stride, const float *a, const float *b, int64_t depth,
        float alpha, int accumulate, int64_t rows, int64_t cols)
{
	float whole[ROWS * COLUMNS];

	for (int64_t i = 0; i < rows && accumulate; i++)
		memcpy(whole + i * COLUMNS, c + i * c_stride, (size_t)cols * sizeof *c);
	tile_of(whole, COLUMNS, a, b, depth, alpha, accumulate, rows);
	for (int64_t i = 0; i < rows; i++)
		memcpy(c + i * c_stride, whole + i * COLUMNS, (size_t)cols * sizeof *c);
}

/* Prefetches part `part` of `parts` of the next panel of b. Its stored rows are a few lines each and far
 * apart, so the CPU does not prefetch them by itself. */
INLINE void panel_ask(
        const struct operand *b, int64_t at, int64_t depth, int64_t j, int64_t part, int64_t parts)
{
	int64_t rows = b->is_transposed ? COLUMNS : depth, cols = b->is_transposed ? depth : COLUMNS;
	int64_t first = b->is_transposed ? j * b->stride + at : at * b->stride + j,
	        line = LINE / bytes_of(b->dtype);

	for (int64_t row = part * rows / parts; row < (part + 1) * rows / parts; row++)
		for (int64_t col = 0; col < cols; col += line)
			ask(b->x, first + row * b->stride + col, b->dtype);
}

/* Computes all columns of c for the rows of a packed block, over one part of k. */
static void block(float *c, int64_t c_stride, const float *a, const struct operand *b, int64_t at,
        int64_t depth, int64_t m, int64_t n, float alpha, int accumulate)
{
	_Alignas(64) float panel[DEPTH * COLUMNS];
	int is_near = n * depth <= NEAR_COUNT;

	for (int64_t j = 0; j < n; j += COLUMNS) {
		int64_t cols = min_i64(COLUMNS, n - j);

		if (cols < COLUMNS)
			memset(panel, 0, sizeof panel);
		pack(panel, COLUMNS, b, at, j, depth, cols);
		for (int64_t i = 0; i < m; i += ROWS) {
			float *to = c + i * c_stride + j;
			const float *rows = a + i * DEPTH;

			if (!is_near && j + COLUMNS < n)
				panel_ask(b, at, depth, j + COLUMNS, i / ROWS, (m + ROWS - 1) / ROWS);
			if (cols < COLUMNS)
				tile_at_border(to, c_stride, rows, panel, depth, alpha, accumulate,
				        min_i64(ROWS, m - i), cols);
			else
				tile_of(to, c_stride, rows, panel, depth, alpha, accumulate,
				        min_i64(ROWS, m - i));
		}
	}
}

void matmul_avx2(float *c, const void *a, const void *b, int64_t m, int64_t n, int64_t k, int64_t c_stride,
        int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout, enum matmul_layout b_layout,
        enum dtype dtype, float alpha, int accumulate)
{
	const struct operand left = {a, a_stride, a_layout == MATMUL_TRANSPOSED, dtype},
	                     right = {b, b_stride, b_layout == MATMUL_TRANSPOSED, dtype};
	_Alignas(64) float packed[BLOCK_ROWS * DEPTH];
	int64_t parts = (m + BLOCK_ROWS - 1) / BLOCK_ROWS;
	int64_t rows = ((m + parts - 1) / parts + ROWS - 1) / ROWS * ROWS; /* of about equal blocks */

	for (int64_t at = 0; at < k; at += DEPTH)
		for (int64_t i = 0; i < m; i += rows) {
			int64_t depth = min_i64(DEPTH, k - at), count = min_i64(rows, m - i);

			pack(packed, DEPTH, &left, i, at, count, depth);
			block(c + i * c_stride, c_stride, packed, &right, at, depth, count, n, alpha,
			        accumulate || at > 0);
		}
}
