/* Queues a stage: finds the addresses of all that it reads and writes. */
#include "offload/run_parts.h"

static void batch_addresses(const struct run *r, const struct plan_op *op, struct device_batch *batch)
{
	const struct host_batch *host = &r->step->micro[op->micro];
	const struct plan_policy *o = &r->plan->policy;
	struct plan_batch at = plan_batch_of(o);
	dev_addr base = run_arg_address(r, op, ARG_BATCH);

	*batch = (struct device_batch){
	        .tokens = host->tokens,
	        .targets = host->targets,
	        .documents = host->documents,
	        .id = base,
	        .position = dev_at(base, at.position),
	        .doc_start = dev_at(base, at.doc_start),
	        .doc_end = dev_at(base, at.doc_end),
	        .target_row = dev_at(base, at.target_row),
	};
	for (int i = 0; i < batch_array_count(&objective_type(&o->objective)->batch); i++)
		batch->own[i] = dev_at(base, at.own[i]);
}

/* Finds the addresses of the stage's tensors inside the buffers of their units. */
static void tensor_addresses(struct run *r, const struct plan_op *op)
{
	const struct unit_map *map = r->plan->map;
	const struct model_stage *stage = &map->model->stages[op->stage];

	for (int i = 0; i < op->arg_count; i++) {
		const struct plan_arg *arg = &r->plan->args[op->first_arg + i];
		const struct plan_buffer *b = &r->plan->buffers[arg->buffer];
		dev_addr *table = arg->role == ARG_WEIGHT ? r->weight : r->grad;

		if (arg->role != ARG_WEIGHT && arg->role != ARG_GRADIENT)
			continue;
		for (int t = 0; t < stage->tensor_count; t++)
			if (map->tensor_unit[stage->tensor[t]] == b->unit)
				table[stage->tensor[t]] = dev_at(run_device_address(r, arg->buffer),
				        map->tensor_offset[stage->tensor[t]] * dtype_bytes(b->dtype));
	}
}

/* Finds the addresses of the values that the stage makes or reads. */
static void value_addresses(struct run *r, const struct plan_op *op)
{
	const struct model_stage *stage = &r->plan->map->model->stages[op->stage];

	for (int i = 0; i < stage->value_count; i++)
		r->value[stage->value[i]] = (struct stage_value){DEV_NONE, DEV_NONE, 0};
	for (int i = 0; i < op->arg_count && stage->value_count; i++) {
		const struct plan_arg *arg = &r->plan->args[op->first_arg + i];
		struct stage_value *value = &r->value[r->plan->buffers[arg->buffer].value];

		if (arg->role == ARG_VALUE)
			value->at = run_device_address(r, arg->buffer);
		if (arg->role != ARG_VALUE_GRADIENT)
			continue;
		value->grad = run_device_address(r, arg->buffer);
		value->writes_grad = !arg->reads;
	}
}

int run_queue_stage(struct run *r, struct stream *q, const struct plan_op *op)
{
	const struct model *model = r->plan->map->model;
	struct device_batch batch;
	struct stage_memory memory = {
	        .dtype = r->plan->policy.compute_dtype,
	        .weight = r->weight,
	        .grad = r->grad,
	        .value = r->value,
	        .x = run_arg_address(r, op, ARG_X),
	        .y = run_arg_address(r, op, ARG_Y),
	        .acts = run_arg_address(r, op, ARG_ACTS),
	        .scratch = run_arg_address(r, op, ARG_SCRATCH),
	        .dx = run_arg_address(r, op, ARG_DX),
	        .rope_table = run_arg_address(r, op, ARG_ROPE),
	        .loss = run_arg_address(r, op, ARG_LOSS),
	        .state = run_arg_address(r, op, ARG_CACHE),
	        .cached = r->plan->policy.cache,
	        .rope_positions = r->plan->policy.rope_positions,
	        .head_rows = r->plan->policy.head_rows,
	        .grad_scale = r->step->grad_scale,
	        .recompute = op->kind == PLAN_OP_RECOMPUTE,
	        .first_gradient = op->first,
	        .settings = r->plan->policy.objective.settings,
	};

	batch_addresses(r, op, &batch);
	tensor_addresses(r, op);
	value_addresses(r, op);
	if (op->kind == PLAN_OP_HEAD)
		return model_head(model, objective_type(&r->plan->policy.objective)->head,
		        r->plan->kind == PLAN_TRAIN ? HEAD_TRAIN : HEAD_LOSS, q, &memory, &batch);
	if (op->kind == PLAN_OP_LOGITS)
		return model_logits(
		        model, q, &memory, memory.loss, batch.target_row, batch.targets, batch.tokens);
	if (op->kind == PLAN_OP_BACKWARD)
		return model_backward(model, op->stage, q, &memory, &batch);
	return model_forward(model, op->stage, q, &memory, &batch);
}
