#include "host/cpu/cpu_inner.h"

#include "optim/adamw.h"

struct sumsq_run {
	struct op_sumsq op;
	enum adamw_isa isa;
};

static void sumsq_piece(void *context, int64_t piece, int worker)
{
	const struct sumsq_run *run = context;
	int64_t at = piece * SUMSQ_BLOCK, bytes = dtype_bytes(run->op.dtype);

	(void)worker;
	sumsq_blocks((double *)cpu_ptr(run->op.partial) + piece,
	        (const char *)cpu_ptr(run->op.x) + at * bytes, cpu_min(SUMSQ_BLOCK, run->op.count - at),
	        run->op.dtype == DTYPE_F32 ? GRAD_F32 : GRAD_BF16, run->isa);
}

int cpu_sumsq(struct cpu_context *cx, const struct op *op)
{
	struct sumsq_run run = {.op = op->sumsq};
	int rc = adamw_isa_find(&run.isa, "auto");

	if (rc < 0)
		return rc;
	cpu_run(cx, cpu_pieces(run.op.count, SUMSQ_BLOCK), sumsq_piece, &run);
	return 0;
}

struct cast_sumsq_run {
	struct op_cast_sumsq op;
	enum adamw_isa isa;
};

/* A block (256 KiB in, 128 KiB out) is rounded into a core's cache, and its squares are summed from there. */
static void cast_sumsq_piece(void *context, int64_t piece, int worker)
{
	const struct cast_sumsq_run *run = context;
	int64_t at = piece * SUMSQ_BLOCK, n = cpu_min(SUMSQ_BLOCK, run->op.count - at);
	uint16_t *dst = (uint16_t *)cpu_ptr(run->op.dst) + at;

	(void)worker;
	cpu_kernels()->narrow(dst, (const float *)cpu_ptr(run->op.src) + at, n);
	sumsq_blocks((double *)cpu_ptr(run->op.partial) + piece, dst, n, GRAD_BF16, run->isa);
}

int cpu_cast_sumsq(struct cpu_context *cx, const struct op *op)
{
	struct cast_sumsq_run run = {.op = op->cast_sumsq};
	int rc = adamw_isa_find(&run.isa, "auto");

	if (rc < 0)
		return rc;
	cpu_run(cx, cpu_pieces(run.op.count, SUMSQ_BLOCK), cast_sumsq_piece, &run);
	return 0;
}
