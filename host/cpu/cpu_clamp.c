/* Values within a limit, and the gradient of that. */
#include "device/op_move.h"
#include "host/cpu/cpu_inner.h"

#include <math.h>

OP_MOVE_LIST(CPU_DECLARE)

enum { CLAMP_ROWS = 64 };

static float clamped(float x, float limit)
{
	return x > limit ? limit : x < -limit ? -limit : x;
}

static void clamp_piece(void *context, int64_t piece, int worker)
{
	const struct op_clamp *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t end = min_i64((piece + 1) * CLAMP_ROWS, o->rows);
	float buffer[CPU_CHUNK], to[CPU_CHUNK];

	(void)worker;
	for (int64_t r = piece * CLAMP_ROWS; r < end; r++)
		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
			int64_t n = min_i64(CPU_CHUNK, o->cols - c), at = r * o->y_stride + c;
			const float *x = cpu_load(k, buffer, cpu_ptr(o->x), r * o->x_stride + c, n, o->dtype);
			float *out = cpu_out(to, cpu_ptr(o->y), at, o->dtype);

			for (int64_t i = 0; i < n; i++)
				out[i] = clamped(x[i], (float)o->limit);
			cpu_store(k, cpu_ptr(o->y), at, out, n, o->dtype);
		}
}

int cpu_clamp(struct cpu_context *cx, const struct op_clamp *op)
{
	struct op_clamp o = *op;

	cpu_run(cx, cpu_pieces(o.rows, CLAMP_ROWS), clamp_piece, &o);
	return 0;
}

static void clamp_grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_clamp_grad *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	int64_t end = min_i64((piece + 1) * CLAMP_ROWS, o->rows);
	float buffer[CPU_CHUNK], gradient[CPU_CHUNK], to[CPU_CHUNK];

	(void)worker;
	for (int64_t r = piece * CLAMP_ROWS; r < end; r++)
		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
			int64_t n = min_i64(CPU_CHUNK, o->cols - c), at = r * o->dx_stride + c;
			const float *x = cpu_load(k, buffer, cpu_ptr(o->x), r * o->x_stride + c, n, o->dtype),
			            *dy = cpu_load(k, gradient, cpu_ptr(o->dx), at, n, o->dtype);
			float *out = cpu_out(to, cpu_ptr(o->dx), at, o->dtype);

			for (int64_t i = 0; i < n; i++)
				out[i] = fabsf(x[i]) > (float)o->limit ? 0 : dy[i];
			cpu_store(k, cpu_ptr(o->dx), at, out, n, o->dtype);
		}
}

int cpu_clamp_grad(struct cpu_context *cx, const struct op_clamp_grad *op)
{
	struct op_clamp_grad o = *op;

	cpu_run(cx, cpu_pieces(o.rows, CLAMP_ROWS), clamp_grad_piece, &o);
	return 0;
}
