/* Products of attention's bf16 rows, where the CPU multiplies bf16: in vectors (AVX512-BF16, BFDOT of arm64)
 * or in a matrix unit (AMX).
 *
 * Scores are products of two bf16 rows: exact in fp32, with sums in fp32, as where rows are widened first;
 * only the order of additions differs. Keys are packed once and then meet any number of queries.
 * Probabilities and gradients of scores are fp32. Vectors multiply them as they are; the unit as two bf16
 * each, which keep 16 bits of their 24. */
#ifndef FERRY_HOST_CPU_ATTENTION_BF16_H
#define FERRY_HOST_CPU_ATTENTION_BF16_H

#include <stdint.h>

/* Columns of a block of keys: what packed keys and scores are apart. */
enum { ATTENTION_BF16_COLUMNS = 128 };

struct attention_bf16 {
	int diagonal_rows; /* of queries whose scores are formed together where each sees one key more */

	/* Rows of x become columns: pairs[d / 2][ATTENTION_BF16_COLUMNS], 0 where there are no more rows. */
	void (*pack)(uint32_t *pairs, const uint16_t *x, int64_t stride, int64_t rows, int64_t d);

	/* scores[m][ATTENTION_BF16_COLUMNS] = factor * a pairs, for n columns, which are rounded up to 16.
	 * Rows of a are a_stride apart. */
	void (*scores)(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs, int64_t m,
	        int64_t n, int64_t d, float factor);

	/* sum[m][d] += a b: b has n rows of d elements, b_stride apart; element (i, l) of a is at i * a_row +
	 * l * a_col, of which one is 1. m and n: at most ATTENTION_BF16_COLUMNS. What is added is summed over
	 * l first. */
	void (*add)(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
	        int64_t b_stride, int64_t m, int64_t n, int64_t d);
};

/* Of this CPU and matmul_choice, for such heads and blocks of so many queries. NULL: rows are widened. */
const struct attention_bf16 *attention_bf16(int64_t head_dim, int64_t queries);

/* By vectors, for any even head_dim. */
void attention_bf16_pack(uint32_t *pairs, const uint16_t *x, int64_t stride, int64_t rows, int64_t d);
void attention_bf16_scores(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs,
        int64_t m, int64_t n, int64_t d, float factor);
void attention_bf16_add(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t d);

/* By AMX, for multiples of 32 up to ATTENTION_AMX_HEAD. */
enum { ATTENTION_AMX_HEAD = 256 };
void attention_amx_scores(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs,
        int64_t m, int64_t n, int64_t d, float factor);
void attention_amx_add(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t d);

#endif
