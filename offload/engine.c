/* The engine: builds the plans, counts their memory, runs steps. */
#include "offload/engine.h"

#include "base/err.h"
#include "base/mem.h"
#include "device/noise.h"
#include "device/op.h"
#include "offload/engine_parts.h"
#include "offload/run_parts.h"
#include "optim/adamw.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct engine_sizes *plan_sizes(const struct engine_options *o, enum plan_kind kind)
{
	return kind == PLAN_EVAL ? &o->eval : kind == PLAN_LOGITS ? &o->logits : &o->train;
}

const struct plan *engine_any_plan(const struct engine *e)
{
	for (int kind = 0; kind < ENGINE_PLANS; kind++)
		if (e->plans[kind])
			return e->plans[kind];
	return NULL;
}

static void plans_free(struct engine *e)
{
	for (int kind = 0; kind < ENGINE_PLANS; kind++) {
		plan_free(e->plans[kind]);
		e->plans[kind] = NULL;
	}
	memset(e->space_bytes, 0, sizeof(e->space_bytes));
}

/* The largest of all plans. */
static void spaces_find(struct engine *e)
{
	memset(e->space_bytes, 0, sizeof(e->space_bytes));
	for (int kind = 0; kind < ENGINE_PLANS; kind++)
		for (int s = 0; s < SPACE_COUNT && e->plans[kind]; s++)
			if (e->plans[kind]->space_bytes[s] > e->space_bytes[s])
				e->space_bytes[s] = e->plans[kind]->space_bytes[s];
}

int engine_place(struct engine *e)
{
	int rc = 0;

	for (int kind = 0; kind < ENGINE_PLANS && !rc; kind++)
		if (e->plans[kind])
			rc = plan_place(e->plans[kind]);
	spaces_find(e);
	return rc;
}

/* Lists all plans of the policy in place of earlier ones. */
static int plans_list(struct engine *e)
{
	const struct engine_options *o = &e->options;

	plans_free(e);
	for (int kind = 0; kind < ENGINE_PLANS; kind++) {
		const struct engine_sizes *sizes = plan_sizes(o, (enum plan_kind)kind);
		struct plan_policy policy = o->policy;
		int rc;

		if (!sizes->max_tokens || (kind == PLAN_UPDATE && policy.update_in_backward))
			continue;
		policy.max_tokens = sizes->max_tokens;
		policy.max_targets = sizes->max_targets ? sizes->max_targets : 1;
		policy.max_documents = sizes->max_documents;
		policy.has_noise = kind == PLAN_TRAIN &&
		                   (policy.neftune_alpha > 0 || o->model->config.adapter_dropout > 0);
		if (kind == PLAN_LOGITS)
			policy.objective.type = NULL;
		rc = plan_list(&e->plans[kind], (enum plan_kind)kind, e->map, &policy);
		if (rc)
			return rc;
	}
	spaces_find(e);
	return engine_any_plan(e) ? 0 : err_set(ERR_RANGE, "engine with nothing to run");
}

static int64_t link_bytes(const struct engine *e)
{
	const struct plan *p = engine_any_plan(e);

	return p->h2d_bytes + p->d2h_bytes;
}

static int budget_refuse(const struct engine *e)
{
	int64_t need = e->space_bytes[SPACE_DEVICE];

	return err_set(ERR_FIT, "needs %.1f MiB (%" PRId64 " bytes) of device memory; the budget is %.1f MiB",
	        (double)need / 0x1p20, need, (double)e->options.device_budget_bytes / 0x1p20);
}

/* Finds the bytes that a step would copy if nothing stayed on the device that may leave it. */
static int streamed_find(struct engine *e)
{
	struct plan_policy policy = engine_any_plan(e)->policy;
	struct plan *plan;
	int rc;

	e->streamed_bytes = link_bytes(e);
	if (!policy.resident_states && !policy.resident_weights && !policy.kept_blocks)
		return 0;
	policy.resident_states = policy.resident_weights = policy.kept_blocks = 0;
	rc = plan_list(&plan, engine_any_plan(e)->kind, e->map, &policy);
	if (rc)
		return rc;
	e->streamed_bytes = plan->h2d_bytes + plan->d2h_bytes;
	plan_free(plan);
	return 0;
}

