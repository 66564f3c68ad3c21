/* The host backend's ops: one function per op, same basename as its CUDA twin (cpu_rope.c, cuda_rope.cu).
 *
 * An op runs on a stream's thread and divides its work over the pool in pieces. The borders of pieces depend
 * on shapes only, and one thread computes each piece. So results do not depend on the thread count. A device
 * address of this backend is the host address. The functions rely on op_check. They return 0 or a negative
 * ERR_* with its text (an index out of range, out of memory).
 */
#ifndef FERRY_HOST_CPU_CPU_H
#define FERRY_HOST_CPU_CPU_H

#include "device/addr.h"
#include "host/pool.h"

struct op; /* device/op.h */

static inline void *cpu_ptr(dev_addr a)
{
	return (void *)(uintptr_t)a.value;
}

/* The resources of ops, one per stream. Start with all fields but pool 0. scratch grows to the largest
 * request. */
struct cpu_context {
	struct pool *pool;
	void *scratch;
	int64_t scratch_bytes;
};

/* Frees the scratch, not the pool. NULL and a context that never ran are fine. */
void cpu_context_free(struct cpu_context *cx);

/* At least `bytes`, 64-byte aligned, contents undefined, valid until the next op on this context. NULL with
 * the text of ERR_NOMEM if out of memory. */
void *cpu_scratch(struct cpu_context *cx, int64_t bytes);

/* Runs the op by its function cpu_<name>. An op without such a function does not link. */
int cpu_op(struct cpu_context *cx, const struct op *op);

/* Declares the function of an op. A file of ops applies it to its part of the list, for example
 * OP_ROPE_LIST(CPU_DECLARE) before cpu_rope. So the compiler compares the function with the one that cpu_op
 * calls. */
#define CPU_DECLARE(NAME, name, args) int cpu_##name(struct cpu_context *cx, const struct op_##args *op);

#endif
