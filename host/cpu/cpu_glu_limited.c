/* The gated activation of gpt-oss and its gradient. */
#include "base/num.h"
#include "device/op_act.h"
#include "host/cpu/cpu_inner.h"

OP_ACT_LIST(CPU_DECLARE)

/* Gates and ups of some columns of a row, and the activation of these gates. */
struct limited {
	float gate[CPU_CHUNK], up[CPU_CHUNK], sigmoid[CPU_CHUNK];
};

/* Where the gate of a column is; its up is `up` elements behind. */
struct limited_place {
	int64_t at, step, up;
};

static struct limited_place place_of(int64_t row, int64_t column, int64_t cols, enum glu_order order)
{
	return order == GLU_HALVES ? (struct limited_place){row * 2 * cols + column, 1, cols}
	                           : (struct limited_place){(row * cols + column) * 2, 2, 1};
}

static float element(const void *x, int64_t at, enum dtype dtype)
{
	return dtype == DTYPE_F32 ? ((const float *)x)[at] : bf16_to_f32(((const uint16_t *)x)[at]);
}

static void element_set(void *x, int64_t at, float value, enum dtype dtype)
{
	if (dtype == DTYPE_F32)
		((float *)x)[at] = value;
	else
		((uint16_t *)x)[at] = bf16_from_f32(value);
}

/* Comparisons are such that NaN stays NaN. */
static void limited_load(struct limited *v, const void *gate_up, struct limited_place p, int64_t n,
        double alpha, double most, enum dtype dtype)
{
	float limit = (float)most, scaled[CPU_CHUNK];

	for (int64_t i = 0; i < n; i++) {
		float gate = element(gate_up, p.at + i * p.step, dtype),
		      up = element(gate_up, p.at + i * p.step + p.up, dtype);

		v->gate[i] = gate > limit ? limit : gate;
		v->up[i] = up > limit ? limit : up < -limit ? -limit : up;
		scaled[i] = (float)alpha * v->gate[i];
	}
	cpu_kernels()->act(v->sigmoid, scaled, n, ACT_SIGMOID);
}

static void limited_piece(void *context, int64_t piece, int worker)
{
	const struct op_glu_limited *o = context;
	int64_t each = cpu_piece_rows(o->cols), end = min_i64((piece + 1) * each, o->rows);
	struct limited v;

	(void)worker;
	for (int64_t r = piece * each; r < end; r++)
		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
			int64_t n = min_i64(CPU_CHUNK, o->cols - c);

			limited_load(&v, cpu_ptr(o->gate_up), place_of(r, c, o->cols, o->order), n, o->alpha,
			        o->limit, o->dtype);
			for (int64_t i = 0; i < n; i++)
				element_set(cpu_ptr(o->out), r * o->cols + c + i,
				        (v.up[i] + 1) * (v.gate[i] * v.sigmoid[i]), o->dtype);
		}
}

int cpu_glu_limited(struct cpu_context *cx, const struct op_glu_limited *op)
{
	struct op_glu_limited o = *op;

	cpu_run(cx, cpu_pieces(o.rows, cpu_piece_rows(o.cols)), limited_piece, &o);
	return 0;
}

/* Reads a row's columns before it writes them: dgate_up may be gate_up. */
static void limited_grad_columns(const struct op_glu_limited_grad *o, int64_t r, int64_t c, int64_t n)
{
	struct limited_place p = place_of(r, c, o->cols, o->order);
	float limit = (float)o->limit, alpha = (float)o->alpha;
	struct limited v;

	limited_load(&v, cpu_ptr(o->gate_up), p, n, o->alpha, o->limit, o->dtype);
	for (int64_t i = 0; i < n; i++) {
		int64_t at = p.at + i * p.step;
		float d = element(cpu_ptr(o->dout), r * o->cols + c + i, o->dtype), s = v.sigmoid[i];
		float slope = s * (1 + alpha * v.gate[i] * (1 - s));
		float gate = element(cpu_ptr(o->gate_up), at, o->dtype),
		      up = element(cpu_ptr(o->gate_up), at + p.up, o->dtype);

		element_set(cpu_ptr(o->dgate_up), at, gate > limit ? 0 : d * (v.up[i] + 1) * slope, o->dtype);
		element_set(cpu_ptr(o->dgate_up), at + p.up,
		        up > limit || up < -limit ? 0 : d * (v.gate[i] * s), o->dtype);
	}
}

static void limited_grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_glu_limited_grad *o = context;
	int64_t each = cpu_piece_rows(o->cols), end = min_i64((piece + 1) * each, o->rows);

	(void)worker;
	for (int64_t r = piece * each; r < end; r++)
		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK)
			limited_grad_columns(o, r, c, min_i64(CPU_CHUNK, o->cols - c));
}

int cpu_glu_limited_grad(struct cpu_context *cx, const struct op_glu_limited_grad *op)
{
	struct op_glu_limited_grad o = *op;

	cpu_run(cx, cpu_pieces(o.rows, cpu_piece_rows(o.cols)), limited_grad_piece, &o);
	return 0;
}