static int plans_order(struct engine *e)
{
	int rc = 0;

	for (int kind = 0; kind < ENGINE_PLANS && !rc; kind++)
		if (e->plans[kind])
			rc = plan_order(e->plans[kind]);
	return rc;
}

static int engine_plan_all(struct engine *e)
{
	int64_t budget_bytes = e->options.device_budget_bytes;
	int rc = plans_list(e);

	if (!rc && !e->options.places_late)
		rc = engine_place(e);
	if (!rc && budget_bytes > 0 && e->space_bytes[SPACE_DEVICE] > budget_bytes)
		return budget_refuse(e);
	if (!rc && budget_bytes > 0)
		rc = streamed_find(e);
	if (!rc && !e->options.places_late)
		rc = plans_order(e);
	for (int kind = 0; kind < ENGINE_PLANS && !rc && e->options.check_plans; kind++)
		if (e->plans[kind])
			rc = plan_check(e->plans[kind]);
	return rc;
}

static int shard_ranks_of(const struct engine_options *o)
{
	return o->shard_ranks ? o->shard_ranks : o->world_size;
}

int engine_units_open(struct unit_map **units, const struct engine_options *o)
{
	int ranks = shard_ranks_of(o);

	return unit_map_open(
	        units, o->model, o->wrap, o->min_num_params, o->policy.compute_dtype, o->rank % ranks, ranks);
}

int engine_open(struct engine **out, const struct engine_options *options)
{
	struct engine *e = mem_alloc(1, sizeof(*e));
	int rc;

	if (!e)
		return ERR_NOMEM;
	e->options = *options;
	e->options.shard_ranks = shard_ranks_of(options);
	if (options->world_size < 1 || e->options.shard_ranks < 1 ||
	        options->world_size % e->options.shard_ranks) {
		mem_free(e);
		return err_set(ERR_RANGE, "engine: %d ranks in groups of %d", options->world_size,
		        options->shard_ranks);
	}
	e->options.policy.replicas = options->world_size / e->options.shard_ranks;
	e->options.policy.replica = options->rank / e->options.shard_ranks;
	e->map = options->units;
	rc = e->map ? 0 : engine_units_open(&e->own_map, options);
	e->map = e->own_map ? e->own_map : e->map;
	if (!rc)
		rc = engine_plan_all(e);
	if (rc) {
		engine_close(e);
		return rc;
	}
	*out = e;
	return 0;
}

void engine_close(struct engine *e)
{
	if (!e)
		return;
	if (e->options.device)
		device_sync(e->options.device);
	for (int kind = 0; kind < ENGINE_PLANS; kind++)
		run_close(e->runs[kind]);
	for (int q = 0; q < QUEUE_COUNT; q++)
		stream_close(e->dock.streams[q]);
	comm_close(e->dock.comm);
	comm_close(e->dock.replicas);
	snapshot_close(e->dock.snapshot);
	store_close(e->dock.store);
	staging_close(e->dock.staging);
	if (!dev_is_none(e->dock.arena))
		device_arena_close(e->options.device);
	plans_free(e);
	unit_map_close(e->own_map);
	mem_free(e->device_planes);
	mem_free(e);
}

const struct plan *engine_plan(const struct engine *e, enum plan_kind kind)
{
	return e->plans[kind];
}

const struct unit_map *engine_units(const struct engine *e)
{
	return e->map;
}

/* ---- start ---- */

struct stream *engine_main_stream(const struct engine *e)
{
	return e->dock.streams[QUEUE_COMPUTE];
}

/* Finds the planes on the device, and zeroes them, because the store's planes begin as zero too. */
static int device_planes_open(struct engine *e, const struct plan *p)
{
	int rc = 0;

	e->device_planes = mem_alloc((size_t)e->map->unit_count, sizeof(*e->device_planes));
	if (!e->device_planes)
		return ERR_NOMEM;
	for (int i = 0; i < p->buffer_count && !rc; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		struct op fill = {.kind = OP_FILL};
		dev_addr at;

		if (b->space != SPACE_DEVICE || !plan_kind_is_plane(b->kind))
			continue;
		at = dev_at(e->dock.arena, b->offset);
		e->device_planes[b->unit][plan_kind_plane(b->kind)] = at;
		fill.fill = (struct op_fill){.dst = at, .bytes = b->bytes};
		rc = stream_op(engine_main_stream(e), &fill);
	}
	return rc;
}

