/* Queues what an objective over vectors needs, and runs its losses on the host. */
#include "offload/run_parts.h"

#include "base/err.h"
#include "base/mem.h"
#include "device/op.h"

#include <string.h>

/* Where a micro-batch's vectors begin in a buffer of all ranks. A pass has the micro-batches of the JUDGE
 * that follows. */
struct vector_place {
	int64_t stride, rank_rows; /* floats of a row, rows of a rank */
	int own;                   /* rank */
	int first_micro;
};

static struct vector_place place_of(const struct run *r, int buffer, int first_micro)
{
	const struct plan *p = r->plan;
	int64_t stride = plan_vector_stride(p);

	return (struct vector_place){.stride = stride,
	        .rank_rows = p->buffers[buffer].bytes / (4 * stride * plan_vector_ranks(p)),
	        .own = plan_vector_ranks(p) > 1 ? p->map->shard_rank + p->policy.replica * p->map->shard_ranks
	                                        : 0,
	        .first_micro = first_micro};
}

static int64_t row_of(const struct run *r, const struct vector_place *at, int micro)
{
	return at->own * at->rank_rows + (micro - at->first_micro) * r->plan->policy.max_documents;
}

/* The first micro-batch of the pass. */
static int first_micro_of(const struct run *r, const struct plan_op *op)
{
	return r->plan->policy.order == ORDER_MICRO_BATCH_MAJOR && r->plan->kind == PLAN_TRAIN ? op->micro
	                                                                                       : 0;
}

dev_addr run_vectors_address(const struct run *r, const struct plan_op *op)
{
	int buffer = run_arg(r, op, ARG_VECTORS);
	struct vector_place at;

	if (buffer < 0)
		return DEV_NONE;
	at = place_of(r, buffer, first_micro_of(r, op));
	return dev_at(run_device_address(r, buffer), 4 * at.stride * row_of(r, &at, op->micro));
}

/* Documents that a micro-batch lacks have facts of 0. */
int run_queue_no_vectors(struct run *r, struct stream *q, const struct plan_op *op)
{
	const struct plan_policy *o = &r->plan->policy;
	int64_t have = op->micro < r->step->micro_count ? r->step->micro[op->micro].documents : 0,
	        row = 4 * plan_vector_stride(r->plan);
	struct op fill = {.kind = OP_FILL};

	if (have == o->max_documents)
		return 0;
	fill.fill = (struct op_fill){.dst = dev_at(run_vectors_address(r, op), have * row),
	        .bytes = (o->max_documents - have) * row};
	return stream_op(q, &fill);
}

int run_queue_collect(struct run *r, struct stream *q, const struct plan_op *op)
{
	int buffer = run_arg(r, op, ARG_DST), ranks = r->plan->map->shard_ranks;
	struct vector_place at = place_of(r, buffer, 0);
	int64_t count = at.rank_rows * at.stride;
	dev_addr all = run_device_address(r, buffer);
	int rc = 0;

	if (ranks > 1)
		rc = comm_all_gather(r->dock->comm, q,
		        dev_at(all, 4 * count * ranks * r->plan->policy.replica), count, DTYPE_F32);
	if (!rc && r->dock->replicas)
		rc = comm_all_gather(r->dock->replicas, q, all, count * ranks, DTYPE_F32);
	return rc;
}

/* ---- losses ---- */

/* Lists the documents of all ranks. Those of this rank have a place for their loss. */
static void documents_list(struct judgement *j, const struct run *r, const struct plan_op *op, float *rows)
{
	int buffer = run_arg(r, op, ARG_VECTORS), ranks = plan_vector_ranks(r->plan), micros = 0;
	struct vector_place at = place_of(r, buffer, 0);
	int64_t most = r->plan->policy.max_documents;
	int given = objective_type(&r->plan->policy.objective)->vectors->given;

	j->part_count = (int)(at.rank_rows / most);
	for (int64_t i = 0; i < ranks * at.rank_rows; i++) {
		float *row = rows + i * at.stride;

		if (row[j->width + VECTOR_TOKENS] == 0)
			continue;
		j->row[j->count] = row;
		j->part[j->count] = (int)(i % at.rank_rows / most);
		j->loss[j->count++] = NULL;
	}
	for (int a = op->first_arg; a < op->first_arg + op->arg_count; a++) {
		const float *first, *teacher;
		float *loss;

		if (r->plan->args[a].role != ARG_LOSS)
			continue;
		loss = run_host_address(r, r->plan->args[a].buffer);
		first = rows + at.stride * (at.own * at.rank_rows + micros * most);
		teacher = micros < r->step->micro_count ? r->step->micro[micros].teacher : NULL;
		for (int64_t i = 0; i < j->count; i++) {
			int64_t document = (j->row[i] - first) / at.stride;

			if (j->row[i] < first || document >= most)
				continue;
			j->loss[i] = loss + document * given;
			j->teacher[i] = teacher ? teacher + document * j->width : NULL;
		}
		micros++;
	}
}

static int judge_run(void *context)
{
	const struct run_call *call = context;
	const struct run *r = call->run;
	const struct plan_policy *o = &r->plan->policy;
	const struct objective *objective = objective_type(&o->objective);
	int buffer = run_arg(r, call->op, ARG_VECTORS), trains = r->plan->kind == PLAN_TRAIN, rc;
	int64_t stride = plan_vector_stride(r->plan), most = r->plan->buffers[buffer].bytes / (4 * stride);
	struct judgement j = {.settings = run_use(r)->settings,
	        .lists = run_use(r)->lists,
	        .model = r->plan->map->model,
	        .width = stride - VECTOR_FACTS,
	        .grad_scale = (double)r->step->grad_scale,
	        .pool = r->dock->pool,
	        .each = pool_run};

	j.row = mem_alloc((size_t)most + 1, sizeof(*j.row));
	j.loss = mem_alloc((size_t)most + 1, sizeof(*j.loss));
	j.part = mem_alloc((size_t)most + 1, sizeof(*j.part));
	j.teacher = mem_alloc((size_t)most + 1, sizeof(*j.teacher));
	rc = j.row && j.loss && j.part && j.teacher ? 0 : ERR_NOMEM;
	if (!rc)
		documents_list(&j, r, call->op, run_host_address(r, buffer));
	j.gradient = !rc && trains ? mem_alloc((size_t)(j.count * j.width) + 1, sizeof(*j.gradient)) : NULL;
	if (!rc && trains && !j.gradient)
		rc = ERR_NOMEM;
	if (!rc && j.count)
		rc = objective->vectors->judge(&j);
	for (int64_t i = 0; !rc && trains && i < j.count; i++)
		memcpy(j.row[i], j.gradient + i * j.width, (size_t)j.width * sizeof(*j.gradient));
	mem_free(j.gradient);
	mem_free(j.row);
	mem_free(j.loss);
	mem_free(j.part);
	mem_free((void *)j.teacher);
	return rc;
}

int run_queue_judge(struct run *r, struct stream *q, int op)
{
	int buffer = run_arg(r, &r->plan->ops[op], ARG_VECTORS);
	const struct op_cost cost = {.host_bytes = 8 * (double)r->plan->buffers[buffer].bytes};

	r->calls[op] = (struct run_call){.run = r, .op = &r->plan->ops[op]};
	return stream_call(q, judge_run, &r->calls[op], &cost);
}
