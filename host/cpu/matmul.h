/* The choice of kernels for matrix products on this machine, and products of fp32 blocks on one thread.
 *
 * The choice depends on the CPU, the libraries and the environment, never on timing, so the same machine
 * gives the same bits. matmul and attention use it. */
#ifndef FERRY_HOST_CPU_MATMUL_H
#define FERRY_HOST_CPU_MATMUL_H

#include "device/op_matmul.h"

/* Vectors that a CPU has, or that a library has kernels for. */
enum matmul_simd { MATMUL_SIMD_BASE, MATMUL_SIMD_NEON, MATMUL_SIMD_AVX2, MATMUL_SIMD_AVX512 };

/* Instructions that multiply matrices of bf16 (matmul_amx_is_here, matmul_bfmmla_is_here). */
enum matmul_matrix { MATMUL_MATRIX_NONE, MATMUL_MATRIX_AMX, MATMUL_MATRIX_BFMMLA };

/* The facts that decide. */
struct matmul_facts {
	enum matmul_simd cpu, onednn; /* onednn: after ONEDNN_MAX_CPU_ISA */
	const char *openblas_core;    /* the core whose kernels OpenBLAS uses, after OPENBLAS_CORETYPE */
	int has_bf16_dot;             /* AVX512-BF16 */
	int has_slow_bf16_dot;        /* vectors multiply bf16 at half the rate of fp32 */
	enum matmul_matrix matrix;    /* for bf16 */
	const char *wish;             /* FERRY_MATMUL (openblas, onednn or avx2, for tests) or NULL */
	const char *coretype;         /* OPENBLAS_CORETYPE or NULL */
};

enum matmul_way {
	MATMUL_OPENBLAS,   /* fp32 only */
	MATMUL_ONEDNN,     /* fp32 only */
	MATMUL_AVX2,       /* matmul_avx2.h; bf16 is widened as it is packed */
	MATMUL_AVX512BF16, /* matmul_avx512bf16.h; bf16 only */
	MATMUL_AMX,        /* matmul_amx.h; bf16 only */
	MATMUL_BFMMLA,     /* matmul_bfmmla.h; bf16 only */
	MATMUL_WIDENED,    /* bf16 only: widened, then as fp32 */
};

/* A product of bf16: c[m,n] = op(a) * op(b), or added to c with accumulate. With `rounded` the results go
 * there, rounded to bf16, and c is scratch for sums over parts of k. */
struct matmul_product {
	float *c;
	uint16_t *rounded; /* or NULL */
	const uint16_t *a, *b;
	int64_t m, n, k, c_stride, rounded_stride, a_stride, b_stride;
	enum matmul_layout a_layout, b_layout;
	int accumulate;
};

/* Computes a product on the calling thread. */
typedef void matmul_bf16(const struct matmul_product *product);

struct matmul_choice {
	enum matmul_way way;
	const char *library, *kernels; /* "OpenBLAS", "SkylakeX" */
	int widens;                    /* bf16 is multiplied as fp32 */
	char why[160], warning[160];   /* warning: a library is older than the CPU; "" */
};

/* Chooses for products of this dtype, from the facts alone. */
void matmul_choose(struct matmul_choice *choice, const struct matmul_facts *facts, enum dtype dtype);

/* The choice of this process, made once. */
const struct matmul_choice *matmul_choice(enum dtype dtype);

/* c[m,n] = alpha * op(a) * op(b) + beta * c, row-major, on the caller's thread; beta is 1, or 0, which does
 * not read c. */
void cpu_sgemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, int64_t c_stride,
        int64_t a_stride, int64_t b_stride, enum matmul_layout a_layout, enum matmul_layout b_layout,
        float alpha, float beta);

/* The pieces of a product. m, n and k are the sizes of a full piece, count_m, count_n and count_k the numbers
 * of pieces. With count_k > 1 the products of the parts of k are summed in order. workers: 0, or their number
 * if bits do not depend on m and n; k depends on the shape alone. */
struct matmul_tiling {
	int64_t m, n, k, count_m, count_n, count_k;
};
void matmul_tiling(struct matmul_tiling *tiling, int64_t m, int64_t n, int64_t k, int workers);

/* Many products on all workers at once, without a barrier between them. get gives product i of `count`, or
 * returns 0 if there is none. It is called several times for each i. Bits do not depend on the workers. */
struct cpu_context;
typedef int matmul_get(struct op_matmul *op, const void *context, int64_t i);
int cpu_matmuls(struct cpu_context *cx, int64_t count, matmul_get *get, const void *context);

#endif
