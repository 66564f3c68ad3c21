/* attention_bf16.h for arm64: scores by BFDOT, which rounds as BFMMLA does (matmul_bfmmla.h). */
#include "host/cpu/attention_bf16.h"

#include "base/size.h"

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

/* Adds TILE columns of `rows` rows. */
INLINE void add_tile(float *sum, int64_t sum_stride, const float *a, int64_t a_row, int64_t a_col,
        const uint16_t *b, int64_t b_stride, int64_t n, int rows)
{
	float32x4_t part[ROWS][VECTORS];

	for (int i = 0; i < rows; i++)
		for (int v = 0; v < VECTORS; v++)
			part[i][v] = vdupq_n_f32(0);
	for (int64_t l = 0; l < n; l++) {
		float32x4_t x[VECTORS];

		for (int v = 0; v < VECTORS; v++)
			x[v] = vreinterpretq_f32_u32(
			        vshll_n_u16(vld1_u16(b + l * b_stride + VECTOR * v), 16));
		for (int i = 0; i < rows; i++)
			for (int v = 0; v < VECTORS; v++)
				part[i][v] = vfmaq_n_f32(part[i][v], x[v], a[i * a_row + l * a_col]);
	}
	for (int i = 0; i < rows; i++)
		for (int v = 0; v < VECTORS; v++) {
			float *to = sum + i * sum_stride + VECTOR * v;

			vst1q_f32(to, vaddq_f32(vld1q_f32(to), part[i][v]));
		}
}

/* Columns beyond the last whole TILE. */
static void add_rest(float *sum, int64_t d, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t columns)
{
	uint16_t rows[COLUMNS * TILE] = {0};
	float to[TILE] = {0};

	for (int64_t l = 0; l < n; l++)
		memcpy(rows + l * TILE, b + l * b_stride, (size_t)columns * sizeof *b);
	for (int64_t i = 0; i < m; i++) {
		memcpy(to, sum + i * d, (size_t)columns * sizeof *to);
		add_tile(to, TILE, a + i * a_row, a_row, a_col, rows, TILE, n, 1);
		memcpy(sum + i * d, to, (size_t)columns * sizeof *to);
	}
}

void attention_bf16_add(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t d)
{
	for (int64_t c = 0; c < d; c += TILE) {
		int64_t i = 0;

		if (d - c < TILE) {
			add_rest(sum + c, d, a, a_row, a_col, b + c, b_stride, m, n, d - c);
			break;
		}
		for (; i + ROWS <= m; i += ROWS)
			add_tile(sum + i * d + c, d, a + i * a_row, a_row, a_col, b + c, b_stride, n, ROWS);
		for (; i < m; i++)
			add_tile(sum + i * d + c, d, a + i * a_row, a_row, a_col, b + c, b_stride, n, 1);
	}
}
