/* AdamW in device memory: optim/adamw.h, spread over the pool. */
#include "device/op_optim.h"
#include "host/cpu/cpu_inner.h"

#include "optim/adamw.h"

OP_OPTIM_LIST(CPU_DECLARE)

struct adamw_run {
	struct op_adamw op;
	enum adamw_isa isa;
};

_Static_assert(CPU_PIECE % ADAMW_BLOCK == 0, "pieces are whole blocks");

static void adamw_piece(void *context, int64_t piece, int worker)
{
	const struct adamw_run *run = context;
	int64_t at = piece * CPU_PIECE, state_bytes = adamw_state_bytes(run->op.state);
	struct adamw_span span = {
	        .hi = (uint16_t *)cpu_ptr(run->op.hi) + at,
	        .lo = (int16_t *)cpu_ptr(run->op.lo) + at,
	        .m = (char *)cpu_ptr(run->op.m) + at * state_bytes,
	        .v = (char *)cpu_ptr(run->op.v) + at * state_bytes,
	        .grad = (const char *)cpu_ptr(run->op.grad) + at * dtype_bytes(run->op.grad_dtype),
	        .count = min_i64(CPU_PIECE, run->op.count - at),
	        .first = run->op.first + at,
	        .tensor = run->op.tensor,
	        .decay = run->op.decay,
	        .grad_dtype = run->op.grad_dtype,
	        .state = run->op.state,
	};

	(void)worker;
	if (adamw_state_has_scales(run->op.state)) {
		span.m_scale = (float *)cpu_ptr(run->op.m_scale) + at / adamw_state_block(span.state);
		span.v_scale = (float *)cpu_ptr(run->op.v_scale) + at / adamw_state_block(span.state);
	}
	adamw_update(&span, &run->op.step, run->isa);
}

int cpu_adamw(struct cpu_context *cx, const struct op_adamw *o)
{
	struct adamw_run run = {
	        .op = *o,
	};
	int rc = adamw_isa_find(&run.isa, "auto");

	if (rc < 0)
		return rc;
	cpu_run(cx, cpu_pieces(o->count, CPU_PIECE), adamw_piece, &run);
	return 0;
}
