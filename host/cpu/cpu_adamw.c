#include "host/cpu/cpu_inner.h"

#include "optim/adamw.h"

struct adamw_run {
	struct op_adamw op;
	struct adamw_step step;
	enum adamw_isa isa;
};

static void adamw_piece(void *context, int64_t piece, int worker)
{
	const struct adamw_run *run = context;
	int64_t at = piece * CPU_PIECE;
	struct adamw_span span = {
	        .hi = (uint16_t *)cpu_ptr(run->op.hi) + at,
	        .lo = (int16_t *)cpu_ptr(run->op.lo) + at,
	        .m = (float *)cpu_ptr(run->op.m) + at,
	        .v = (float *)cpu_ptr(run->op.v) + at,
	        .grad = (const char *)cpu_ptr(run->op.grad) + at * dtype_bytes(run->op.grad_dtype),
	        .count = cpu_min(CPU_PIECE, run->op.count - at),
	        .decay = run->op.decay,
	        .grad_kind = run->op.grad_dtype == DTYPE_F32 ? GRAD_F32 : GRAD_BF16,
	};

	(void)worker;
	adamw_update(&span, &run->step, run->isa);
}

int cpu_adamw(struct cpu_context *cx, const struct op *op)
{
	const struct op_adamw *o = &op->adamw;
	struct adamw_run run = {
	        .op = *o,
	        .step = {.one_minus_beta1 = o->one_minus_beta1,
	                .one_minus_beta2 = o->one_minus_beta2,
	                .decay_factor = o->decay_factor,
	                .rsqrt_correction2 = o->rsqrt_correction2,
	                .step_size = o->step_size,
	                .epsilon = o->epsilon,
	                .clip_scale = o->clip_scale},
	};
	int rc = adamw_isa_find(&run.isa, "auto");

	if (rc < 0)
		return rc;
	cpu_run(cx, cpu_pieces(o->count, CPU_PIECE), adamw_piece, &run);
	return 0;
}
