/* matmul_bfmmla.h: 8 x 8 sums in registers, over operands packed for the instruction. */
#include "host/cpu/matmul_bfmmla.h"

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

/* Four sums of a row of c. */
INLINE void put4(const struct sums *to, int64_t row, int64_t col, float32x4_t x)
{
	float *c = to->c + row * to->c_stride + col;

	if (to->accumulate)
		x = vaddq_f32(vld1q_f32(c), x);
	if (to->rounded)
		vst1_u16(to->rounded + row * to->rounded_stride + col,
		        vreinterpret_u16_bf16(vcvt_bf16_f32(x)));
	else
		vst1q_f32(c, x);
}

static void tile(const struct sums *to, const uint16_t *a, const uint16_t *b, int64_t steps)
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
	/* a register of sums has two elements of a row of c and the two below them */
	for (int i = 0; i < SIDE; i += 2)
		for (int j = 0; j < SIDE / 2; j += 2) {
			float32x4_t left = sum[i / 2][j], right = sum[i / 2][j + 1];

			put4(to, i, 2 * j, vcombine_f32(vget_low_f32(left), vget_low_f32(right)));
			put4(to, i + 1, 2 * j, vcombine_f32(vget_high_f32(left), vget_high_f32(right)));
		}
}

/* The same if c ends within the tile. */
static void tile_at_border(const struct sums *to, const uint16_t *a, const uint16_t *b, int64_t steps,
        int64_t rows, int64_t cols)
{
	float whole[SIDE * SIDE] = {0};
	uint16_t rounded[SIDE * SIDE];
	struct sums all = {.c = whole,
	        .rounded = to->rounded ? rounded : NULL,
	        .c_stride = SIDE,
	        .rounded_stride = SIDE,
	        .accumulate = to->accumulate};

	for (int64_t i = 0; i < rows && to->accumulate; i++)
		memcpy(whole + i * SIDE, to->c + i * to->c_stride, (size_t)cols * sizeof *whole);
	tile(&all, a, b, steps);
	for (int64_t i = 0; i < rows; i++)
		if (to->rounded)
			memcpy(to->rounded + i * to->rounded_stride, rounded + i * SIDE,
			        (size_t)cols * sizeof *rounded);
		else
			memcpy(to->c + i * to->c_stride, whole + i * SIDE, (size_t)cols * sizeof *whole);
}

static void part(const struct sums *to, const struct operand *a, const struct operand *b)
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
			struct sums at = sums_at(to, i, j);

			if (m == SIDE && n == SIDE)
				tile(&at, rows + i * DEPTH, columns, steps);
			else
				tile_at_border(&at, rows + i * DEPTH, columns, steps, m, n);
		}
	}
}

void matmul_bfmmla(const struct matmul_product *p)
{
	matmul_by_parts(p, part, DEPTH, BLOCK_ROWS, SIDE);
}

int matmul_bfmmla_is_here(void)
{
	return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
}
