/* Stubs of products by instructions that this architecture lacks; matmul_choice never chooses them. */
#include "host/cpu/matmul_amx.h"        /* IWYU pragma: keep */
#include "host/cpu/matmul_avx2.h"       /* IWYU pragma: keep */
#include "host/cpu/matmul_avx512bf16.h" /* IWYU pragma: keep */
#include "host/cpu/matmul_bfmmla.h"

#if !defined(__x86_64__)
void matmul_avx2(float *c, const void *a, const void *b, int64_t m, int64_t n, int64_t k, int64_t c_stride,
        int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout, enum matmul_layout b_layout,
        enum dtype dtype, float alpha, int accumulate)
{
	(void)c, (void)a, (void)b, (void)m, (void)n, (void)k, (void)c_stride, (void)a_stride, (void)b_stride;
	(void)a_layout, (void)b_layout, (void)dtype, (void)alpha, (void)accumulate;
}

void matmul_avx512bf16(const struct matmul_product *product)
{
	(void)product;
}

int matmul_amx_is_here(void)
{
	return 0;
}

void matmul_amx(const struct matmul_product *product)
{
	(void)product;
}
#endif

#if !defined(__aarch64__)
int matmul_bfmmla_is_here(void)
{
	return 0;
}

void matmul_bfmmla(const struct matmul_product *product)
{
	(void)product;
}
#endif
