/* Matrix products: by cuBLASLt, and by a kernel of ours where it is missing or refuses.
 *
 * A cuda_blas belongs to one device and serves one stream at a time, because its products share a workspace;
 * it is used by the owning thread only. It remembers one algorithm for each sort of product (shapes, strides,
 * layouts, types, alignments), the first that cuBLASLt's heuristics name, so the same product has the same
 * bits all the time.
 *
 * FERRY_MATMUL=plain leaves cuBLASLt out.
 */
#ifndef FERRY_GPU_CUDA_MATMUL_H
#define FERRY_GPU_CUDA_MATMUL_H

#include "gpu/cuda.h"

struct op_matmul; /* device/op_matmul.h */

#ifdef __cplusplus
extern "C" {
#endif

/* What the device should set aside for cuBLASLt: what NVIDIA recommends for Hopper and later, and plenty
 * before. The reserve's name in plans is "cuBLASLt workspace". */
enum { CUDA_BLAS_WORKSPACE_BYTES = 32 << 20 };

/* Opens on the current GPU. workspace: device memory, aligned to 256, the caller's until after close; NULL
 * with 0 bytes: algorithms that need none. A machine without cuBLASLt is no error: log_warn says it once, and
 * products run on our own kernel. 0 or ERR_NOMEM. */
int cuda_blas_open(struct cuda_blas **blas, void *workspace, int64_t workspace_bytes);

/* Work must be done. NULL is allowed. */
void cuda_blas_close(struct cuda_blas *blas);

/* Products so far that cuBLASLt took, and that our kernel did. */
struct cuda_blas_stats {
	int64_t library_count, plain_count, sort_count;
};
void cuda_blas_get_stats(const struct cuda_blas *blas, struct cuda_blas_stats *stats);

/* Our kernel (cuda_matmul_plain.cu): any product that op_check accepts. */
int cuda_matmul_plain(const struct cuda_launch *at, const struct op_matmul *op);

/* c (F32) += bias (BF16) on each row: the bias that cuBLASLt does not add (cuda_bias.cu). */
int cuda_matmul_bias(const struct cuda_launch *at, const struct op_matmul *op);

#ifdef __cplusplus
}
#endif
#endif
