/* The gated activation of gpt-oss and its gradient. */
#include "device/op_act.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_ACT_LIST(CPU_DECLARE)

/* Gates and ups of some columns of a row. */
struct limited {
	float gate[CPU_CHUNK], up[CPU_CHUNK], both[2 * CPU_CHUNK];
};

/* Where the columns from `column` of a row on are: gates, and ups `gap` elements behind; with gap 0 both by
 * turns. */
struct limited_place {
	int64_t at, gap;
};

static struct limited_place place_of(int64_t row, int64_t column, int64_t cols, enum glu_order order)
{
	return order == GLU_HALVES ? (struct limited_place){row * 2 * cols + column, cols}
	                           : (struct limited_place){(row * cols + column) * 2, 0};
}

/* Gives gates and ups, copied or where they are. */
static void limited_load(struct limited *v, const float **gate, const float **up, const void *gate_up,
        struct limited_place p, int64_t n, enum dtype dtype)
{
	const struct cpu_kernels *k = cpu_kernels();

	if (p.gap) {
		*gate = cpu_load(k, v->gate, gate_up, p.at, n, dtype);
		*up = cpu_load(k, v->up, gate_up, p.at + p.gap, n, dtype);
		return;
	}
	k->turns_split(v->gate, v->up, cpu_load(k, v->both, gate_up, p.at, 2 * n, dtype), n);
	*gate = v->gate;
	*up = v->up;
}

static void limited_piece(void *context, int64_t piece, int worker)
{
	const struct op_glu_limited *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	struct cpu_rows rows = cpu_rows_piece(&o->range, o->rows, piece, cpu_piece_rows(o->cols));
	struct limited v;

	(void)worker;
	for (int64_t r = rows.begin; r < rows.end; r++)
		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
			int64_t n = min_i64(CPU_CHUNK, o->cols - c), at = r * o->cols + c;
			float *out = cpu_out(v.gate, cpu_ptr(o->out), at, o->dtype);
			const float *gate, *up;

			limited_load(&v, &gate, &up, cpu_ptr(o->gate_up), place_of(r, c, o->cols, o->order),
			        n, o->dtype);
			k->glu_limited(out, gate, up, n, (float)o->alpha, (float)o->limit);
			cpu_store(k, cpu_ptr(o->out), at, out, n, o->dtype);
		}
}

int cpu_glu_limited(struct cpu_context *cx, const struct op_glu_limited *op)
{
	struct op_glu_limited o = *op;

	cpu_run_rows(cx, &o.range, o.rows, cpu_piece_rows(o.cols), limited_piece, &o);
	return 0;
}

/* Reads a row's columns before it writes them: dgate_up may be gate_up. */
static void limited_grad_columns(const struct op_glu_limited_grad *o, int64_t r, int64_t c, int64_t n)
{
	const struct cpu_kernels *k = cpu_kernels();
	struct limited_place p = place_of(r, c, o->cols, o->order);
	void *to = cpu_ptr(o->dgate_up);
	struct limited v;
	const float *gate, *up, *dout;
	float buffer[CPU_CHUNK], *both;

	limited_load(&v, &gate, &up, cpu_ptr(o->gate_up), p, n, o->dtype);
	dout = cpu_load(k, buffer, cpu_ptr(o->dout), r * o->cols + c, n, o->dtype);
	k->glu_limited_grad(v.gate, v.up, dout, gate, up, n, (float)o->alpha, (float)o->limit);
	both = cpu_out(v.both, to, p.at, o->dtype);
	if (!p.gap) {
		k->turns_join(both, v.gate, v.up, n);
		cpu_store(k, to, p.at, both, 2 * n, o->dtype);
		return;
	}
	if (o->dtype == DTYPE_F32) {
		memcpy(both, v.gate, (size_t)n * sizeof(*both));
		memcpy(both + p.gap, v.up, (size_t)n * sizeof(*both));
	}
	cpu_store(k, to, p.at, v.gate, n, o->dtype);
	cpu_store(k, to, p.at + p.gap, v.up, n, o->dtype);
}

static void limited_grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_glu_limited_grad *o = context;
	struct cpu_rows rows = cpu_rows_piece(&o->range, o->rows, piece, cpu_piece_rows(o->cols));

	(void)worker;
	for (int64_t r = rows.begin; r < rows.end; r++)
		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK)
			limited_grad_columns(o, r, c, min_i64(CPU_CHUNK, o->cols - c));
}

int cpu_glu_limited_grad(struct cpu_context *cx, const struct op_glu_limited_grad *op)
{
	struct op_glu_limited_grad o = *op;

	cpu_run_rows(cx, &o.range, o.rows, cpu_piece_rows(o.cols), limited_grad_piece, &o);
	return 0;
}
