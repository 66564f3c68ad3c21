/* Activations: op_act and its gradient. */
#include "device/op_act.h"
#include "host/cpu/cpu_inner.h"

OP_ACT_LIST(CPU_DECLARE)

static void act_piece(void *context, int64_t piece, int worker)
{
	const struct op_act *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t end = min_i64((piece + 1) * CPU_PIECE, o->count);
	float x[CPU_CHUNK];

	(void)worker;
	for (int64_t at = piece * CPU_PIECE; at < end; at += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, end - at);
		float *out = cpu_out(x, cpu_ptr(o->out), at, o->dtype);

		k->act(out, cpu_load(k, x, cpu_ptr(o->x), at, n, o->dtype), n, o->act);
		cpu_store(k, cpu_ptr(o->out), at, out, n, o->dtype);
	}
}

int cpu_act(struct cpu_context *cx, const struct op_act *op)
{
	struct op_act o = *op;

	cpu_run(cx, cpu_pieces(o.count, CPU_PIECE), act_piece, &o);
	return 0;
}

static void act_grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_act_grad *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t end = min_i64((piece + 1) * CPU_PIECE, o->count);
	float x[CPU_CHUNK], dout[CPU_CHUNK];

	(void)worker;
	for (int64_t at = piece * CPU_PIECE; at < end; at += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, end - at);
		float *dx = cpu_out(x, cpu_ptr(o->dx), at, o->dtype);

		k->act_grad(dx, cpu_load(k, dout, cpu_ptr(o->dout), at, n, o->dtype),
		        cpu_load(k, x, cpu_ptr(o->x), at, n, o->dtype), n, o->act);
		cpu_store(k, cpu_ptr(o->dx), at, dx, n, o->dtype);
	}
}

int cpu_act_grad(struct cpu_context *cx, const struct op_act_grad *op)
{
	struct op_act_grad o = *op;

	cpu_run(cx, cpu_pieces(o.count, CPU_PIECE), act_grad_piece, &o);
	return 0;
}