static int rope_table_upload(struct engine *e, const struct plan *p)
{
	int64_t positions = p->policy.rope_positions,
	        count = model_rope_table_count(e->map->model, positions);
	float *table;
	int rc = 0;

	if (!count || !device_has_bytes(e->dock.device))
		return 0;
	table = mem_alloc((size_t)count, sizeof(*table));
	if (!table)
		return ERR_NOMEM;
	model_rope_table(e->map->model, table, positions);
	for (int i = 0; i < p->buffer_count && !rc; i++)
		if (p->buffers[i].space == SPACE_DEVICE && p->buffers[i].kind == BUFFER_ROPE_TABLE)
			rc = stream_copy_in(engine_main_stream(e),
			        dev_at(e->dock.arena, p->buffers[i].offset), table, 4 * count);
	if (!rc)
		rc = stream_sync(engine_main_stream(e));
	mem_free(table);
	return rc;
}

const struct store *engine_store(const struct engine *e)
{
	return e->dock.store;
}

const struct staging *engine_staging(const struct engine *e)
{
	return e->dock.staging;
}

static int comms_open(struct engine *e)
{
	struct comm_group shards, same;
	int rc;

	plan_groups_find(&shards, &same, e->options.rank, e->options.world_size, e->map->shard_ranks);
	rc = comm_open_group(&e->dock.comm, e->options.device, &shards);
	return rc || same.size == 1 ? rc : comm_open_group(&e->dock.replicas, e->options.device, &same);
}

int engine_reserve(struct engine *e)
{
	if (!dev_is_none(e->dock.arena))
		return 0;
	return device_arena_open(e->options.device, &e->dock.arena, e->space_bytes[SPACE_DEVICE]);
}

int engine_start(struct engine *e)
{
	struct device *device = e->options.device;
	const struct plan *p = engine_any_plan(e);
	int rc = engine_place(e);

	if (!rc)
		rc = plans_order(e);
	if (!rc)
		rc = comms_open(e);
	e->dock.device = device;
	e->dock.pool = e->options.pool;
	e->dock.isa = e->options.isa;
	e->dock.micro_times = e->options.micro_times;
	for (int q = 0; q < QUEUE_COUNT && !rc; q++)
		rc = stream_open(&e->dock.streams[q], device, (enum queue_kind)q);
	if (!rc)
		rc = store_open(&e->dock.store, device, p, e->options.crossing, e->options.pool);
	if (!rc)
		rc = snapshot_open(&e->dock.snapshot, p, e->dock.store);
	if (!rc)
		rc = staging_open(&e->dock.staging, device, e->plans, ENGINE_PLANS,
		        e->space_bytes[SPACE_STAGING], e->options.crossing, e->options.pool);
	if (!rc)
		rc = engine_reserve(e);
	for (int kind = 0; kind < ENGINE_PLANS && !rc; kind++)
		if (e->plans[kind])
			rc = run_open(&e->runs[kind], e->plans[kind], &e->dock);
	if (!rc)
		rc = device_planes_open(e, p);
	if (!rc)
		rc = rope_table_upload(e, p);
	return rc ? rc : device_sync(device);
}

/* ---- stepping ---- */

/* Writes the objective's own arrays of a micro-batch. */
static void own_put(char *base, const struct plan_policy *o, const struct host_batch *b)
{
	const struct batch_rule *rule = &objective_type(&o->objective)->batch;
	const struct batch_sizes sizes = {b->tokens, b->targets, b->documents};
	const struct plan_batch to = plan_batch_of(o);

	for (int i = 0; i < batch_array_count(rule); i++)
		if (b->own[i])
			memcpy(base + to.own[i], b->own[i],
			        (size_t)batch_array_bytes(&rule->array[i], &sizes));
}

/* Writes the keys of noise, token by token. */
static void noise_put(uint64_t *key, const struct host_batch *b)
{
	int64_t document = -1;

	for (int64_t t = 0; t < b->tokens; t++) {
		document += b->doc_start[t] == t;
		key[t] = noise_token(
		        b->noise, b->row ? (uint64_t)b->row[document] : 0, (uint64_t)(t - b->doc_start[t]));
	}
}

