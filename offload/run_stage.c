/* Queues a stage: finds the addresses of all that it reads and writes. */
#include "offload/run_parts.h"

static void batch_addresses(const struct run *r, const struct plan_op *op, struct device_batch *batch)
{
	const struct host_batch *host = &r->step->micro[op->micro];
	const struct plan_policy *o = &r->plan->policy;
	struct plan_batch at = plan_batch_of(o);
	dev_addr base = run_arg_address(r, op, ARG_BATCH);
	int types;

	*batch = (struct device_batch){
	        .tokens = host->tokens,
	        .targets = host->targets,
	        .documents = host->documents,
	        .id = base,
	        .position = dev_at(base, at.position),
	        .doc_start = dev_at(base, at.doc_start),
	        .doc_end = dev_at(base, at.doc_end),
	        .target_row = dev_at(base, at.target_row),
	        .noise = o->has_noise ? dev_at(base, at.noise) : DEV_NONE,
	        .row = o->has_rows ? dev_at(base, at.row) : DEV_NONE,
	};
	for (int i = 0; i < batch_array_count(&objective_type(&o->objective)->batch); i++)
		batch->own[i] = dev_at(base, at.own[i]);
	types = objective_type(&o->objective)->batch.types;
	batch->type = types ? batch->own[types - 1] : DEV_NONE;
}

/* Finds the addresses of the stage's tensors, or of its pieces of them, inside the buffers of their units. */
static void tensor_addresses(struct run *r, const struct plan_op *op)
{
	const struct unit_map *map = r->plan->map;
	const struct model_stage *stage = &map->model->stages[op->stage];

	for (int i = 0; i < op->arg_count; i++) {
		const struct plan_arg *arg = &r->plan->args[op->first_arg + i];
		const struct plan_buffer *b = &r->plan->buffers[arg->buffer];
		int is_scales = b->kind == BUFFER_WEIGHTS_SCALES || b->kind == BUFFER_PLANE_CODE_SCALE;
		dev_addr *table = is_scales ? r->scales : arg->role == ARG_WEIGHT ? r->weight : r->grad;
		uint8_t *are_rows;

		if (arg->role != ARG_WEIGHT && arg->role != ARG_GRADIENT)
			continue;
		are_rows = arg->role == ARG_WEIGHT ? r->weight_rows : r->grad_rows;
		for (int t = 0; t < stage->tensor_count; t++) {
			const struct unit_piece *piece =
			        unit_map_stage_piece(map, op->stage, stage->tensor[t]);

			if (piece->unit != b->unit)
				continue;
			table[stage->tensor[t]] = dev_at(run_device_address(r, arg->buffer),
			        is_scales ? piece->scale : piece->offset * dtype_bytes(b->dtype));
			are_rows[stage->tensor[t]] =
			        b->kind == BUFFER_ROWS || b->kind == BUFFER_ROW_GRADIENTS;
		}
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

enum { BASES_MOST = 64 /* arguments of an operation that is remembered */ };

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 32;
}

/* A hash of all that decides what a stage's forward or backward costs: which of its arrays there are, not
 * where. */
static uint64_t cost_name(const struct run *r, const struct plan_op *op, const struct stage_memory *memory,
        const struct device_batch *batch)
{
	const struct model_stage *stage = &r->plan->map->model->stages[op->stage];
	const int64_t facts[] = {r->plan->kind, op->kind, op->arg_count, op->stage, memory->dtype,
	        memory->level, batch->tokens, batch->documents, batch->targets, memory->head_rows,
	        memory->balance_share != 0, memory->cached.rows, memory->cached.text_rows,
	        memory->cached.pass_tokens, memory->rope_positions, memory->first_gradient};
	const dev_addr arrays[] = {memory->x, memory->y, memory->acts, memory->dx, memory->state,
	        memory->tally, memory->vectors};
	uint64_t hash = 0;

	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++)
		hash = mix(hash, (uint64_t)facts[i]);
	for (size_t i = 0; i < sizeof(arrays) / sizeof(*arrays); i++)
		hash = mix(hash, dev_is_none(arrays[i]));
	for (int t = 0; t < stage->tensor_count; t++)
		hash = mix(hash, dev_is_none(r->grad[stage->tensor[t]]) + 2 * r->grad_rows[stage->tensor[t]] +
		                         4 * r->weight_rows[stage->tensor[t]]);
	for (int v = 0; v < stage->value_count; v++) {
		const struct stage_value *value = &r->value[stage->value[v]];

		hash = mix(hash, 2 * dev_is_none(value->grad) + (value->writes_grad != 0));
	}
	return hash;
}

