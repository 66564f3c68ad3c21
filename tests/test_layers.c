/* links: offload model_families model_blocks host_cpu device_meta */
/* also: usual */
/* Layers as data: a model of blocks that differ in sizes, in their stages and in their groups, with a kind of
 * stage that ferry lacks and a value that several layers share. Its gradients, its plans, and training with
 * and without offload. */
#include "tests/engine_rig.h"
#include "tests/model_rig.h"
#include "tests/odd_stage.h"

#include "host/pool.h"
#include "model/compare.h"
#include "model/config.h"

#include <math.h>

enum { TOKENS = 22, MICROS = 3, STEPS = 3 };

/* ---- the table ---- */

static void test_the_table(void **state)
{
	struct model *model = odd_model();
	int parts[ODD_LAYERS] = {0}, stages = 0;

	(void)state;
	for (int g = 0; g < model->group_count; g++) {
		const struct model_group *group = &model->groups[g];

		assert_int_equal(group->first_stage, stages);
		for (int s = stages; s < stages + group->count; s++) {
			assert_int_equal(model->stages[s].group, g);
			assert_int_equal(model->stages[s].layer, group->layer);
		}
		stages += group->count;
		if (group->layer >= 0)
			assert_int_equal(group->part, parts[group->layer]++);
	}
	assert_int_equal(stages, model->stage_count);
	assert_int_equal(stages, 2 + 3 + 1 + 3 + 1 + 3 + 2 + 3);
	for (int l = 0; l < ODD_LAYERS; l++)
		assert_int_equal(parts[l], l == 2 || l == 6 ? 2 : 1);
	assert_int_equal(model->tensors[model_tensor_of(model, ROLE_UP_W, 0)].shape[0], 96);
	assert_int_equal(model->tensors[model_tensor_of(model, ROLE_UP_W, 5)].shape[0], 16);
	assert_int_equal(model->tensors[model_tensor_of(model, ROLE_K_W, 3)].shape[0], 16);
	assert_int_equal(model_tensor_of(model, ROLE_K_W, 4), -1);
	assert_int_equal(model->values[0].reader_count, 2);
	assert_int_equal(model->stages[model->values[0].maker].layer, 1);
	model_close(model);
}

/* A stage reads no value before it is made, and both are stages that exist. */
static void test_values_have_an_order(void **state)
{
	static const struct stage_place places[][2] = {{{STAGE_ATTN, 4}, {STAGE_ATTN, 2}},
	        {{STAGE_ATTN, 2}, {STAGE_ATTN, 2}}, {{STAGE_ATTN, 5}, {STAGE_ATTN, 6}},
	        {{STAGE_ATTN, 1}, {STAGE_UP, 3}}};

	(void)state;
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		struct model *model = odd_model();
		struct model_config c = model->config;
		int value = config_value_add(&c, 8, places[i][0]);

		check_ok(config_value_read(&c, value, places[i][1]));
		assert_int_equal(model_rebuild(model, &c), ERR_INTERNAL);
		model->config.value = c.value; /* moved by the additions */
		model->config.value_reader = c.value_reader;
		model_close(model);
	}
}

/* A model without a head or without an embedding has tables and units, and no group of that. */
static void test_no_head_and_no_embedding(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct model *model = odd_model();
		struct model_config c = model->config;
		struct plan_policy policy = {.prefetch_units = 1,
		        .compute_dtype = DTYPE_F32,
		        .gradient_dtype = DTYPE_F32,
		        .micro_batches = 1,
		        .max_tokens = TOKENS,
		        .max_targets = TOKENS,
		        .rope_positions = TOKENS};
		struct unit_map *map;
		struct plan *plan;
		int groups = model->group_count;

		if (i)
			c.has[ROLE_EMBED] = 0;
		else
			c.has[ROLE_HEAD_W] = c.has[ROLE_FINAL_NORM_W] = 0;
		check_ok(model_rebuild(model, &c));
		assert_int_equal(model->group_count, groups - 1);
		for (int s = 0; s < model->stage_count; s++)
			assert_true(model->stages[s].kind != (i ? STAGE_EMBED : STAGE_HEAD));
		check_ok(unit_map_open(&map, model, WRAP_TRANSFORMER, 0, DTYPE_F32, 0, 1));
		assert_int_equal(map->unit_count, groups - 1);
		for (int u = 0; u < map->unit_count; u++)
			assert_string_not_equal(map->units[u].name, i ? "embedding" : "head");
		assert_int_equal(plan_build(&plan, PLAN_TRAIN, map, &policy), ERR_UNSUPPORTED);
		assert_non_null(strstr(err_text(), i ? "embedding" : "head"));
		unit_map_close(map);
		model_close(model);
	}
}

