/* Results of a run: losses of micro-batches, gradient norms of tensors. */
#include "offload/run_parts.h"

#include "optim/adamw_step.h"

/* A JUDGE writes the losses of all micro-batches of its pass. */
static void losses_find(struct run *r, const struct plan_op *op)
{
	for (int a = op->first_arg; a < op->first_arg + op->arg_count; a++) {
		int buffer = r->plan->args[a].buffer;

		if (r->plan->args[a].role == ARG_LOSS)
			r->loss_host[r->plan->buffers[buffer].micro] = buffer;
	}
}

static int sums_on_host(const struct run *r, const struct plan_op *op)
{
	return op->kind == PLAN_OP_FINISH || (op->kind == PLAN_OP_SPREAD && run_arg(r, op, ARG_NORM) >= 0);
}

/* Finds the buffers with results. A piece's sums of squares are in the buffer of its unit's FINISH or SPREAD
 * or, if the device summed them, in that of NORM. */
void run_results_find(struct run *r)
{
	const struct unit_map *map = r->plan->map;

	for (int i = 0; i < r->plan->op_count; i++) {
		const struct plan_op *op = &r->plan->ops[i];

		if (op->kind == PLAN_OP_LOSS)
			r->loss_host[op->micro] = run_arg(r, op, ARG_DST);
		if (op->kind == PLAN_OP_TALLY)
			r->tally_host[op->micro] = run_arg(r, op, ARG_DST);
		if (op->kind == PLAN_OP_JUDGE)
			losses_find(r, op);
		if (op->kind != PLAN_OP_NORM && !sums_on_host(r, op))
			continue;
		for (int n = 0; n < map->piece_count; n++)
			if (op->kind == PLAN_OP_NORM && r->norm_host[n] < 0)
				r->norm_host[n] = run_arg(r, op, ARG_DST);
			else if (op->kind != PLAN_OP_NORM && map->pieces[n].unit == op->unit) {
				r->norm_host[n] = run_arg(r, op, ARG_NORM);
				r->norm_by_finish[n] = 1;
			}
	}
}

const float *run_losses(const struct run *r, int micro)
{
	return run_host_address(r, r->loss_host[micro]);
}

const void *run_tally(const struct run *r, int micro)
{
	return run_host_address(r, r->tally_host[micro]);
}

float *run_vectors(const struct run *r)
{
	for (int i = 0; i < r->plan->op_count; i++)
		if (r->plan->ops[i].kind == PLAN_OP_JUDGE)
			return run_host_address(r, run_arg(r, &r->plan->ops[i], ARG_VECTORS));
	return NULL;
}

/* The range of a piece's blocks with sums of this rank. SUMSQ counts blocks from the start of the part in
 * the shard, FINISH from the piece's start. */
static void norm_blocks(const struct run *r, int n, int64_t *first, int64_t *end)
{
	const struct unit_map *map = r->plan->map;
	const struct unit_piece *piece = &map->pieces[n];
	int64_t at, held, skipped;

	unit_map_locate(map, piece->tensor, piece->first, piece->count, &at, &held, &skipped);
	if (!r->norm_by_finish[n])
		skipped = 0;
	*first = skipped / SUMSQ_BLOCK;
	*end = held ? (skipped + held - 1) / SUMSQ_BLOCK + 1 : 0;
}

double run_norm_add(const struct run *r, int tensor, double sum)
{
	const struct unit_map *map = r->plan->map;

	if (!map->model->tensors[tensor].trainable)
		return sum;
	for (int n = map->tensor_piece[tensor]; n < map->tensor_piece[tensor + 1]; n++) {
		const double *partial = (const double *)run_host_address(r, r->norm_host[n]) +
		                        r->norm_first[tensor] + map->pieces[n].first / SUMSQ_BLOCK;
		int64_t first, end;

		norm_blocks(r, n, &first, &end);
		for (int64_t i = first; i < end; i++)
			sum += partial[i];
	}
	return sum;
}
