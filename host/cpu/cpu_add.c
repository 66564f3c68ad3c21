/* The sum of two arrays. */
#include "device/op_move.h"
#include "host/cpu/cpu_inner.h"

OP_MOVE_LIST(CPU_DECLARE)

static void add_piece(void *context, int64_t piece, int worker)
{
	const struct op_add *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t end = min_i64((piece + 1) * CPU_PIECE, o->count);
	float a[CPU_CHUNK], b[CPU_CHUNK];

	(void)worker;
	for (int64_t at = piece * CPU_PIECE; at < end; at += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, end - at);
		float *out = cpu_out(a, cpu_ptr(o->dst), at, o->dtype);

		k->add(out, cpu_load(k, a, cpu_ptr(o->a), at, n, o->dtype),
		        cpu_load(k, b, cpu_ptr(o->b), at, n, o->dtype), n);
		cpu_store(k, cpu_ptr(o->dst), at, out, n, o->dtype);
	}
}

int cpu_add(struct cpu_context *cx, const struct op_add *op)
{
	struct op_add o = *op;

	cpu_run(cx, cpu_pieces(o.count, CPU_PIECE), add_piece, &o);
	return 0;
}
