/* attention_bf16.h for arm64 by BFDOT, which rounds as BFMMLA does (matmul_bfmmla.h). */
#include "host/cpu/attention_bf16.h"

#include "base/num.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum {
	COLUMNS = ATTENTION_BF16_COLUMNS,
	VECTOR = 4,             /* words */
	ROWS = 6,               /* with 16 columns 24 sums; operands take 5 registers */
	VECTORS = 4,            /* of columns */
	TILE = VECTORS * VECTOR /* columns */
};

/* Transposes a square of 4 x 4 words. */
INLINE void pack_square(uint32_t *pairs, const uint32x4_t r[VECTOR])
{
	uint32x4_t even[2], odd[2];

	for (int i = 0; i < 2; i++) {
		even[i] = vtrn1q_u32(r[2 * i], r[2 * i + 1]);
		odd[i] = vtrn2q_u32(r[2 * i], r[2 * i + 1]);
	}
	vst1q_u32(pairs, vcombine_u32(vget_low_u32(even[0]), vget_low_u32(even[1])));
	vst1q_u32(pairs + COLUMNS, vcombine_u32(vget_low_u32(odd[0]), vget_low_u32(odd[1])));
	vst1q_u32(pairs + 2 * COLUMNS, vcombine_u32(vget_high_u32(even[0]), vget_high_u32(even[1])));
	vst1q_u32(pairs + 3 * COLUMNS, vcombine_u32(vget_high_u32(odd[0]), vget_high_u32(odd[1])));
}

void attention_bf16_pack(uint32_t *pairs, const uint16_t *x, int64_t stride, int64_t rows, int64_t d)
{
	int64_t whole = d / 2 / VECTOR * VECTOR;

	for (int64_t j = 0; j < COLUMNS; j += VECTOR) {
		for (int64_t at = 0; at < whole; at += VECTOR) {
			uint32x4_t r[VECTOR];

			for (int i = 0; i < VECTOR; i++)
				r[i] = j + i < rows ? vreinterpretq_u32_u16(
				                              vld1q_u16(x + (j + i) * stride + 2 * at))
				                    : vdupq_n_u32(0);
			pack_square(pairs + at * COLUMNS + j, r);
		}
		for (int64_t at = whole; at < d / 2; at++)
			for (int i = 0; i < VECTOR; i++) {
				uint32_t *to = pairs + at * COLUMNS + j + i;

				*to = 0;
				if (j + i < rows)
					memcpy(to, x + (j + i) * stride + 2 * at, sizeof *to);
			}
	}
}

/* rows x TILE scores. Callers pass rows as a constant. */
INLINE void tile(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs, int64_t d,
        float factor, int rows)
{
	float32x4_t sum[ROWS][VECTORS];

	for (int i = 0; i < rows; i++)
		for (int v = 0; v < VECTORS; v++)
			sum[i][v] = vdupq_n_f32(0);
	for (int64_t l = 0; l < d / 2; l++) {
		bfloat16x8_t key[VECTORS];

		for (int v = 0; v < VECTORS; v++)
			key[v] = vreinterpretq_bf16_u32(vld1q_u32(pairs + l * COLUMNS + VECTOR * v));
		for (int i = 0; i < rows; i++) {
			uint32_t pair;

			memcpy(&pair, a + i * a_stride + 2 * l, sizeof pair);
			for (int v = 0; v < VECTORS; v++)
				sum[i][v] = vbfdotq_f32(
				        sum[i][v], vreinterpretq_bf16_u32(vdupq_n_u32(pair)), key[v]);
		}
	}
	for (int i = 0; i < rows; i++)
		for (int v = 0; v < VECTORS; v++)
			vst1q_f32(scores + i * COLUMNS + VECTOR * v, vmulq_n_f32(sum[i][v], factor));
}

void attention_bf16_scores(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs,
        int64_t m, int64_t n, int64_t d, float factor)
{
	for (int64_t j = 0; j < n; j += TILE) {
		int64_t i = 0;

		for (; i + ROWS <= m; i += ROWS)
			tile(scores + i * COLUMNS + j, a + i * a_stride, a_stride, pairs + j, d, factor,
			        ROWS);
		for (; i + 2 <= m; i += 2)
			tile(scores + i * COLUMNS + j, a + i * a_stride, a_stride, pairs + j, d, factor, 2);
		if (i < m)
			tile(scores + i * COLUMNS + j, a + i * a_stride, a_stride, pairs + j, d, factor, 1);
	}
}

/* Factors rounded to bf16 as pairs along the sum: pair l of row i is at i * row + l * col. */
struct factors {
	uint32_t pairs[COLUMNS / 2 * COLUMNS];
	int64_t row, col;
};

