/* Sums of squares of a gradient in blocks, alone or while it is rounded to bf16. */
#include "device/op_optim.h"
#include "host/cpu/cpu_inner.h"

#include "optim/adamw.h"

OP_OPTIM_LIST(CPU_DECLARE)

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
	        (const char *)cpu_ptr(run->op.x) + at * bytes, min_i64(SUMSQ_BLOCK, run->op.count - at),
	        run->op.dtype, run->isa);
}

int cpu_sumsq(struct cpu_context *cx, const struct op_sumsq *op)
{
	struct sumsq_run run = {.op = *op};
	int rc = adamw_isa_find(&run.isa, "auto");

	if (rc < 0)
		return rc;
	cpu_run(cx, cpu_pieces(run.op.count, SUMSQ_BLOCK), sumsq_piece, &run);
	return 0;
}

/* Rounds and sums run by run, while a run is in the cache. */
static void cast_sumsq_piece(void *context, int64_t piece, int worker)
{
	enum { RUNS = 16, RUN = SUMSQ_BLOCK / RUNS };
	const struct op_cast_sumsq *o = context;
	int64_t at = piece * SUMSQ_BLOCK, n = min_i64(SUMSQ_BLOCK, o->count - at);
	const float *src = (const float *)cpu_ptr(o->src) + at;
	uint16_t *dst = (uint16_t *)cpu_ptr(o->dst) + at;
	double run[RUNS] = {0};

	(void)worker;
	for (int r = 0; r * RUN < n; r++)
		run[r] = cpu_kernels()->narrow_sumsq(dst + r * RUN, src + r * RUN, min_i64(RUN, n - r * RUN));
	for (int half = RUNS / 2; half; half /= 2)
		for (int j = 0; j < half; j++)
			run[j] += run[j + half];
	((double *)cpu_ptr(o->partial))[piece] = run[0];
}

int cpu_cast_sumsq(struct cpu_context *cx, const struct op_cast_sumsq *op)
{
	struct op_cast_sumsq o = *op;

	cpu_run(cx, cpu_pieces(o.count, SUMSQ_BLOCK), cast_sumsq_piece, &o);
	return 0;
}
