/* Lists how rows of tables cross alone: those that a micro-batch's tokens look up, and their gradients. */
#include "offload/plan_parts.h"

#include "base/size.h"

/* A table's weights have no reader but forward, which looks up a row for each token. So where the plane is in
 * host memory, a PICK copies the rows that occur to staging memory, each once, and a FETCH brings them to the
 * device. Tokens have the places of their rows among these instead of their ids (run_rows.c).
 *
 * Backward leaves a row of the gradient for each token. These return as they are, in the compute dtype, and
 * SPREAD adds them on the host, in the order of tokens: what a sum on the device gives, to the bit. */
static int *slot(int *table, const struct builder *b, int u, int micro)
{
	return &table[b->p->map->units[u].table * b->p->policy.micro_batches + micro];
}

/* With the optimizer on the device `lo` of a trained table is there, and fp32 compute reads both planes. */
int rows_cross(const struct builder *b, int u)
{
	const struct plan_state *s = &b->state;

	return b->p->map->units[u].row_count && plan_host_buffer(s, u, PLANE_HI) >= 0 &&
	       plan_device_buffer(s, u, PLANE_HI) < 0 &&
	       (!plan_reads_lo(&b->p->policy) || plan_device_buffer(s, u, PLANE_LO) < 0);
}

/* Replicas sum whole gradients. */
int row_gradients_cross(const struct builder *b, int u)
{
	return b->p->map->units[u].row_count && b->p->policy.replicas <= 1 &&
	       plan_host_buffer(&b->state, u, PLANE_GRADIENT) >= 0;
}

/* A table is most of such a model, and only the rows that the step uses have to be updated before forward. So
 * the others are updated last, beside forward and backward. */
void rows_part(struct builder *b)
{
	const struct plan *p = b->p;

	for (int u = 0; u < p->map->unit_count; u++)
		b->state.units[u].is_parted = p->kind == PLAN_TRAIN && !p->policy.update_in_backward &&
		                              rows_cross(b, u) && row_gradients_cross(b, u) &&
		                              plan_updates_on_host(&b->state, u);
}

static int add_buffer(struct builder *b, enum buffer_kind kind, enum plan_space space, int u, int m)
{
	const struct plan_policy *o = &b->p->policy;
	const struct unit *unit = &b->p->map->units[u];
	int64_t rows = kind == BUFFER_ROWS ? plan_rows_most(unit, o->max_tokens) : o->max_tokens;
	int n = plan_add_buffer(
	        b->p, kind, space, LAYOUT_STREAM, rows * unit->row_count * dtype_bytes(o->compute_dtype));

	if (n < 0)
		return n;
	b->p->buffers[n].unit = space == SPACE_DEVICE ? u : -1;
	b->p->buffers[n].micro = m;
	b->p->buffers[n].dtype = o->compute_dtype;
	return n;
}

static void add_copy(struct builder *b, enum plan_op_kind kind, int u, int m, int src, int dst)
{
	struct plan *p = b->p;

	plan_add_op(p, kind, kind == PLAN_OP_FETCH ? QUEUE_H2D : QUEUE_D2H, u, -1, m);
	plan_add_arg(p, ARG_SRC, src, ACCESS_READ);
	plan_add_arg(p, ARG_DST, dst, ACCESS_WRITE);
	if (dst >= 0)
		*(kind == PLAN_OP_FETCH ? &p->h2d_bytes : &p->d2h_bytes) += p->buffers[dst].bytes;
}

/* ---- weights ---- */

static void table_pick(struct builder *b, int u, int m0, int m1)
{
	struct plan *p = b->p;

	if (b->state.units[u].is_parted && m0 == 0)
		plan_add_first_part(p, &b->state, u);
	else if (p->kind == PLAN_TRAIN && !p->policy.update_in_backward && p->map->units[u].trainable)
		plan_add_updates(p, &b->state, u);
	for (int m = m0; m < m1; m++) {
		int *picked = slot(b->rows_host, b, u, m);

		*picked = add_buffer(b, BUFFER_ROWS, SPACE_STAGING, u, m);
		*slot(b->rows, b, u, m) = -1;
		plan_add_op(p, PLAN_OP_PICK, QUEUE_CPU, u, -1, m);
		plan_add_arg(p, ARG_HI, plan_host_buffer(&b->state, u, PLANE_HI), ACCESS_READ);
		if (plan_reads_lo(&p->policy))
			plan_add_arg(p, ARG_LO, plan_host_buffer(&b->state, u, PLANE_LO), ACCESS_READ);
		plan_add_arg(p, ARG_DST, *picked, ACCESS_WRITE);
	}
}

void rows_pick(struct builder *b, int m0, int m1)
{
	for (int u = 0; u < b->p->map->unit_count && b->p->map->table_count; u++)
		if (rows_cross(b, u))
			table_pick(b, u, m0, m1);
}

/* Whether forward of the group looks up rows of the unit. */
static int group_reads(const struct builder *b, int g, int u)
{
	int units[STAGE_TENSORS_MAX];

	for (int s = group_first(b, g); s < group_end(b, g); s++)
		for (int i = stage_units(b, s, STAGE_ALL, units) - 1; i >= 0; i--)
			if (units[i] == u)
				return 1;
	return 0;
}