/* Writes index arrays to staging memory for LOAD. */
static int batches_put(struct engine *e, enum plan_kind kind, const struct host_batch *micro, int micro_count)
{
	const struct plan *p = e->plans[kind];
	int rc = engine_codes_make(e);

	if (!device_has_bytes(e->dock.device))
		return 0;
	for (int i = 0; i < p->op_count && !rc; i++) {
		const struct plan_op *op = &p->ops[i];
		const struct host_batch *b;
		const struct plan_batch to = plan_batch_of(&p->policy);
		char *base;
		int32_t *doc_end;

		if (op->kind != PLAN_OP_LOAD || op->micro >= micro_count)
			continue;
		b = &micro[op->micro];
		base = run_host_address(e->runs[kind], p->args[op->first_arg].buffer);
		memset(base, 0, (size_t)to.bytes);
		memcpy(base, b->id, 4 * (size_t)b->tokens);
		model_position_rows(e->map->model, (int32_t *)(base + to.position), b->position, b->doc_start,
		        b->doc_end, b->tokens, p->policy.rope_positions);
		memcpy(base + to.doc_start, b->doc_start, 4 * (size_t)b->tokens);
		doc_end = (int32_t *)(base + to.doc_end);
		for (int64_t t = 0; t < b->tokens; t++) /* end of the text's cache rows, or of the document */
			doc_end[t] =
			        p->policy.cache.rows ? b->doc_start[t] + b->position[t] + 1 : b->doc_end[t];
		if (b->targets)
			memcpy(base + to.target_row, b->target_row, 4 * (size_t)b->targets);
		if (p->policy.has_rows)
			rc = run_rows_number(e->runs[kind], (int32_t *)(void *)(base + to.row), op->micro, b);
		if (p->policy.has_noise)
			noise_put((uint64_t *)(void *)(base + to.noise), b);
		own_put(base, &p->policy, b);
	}
	return rc;
}

static void losses_sum(
        const struct engine *e, struct engine_result *result, const struct host_batch *micro, int micro_count)
{
	const struct objective_use *use = &e->options.policy.objective;

	for (int m = 0; m < micro_count; m++) {
		result->targets += micro[m].targets;
		if (micro[m].targets && device_has_bytes(e->dock.device))
			objective_type(use)->sums_add(result->sums,
			        micro[m].use ? micro[m].use->settings : use->settings, &micro[m],
			        run_losses(e->runs[PLAN_TRAIN], m));
	}
	result->loss_sum = result->sums[0];
}

/* Sums over ranks in rank order. All ranks get the same bits, so they make the same decisions. */
static int results_sum(struct engine *e, struct engine_result *result)
{
	int count = objective_type(&e->options.policy.objective)->sum_count, rc;
	double sums[OBJECTIVE_SUMS_MAX + 1] = {0}, *norm = &sums[count];

	if (!device_has_bytes(e->dock.device))
		return 0;
	memcpy(sums, result->sums, sizeof(result->sums));
	*norm = 0;
	for (int t = 0; t < e->map->model->tensor_count; t++)
		*norm = run_norm_add(e->runs[PLAN_TRAIN], t, *norm);
	/* replicas have the same norm, but other losses */
	rc = comm_sum_host(e->dock.comm, sums, count + 1);
	if (!rc && e->dock.replicas)
		rc = comm_sum_host(e->dock.replicas, sums, count);
	result->grad_norm = sqrt(*norm);
	memcpy(result->sums, sums, (size_t)count * sizeof(*sums));
	result->loss_sum = sums[0];
	return rc;
}

/* Says what is not finite. Backward reaches the last tensors of the table first, so the last one whose
 * gradient is not finite is nearest to the cause. All ranks call this, and get the same text. */
static int nonfinite_describe(struct engine *e, struct engine_result *result)
{
	const struct model *model = e->map->model;
	int count = 0, trained = 0, last = 0, rc;
	double *sums;

	if (!isfinite(result->loss_sum)) {
		strcpy(result->nonfinite, "the loss is not finite");
		return 0;
	}
	sums = mem_alloc((size_t)model->tensor_count, sizeof(*sums));
	if (!sums)
		return ERR_NOMEM;
	for (int t = 0; t < model->tensor_count; t++)
		sums[t] = run_norm_add(e->runs[PLAN_TRAIN], t, 0);
	rc = comm_sum_host(e->dock.comm, sums, model->tensor_count);
	for (int t = 0; t < model->tensor_count && !rc; t++) {
		trained += model->tensors[t].trainable;
		if (isfinite(sums[t]))
			continue;
		count++;
		last = t;
	}
	mem_free(sums);
	if (count)
		snprintf(result->nonfinite, sizeof(result->nonfinite),
		        "gradients of %d of %d tensors are not finite (nearest to the loss: %s)", count,
		        trained, model->tensors[last].name);
	else
		strcpy(result->nonfinite, "the gradient norm is not finite");
	return rc;
}

