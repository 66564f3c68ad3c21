/* Ops on indexed rows: gather, scatter, and the gradient of an embedding. */
#include "device/op_table.h"
#include "host/cpu/cpu_inner.h"

#include <string.h>

OP_TABLE_LIST(CPU_DECLARE)

enum { EMBED_BAND = 64 };

/* Rows of a turned table are its columns. */
static void gather_columns(const struct op_gather *o, int64_t r, int32_t from)
{
	int64_t bytes = dtype_bytes(o->dtype);
	char *to = (char *)cpu_ptr(o->out) + r * o->cols * bytes;
	const char *column = (const char *)cpu_ptr(o->table) + from * bytes;

	for (int64_t c = 0; c < o->cols; c++)
		memcpy(to + c * bytes, column + c * o->table_rows * bytes, (size_t)bytes);
}

static void gather_piece(void *context, int64_t piece, int worker)
{
	const struct op_gather *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	const int32_t *index = cpu_ptr(o->index);
	int64_t rows = cpu_piece_rows(o->cols), end = min_i64((piece + 1) * rows, o->rows);
	int64_t bytes = dtype_bytes(o->dtype);
	float a[CPU_CHUNK], b[CPU_CHUNK];

	(void)worker;
	for (int64_t r = piece * rows; r < end; r++) {
		int64_t to = r * o->cols, from = index[r] * o->cols;

		if (o->is_turned) {
			gather_columns(o, r, index[r]);
			continue;
		}
		if (!o->accumulate) {
			memcpy((char *)cpu_ptr(o->out) + to * bytes,
			        (const char *)cpu_ptr(o->table) + from * bytes, (size_t)(o->cols * bytes));
			continue;
		}
		for (int64_t c = 0; c < o->cols; c += CPU_CHUNK) {
			int64_t n = min_i64(CPU_CHUNK, o->cols - c);
			float *out = cpu_out(a, cpu_ptr(o->out), to + c, o->dtype);

			k->add(out, cpu_load(k, a, cpu_ptr(o->out), to + c, n, o->dtype),
			        cpu_load(k, b, cpu_ptr(o->table), from + c, n, o->dtype), n);
			cpu_store(k, cpu_ptr(o->out), to + c, out, n, o->dtype);
		}
	}
}

int cpu_gather(struct cpu_context *cx, const struct op_gather *op)
{
	struct op_gather o = *op;
	int rc = cpu_check_index("gather", cpu_ptr(o.index), o.rows, o.table_rows);

	if (rc < 0)
		return rc;
	cpu_run(cx, cpu_pieces(o.rows, cpu_piece_rows(o.cols)), gather_piece, &o);
	return 0;
}

static void scatter_piece(void *context, int64_t piece, int worker)
{
	const struct op_scatter *o = context;
	const int32_t *index = cpu_ptr(o->index);
	int64_t rows = cpu_piece_rows(o->cols), end = min_i64((piece + 1) * rows, o->rows);
	int64_t row_bytes = o->cols * dtype_bytes(o->dtype);

	(void)worker;
	for (int64_t r = piece * rows; r < end; r++)
		memcpy((char *)cpu_ptr(o->out) + index[r] * row_bytes,
		        (const char *)cpu_ptr(o->x) + r * row_bytes, (size_t)row_bytes);
}

int cpu_scatter(struct cpu_context *cx, const struct op_scatter *op)
{
	struct op_scatter o = *op;
	int rc = cpu_check_index("scatter", cpu_ptr(o.index), o.rows, o.out_rows);

	if (rc < 0)
		return rc;
	cpu_run(cx, cpu_pieces(o.rows, cpu_piece_rows(o.cols)), scatter_piece, &o);
	return 0;
}

/* A piece is a band of columns, so that equal indices meet in one thread and are added in order. */
static void embed_grad_piece(void *context, int64_t piece, int worker)
{
	const struct op_embed_grad *o = context;
	const struct cpu_kernels *k = cpu_kernels();
	const int32_t *index = cpu_ptr(o->index);
	int64_t at = piece * EMBED_BAND, n = min_i64(EMBED_BAND, o->cols - at);
	float dy[EMBED_BAND];

	(void)worker;
	for (int64_t r = 0; r < o->rows; r++) {
		float *grad = cpu_ptr(o->grad);
		const float *from;

		if (index[r] == o->skip_index)
			continue;
		from = cpu_load(k, dy, cpu_ptr(o->dy), r * o->cols + at, n, o->dtype);
		if (o->is_turned) {
			for (int64_t c = 0; c < n; c++)
				grad[(at + c) * o->table_rows + index[r]] += from[c];
		} else {
			grad += index[r] * o->cols + at;
			k->add(grad, grad, from, n);
		}
	}
}

int cpu_embed_grad(struct cpu_context *cx, const struct op_embed_grad *op)
{
	struct op_embed_grad o = *op;
	int rc = cpu_check_index("embed_grad", cpu_ptr(o.index), o.rows, o.table_rows);

	if (rc < 0)
		return rc;
	cpu_run(cx, cpu_pieces(o.cols, EMBED_BAND), embed_grad_piece, &o);
	return 0;
}