/* A resumed run has the same layers: a fact of one layer is compared too. */
static void test_compare(void **state)
{
	struct model *now = odd_model(), *then = odd_model();
	struct model_config *c = &then->config;
	struct str out = {0};

	(void)state;
	assert_int_equal(model_compare(&out, &now->config, c), 1);
	c->block[3].KV = 2;
	assert_int_equal(model_compare(&out, &now->config, c), 0);
	assert_string_equal(out.data, "num_key_value_heads 1, not 2 in layer 3");
	str_free(&out);
	c->block[3].KV = 1;
	c->block[3].mask = MASK_BIDIRECTIONAL;
	assert_int_equal(model_compare(&out, &now->config, c), 0);
	assert_string_equal(out.data, "the attention mask causal, not bidirectional in layer 3");
	str_free(&out);
	c->block[3].mask = MASK_CAUSAL;
	c->qkv_by_head = 1;
	assert_int_equal(model_compare(&out, &now->config, c), 0);
	assert_string_equal(out.data, "the order of query, key and value all of each, not by head");
	str_free(&out);
	c->qkv_by_head = 0;
	c->embed_scale = 1; /* what 0 means */
	assert_int_equal(model_compare(&out, &now->config, c), 1);
	c->embed_scale = 2;
	assert_int_equal(model_compare(&out, &now->config, c), 0);
	assert_string_equal(out.data, "embedding_multiplier 1, not 2");
	str_free(&out);
	c->embed_scale = 0;
	for (int act = 0; act < ACT_KIND_COUNT; act++) {
		c->act = (enum act_kind)act;
		assert_int_equal(model_compare(&out, &now->config, c), act == ACT_SILU);
		if (act == ACT_GELU_TANH)
			assert_string_equal(out.data, "hidden_act silu, not gelu_new");
		assert_int_not_equal(*config_act_name(c->act), 0);
		str_free(&out);
	}
	c->act = ACT_SILU;
	c->block[6].stage[1].begins_group = 0;
	assert_int_equal(model_compare(&out, &now->config, c), 0);
	assert_string_equal(out.data, "other stages in layer 6");
	str_free(&out);
	c->block[6].stage[1].begins_group = 1;
	c->value_reader[1].place.layer = 6;
	assert_int_equal(model_compare(&out, &now->config, c), 0);
	assert_string_equal(out.data, "other values that layers share");
	str_free(&out);
	model_close(now);
	model_close(then);
}

/* ---- gradients ---- */

static void set_weights(struct rig *r, int moved, const float *direction, double by)
{
	for (int t = 0; t < r->model->tensor_count; t++) {
		int64_t count = r->model->tensors[t].count;
		float *values = mem_alloc((size_t)count, sizeof(*values));

		for (int64_t i = 0; i < count; i++)
			values[i] = (float)(model_init_value(r->model, t, i, 3) +
			                    (t == moved ? by * (double)direction[i] : 0));
		rig_set_weight(r, t, values);
		mem_free(values);
	}
}

static void batch_fill(struct rig_batch *b)
{
	for (int d = 0; d < 2; d++) {
		int32_t ids[TOKENS / 2];

		for (int i = 0; i < TOKENS / 2; i++)
			ids[i] = (int32_t)rng_below(7, (uint64_t)d, (uint64_t)i, ODD_VOCAB);
		rig_batch_add(b, ids, ids, TOKENS / 2);
	}
}

static double loss_of(struct rig *r, const struct rig_batch *b, enum head_mode mode, enum rig_acts acts)
{
	float losses[TOKENS];
	double sum = 0;

	rig_run(r, losses, b, mode, acts, 1);
	for (int64_t i = 0; i < b->targets; i++)
		sum += (double)losses[i];
	return sum;
}

/* Along each tensor's own gradient the loss changes by that gradient's length: of every kind of stage,
 * through all layers, and through the value that two layers read. */
