/* Products of attention's bf16 rows, where the CPU multiplies bf16 in vectors (AVX512-BF16).
 *
 * Scores are products of two bf16 rows: exact in fp32, with sums in fp32, as where rows are widened first;
 * only the order of additions differs. Keys are packed once and then meet any number of queries.
 * Probabilities and gradients of scores stay fp32; the rows that they multiply are widened in registers. */
#ifndef FERRY_HOST_CPU_ATTENTION_BF16_H
#define FERRY_HOST_CPU_ATTENTION_BF16_H

#include <stdint.h>

/* Columns of a block of keys: what packed keys and scores are apart. */
enum { ATTENTION_BF16_COLUMNS = 128 };

/* Whether this CPU and matmul_choice go this way, for such heads. */
int attention_bf16_fits(int64_t head_dim);

/* Rows of x become columns: pairs[d / 2][ATTENTION_BF16_COLUMNS], 0 where there are no more rows. */
void attention_bf16_pack(uint32_t *pairs, const uint16_t *x, int64_t stride, int64_t rows, int64_t d);

/* scores[m][ATTENTION_BF16_COLUMNS] = factor * a pairs, for n columns, which are rounded up to 16. Rows of a
 * are a_stride apart. */
void attention_bf16_scores(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs,
        int64_t m, int64_t n, int64_t d, float factor);

/* sum[m][d] += a b: b has n rows of d elements, b_stride apart; element (i, l) of a is at i * a_row + l *
 * a_col. What is added is summed over l in ascending order first. */
void attention_bf16_add(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t d);

#endif
