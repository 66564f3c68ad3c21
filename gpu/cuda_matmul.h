/* Matrix products by cuBLASLt, or by ferry's own kernel if cuBLASLt is missing or refuses.
 *
 * A cuda_blas belongs to one device and serves one stream at a time, because its products share a workspace.
 * Only the owning thread uses it. It keeps one algorithm for each sort of product (shapes, strides, layouts,
 * types, alignments), the first that cuBLASLt's heuristics name. So the same product always has the same
 * bits.
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

/* The workspace for cuBLASLt: NVIDIA's recommendation for Hopper and later, and plenty for earlier GPUs. In
 * plans it is the reserve "cuBLASLt workspace". */
enum { CUDA_BLAS_WORKSPACE_BYTES = 32 << 20 };

/* Opens on the current GPU. workspace: device memory of the caller, aligned to 256, valid until after close;
 * NULL with 0 bytes: only algorithms that need none. A machine without cuBLASLt is no error: log_warn says it
 * once, and products run on ferry's own kernel. Returns 0 or ERR_NOMEM. */
int cuda_blas_open(struct cuda_blas **blas, void *workspace, int64_t workspace_bytes);

/* All work must be done. NULL is allowed. */
void cuda_blas_close(struct cuda_blas *blas);

/* Products so far by cuBLASLt and by ferry's own kernel, and sorts of products. */
struct cuda_blas_stats {
	int64_t library_count, plain_count, sort_count;
};
void cuda_blas_get_stats(const struct cuda_blas *blas, struct cuda_blas_stats *stats);

/* ferry's own kernel (cuda_matmul_plain.cu): any product that op_check accepts. */
int cuda_matmul_plain(const struct cuda_launch *at, const struct op_matmul *op);

/* c (F32) += bias (BF16) on each row: the bias that cuBLASLt does not add (cuda_bias.cu). */
int cuda_matmul_bias(const struct cuda_launch *at, const struct op_matmul *op);

#ifdef __cplusplus
}
#endif
#endif
