/* Lists the operations of a plan. */
#include "base/err.h"
#include "base/mem.h"
#include "model/blocks/balance.h"
#include "model/blocks/blocks.h"
#include "offload/plan_parts.h"

#include "base/size.h"

#include <stdatomic.h>

/* ---- state ---- */

/* Adds buffers for sums of squares. Gradients that are summed on the host are squared there, others on the
 * device. */
static void norm_add(struct builder *b)
{
	struct plan *p = b->p;
	const struct plan_policy *o = &p->policy;
	int sums = o->order == ORDER_MICRO_BATCH_MAJOR && o->micro_batches > 1, on_host = 0, trained = 0;
	int64_t bytes = 8 * plan_norm_slots(b->model, NULL);

	for (int u = 0; u < p->map->unit_count; u++) {
		trained += p->map->units[u].trainable;
		on_host += p->map->units[u].trainable &&
		           ((sums && b->units[u].home.gradient == HOME_HOST) || row_gradients_cross(b, u));
	}
	b->norm_on_device = on_host < trained;
	b->state.norm = plan_add_buffer(p, BUFFER_SUMS_OF_SQUARES, SPACE_DEVICE, LAYOUT_PERSISTENT, bytes);
	b->state.norm_host =
	        plan_add_buffer(p, BUFFER_SUMS_OF_SQUARES, SPACE_STAGING, LAYOUT_PERSISTENT, bytes);
	b->state.norm_sums = b->state.norm_host;
	if (on_host && b->norm_on_device)
		b->state.norm_sums =
		        plan_add_buffer(p, BUFFER_SUMS_OF_SQUARES, SPACE_STAGING, LAYOUT_PERSISTENT, bytes);
}

/* Of a micro-batch: a loss a target and what the head writes also, rows of logits, or what is given for each
 * document. */
static int64_t loss_bytes_of(const struct builder *b)
{
	const struct plan_policy *o = &b->p->policy;
	const struct vectors_pass *vectors = objective_type(&o->objective)->vectors;
	int64_t count =
	        o->max_targets * (b->p->kind == PLAN_LOGITS ? b->model->config.V : 1 + plan_head_also(b->p));

	return 4 * max_i64(count, vectors ? vectors->given * o->max_documents : 0);
}

static void state_add(struct builder *b)
{
	struct plan *p = b->p;
	const struct plan_policy *o = &p->policy;
	int64_t rope_bytes = 4 * model_rope_table_count(b->model, o->rope_positions);
	int64_t tally_bytes = p->kind == PLAN_TRAIN ? model_tally(b->model).bytes : 0;
	int64_t loss_bytes = loss_bytes_of(b);

	homes_add(b);
	for (int u = 0; u < p->map->unit_count; u++)
		p->policy.has_rows |= rows_cross(b, u);
	rows_part(b);
	b->state.rope = rope_bytes ? plan_add_buffer(p, BUFFER_ROPE_TABLE, SPACE_DEVICE, LAYOUT_PERSISTENT,
	                                     rope_bytes)
	                           : -1;
	for (int s = 0; s < b->model->stage_count && o->cache.rows; s++) {
		int64_t bytes = model_state_bytes(b->model, s, o->compute_dtype, &o->cache);

		if (bytes)
			b->state.cache[s] =
			        plan_add_buffer(p, BUFFER_CACHE, SPACE_DEVICE, LAYOUT_PERSISTENT, bytes);
	}
	norm_add(b);
	for (int m = 0; m < o->micro_batches; m++) {
		b->state.batch_host[m] = plan_add_buffer(
		        p, BUFFER_BATCH, SPACE_STAGING, LAYOUT_PERSISTENT, plan_batch_bytes(o));
		b->state.loss_host[m] =
		        plan_add_buffer(p, BUFFER_LOSS, SPACE_STAGING, LAYOUT_PERSISTENT, loss_bytes);
		if (b->state.loss_host[m] >= 0)
			p->buffers[b->state.loss_host[m]].micro = m;
		if (tally_bytes)
			b->state.tally_host[m] = plan_add_buffer(
			        p, BUFFER_TALLY, SPACE_STAGING, LAYOUT_PERSISTENT, tally_bytes);
	}
	if (objective_type(&o->objective)->vectors)
		b->state.vectors_host = plan_add_buffer(p, BUFFER_VECTORS, SPACE_STAGING, LAYOUT_PERSISTENT,
		        plan_vectors_bytes(p, o->order == ORDER_LAYER_MAJOR && p->kind == PLAN_TRAIN
		                                      ? o->micro_batches
		                                      : 1));
}
static void plan_emit(struct builder *b)
{
	struct plan *p = b->p;
	const struct plan_policy *o = &p->policy;

	if (p->kind == PLAN_UPDATE) {
		plan_add_updates(p, &b->state, p->map->unit_count);
		return;
	}
	if (p->kind == PLAN_TRAIN && !o->update_in_backward)
		plan_add_updates(p, &b->state, -1);
	if (p->kind != PLAN_TRAIN)
		pass_emit(b, 0, 1);
	else if (o->order == ORDER_LAYER_MAJOR)
		pass_emit(b, 0, o->micro_batches);
	else
		for (int m = 0; m < o->micro_batches; m++)
			pass_emit(b, m, m + 1);
	if (p->kind == PLAN_TRAIN && b->norm_on_device) {
		plan_add_op(p, PLAN_OP_NORM, QUEUE_D2H, -1, -1, -1);
		plan_add_arg(p, ARG_SRC, b->state.norm, ACCESS_READ);
		plan_add_arg(p, ARG_DST, b->state.norm_host, ACCESS_WRITE);
	}
}

