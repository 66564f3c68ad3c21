/* The host backend's ops: one function per op, same basename as its CUDA twin (cpu_rope.c, cuda_rope.cu).
 *
 * Each runs on a stream's thread and spreads its work over the pool in pieces whose borders depend on shapes
 * only, each piece computed by one thread: that is why results do not depend on the thread count. A device
 * address of this backend is the host address. Shapes were checked (op_check). Return 0 or a negative ERR_*
 * with its text (an index out of range).
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

/* Runs the op by the function of its name: a name in the list of ops without one does not link. */
int cpu_op(struct cpu_context *cx, const struct op *op);

/* The functions of a row of the list. A file of ops expands its part of the list with it, so that its
 * functions are those that cpu_op calls: OP_ROPE_LIST(CPU_DECLARE) before cpu_rope. */
#define CPU_DECLARE(NAME, name, args) int cpu_##name(struct cpu_context *cx, const struct op_##args *op);

#endif
