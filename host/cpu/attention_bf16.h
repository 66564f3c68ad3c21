/* Products of attention's bf16 rows, on CPUs that multiply bf16 in vectors (AVX512-BF16, BFDOT of arm64) or
 * in a matrix unit (AMX).
 *
 * Scores sum products of two bf16 rows in fp32. The products are exact; the sums differ from those of widened
 * rows by the order of additions and the rounding of the instruction. Keys are packed once for any number of
 * queries. Probabilities and gradients of scores are rounded to bf16 for their products, as flash attention
 * (Dao et al. 2022) does on GPUs. */
#ifndef FERRY_HOST_CPU_ATTENTION_BF16_H
#define FERRY_HOST_CPU_ATTENTION_BF16_H

#include <stdint.h>

/* Columns of a block of keys, and of a row of packed keys and of scores. */
enum { ATTENTION_BF16_COLUMNS = 128 };

struct attention_bf16 {
	/* Queries that are computed together at the diagonal and at the edge of a window, where each sees one
	 * key more, or less, than the one before. */
	int diagonal_rows;

	/* Rows of x become columns of pairs[d / 2][ATTENTION_BF16_COLUMNS]; columns without a row are 0. */
	void (*pack)(uint32_t *pairs, const uint16_t *x, int64_t stride, int64_t rows, int64_t d);

	/* scores[m][ATTENTION_BF16_COLUMNS] = factor * a pairs, for n columns, which are rounded up to 16.
	 * Rows of a are a_stride apart. */
	void (*scores)(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs, int64_t m,
	        int64_t n, int64_t d, float factor);

	/* sum[m][d] += bf16(a) b: b has n rows of d elements, b_stride apart; element (i, l) of a is at
	 * i * a_row + l * a_col; a_row or a_col is 1. m and n are at most ATTENTION_BF16_COLUMNS. Products
	 * are summed over l before they are added to sum. */
	void (*add)(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
	        int64_t b_stride, int64_t m, int64_t n, int64_t d);
};

/* The functions for this CPU and matmul_choice, for blocks of `queries` queries. NULL: rows must be widened.
 */
const struct attention_bf16 *attention_bf16(int64_t head_dim, int64_t queries);

/* By vectors, for any even head_dim. */
void attention_bf16_pack(uint32_t *pairs, const uint16_t *x, int64_t stride, int64_t rows, int64_t d);
void attention_bf16_scores(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs,
        int64_t m, int64_t n, int64_t d, float factor);
void attention_bf16_add(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t d);

/* By AMX, for a head_dim that is a multiple of 32 up to ATTENTION_AMX_HEAD. */
enum { ATTENTION_AMX_HEAD = 256 };
void attention_amx_scores(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs,
        int64_t m, int64_t n, int64_t d, float factor);
void attention_amx_add(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t d);

#endif