/* The head: loss and, in training, its backward. */
static int queue_head(struct run *r, struct stream *q, const struct plan_op *op,
        const struct stage_memory *memory, const struct device_batch *batch)
{
	enum head_mode mode = op->kind == PLAN_OP_VECTORS     ? HEAD_VECTORS
	                      : !dev_is_none(memory->vectors) ? HEAD_GRADIENTS
	                      : r->plan->kind == PLAN_TRAIN   ? HEAD_TRAIN
	                                                      : HEAD_LOSS;

	return model_head(r->plan->map->model, objective_type(&r->plan->policy.objective)->head, mode, q,
	        memory, batch);
}

/* Finds where the memory of an operation begins. */
static int bases_find(dev_addr *bases, const struct run *r, const struct plan_op *op)
{
	int count = 0;

	for (int i = 0; i < op->arg_count && count < BASES_MOST; i++) {
		int buffer = r->plan->args[op->first_arg + i].buffer;

		if (r->plan->buffers[buffer].space == SPACE_DEVICE)
			bases[count++] = run_device_address(r, buffer);
	}
	return count;
}

/* Queues what costs the same as before under its name. */
static int queue_pass(struct run *r, struct stream *q, const struct plan_op *op,
        const struct stage_memory *memory, const struct device_batch *batch)
{
	const struct model *model = r->plan->map->model;
	dev_addr bases[BASES_MOST];
	int count = op->arg_count <= BASES_MOST ? bases_find(bases, r, op) : 0;
	int rc = count ? stream_repeat(q, cost_name(r, op, memory, batch), bases, count) : 0, end;

	if (rc)
		return rc < 0 ? rc : 0;
	if (op->kind == PLAN_OP_HEAD || op->kind == PLAN_OP_VECTORS)
		rc = queue_head(r, q, op, memory, batch);
	else if (op->kind == PLAN_OP_BACKWARD)
		rc = model_backward(model, op->stage, q, memory, batch);
	else
		rc = model_forward(model, op->stage, q, memory, batch);
	end = count ? stream_repeat_end(q) : 0;
	return rc ? rc : end;
}

const struct objective_use *run_use(const struct run *r)
{
	const struct objective_use *own = r->step->micro_count ? r->step->micro[0].use : NULL;

	return own ? own : &r->plan->policy.objective;
}

int run_queue_stage(struct run *r, struct stream *q, const struct plan_op *op)
{
	const struct model *model = r->plan->map->model;
	struct device_batch batch;
	struct stage_memory memory = {
	        .dtype = r->plan->policy.compute_dtype,
	        .weight = r->weight,
	        .scales = r->scales,
	        .grad = r->grad,
	        .weight_rows = r->weight_rows,
	        .grad_rows = r->grad_rows,
	        .value = r->value,
	        .x = run_arg_address(r, op, ARG_X),
	        .y = run_arg_address(r, op, ARG_Y),
	        .level = op->level,
	        .acts = run_arg_address(r, op, ARG_ACTS),
	        .kept = run_arg_address(r, op, ARG_KEPT),
	        .scratch = run_arg_address(r, op, ARG_SCRATCH),
	        .vectors = op->kind == PLAN_OP_VECTORS || op->kind == PLAN_OP_HEAD
	                           ? run_vectors_address(r, op)
	                           : DEV_NONE,
	        .dx = run_arg_address(r, op, ARG_DX),
	        .rope_table = run_arg_address(r, op, ARG_ROPE),
	        .loss = run_arg_address(r, op, ARG_LOSS),
	        .state = run_arg_address(r, op, ARG_CACHE),
	        .tally = run_arg_address(r, op, ARG_TALLY),
	        .row_norms = run_arg_address(r, op, ARG_ROW_NORMS),
	        .balance_share = r->step->micro[op->micro].share,
	        .cached = r->plan->policy.cache,
	        .rope_positions = r->plan->policy.rope_positions,
	        .head_rows = r->plan->policy.head_rows,
	        .grad_scale = r->step->grad_scale,
	        .recompute = op->kind == PLAN_OP_RECOMPUTE,
	        .first_gradient = op->first,
	        .neftune_alpha = r->plan->policy.neftune_alpha,
	        .settings = run_use(r)->settings,
	};

	batch_addresses(r, op, &batch);
	tensor_addresses(r, op);
	value_addresses(r, op);
	if (op->kind == PLAN_OP_LOGITS)
		return model_logits(
		        model, q, &memory, memory.loss, batch.target_row, batch.targets, batch.tokens);
	return queue_pass(r, q, op, &memory, &batch);
}

int run_queue_row_norms(struct run *r, struct stream *q, const struct plan_op *op)
{
	const struct stage_memory memory = {.dtype = r->plan->policy.compute_dtype,
	        .weight = r->weight,
	        .grad = r->grad,
	        .row_norms = run_arg_address(r, op, ARG_ROW_NORMS)};

	tensor_addresses(r, op);
	return model_row_norms(r->plan->map->model, op->stage, q, &memory);
}