INLINE uint16x4_t round4(const float *x)
{
	return vreinterpret_u16_bf16(vcvt_bf16_f32(vld1q_f32(x)));
}

INLINE uint32_t round_pair(float even, float odd)
{
	return bf16_from_f32(even) | (uint32_t)bf16_from_f32(odd) << 16;
}

INLINE void factors_rows(struct factors *f, const float *a, int64_t a_row, int64_t m, int64_t n)
{
	f->row = COLUMNS / 2;
	f->col = 1;
	for (int64_t i = 0; i < m; i++, a += a_row) {
		uint32_t *to = f->pairs + i * f->row;
		int64_t l = 0;

		for (; l + VECTOR <= n; l += VECTOR)
			vst1_u32(to + l / 2, vreinterpret_u32_u16(round4(a + l)));
		for (; l < n; l += 2)
			to[l / 2] = round_pair(a[l], l + 1 < n ? a[l + 1] : 0);
	}
}

/* The same if a is stored by columns. */
INLINE void factors_columns(struct factors *f, const float *a, int64_t a_col, int64_t m, int64_t n)
{
	f->row = 1;
	f->col = COLUMNS;
	for (int64_t l = 0; l < n; l += 2, a += 2 * a_col) {
		uint32_t *to = f->pairs + l / 2 * f->col;
		int64_t i = 0;

		for (; l + 1 < n && i + VECTOR <= m; i += VECTOR) {
			uint16x4x2_t pairs = vzip_u16(round4(a + i), round4(a + a_col + i));

			vst1_u32(to + i, vreinterpret_u32_u16(pairs.val[0]));
			vst1_u32(to + i + 2, vreinterpret_u32_u16(pairs.val[1]));
		}
		for (; i < m; i++)
			to[i] = round_pair(a[i], l + 1 < n ? a[a_col + i] : 0);
	}
}

/* Adds TILE columns of `rows` rows, from row i on. */
INLINE void add_tile(float *sum, int64_t sum_stride, const struct factors *f, int64_t i, const uint16_t *b,
        int64_t b_stride, int64_t n, int rows)
{
	float32x4_t part[ROWS][VECTORS];

	for (int r = 0; r < rows; r++)
		for (int v = 0; v < VECTORS; v++)
			part[r][v] = vdupq_n_f32(0);
	for (int64_t l = 0; l < n; l += 2, b += 2 * b_stride) {
		bfloat16x8_t x[VECTORS];

		for (int v = 0; v < VECTORS; v += 2) {
			uint16x8_t even = vld1q_u16(b + VECTOR * v);
			uint16x8_t odd = l + 1 < n ? vld1q_u16(b + b_stride + VECTOR * v) : vdupq_n_u16(0);

			x[v] = vreinterpretq_bf16_u16(vzip1q_u16(even, odd));
			x[v + 1] = vreinterpretq_bf16_u16(vzip2q_u16(even, odd));
		}
		for (int r = 0; r < rows; r++) {
			uint32x4_t pair = vdupq_n_u32(f->pairs[(i + r) * f->row + l / 2 * f->col]);

			for (int v = 0; v < VECTORS; v++)
				part[r][v] = vbfdotq_f32(part[r][v], vreinterpretq_bf16_u32(pair), x[v]);
		}
	}
	for (int r = 0; r < rows; r++)
		for (int v = 0; v < VECTORS; v++) {
			float *to = sum + (i + r) * sum_stride + VECTOR * v;

			vst1q_f32(to, vaddq_f32(vld1q_f32(to), part[r][v]));
		}
}

/* Adds `columns` columns, fewer than TILE. */
static void add_rest(float *sum, int64_t d, const struct factors *f, const uint16_t *b, int64_t b_stride,
        int64_t m, int64_t n, int64_t columns)
{
	uint16_t rows[COLUMNS * TILE] = {0};

	for (int64_t l = 0; l < n; l++)
		memcpy(rows + l * TILE, b + l * b_stride, (size_t)columns * sizeof *b);
	for (int64_t i = 0; i < m; i++) {
		float to[TILE] = {0};

		memcpy(to, sum + i * d, (size_t)columns * sizeof *to);
		add_tile(to, 0, f, i, rows, TILE, n, 1);
		memcpy(sum + i * d, to, (size_t)columns * sizeof *to);
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
	for (int64_t c = 0; c < d; c += TILE) {
		int64_t i = 0;

		if (d - c < TILE) {
			add_rest(sum + c, d, &f, b + c, b_stride, m, n, d - c);
			break;
		}
		for (; i + ROWS <= m; i += ROWS)
			add_tile(sum + c, d, &f, i, b + c, b_stride, n, ROWS);
		for (; i < m; i++)
			add_tile(sum + c, d, &f, i, b + c, b_stride, n, 1);
	}
}