static void test_gradients(void **state)
{
	struct model *model = odd_model();
	struct rig_batch b = {0};
	struct rig r;
	int checked = 0;

	(void)state;
	batch_fill(&b);
	rig_open(&r, "host", model, DTYPE_F32, b.tokens, b.targets);
	set_weights(&r, -1, NULL, 0);
	loss_of(&r, &b, HEAD_TRAIN, RIG_RECOMPUTE);
	for (int t = 0; t < model->tensor_count; t++) {
		int64_t count = model->tensors[t].count;
		float *grad = mem_alloc((size_t)count, sizeof(*grad));
		double norm = 0, slope, step = 2e-3;

		rig_get_grad(&r, t, grad);
		for (int64_t i = 0; i < count; i++)
			norm += (double)grad[i] * (double)grad[i];
		norm = sqrt(norm);
		assert_true(norm > 1e-3);
		for (int64_t i = 0; i < count; i++)
			grad[i] = (float)((double)grad[i] / norm);
		set_weights(&r, t, grad, step);
		slope = loss_of(&r, &b, HEAD_LOSS, RIG_KEEP);
		set_weights(&r, t, grad, -step);
		slope = (slope - loss_of(&r, &b, HEAD_LOSS, RIG_KEEP)) / (2 * step);
		if (!(fabs(slope - norm) <= 0.01 * norm + 2e-3)) /* rounding */
			fail_msg("%s: gradient %.6g, slope %.6g", model->tensors[t].name, norm, slope);
		checked++;
		mem_free(grad);
	}
	assert_int_equal(checked, model->tensor_count);
	rig_check_guards(&r);
	rig_close(&r);
	rig_batch_free(&b);
	model_close(model);
}

/* ---- training ---- */

struct input {
	int32_t id[TOKENS], position[TOKENS], start[TOKENS], end[TOKENS], row[TOKENS], label[TOKENS];
	struct host_batch batch;
};

/* Full micro-batches with every token a target use all planned memory. */
static void rows_make(struct input *r, int step, int micro)
{
	r->batch = (struct host_batch){.tokens = TOKENS, .targets = TOKENS, .documents = 2, BATCH_ARRAYS(r)};
	for (int i = 0; i < TOKENS; i++) {
		r->id[i] = (int32_t)rng_below(9, (uint64_t)step, (uint64_t)(micro * TOKENS + i), ODD_VOCAB);
		r->position[i] = i % (TOKENS / 2);
		r->start[i] = i - i % (TOKENS / 2);
		r->end[i] = r->start[i] + TOKENS / 2;
		r->row[i] = i;
		r->label[i] = r->id[i] * 3 % ODD_VOCAB;
	}
}

struct outcome {
	double loss[STEPS], norm[STEPS];
	float *weights;
	struct device_stats before, stats; /* the last step */
	struct engine_memory planned;
};

static int is_trainable(const char *name, const char *other_name, void *arg)
{
	(void)other_name;
	return !arg || strstr(name, arg) != NULL;
}

/* Trains on the device. `only`: part of the names that train; NULL: all. */
static void train(struct outcome *out, const char *device, const struct plan_policy *policy,
        enum wrap_policy wrap, const char *only)
{
	struct model *model = odd_model();
	struct engine_options o = {.model = model,
	        .world_size = 1,
	        .wrap = wrap,
	        .min_num_params = 2000,
	        .policy = *policy,
	        .crossing = SLAB_PINNED,
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	        .check_plans = 1};
	struct input rows[MICROS];
	struct host_batch micro[MICROS];
	struct engine_result result;
	struct engine *e;
	int64_t count, at = 0;

	check_ok(model_set_trainable(model, &count, is_trainable, (void *)(uintptr_t)only));
	check_ok(adamw_isa_find(&o.isa, "auto"));
	check_ok(pool_open(&o.pool, 2));
	check_ok(device_open(&o.device, device, &(struct device_options){.pool = o.pool}));
	check_ok(engine_open(&e, &o));
	engine_get_memory(e, &out->planned);
	check_ok(engine_start(e));
	if (strcmp(device, "meta")) /* it has no bytes */
		weights_write(e, model);
	for (int step = 0; step < STEPS; step++) {
		device_get_stats(o.device, &out->before);
		for (int m = 0; m < MICROS; m++) {
			rows_make(&rows[m], step, m);
			micro[m] = rows[m].batch;
		}
		check_ok(engine_step(e, &result, micro, MICROS, MICROS * TOKENS, 1e-2, NULL));
		out->loss[step] = result.loss_sum;
		out->norm[step] = result.grad_norm;
	}
	device_get_stats(o.device, &out->stats);
	out->weights = mem_alloc((size_t)model->parameter_count, sizeof(*out->weights));
	check_ok(engine_flush(e));
	for (int t = 0; t < model->tensor_count && strcmp(device, "meta"); t++)
		for (int plane = PLANE_HI; plane <= PLANE_LO; plane++) {
			count = model->tensors[t].count;
			check_ok(engine_read(e, t, (enum plane)plane, 0, count,
			        (char *)(out->weights + at) + (plane == PLANE_LO ? 2 * count : 0)));
			at += plane == PLANE_LO ? count : 0;
		}
	engine_close(e);
	device_close(o.device);
	pool_close(o.pool);
	model_close(model);
}

