/* Work of the cpu queue on host planes: AdamW, sums over micro-batches, rounding, sums of squares. */
#include "base/num.h"
#include "base/size.h"
#include "device/op_cost.h"
#include "offload/run_parts.h"
#include "optim/adamw.h"
#include "optim/weight_codes.h"

#include <string.h>

/* The work on a unit is cut into tasks of 64K elements of one piece, for any number of threads. They begin at
 * multiples of SUMSQ_BLOCK elements of the tensor. On several NUMA nodes a thread next to the elements does
 * the task. */
struct work {
	const struct run *run;
	const struct plan_op *op;
	const struct unit *unit;
	char *plane[ARG_ROLE_COUNT]; /* first byte of each argument */
	enum dtype gradient_dtype;
};

static const struct unit_piece *work_piece(const struct work *w, int n)
{
	return &w->run->plan->map->pieces[w->unit->pieces[n]];
}

static int64_t task_count(const struct unit_piece *piece)
{
	return (piece->count + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;
}

static int64_t work_task_count(const struct work *w)
{
	int64_t count = 0;

	for (int i = 0; i < w->unit->piece_count; i++)
		count += task_count(work_piece(w, i));
	return count;
}

/* The piece of a task, which becomes the task's number within the piece. */
static const struct unit_piece *work_task_find(const struct work *w, int64_t *task)
{
	for (int i = 0;; i++) {
		int64_t count = task_count(work_piece(w, i));

		if (*task < count)
			return work_piece(w, i);
		*task -= count;
	}
}

/* Returns the number of a task's elements in this rank's shard; *at is their position, 0 <= *at <= the
 * shard's end. */
static int64_t task_find(
        const struct work *w, const struct unit_piece *piece, int64_t task, int64_t *at, int64_t *skipped)
{
	int64_t first = task * SUMSQ_BLOCK, count = piece->count - first, held;

	unit_map_locate(w->run->plan->map, piece->tensor, piece->first + first,
	        count < SUMSQ_BLOCK ? count : SUMSQ_BLOCK, at, &held, skipped);
	*at -= w->unit->first;
	return held;
}

_Static_assert(UNIT_ALIGN % ADAMW_BLOCK == 0 && SUMSQ_BLOCK % ADAMW_BLOCK == 0, "pieces are whole blocks");

/* `first`: position in the tensor; `at`: position in the shard. */
static void piece_update(const struct work *w, int tensor, int64_t first, int64_t at, int64_t count)
{
	const struct plan_policy *policy = &w->run->plan->policy;
	const struct model_tensor *t = &w->run->plan->map->model->tensors[tensor];
	int64_t state_bytes = adamw_state_bytes(policy->state);
	struct adamw_span span = {
	        .hi = (uint16_t *)w->plane[ARG_HI] + at,
	        .lo = (int16_t *)w->plane[ARG_LO] + at,
	        .m = w->plane[ARG_M] + at * state_bytes,
	        .v = w->plane[ARG_V] + at * state_bytes,
	        .grad = w->plane[ARG_SRC] + at * dtype_bytes(w->gradient_dtype),
	        .count = count,
	        .first = first,
	        .tensor = tensor,
	        .decay = t->decay,
	        .grad_dtype = w->gradient_dtype,
	        .state = policy->state,
	};

	if (adamw_state_has_scales(span.state)) {
		span.m_scale = (float *)w->plane[ARG_M_SCALE] + at / adamw_state_block(span.state);
		span.v_scale = (float *)w->plane[ARG_V_SCALE] + at / adamw_state_block(span.state);
	}
	adamw_update(&span, &w->run->step->adamw[model_tensor_lr(t)], w->run->dock->isa);
}

_Static_assert(SUMSQ_BLOCK % ROWS_CHUNK == 0 && ROWS_CHUNK % ADAMW_BLOCK == 0, "tasks are whole chunks");

/* Of a parted table, whole chunks that have rows of the step, or have none. */
static void piece_update_part(const struct work *w, int tensor, int64_t first, int64_t at, int64_t count)
{
	for (int64_t done = 0, n; done < count; done += n) {
		int is_used = run_rows_use(w->run, w->op->unit, first + done);

		for (n = ROWS_CHUNK; done + n < count; n += ROWS_CHUNK)
			if (run_rows_use(w->run, w->op->unit, first + done + n) != is_used)
				break;
		n = min_i64(n, count - done);
		if (is_used == (w->op->part == 1))
			piece_update(w, tensor, first + done, at + done, n);
	}
}

static void piece_accumulate(const struct work *w, int64_t at, int64_t count)
{
	float *sum = (float *)w->plane[ARG_DST] + at;
	const float *part = (const float *)w->plane[ARG_SRC] + at;

	if (w->op->first) {
		memcpy(sum, part, (size_t)count * sizeof(*sum));
		return;
	}
	for (int64_t i = 0; i < count; i++)
		sum[i] += part[i];
}

/* `first`: position in the tensor, a multiple of SUMSQ_BLOCK before the first of the elements. */
static void piece_finish(const struct work *w, int tensor, int64_t first, int64_t at, int64_t count)
{
	float *sum = (float *)w->plane[ARG_DST] + at;
	double *norm = (double *)w->plane[ARG_NORM] + w->run->norm_first[tensor] + first / SUMSQ_BLOCK;

	if (w->run->plan->policy.gradient_dtype == DTYPE_BF16)
		for (int64_t i = 0; i < count; i++)
			sum[i] = bf16_to_f32(bf16_from_f32(sum[i]));
	sumsq_blocks(norm, sum, count, DTYPE_F32, w->run->dock->isa);
}

static void work_task(void *context, int64_t task, int worker)
{
	const struct work *w = context;
	const struct unit_piece *piece = work_task_find(w, &task);
	int64_t first = piece->first + task * SUMSQ_BLOCK, at, skipped,
	        held = task_find(w, piece, task, &at, &skipped);

	(void)worker;
	if (!held)
		return;
	if (w->op->part)
		piece_update_part(w, piece->tensor, first + skipped, at, held);
	else if (w->op->kind == PLAN_OP_UPDATE)
		piece_update(w, piece->tensor, first + skipped, at, held);
	else if (w->op->kind == PLAN_OP_ACCUMULATE)
		piece_accumulate(w, at, held);
	else
		piece_finish(w, piece->tensor, first, at, held);
}

/* Divides tasks among nodes. A task belongs to the node with its middle. Tasks are in the order of their
 * elements, so those of a node are consecutive. Tasks without elements of this rank cost nothing. */
static void work_cut(const struct work *w, int64_t *node_first)
{
	const struct pool *pool = w->run->dock->pool;
	int64_t task = 0, from, end;
	int node = 0;

	node_first[0] = 0;
	store_node_range(pool, node, &from, &end, w->unit->shard_count);
	for (int i = 0; i < w->unit->piece_count; i++) {
		const struct unit_piece *piece = work_piece(w, i);

		for (int64_t n = 0; n < task_count(piece); n++, task++) {
			int64_t at, skipped, held = task_find(w, piece, n, &at, &skipped);

			while (held && at + held / 2 >= end && node + 1 < pool_node_count(pool)) {
				node_first[++node] = task;
				store_node_range(pool, node, &from, &end, w->unit->shard_count);
			}
		}
	}
	while (node < pool_node_count(pool))
		node_first[++node] = task;
}

/* ---- codes that products read ---- */

struct coding {
	const struct unit_map *map;
	const struct unit *unit;
	const uint16_t *hi;
	uint8_t *codes;
	char *scales;
};

static int64_t coding_rows(const struct coding *c, const struct unit_piece *piece)
{
	return piece->count / model_tensor_cols(&c->map->model->tensors[piece->tensor]);
}

/* A task is a row of squares of a piece. */
static void coding_task(void *context, int64_t task, int worker)
{
	const struct coding *c = context;
	const struct unit_piece *piece = NULL;
	int64_t rows = 1, cols, first;

	(void)worker;
	for (int i = 0; i < c->unit->piece_count; i++) {
		int64_t tasks;

		piece = &c->map->pieces[c->unit->pieces[i]];
		rows = coding_rows(c, piece);
		tasks = (rows + CODE_BLOCK - 1) / CODE_BLOCK;
		if (task < tasks)
			break;
		task -= tasks;
	}
	cols = piece->count / rows;
	first = task * CODE_BLOCK;
	weight_codes_multiplied(c->codes + piece->offset + first * cols,
	        (float *)(void *)(c->scales + piece->scale) + task * ((cols + CODE_BLOCK - 1) / CODE_BLOCK),
	        c->hi + piece->offset + first * cols, min_i64(CODE_BLOCK, rows - first), cols);
}

void run_codes_make(
        const struct unit_map *map, int unit, const void *hi, void *codes, void *scales, struct pool *pool)
{
	struct coding c = {map, &map->units[unit], hi, codes, scales};
	int64_t tasks = 0;

	for (int i = 0; i < c.unit->piece_count; i++)
		tasks += (coding_rows(&c, &map->pieces[c.unit->pieces[i]]) + CODE_BLOCK - 1) / CODE_BLOCK;
	pool_run(pool, tasks, coding_task, &c);
}

static int work_run(void *context)
{
	const struct run_call *call = context;
	const struct run *r = call->run;
	struct work w = {.run = r, .op = call->op, .unit = &r->plan->map->units[call->op->unit]};

	for (int i = 0; i < call->op->arg_count; i++) {
		const struct plan_arg *arg = &r->plan->args[call->op->first_arg + i];

		w.plane[arg->role] = run_host_address(r, arg->buffer);
		if (arg->role == ARG_SRC)
			w.gradient_dtype = r->plan->buffers[arg->buffer].dtype;
	}
	if (call->op->kind == PLAN_OP_UPDATE)
		snapshot_update_begin(r->dock->snapshot, call->op->unit);
	if (call->op->part == 1)
		run_rows_used(r, call->op->unit);
	if (pool_node_count(r->dock->pool) > 1) {
		int64_t node_first[POOL_NODES_MAX + 1];

		work_cut(&w, node_first);
		pool_run_placed(r->dock->pool, node_first, work_task, &w);
	} else {
		pool_run(r->dock->pool, work_task_count(&w), work_task, &w);
	}
	if (w.plane[ARG_CODES])
		run_codes_make(r->plan->map, call->op->unit, w.plane[ARG_HI], w.plane[ARG_CODES],
		        w.plane[ARG_CODE_SCALE], r->dock->pool);
	if (call->op->kind == PLAN_OP_UPDATE && call->op->part != 1)
		snapshot_update_end(r->dock->snapshot, call->op->unit);
	return 0;
}

double run_work_bytes(const struct run *r, const struct plan_op *op)
{
	double bytes = 0;

	for (int i = 0; i < op->arg_count; i++) {
		const struct plan_arg *arg = &r->plan->args[op->first_arg + i];

		if (arg->role != ARG_NORM)
			bytes +=
			        (double)(arg->reads + arg->writes) * (double)plan_arg_bytes(r->plan, op, arg);
	}
	return bytes;
}

int run_queue_work(struct run *r, struct stream *q, int op)
{
	const struct op_cost cost = {.host_bytes = run_work_bytes(r, &r->plan->ops[op])};

	r->calls[op] = (struct run_call){.run = r, .op = &r->plan->ops[op]};
	return stream_call(q, work_run, &r->calls[op], &cost);
}
