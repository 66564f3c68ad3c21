/* op_gate and its gradient: gated activations of arrays with gaps. */
#include "device/op_act.h"
#include "host/cpu/cpu_inner.h"

OP_ACT_LIST(CPU_DECLARE)

/* Rows of a piece. */
static int64_t rows_each(int64_t groups, int64_t cols)
{
	return cpu_piece_rows(groups * cols);
}

static void gate_piece(void *context, int64_t piece, int worker)
{
	const struct op_gate *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	struct cpu_rows rows = cpu_rows_piece(&o->range, o->rows, piece, rows_each(o->groups, o->cols));
	float gate[CPU_CHUNK], x[CPU_CHUNK];

	(void)worker;
	for (int64_t i = rows.begin * o->groups; i < rows.end * o->groups; i++) {
		int64_t r = i / o->groups, g = i % o->groups;

		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
			int64_t n = min_i64(CPU_CHUNK, o->cols - c),
			        gate_at = r * o->gate_stride + g * o->gate_group_stride + c,
			        x_at = r * o->x_stride + g * o->cols + c,
			        y_at = r * o->y_stride + g * o->cols + c;
			float *y = cpu_out(gate, cpu_ptr(o->y), y_at, o->dtype);

			const float *of = cpu_load(k, gate, cpu_ptr(o->gate), gate_at, n, o->dtype);

			if (dev_is_none(o->x))
				k->act(y, of, n, o->act);
			else
				k->glu(y, of, cpu_load(k, x, cpu_ptr(o->x), x_at, n, o->dtype), n, o->act);
			cpu_store(k, cpu_ptr(o->y), y_at, y, n, o->dtype);
		}
	}
}

int cpu_gate(struct cpu_context *cx, const struct op_gate *op)
{
	struct op_gate o = *op;

	cpu_run_rows(cx, &o.range, o.rows, rows_each(o.groups, o.cols), gate_piece, &o);
	return 0;
}

static void gate_grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_gate_grad *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	struct cpu_rows rows = cpu_rows_piece(&o->range, o->rows, piece, rows_each(o->groups, o->cols));
	float gate[CPU_CHUNK], x[CPU_CHUNK], dy[CPU_CHUNK];

	(void)worker;
	for (int64_t i = rows.begin * o->groups; i < rows.end * o->groups; i++) {
		int64_t r = i / o->groups, g = i % o->groups;

		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
			int64_t n = min_i64(CPU_CHUNK, o->cols - c),
			        gate_at = r * o->gate_stride + g * o->gate_group_stride + c,
			        x_at = r * o->x_stride + g * o->cols + c,
			        y_at = r * o->y_stride + g * o->cols + c;
			float *dgate = cpu_out(gate, cpu_ptr(o->dgate), gate_at, o->dtype);
			const float *dout = cpu_load(k, dy, cpu_ptr(o->dy), y_at, n, o->dtype),
			            *of = cpu_load(k, gate, cpu_ptr(o->gate), gate_at, n, o->dtype);

			if (dev_is_none(o->x)) {
				k->act_grad(dgate, dout, of, n, o->act);
			} else {
				float *dx = cpu_out(x, cpu_ptr(o->dx), x_at, o->dtype);

				k->glu_grad(dgate, dx, dout, of,
				        cpu_load(k, x, cpu_ptr(o->x), x_at, n, o->dtype), n, o->act);
				cpu_store(k, cpu_ptr(o->dx), x_at, dx, n, o->dtype);
			}
			cpu_store(k, cpu_ptr(o->dgate), gate_at, dgate, n, o->dtype);
		}
	}
}

int cpu_gate_grad(struct cpu_context *cx, const struct op_gate_grad *op)
{
	struct op_gate_grad o = *op;

	cpu_run_rows(cx, &o.range, o.rows, rows_each(o.groups, o.cols), gate_grad_piece, &o);
	return 0;
}