/* ---- a plan ---- */

/* Finds intervals and homes. A unit has the same home in every plan of a policy, found from its training
 * pass. */
static int visits_find(struct builder *b)
{
	int train = 2 * b->group_count - 1 - b->train_group,
	    visits = b->p->kind == PLAN_TRAIN ? train : b->group_count, rc;

	b->visit_count = b->p->policy.inference ? b->group_count : train;
	rc = intervals_find(b);
	if (!rc)
		rc = residency_find(b);
	if (!rc && b->visit_count != visits) {
		b->visit_count = visits;
		rc = intervals_find(b);
	}
	return rc ? rc : gradient_last_find(b);
}

static int *ints_alloc(int count, int value)
{
	int *ints = mem_alloc((size_t)count, sizeof(*ints));

	for (int i = 0; ints && i < count; i++)
		ints[i] = value;
	return ints;
}

static int builder_alloc(struct builder *b)
{
	int units = b->p->map->unit_count, micros = b->p->policy.micro_batches;
	int slots = (b->group_count + 1) * micros, tables = b->p->map->table_count * micros + 1;

	b->state.units = mem_alloc((size_t)units, sizeof(*b->state.units));
	b->state.batch = ints_alloc(micros, -1);
	b->state.batch_host = ints_alloc(micros, -1);
	b->state.loss_host = ints_alloc(micros, -1);
	b->state.tally = ints_alloc(micros, -1);
	b->state.tally_host = ints_alloc(micros, -1);
	b->state.cache = ints_alloc(b->model->stage_count, -1);
	b->x = ints_alloc(slots, -1);
	b->spilled = ints_alloc(slots, -1);
	b->acts_kept = ints_alloc(slots, -1);
	b->acts_spilled = ints_alloc(slots, -1);
	b->spilling = -1;
	b->acts = ints_alloc(micros, -1);
	b->kept = ints_alloc(micros, -1);
	b->dx = ints_alloc(micros, -1);
	b->value = ints_alloc(b->model->config.value_count * micros + 1, -1);
	b->value_grad = ints_alloc(b->model->config.value_count * micros + 1, -1);
	b->group_acts = mem_alloc((size_t)b->group_count, sizeof(*b->group_acts));
	b->rows_host = ints_alloc(tables, -1);
	b->rows = ints_alloc(tables, -1);
	b->row_grad = ints_alloc(tables, -1);
	b->row_grad_host = ints_alloc(tables, -1);
	b->row_norms = ints_alloc(b->model->stage_count, -1);
	b->units = mem_alloc((size_t)units + 1, sizeof(*b->units));
	if (!b->state.units || !b->state.batch || !b->state.batch_host || !b->state.loss_host ||
	        !b->state.tally || !b->state.tally_host || !b->state.cache || !b->x || !b->spilled ||
	        !b->acts_kept || !b->acts_spilled || !b->acts || !b->kept || !b->dx || !b->value ||
	        !b->value_grad || !b->group_acts || !b->rows_host || !b->rows || !b->row_grad ||
	        !b->row_grad_host || !b->row_norms || !b->units)
		return ERR_NOMEM;
	for (int u = 0; u < units; u++)
		b->units[u] = (struct unit_listing){
		        .gradient = -1, .rounded = -1, .gradient_last = -1, .ready = -1, .stale_since = -1};
	return 0;
}

/* Finds the first stage with a trained tensor. Inference does not need it. */
static int train_find(struct builder *b)
{
	while (b->train_stage < b->model->stage_count && !unit_map_stage_trains(b->p->map, b->train_stage))
		b->train_stage++;
	if (b->train_stage == b->model->stage_count)
		return b->p->policy.inference ? 0 : err_set(ERR_RANGE, "plan: no tensor trains");
	b->train_group = b->model->groups[b->model->stages[b->train_stage].group].first;
	return 0;
}

static int builder_open(struct builder *b, struct plan *p)
{
	int rc;

	b->p = p;
	b->ring_last = -1;
	b->model = p->map->model;
	b->group_count = b->model->group_count;
	rc = builder_alloc(b);
	if (!rc)
		rc = train_find(b);
	if (rc)
		return rc;
	group_acts_find(b);
	return visits_find(b);
}

