/* Zeroes the parts of a running gradient that no product writes first. */
#include "device/op.h"
#include "offload/run_parts.h"

static int fill_zero(struct run *r, struct stream *q, int buffer, int64_t from, int64_t end)
{
	struct op fill = {.kind = OP_FILL};

	if (from == end)
		return 0;
	fill.fill = (struct op_fill){
	        .dst = dev_at(run_device_address(r, buffer), 4 * from), .bytes = 4 * (end - from)};
	return stream_op(q, &fill);
}

/* Zeroes all but the tensors of products, so also the gaps between tensors. */
int run_queue_zero(struct run *r, struct stream *q, const struct plan_op *op)
{
	const struct unit_map *map = r->plan->map;
	const struct unit *u = &map->units[op->unit];
	int buffer = run_arg(r, op, ARG_DST), rc = 0;
	int64_t from = 0;

	for (int i = 0; i < u->piece_count && !rc; i++) {
		const struct unit_piece *piece = &map->pieces[u->pieces[i]];

		if (!model_gradient_is_product(map->model, piece->tensor))
			continue;
		rc = fill_zero(r, q, buffer, from, piece->offset);
		from = piece->offset + piece->count;
	}
	return rc ? rc : fill_zero(r, q, buffer, from, u->count);
}

/* The last stage that reads a tensor comes first in backward and writes the tensor's gradient. Of a divided
 * tensor each writes its piece. */
int run_queue_unwritten(struct run *r, struct stream *q, const struct plan_op *op)
{
	const struct unit_map *map = r->plan->map;
	const struct model_stage *stage = &map->model->stages[op->stage];
	int rc = 0;

	for (int a = op->first_arg; a < op->first_arg + op->arg_count; a++) {
		int buffer = r->plan->args[a].buffer;

		if (r->plan->args[a].role != ARG_GRADIENT)
			continue;
		for (int i = 0; i < stage->tensor_count && !rc; i++) {
			int t = stage->tensor[i];
			const struct unit_piece *piece = unit_map_stage_piece(map, op->stage, t);
			int is_own = piece->count < map->model->tensors[t].count;

			if (piece->unit == r->plan->buffers[buffer].unit &&
			        (is_own || map->model->tensors[t].last_stage == op->stage) &&
			        model_gradient_is_product(map->model, t))
				rc = fill_zero(r, q, buffer, piece->offset, piece->offset + piece->count);
		}
	}
	return rc;
}
