/* matmul_bfmmla.h: 8 x 8 sums in registers, over operands packed for the instruction. */
#include "host/cpu/matmul_bfmmla.h"

#include "base/size.h"
#include "host/cpu/matmul_parts.h"

#include <arm_neon.h>
#include <string.h>
#include <sys/auxv.h>

#define INLINE static inline __attribute__((always_inline))

enum {
	DEPTH = MATMUL_BFMMLA_DEPTH,
	STEP = 4,           /* of k; one instruction multiplies two rows by two columns */
	PAIR = 2 * STEP,    /* elements of a register */
	SIDE = 8,           /* rows and columns of sums: 16 registers; operands take 8 */
	PART = SIDE * STEP, /* elements of an operand in a step */
	BLOCK_ROWS = 256,   /* of a: 256 KiB stay in the L2 cache, 8 KiB of b in L1 */
};

/* Packs four stored rows of k as to[SIDE][STEP]. */
INLINE void pack_k_rows(uint16_t *to, const uint16_t *x, int64_t stride)
{
	uint16x8_t r[STEP];

	for (int l = 0; l < STEP; l++)
		r[l] = vld1q_u16(x + l * stride);
	for (int half = 0; half < 2; half++) {
		uint32x4_t even =
		        vreinterpretq_u32_u16(half ? vzip2q_u16(r[0], r[1]) : vzip1q_u16(r[0], r[1]));
		uint32x4_t odd =
		        vreinterpretq_u32_u16(half ? vzip2q_u16(r[2], r[3]) : vzip1q_u16(r[2], r[3]));

		vst1q_u16(to + half * 2 * PAIR, vreinterpretq_u16_u32(vzip1q_u32(even, odd)));
		vst1q_u16(to + (half * 2 + 1) * PAIR, vreinterpretq_u16_u32(vzip2q_u32(even, odd)));
	}
}

/* Packs SIDE of count from `at` on, over all of depth, as to[depth / STEP][SIDE][STEP]. Elements beyond the
 * operand are 0. */
static void pack(uint16_t *to, const struct operand *o, int64_t at)
{
	int64_t count = min_i64(SIDE, o->count - at), whole = o->depth / STEP * STEP;
	int64_t by_count = o->has_k_rows ? 1 : o->stride, by_k = o->has_k_rows ? o->stride : 1;
	const uint16_t *x = o->x + at * by_count;

	if (o->has_k_rows && count < SIDE)
		whole = 0;
	if (count < SIDE || o->depth % STEP)
		memset(to, 0, (size_t)(round_up(o->depth, STEP) * SIDE) * sizeof *to);
	if (o->has_k_rows)
		for (int64_t l = 0; l < whole; l += STEP)
			pack_k_rows(to + l * SIDE, x + l * o->stride, o->stride);
	else
		for (int64_t i = 0; i < count; i++)
			for (int64_t l = 0; l < whole; l += STEP)
				memcpy(to + l * SIDE + i * STEP, x + i * o->stride + l, STEP * sizeof *to);
	for (int64_t l = whole; l < o->depth; l++)
		for (int64_t i = 0; i < count; i++)
			to[l / STEP * PART + i * STEP + l % STEP] = x[i * by_count + l * by_k];
}

/* A register of sums has two elements of a row of c and the two below them. */
INLINE void put(float *c, int64_t c_stride, float32x4_t sum[SIDE / 2][SIDE / 2], int accumulate)
{
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE / 2; j += 2) {
			float32x4_t left = sum[i / 2][j], right = sum[i / 2][j + 1];
			float32x4_t row = i % 2 ? vcombine_f32(vget_high_f32(left), vget_high_f32(right))
			                        : vcombine_f32(vget_low_f32(left), vget_low_f32(right));
			float *to = c + i * c_stride + 2 * j;

			vst1q_f32(to, accumulate ? vaddq_f32(vld1q_f32(to), row) : row);
		}
}

static void tile(
        float *c, int64_t c_stride, const uint16_t *a, const uint16_t *b, int64_t steps, int accumulate)
{
	float32x4_t sum[SIDE / 2][SIDE / 2];

	for (int i = 0; i < SIDE / 2; i++)
		for (int j = 0; j < SIDE / 2; j++)
			sum[i][j] = vdupq_n_f32(0);
	for (int64_t l = 0; l < steps; l++, a += PART, b += PART) {
		bfloat16x8_t x[SIDE / 2], y[SIDE / 2];

		for (int i = 0; i < SIDE / 2; i++) {
			x[i] = vreinterpretq_bf16_u16(vld1q_u16(a + i * PAIR));
			y[i] = vreinterpretq_bf16_u16(vld1q_u16(b + i * PAIR));
		}
		for (int i = 0; i < SIDE / 2; i++)
			for (int j = 0; j < SIDE / 2; j++)
				sum[i][j] = vbfmmlaq_f32(sum[i][j], x[i], y[j]);
	}
	put(c, c_stride, sum, accumulate);
}

/* The same if c ends within the tile. */
static void tile_at_border(float *c, int64_t c_stride, const uint16_t *a, const uint16_t *b, int64_t steps,
        int accumulate, int64_t rows, int64_t cols)
{
	float whole[SIDE * SIDE] = {0};

	for (int64_t i = 0; i < rows && accumulate; i++)
		memcpy(whole + i * SIDE, c + i * c_stride, (size_t)cols * sizeof *c);
	tile(whole, SIDE, a, b, steps, accumulate);
	for (int64_t i = 0; i < rows; i++)
		memcpy(c + i * c_stride, whole + i * SIDE, (size_t)cols * sizeof *c);
}

static void part(float *c, int64_t c_stride, const struct operand *a, const struct operand *b, int accumulate)
{
	_Alignas(64) uint16_t rows[BLOCK_ROWS * DEPTH], columns[SIDE * DEPTH];
	int64_t steps = (b->depth + STEP - 1) / STEP;

	for (int64_t i = 0; i < a->count; i += SIDE)
		pack(rows + i * DEPTH, a, i);
	for (int64_t j = 0; j < b->count; j += SIDE) {
		int64_t n = min_i64(SIDE, b->count - j);

		pack(columns, b, j);
		for (int64_t i = 0; i < a->count; i += SIDE) {
			int64_t m = min_i64(SIDE, a->count - i);
			float *to = c + i * c_stride + j;

			if (m == SIDE && n == SIDE)
				tile(to, c_stride, rows + i * DEPTH, columns, steps, accumulate);
			else
				tile_at_border(
				        to, c_stride, rows + i * DEPTH, columns, steps, accumulate, m, n);
		}
	}
}

void matmul_bfmmla(float *c, const uint16_t *a, const uint16_t *b, int64_t m, int64_t n, int64_t k,
        int64_t c_stride, int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout,
        enum matmul_layout b_layout, int accumulate)
{
	matmul_by_parts(c, a, b, m, n, k, c_stride, a_stride, b_stride, a_layout, b_layout, accumulate, part,
	        DEPTH, BLOCK_ROWS, SIDE);
}

int matmul_bfmmla_is_here(void)
{
	return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
}