static void builder_close(struct builder *b)
{
	mem_free(b->state.units);
	mem_free(b->state.batch);
	mem_free(b->state.batch_host);
	mem_free(b->state.loss_host);
	mem_free(b->state.tally);
	mem_free(b->state.tally_host);
	mem_free(b->state.cache);
	mem_free(b->x);
	mem_free(b->spilled);
	mem_free(b->acts_kept);
	mem_free(b->acts_spilled);
	mem_free(b->acts);
	mem_free(b->kept);
	mem_free(b->group_acts);
	mem_free(b->dx);
	mem_free(b->value);
	mem_free(b->value_grad);
	mem_free(b->rows_host);
	mem_free(b->rows);
	mem_free(b->row_grad);
	mem_free(b->row_grad_host);
	mem_free(b->row_norms);
	mem_free(b->units);
	mem_free(b->closes);
	intervals_free(b);
}

static int group_has_output(const struct model *model, const struct model_group *g)
{
	for (int s = g->first_stage; s < g->first_stage + g->count; s++)
		if (model_writes_output(model, s))
			return 1;
	return 0;
}

/* A pass begins with an embedding and ends with a head; each group before the head has an output. */
static int model_check(const struct model *model, const struct objective *objective)
{
	const struct model_stage *first = &model->stages[0], *last = &model->stages[model->stage_count - 1];

	if (first->kind != STAGE_EMBED)
		return err_set(ERR_UNSUPPORTED, "plan: the model has no embedding");
	if (last->kind != STAGE_HEAD)
		return err_set(ERR_UNSUPPORTED, "plan: the model has no head, so nothing gives a loss");
	for (int g = 0; g + 1 < model->group_count; g++)
		if (model->groups[g].last == g && !group_has_output(model, &model->groups[g]))
			return err_set(ERR_INTERNAL, "plan: group %d has no output", g);
	return objective->check ? objective->check(model) : 0;
}

static int policy_check(const struct plan_policy *o, enum plan_kind kind)
{
	const enum dtype dtypes[] = {o->compute_dtype, o->gradient_dtype, o->reduce_dtype};

	if (o->micro_batches < 1 || o->max_tokens < 1 || o->max_targets < 1 || o->rope_positions < 1 ||
	        o->prefetch_units < 1 || o->cache.rows < 0 || o->head_rows < 0 || o->max_documents < 0)
		return err_set(ERR_RANGE,
		        "plan: micro-batches, tokens, targets, positions and prefetch must be at least 1");
	for (int i = 0; i < 3; i++)
		if (!dtype_computes(dtypes[i]))
			return err_set(ERR_RANGE, "plan: dtype %s computes nothing", dtype_name(dtypes[i]));
	if ((unsigned)o->state >= ADAMW_STATE_COUNT)
		return err_set(ERR_RANGE, "plan: optimizer state %d", (int)o->state);
	if (o->inference && kind != PLAN_EVAL && kind != PLAN_LOGITS)
		return err_set(ERR_RANGE, "plan: inference has no updates");
	return homes_check(o);
}

static atomic_llong listed_ops;

int64_t plan_listed_ops(void)
{
	return atomic_load(&listed_ops);
}

int plan_list(
        struct plan **out, enum plan_kind kind, const struct unit_map *map, const struct plan_policy *policy)
{
	struct builder b = {0};
	struct plan *p;
	int rc = policy_check(policy, kind);

	if (!rc)
		rc = model_check(map->model, objective_type(&policy->objective));
	if (rc)
		return rc;
	p = mem_alloc(1, sizeof(*p));
	if (!p)
		return ERR_NOMEM;
	p->kind = kind;
	p->map = map;
	p->policy = *policy;
	if (!policy->head_rows)
		p->policy.head_rows =
		        model_head_rows(map->model->config.V, device_facts_of(DEVICE_HOST)->piece);
	rc = builder_open(&b, p);
	if (!rc) {
		state_add(&b);
		plan_emit(&b);
		rc = plan_parts_check(p);
	}
	if (!rc && policy->discard)
		rc = plan_insert_discards(p);
	if (!rc)
		rc = plan_least(p);
	builder_close(&b);
	if (rc) {
		plan_free(p);
		return rc;
	}
	atomic_fetch_add(&listed_ops, p->op_count);
	*out = p;
	return 0;
}

int plan_build(
        struct plan **out, enum plan_kind kind, const struct unit_map *map, const struct plan_policy *policy)
{
	struct plan *p;
	int rc = plan_list(&p, kind, map, policy);

	if (rc)
		return rc;
	rc = plan_place(p);
	if (!rc)
		rc = plan_order(p);
	if (rc)
		plan_free(p);
	else
		*out = p;
	return rc;
}
