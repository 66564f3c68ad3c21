/* Who multiplies attention's bf16 rows. */
#include "host/cpu/attention_bf16.h"

#include "host/cpu/matmul.h"

int attention_bf16_fits(int64_t head_dim)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	return head_dim % 2 == 0 && __builtin_cpu_supports("avx512bf16") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl") && matmul_choice(DTYPE_BF16)->way == MATMUL_ONEDNN;
#else
	(void)head_dim;
	return 0;
#endif
}

#if !defined(__x86_64__)
void attention_bf16_pack(uint32_t *pairs, const uint16_t *x, int64_t stride, int64_t rows, int64_t d)
{
	(void)pairs, (void)x, (void)stride, (void)rows, (void)d;
}

void attention_bf16_scores(float *scores, const uint16_t *a, int64_t a_stride, const uint32_t *pairs,
        int64_t m, int64_t n, int64_t d, float factor)
{
	(void)scores, (void)a, (void)a_stride, (void)pairs, (void)m, (void)n, (void)d, (void)factor;
}

void attention_bf16_add(float *sum, const float *a, int64_t a_row, int64_t a_col, const uint16_t *b,
        int64_t b_stride, int64_t m, int64_t n, int64_t d)
{
	(void)sum, (void)a, (void)a_row, (void)a_col, (void)b, (void)b_stride, (void)m, (void)n, (void)d;
}
#endif
