/* Gated activations: op_glu and its gradient. */
#include "device/op_act.h"
#include "host/cpu/cpu_inner.h"

OP_ACT_LIST(CPU_DECLARE)

static void glu_piece(void *context, int64_t piece, int worker)
{
	const struct op_glu *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t end = min_i64((piece + 1) * CPU_PIECE, o->count);
	float gate[CPU_CHUNK], up[CPU_CHUNK];

	(void)worker;
	for (int64_t at = piece * CPU_PIECE; at < end; at += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, end - at);
		float *out = cpu_out(gate, cpu_ptr(o->out), at, o->dtype);

		k->glu(out, cpu_load(k, gate, cpu_ptr(o->gate), at, n, o->dtype),
		        cpu_load(k, up, cpu_ptr(o->up), at, n, o->dtype), n, o->act);
		cpu_store(k, cpu_ptr(o->out), at, out, n, o->dtype);
	}
}

int cpu_glu(struct cpu_context *cx, const struct op_glu *op)
{
	struct op_glu o = *op;

	cpu_run(cx, cpu_pieces(o.count, CPU_PIECE), glu_piece, &o);
	return 0;
}

static void glu_grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_glu_grad *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t end = min_i64((piece + 1) * CPU_PIECE, o->count);
	float gate[CPU_CHUNK], up[CPU_CHUNK], dout[CPU_CHUNK];

	(void)worker;
	for (int64_t at = piece * CPU_PIECE; at < end; at += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, end - at);
		float *dgate = cpu_out(gate, cpu_ptr(o->dgate), at, o->dtype);
		float *dup = cpu_out(up, cpu_ptr(o->dup), at, o->dtype);

		k->glu_grad(dgate, dup, cpu_load(k, dout, cpu_ptr(o->dout), at, n, o->dtype),
		        cpu_load(k, gate, cpu_ptr(o->gate), at, n, o->dtype),
		        cpu_load(k, up, cpu_ptr(o->up), at, n, o->dtype), n, o->act);
		cpu_store(k, cpu_ptr(o->dgate), at, dgate, n, o->dtype);
		cpu_store(k, cpu_ptr(o->dup), at, dup, n, o->dtype);
	}
}

int cpu_glu_grad(struct cpu_context *cx, const struct op_glu_grad *op)
{
	struct op_glu_grad o = *op;

	cpu_run(cx, cpu_pieces(o.count, CPU_PIECE), glu_grad_piece, &o);
	return 0;
}