static void equal(const struct outcome *a, const struct outcome *b, int64_t parameters, const char *what)
{
	for (int i = 0; i < STEPS; i++)
		if (a->loss[i] != b->loss[i] || a->norm[i] != b->norm[i])
			fail_msg("%s: step %d: loss %.17g, not %.17g; norm %.17g, not %.17g", what, i,
			        b->loss[i], a->loss[i], b->norm[i], a->norm[i]);
	if (memcmp(a->weights, b->weights, (size_t)parameters * sizeof(*a->weights)))
		fail_msg("%s: other weights", what);
}

static const struct plan_policy resident = {.activations = ACTIVATION_KEEP,
        .backward_prefetch = BACKWARD_PREFETCH_PRE,
        .forward_prefetch = 1,
        .prefetch_units = 2,
        .rope_positions = TOKENS,
        .micro_batches = MICROS};

static int64_t parameter_count(void)
{
	struct model *model = odd_model();
	int64_t count = model->parameter_count;

	model_close(model);
	return count;
}

/* Offload, activations and wrapping change no bit in either schedule, and all is planned to the byte. */
static void test_training(void **state)
{
	static const char *const parts[] = {NULL, "norm", "layers.4.", "layers.1."};
	int64_t parameters = parameter_count();

	(void)state;
	for (int n = 0; n < 2 * 4 * 2; n++) {
		const char *part = parts[n / 2 % 4];
		struct plan_policy policy = resident;
		struct outcome first;

		policy.compute_dtype = policy.gradient_dtype = n & 1 ? DTYPE_BF16 : DTYPE_F32;
		policy.order = n / 8 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
		train(&first, "host", &policy, WRAP_TRANSFORMER, part);
		assert_true(first.loss[STEPS - 1] < first.loss[0] || part);
		for (int way = 0; way < 9 + 2 * (ACTS_LEVELS - 1); way++) {
			struct plan_policy other = policy;
			struct outcome second;
			char what[100];

			snprintf(
			        what, sizeof(what), "case %d, train %s, way %d", n, part ? part : "all", way);
			other.offload_params = other.offload_gradients = other.offload_optimizer = way > 0;
			other.activations = way == 2 ? ACTIVATION_OFFLOAD : ACTIVATION_RECOMPUTE;
			other.discard = way == 3;
			other.kept_blocks = way == 4 ? 3 : way > 8 && way % 2 ? 9 : 0;
			other.hosted_blocks = way == 7 ? 2 : way >= 8 && way % 2 == 0 ? 9 : 0;
			other.kept_level = other.hosted_level =
			        (enum acts_level)(way > 8 ? (way - 7) / 2 : 0);
			other.resident_weights = other.resident_states = way == 6 ? 3 : 0;
			train(&second, "host", &other, way == 5 ? WRAP_SIZE : WRAP_TRANSFORMER, part);
			equal(&first, &second, parameters, what);
			if (second.stats.arena_touched_bytes != second.planned.device_bytes)
				fail_msg("%s: %lld bytes touched, %lld planned", what,
				        (long long)second.stats.arena_touched_bytes,
				        (long long)second.planned.device_bytes);
			mem_free(second.weights);
		}
		mem_free(first.weights);
	}
}

/* The meta device, on which runs are planned, takes the same bytes and copies as the host. */
static void test_meta_agrees(void **state)
{
	(void)state;
	for (int n = 0; n < 4; n++) {
		struct plan_policy policy = resident;
		struct outcome host, meta;

		policy.compute_dtype = policy.gradient_dtype = n & 1 ? DTYPE_BF16 : DTYPE_F32;
		policy.offload_params = policy.offload_gradients = policy.offload_optimizer = 1;
		policy.activations = n & 2 ? ACTIVATION_OFFLOAD : ACTIVATION_RECOMPUTE;
		train(&host, "host", &policy, WRAP_TRANSFORMER, NULL);
		train(&meta, "meta", &policy, WRAP_TRANSFORMER, NULL);
		assert_int_equal(host.planned.device_bytes, meta.planned.device_bytes);
		assert_int_equal(host.stats.arena_touched_bytes, meta.stats.arena_touched_bytes);
		assert_int_equal(host.stats.arena_touched_bytes, meta.planned.device_bytes);
		assert_int_equal(host.stats.copied_in_bytes - host.before.copied_in_bytes,
		        meta.stats.copied_in_bytes - meta.before.copied_in_bytes);
		assert_int_equal(host.stats.copied_out_bytes - host.before.copied_out_bytes,
		        meta.stats.copied_out_bytes - meta.before.copied_out_bytes);
		assert_true(host.stats.flops == meta.stats.flops);
		mem_free(host.weights);
		mem_free(meta.weights);
	}
}

