/* Multiples of an array, with or without a soft cap. */
#include "device/op_move.h"
#include "host/cpu/cpu_inner.h"

OP_MOVE_LIST(CPU_DECLARE)

static void scale_piece(void *context, int64_t piece, int worker)
{
	const struct op_scale *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t end = min_i64((piece + 1) * CPU_PIECE, o->count);
	float buffer[CPU_CHUNK], factor = (float)o->factor;

	(void)worker;
	if (!dev_is_none(o->by))
		factor *= *cpu_load(k, buffer, cpu_ptr(o->by), 0, 1, o->dtype);
	for (int64_t at = piece * CPU_PIECE; at < end; at += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, end - at);
		float *out = cpu_out(buffer, cpu_ptr(o->dst), at, o->dtype);

		k->scale(out, cpu_load(k, buffer, cpu_ptr(o->src), at, n, o->dtype), factor, n);
		if (o->cap > 0)
			k->soft_cap(out, out, (float)o->cap, n);
		cpu_store(k, cpu_ptr(o->dst), at, out, n, o->dtype);
	}
}

int cpu_scale(struct cpu_context *cx, const struct op_scale *op)
{
	struct op_scale o = *op;

	cpu_run(cx, cpu_pieces(o.count, CPU_PIECE), scale_piece, &o);
	return 0;
}