/* The scalars of the next update, for each learning rate. */
static void update_init(struct engine *e, double learning_rate, double clip_scale)
{
	const struct engine_options *o = &e->options;
	const double ratio[LR_COUNT] = {
	        [LR_USUAL] = 1, [LR_LORAPLUS] = o->loraplus_ratio > 0 ? o->loraplus_ratio : 1};

	e->update_count++;
	for (int i = 0; i < LR_COUNT; i++)
		adamw_step_init(
		        &e->adamw[i], &o->adamw, learning_rate * ratio[i], e->update_count, clip_scale);
}

int engine_step(struct engine *e, struct engine_result *result, const struct host_batch *micro,
        int micro_count, int64_t total_targets, double learning_rate, struct run_span *spans)
{
	const struct engine_options *o = &e->options;
	int in_backward = o->policy.update_in_backward, finite, rc;
	struct run_step step = {
	        .micro = micro,
	        .micro_count = micro_count,
	        .grad_scale = (float)(1.0 / (double)total_targets),
	        .updates_pending = e->pending,
	};

	*result = (struct engine_result){.skipped = !total_targets};
	if (result->skipped) /* with gradients of 0 an update would still decay weights and moments */
		return 0;
	if (in_backward)
		update_init(e, learning_rate, 1);
	step.adamw = e->adamw;
	rc = batches_put(e, PLAN_TRAIN, micro, micro_count);
	if (!rc)
		rc = run_execute(e->runs[PLAN_TRAIN], &step, spans);
	if (rc)
		return rc;
	e->pending = 0;
	losses_sum(e, result, micro, micro_count);
	rc = results_sum(e, result);
	if (!rc)
		rc = engine_tally(e, result, micro, micro_count);
	if (rc)
		return rc;
	finite = isfinite(result->grad_norm) && isfinite(result->loss_sum);
	rc = finite ? 0 : nonfinite_describe(e, result);
	if (rc)
		return rc;
	if (!finite && (in_backward || !o->skip_nonfinite))
		return err_set(ERR_NONFINITE, "%s", result->nonfinite);
	result->skipped = !finite;
	if (in_backward || !finite)
		return 0;
	update_init(e, learning_rate, clip_scale_of(result->grad_norm, o->max_grad_norm));
	e->pending = 1;
	return 0;
}

void engine_assume_step(struct engine *e)
{
	if (e->pending || e->options.policy.update_in_backward)
		return;
	update_init(e, 0, 1);
	e->pending = 1;
}

int engine_flush(struct engine *e)
{
	struct run_step step = {.updates_pending = 1, .adamw = e->adamw};
	int rc;

	if (!e->pending)
		return 0;
	rc = run_execute(e->runs[PLAN_UPDATE], &step, NULL);
	if (!rc)
		e->pending = 0;
	return rc;
}

static int engine_forward(
        struct engine *e, enum plan_kind kind, const float **out, const struct host_batch *batch)
{
	struct run_step step = {.micro = batch, .micro_count = 1};
	int rc = engine_flush(e);

	if (!rc)
		rc = batches_put(e, kind, batch, 1);
	if (!rc)
		rc = run_execute(e->runs[kind], &step, NULL);
	if (!rc)
		*out = run_losses(e->runs[kind], 0);
	return rc;
}

int engine_eval(struct engine *e, const float **losses, const struct host_batch *batch)
{
	return engine_forward(e, PLAN_EVAL, losses, batch);
}

float *engine_vectors(struct engine *e, int64_t *stride)
{
	*stride = plan_vector_stride(e->plans[PLAN_EVAL]);
	return run_vectors(e->runs[PLAN_EVAL]);
}

int engine_logits(struct engine *e, const float **logits, const struct host_batch *batch)
{
	return engine_forward(e, PLAN_LOGITS, logits, batch);
}

int64_t engine_update_count(const struct engine *e)
{
	return e->update_count;
}

void engine_set_update_count(struct engine *e, int64_t count)
{
	e->update_count = count;
}