/* Every policy gives a plan that proves itself, for one rank and for several. */
static void test_plans(void **state)
{
	struct model *model = odd_model();

	(void)state;
	for (int n = 0; n < 2 * 2 * 3 * 3 * 2; n++) {
		struct plan_policy policy = resident;
		struct unit_map *map;
		struct plan *plan;

		policy.offload_params = policy.offload_gradients = policy.offload_optimizer = n & 1;
		policy.compute_dtype = policy.gradient_dtype = n >> 1 & 1 ? DTYPE_BF16 : DTYPE_F32;
		policy.activations = (enum activation_policy)(n / 4 % 3);
		policy.backward_prefetch = (enum backward_prefetch)(n / 12 % 3);
		policy.order = n / 36 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
		policy.update_in_backward = n % 5 == 0;
		policy.max_tokens = policy.max_targets = TOKENS;
		check_ok(unit_map_open(
		        &map, model, (enum wrap_policy)(n % 3), 2000, policy.compute_dtype, 0, 1 + n % 4));
		check_ok(plan_build(&plan, PLAN_TRAIN, map, &policy));
		check_ok(plan_check(plan));
		plan_free(plan);
		unit_map_close(map);
	}
	model_close(model);
}

/* ---- the state of generation ---- */

/* Each stage has the state that its kind wants; a state that cannot go back holds the text where it is. */
static void test_state_of_generation(void **state)
{
	struct model *model = odd_model();
	struct cache_shape shape = {.rows = 40, .text_rows = 20, .pass_tokens = 8};
	struct plan_policy policy = resident;
	struct unit_map *map;
	struct plan *plan;
	int64_t bytes = 0;
	int with_state = 0;

	(void)state;
	policy.inference = policy.micro_batches = 1;
	policy.compute_dtype = policy.gradient_dtype = DTYPE_F32;
	policy.max_tokens = policy.max_targets = 8;
	policy.cache = shape;
	for (int s = 0; s < model->stage_count; s++) {
		int64_t own = model_state_bytes(model, s, DTYPE_F32, &shape);
		int layer = model->stages[s].layer, is_odd_layer = layer == 1 || layer == 2 || layer == 4;

		assert_true(model->stages[s].kind == STAGE_ATTN ? own > 0 : own == 0);
		if (own && is_odd_layer)
			assert_int_equal(own, 4 * ODD_STATE_BYTES);
		bytes += own;
		with_state += own > 0;
	}
	assert_int_equal(with_state, 6);
	check_ok(unit_map_open(&map, model, WRAP_TRANSFORMER, 0, DTYPE_F32, 0, 1));
	check_ok(plan_build(&plan, PLAN_LOGITS, map, &policy));
	check_ok(plan_check(plan));
	assert_int_equal(plan_bytes_of(plan, SPACE_DEVICE, BUFFER_CACHE), bytes);
	for (int i = 0; i < plan->op_count; i++) {
		int found = 0;

		for (int a = 0; a < plan->ops[i].arg_count; a++)
			found += plan->args[plan->ops[i].first_arg + a].role == ARG_CACHE;
		assert_int_equal(found, plan->ops[i].kind == PLAN_OP_FORWARD &&
		                                model->stages[plan->ops[i].stage].kind == STAGE_ATTN);
	}
	assert_int_equal(model_state_goes_back(model, &shape, 9, 9), 1);
	assert_int_equal(model_state_goes_back(model, &shape, 9, 8), 0);
	plan_free(plan);
	unit_map_close(map);
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_the_table),
	        cmocka_unit_test(test_values_have_an_order),
	        cmocka_unit_test(test_no_head_and_no_embedding),
	        cmocka_unit_test(test_compare),
	        cmocka_unit_test(test_gradients),
	        cmocka_unit_test(test_training),
	        cmocka_unit_test(test_meta_agrees),
	        cmocka_unit_test(test_plans),
	        cmocka_unit_test(test_state_of_generation),
	};

	device_register(&backend_host);
	device_register(&backend_meta);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
