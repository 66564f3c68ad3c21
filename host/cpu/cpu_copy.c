/* Fill and copy. */
#include "device/op_move.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_MOVE_LIST(CPU_DECLARE)

enum { COPY_PIECE_BYTES = 256 * 1024 };

static void fill_piece(void *context, int64_t piece, int worker)
{
	const struct op_fill *f = context;
	int64_t at = piece * COPY_PIECE_BYTES;

	(void)worker;
	memset((char *)cpu_ptr(f->dst) + at, f->value, (size_t)min_i64(COPY_PIECE_BYTES, f->bytes - at));
}

int cpu_fill(struct cpu_context *cx, const struct op_fill *o)
{
	struct op_fill f = *o;

	cpu_run(cx, cpu_pieces(f.bytes, COPY_PIECE_BYTES), fill_piece, &f);
	return 0;
}

static void copy_piece(void *context, int64_t piece, int worker)
{
	const struct op_copy *c = context;
	int64_t at = piece * COPY_PIECE_BYTES;

	(void)worker;
	memcpy((char *)cpu_ptr(c->dst) + at, (const char *)cpu_ptr(c->src) + at,
	        (size_t)min_i64(COPY_PIECE_BYTES, c->bytes - at));
}

int cpu_copy(struct cpu_context *cx, const struct op_copy *o)
{
	struct op_copy c = *o;

	cpu_run(cx, cpu_pieces(c.bytes, COPY_PIECE_BYTES), copy_piece, &c);
	return 0;
}
