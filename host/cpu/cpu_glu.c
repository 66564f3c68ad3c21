/* Gated activations: op_glu and its gradient. */
#include "device/op_act.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_ACT_LIST(CPU_DECLARE)

/* Elements from `at` on that are neighbours in all arrays, and where gate and up have them. */
struct glu_run {
	int64_t at, n;
};

static struct glu_run run_of(int64_t at, int64_t end, int64_t cols, int64_t stride)
{
	int64_t n = min_i64(CPU_CHUNK, end - at);

	if (!cols)
		return (struct glu_run){at, n};
	return (struct glu_run){at / cols * stride + at % cols, min_i64(n, cols - at % cols)};
}

static void glu_piece(void *context, int64_t piece, int worker)
{
	const struct op_glu *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t end = min_i64((piece + 1) * CPU_PIECE, o->count);
	float gate[CPU_CHUNK], up[CPU_CHUNK];
	struct glu_run r;

	(void)worker;
	for (int64_t at = piece * CPU_PIECE; at < end; at += r.n) {
		float *out = cpu_out(gate, cpu_ptr(o->out), at, o->dtype);

		r = run_of(at, end, o->cols, o->stride);
		k->glu(out, cpu_load(k, gate, cpu_ptr(o->gate), r.at, r.n, o->dtype),
		        cpu_load(k, up, cpu_ptr(o->up), r.at, r.n, o->dtype), r.n, o->act);
		cpu_store(k, cpu_ptr(o->out), at, out, r.n, o->dtype);
	}
}

int cpu_glu(struct cpu_context *cx, const struct op_glu *op)
{
	struct op_glu o = *op;

	cpu_run(cx, cpu_pieces(o.count, CPU_PIECE), glu_piece, &o);
	return 0;
}

/* All is read before any of it is written: outputs may be in the places of inputs. */
static void glu_grad_run(const struct op_glu_grad *o, int64_t at, struct glu_run r)
{
	const struct cpu_kernels *k = cpu_kernels();
	float gate[CPU_CHUNK], up[CPU_CHUNK], dout[CPU_CHUNK], again[CPU_CHUNK];
	float *dgate = cpu_out(gate, cpu_ptr(o->dgate), r.at, o->dtype);
	float *dup = cpu_out(up, cpu_ptr(o->dup), r.at, o->dtype);
	const float *of_gate = cpu_load(k, gate, cpu_ptr(o->gate), r.at, r.n, o->dtype),
	            *of_up = cpu_load(k, up, cpu_ptr(o->up), r.at, r.n, o->dtype);

	if (!dev_is_none(o->out))
		k->glu(again, of_gate, of_up, r.n, o->act);
	k->glu_grad(dgate, dup, cpu_load(k, dout, cpu_ptr(o->dout), at, r.n, o->dtype), of_gate, of_up, r.n,
	        o->act);
	cpu_store(k, cpu_ptr(o->dgate), r.at, dgate, r.n, o->dtype);
	cpu_store(k, cpu_ptr(o->dup), r.at, dup, r.n, o->dtype);
	if (dev_is_none(o->out))
		return;
	if (o->dtype == DTYPE_F32)
		memcpy((float *)cpu_ptr(o->out) + at, again, (size_t)r.n * sizeof(*again));
	cpu_store(k, cpu_ptr(o->out), at, again, r.n, o->dtype);
}

static void glu_grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_glu_grad *o = context;
	int64_t end = min_i64((piece + 1) * CPU_PIECE, o->count);
	struct glu_run r;

	(void)worker;
	for (int64_t at = piece * CPU_PIECE; at < end; at += r.n) {
		r = run_of(at, end, o->cols, o->stride);
		glu_grad_run(o, at, r);
	}
}

int cpu_glu_grad(struct cpu_context *cx, const struct op_glu_grad *op)
{
	struct op_glu_grad o = *op;

	cpu_run(cx, cpu_pieces(o.count, CPU_PIECE), glu_grad_piece, &o);
	return 0;
}
