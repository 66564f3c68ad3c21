/* The host backend's ops: one function per op, same basename as its CUDA twin (cpu_rope.c, cuda_rope.cu).
 *
 * Each runs on a stream's thread and spreads its work over the pool in pieces whose borders depend on shapes
 * only, each piece computed by one thread: that is why results do not depend on the thread count. A device
 * address of this backend is the host address. Shapes were checked (op_check). Return 0 or a negative ERR_*
 * with its text (an index out of range).
 */
#ifndef FERRY_HOST_CPU_CPU_H
#define FERRY_HOST_CPU_CPU_H

#include "device/op.h"
#include "host/pool.h"

static inline void *cpu_ptr(dev_addr a)
{
	return (void *)(uintptr_t)a.value;
}

/* What an op may use: one per stream, zero-initialised but for the pool. scratch grows to what the largest op
 * asked for. */
struct cpu_context {
	struct pool *pool;
	void *scratch;
	int64_t scratch_bytes;
};

/* Frees the scratch; the pool is the caller's. NULL and a context that never ran are fine. */
void cpu_context_free(struct cpu_context *cx);

/* At least `bytes`, 64-byte aligned, contents undefined, valid until the next op on this context. NULL with
 * ERR_NOMEM's text when memory is out. */
void *cpu_scratch(struct cpu_context *cx, int64_t bytes);

typedef int cpu_op_fn(struct cpu_context *cx, const struct op *op);

cpu_op_fn cpu_fill, cpu_copy, cpu_cast, cpu_join, cpu_add, cpu_matmul, cpu_colsum, cpu_gather, cpu_scatter,
        cpu_embed_grad, cpu_rmsnorm, cpu_rmsnorm_grad, cpu_layernorm, cpu_layernorm_grad, cpu_rope,
        cpu_attention, cpu_attention_grad, cpu_glu, cpu_glu_grad, cpu_act, cpu_act_grad, cpu_cross_entropy,
        cpu_sumsq, cpu_cast_sumsq, cpu_adamw;

/* Indexed by enum op_kind. */
extern cpu_op_fn *const cpu_ops[OP_KIND_COUNT];

#endif