static void group_fetch(struct builder *b, int g, int m)
{
	for (int u = 0; u < b->p->map->unit_count; u++) {
		int *rows = b->p->map->units[u].row_count ? slot(b->rows, b, u, m) : NULL;

		if (!rows || *rows >= 0 || !rows_cross(b, u) || !group_reads(b, g, u))
			continue;
		*rows = add_buffer(b, BUFFER_ROWS, SPACE_DEVICE, u, m);
		add_copy(b, PLAN_OP_FETCH, u, m, *slot(b->rows_host, b, u, m), *rows);
	}
}

/* Copies run beside work: those of the next micro-batch, or of the next visit's first one, are listed too. */
void rows_fetch(struct builder *b, int v, int m, int m0, int m1)
{
	int is_last = m + 1 == m1, next = v + is_last;

	if (!b->p->map->table_count || visit_is_backward(b, v))
		return;
	group_fetch(b, v, m);
	if (next < b->group_count && visit_distance(b, v))
		group_fetch(b, next, is_last ? m0 : m + 1);
}

void rows_release(struct builder *b, int v, int m)
{
	for (int u = 0; u < b->p->map->unit_count && b->p->map->table_count; u++)
		if (b->p->map->units[u].row_count && group_reads(b, v, u))
			*slot(b->rows, b, u, m) = -1;
}

int rows_buffer(const struct builder *b, int u, int micro)
{
	return *slot(b->rows, b, u, micro);
}

/* ---- gradients ---- */

void row_gradient_add(struct builder *b, int u)
{
	struct plan *p = b->p;
	int m = p->ops[p->op_count - 1].micro, n = add_buffer(b, BUFFER_ROW_GRADIENTS, SPACE_DEVICE, u, m);

	plan_add_arg(p, ARG_GRADIENT, n, ACCESS_WRITE);
	*slot(b->row_grad, b, u, m) = n;
}

/* The bytes of the micro-batch before stay until here: backward runs beside the copy. */
void row_gradients_return(struct builder *b, int s, int m)
{
	int units[STAGE_TENSORS_MAX];
	int count = b->p->map->table_count ? stage_units(b, s, STAGE_TRAINED, units) : 0;

	for (int i = 0; i < count; i++) {
		int u = units[i], *host;

		if (!row_gradients_cross(b, u))
			continue;
		if (m > b->first_micro)
			plan_hold_buffer(b->p, *slot(b->row_grad, b, u, m - 1));
		host = slot(b->row_grad_host, b, u, m);
		*host = add_buffer(b, BUFFER_ROW_GRADIENTS, SPACE_STAGING, u, m);
		add_copy(b, PLAN_OP_RETURN, u, m, *slot(b->row_grad, b, u, m), *host);
	}
}

void row_gradients_spread(struct builder *b, int u, int m0, int m1)
{
	struct plan *p = b->p;
	int is_whole = m1 - m0 == p->policy.micro_batches,
	    home = plan_host_buffer(&b->state, u, PLANE_GRADIENT);
	int op = plan_add_op(p, PLAN_OP_SPREAD, QUEUE_CPU, u, -1, -1);

	if (op >= 0)
		p->ops[op].first = m0 == 0;
	for (int m = m0; m < m1; m++)
		plan_add_arg(p, ARG_SRC, *slot(b->row_grad_host, b, u, m), ACCESS_READ);
	plan_add_arg(p, ARG_DST, home, ACCESS_BOTH);
	if (is_whole)
		plan_add_arg(p, ARG_NORM, b->state.norm_sums, ACCESS_BOTH);
}

/* ---- shapes ---- */

int64_t plan_rows_most(const struct unit *unit, int64_t tokens)
{
	return unit->row_count ? min_i64(tokens, unit->rows) : 0;
}

int64_t plan_arg_bytes(const struct plan *p, const struct plan_op *op, const struct plan_arg *arg)
{
	const struct plan_buffer *b = &p->buffers[arg->buffer];
	const struct unit *unit = op->unit >= 0 ? &p->map->units[op->unit] : NULL;
	int64_t bytes = 0;

	if (op->part) {
		bytes = b->bytes / unit->rows *
		        plan_rows_most(unit, p->policy.max_tokens * p->policy.micro_batches);
		return op->part == 1 ? bytes : b->bytes - bytes;
	}
	if ((op->kind != PLAN_OP_PICK && op->kind != PLAN_OP_SPREAD) || b->space != SPACE_STORE)
		return b->bytes;
	for (int a = op->first_arg; a < op->first_arg + op->arg_count; a++) {
		const struct plan_buffer *rows = &p->buffers[p->args[a].buffer];

		if (rows->kind == BUFFER_ROWS || rows->kind == BUFFER_ROW_GRADIENTS)
			bytes += rows->bytes / dtype_bytes(rows->dtype) * dtype_bytes(b->dtype);
	}
	return bytes;
}
