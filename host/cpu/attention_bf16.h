/* Products of bf16 rows for attention's scores, where the CPU multiplies bf16 in vectors (AVX512-BF16).
 *
 * Products of two bf16 numbers are exact in fp32 and sums are fp32, as where rows are widened first; only the
 * order of additions differs. Keys are packed once and then meet any number of queries. */
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

#endif
