/* The largest state of each document, and its gradient. */
#include "device/op_pool.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_POOL_LIST(CPU_DECLARE)

/* A piece is a document. */
static void max_piece(void *context, int64_t d, int worker)
{
	const struct op_pool_max *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	const int32_t *first = cpu_ptr(o->first), *last = cpu_ptr(o->last);
	float *out = (float *)cpu_ptr(o->out) + d * o->cols, buffer[CPU_CHUNK];
	int32_t *place = (int32_t *)cpu_ptr(o->place) + d * o->cols;

	(void)worker;
	for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
		int64_t n = min_i64(CPU_CHUNK, o->cols - c);

		memcpy(out + c, cpu_load(k, buffer, cpu_ptr(o->x), first[d] * o->cols + c, n, o->dtype),
		        (size_t)n * sizeof(*out));
		for (int64_t i = 0; i < n; i++)
			place[c + i] = first[d];
		for (int64_t r = first[d] + 1; r <= last[d]; r++)
			k->keep_largest(out + c, place + c,
			        cpu_load(k, buffer, cpu_ptr(o->x), r * o->cols + c, n, o->dtype), (int32_t)r,
			        n);
	}
}

int cpu_pool_max(struct cpu_context *cx, const struct op_pool_max *op)
{
	struct op_pool_max o = *op;
	int rc = cpu_check_index("pool_max", cpu_ptr(o.first), o.documents, o.rows);

	if (!rc)
		rc = cpu_check_index("pool_max", cpu_ptr(o.last), o.documents, o.rows);
	if (rc < 0)
		return rc;
	cpu_run(cx, o.documents, max_piece, &o);
	return 0;
}

static void max_grad_piece(void *context, int64_t d, int worker)
{
	const struct op_pool_max_grad *o = context;
	const float *dout = (const float *)cpu_ptr(o->dout) + d * o->cols;
	const int32_t *place = (const int32_t *)cpu_ptr(o->place) + d * o->cols;
	float *dx = cpu_ptr(o->dx);

	(void)worker;
	for (int64_t c = 0; c < o->cols; c++)
		dx[place[c] * o->cols + c] += dout[c];
}

int cpu_pool_max_grad(struct cpu_context *cx, const struct op_pool_max_grad *op)
{
	struct op_pool_max_grad o = *op;
	int rc = cpu_check_index("pool_max_grad", cpu_ptr(o.place), o.documents * o.cols, o.rows);

	if (rc < 0)
		return rc;
	cpu_run(cx, o.documents, max_grad_piece, &o);
	return 0;
}
