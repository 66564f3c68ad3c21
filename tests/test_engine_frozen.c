/* links: offload model_families host_cpu device_meta */
/* Frozen parts of a model: the plan has no gradient and no update of them. A step uses exactly the bytes
 * of the plan, in each place. */
#include "tests/check.h"
#include "tests/model_text.h"

#include "base/size.h"
#include "device/backend.h"
#include "host/pool.h"
#include "offload/engine.h"

enum { LAYERS = 4, TOKENS = 24, MICROS = 2 };

/* ---- what trains ---- */

static int all(const char *name)
{
	return name != NULL;
}

static int all_but_embedding(const char *name)
{
	return !strstr(name, "embed_tokens");
}

static int head(const char *name)
{
	return strstr(name, "lm_head") != NULL;
}

static int final_norm(const char *name)
{
	return !strcmp(name, "model.norm.weight");
}

static int every_second_layer(const char *name)
{
	return strstr(name, "layers.1.") || strstr(name, "layers.3.");
}

/* Embedding and the first two blocks are frozen: no backward there. */
static int back(const char *name)
{
	return !strstr(name, "embed_tokens") && !strstr(name, "layers.0.") && !strstr(name, "layers.1.");
}

static int some_of_each_layer(const char *name)
{
	return strstr(name, "q_proj") || strstr(name, "layernorm");
}

static const struct mix {
	const char *text;
	int (*trains)(const char *name);
} mixes[] = {
        {"all", all},
        {"all but the embedding", all_but_embedding},
        {"the head", head},
        {"the final norm", final_norm},
        {"every second layer", every_second_layer},
        {"the back", back},
        {"some of each layer", some_of_each_layer},
};

static int is_trainable(const char *name, const char *other_name, void *arg)
{
	const struct mix *mix = arg;

	return mix->trains(name) || (other_name && mix->trains(other_name));
}

static struct model *model_make(const struct mix *mix, int tied)
{
	char text[400];
	struct model *model;
	int64_t count;

	snprintf(text, sizeof(text),
	        "{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":%d,\"num_attention_heads\":4,\"max_position_embeddings\":64,"
	        "\"tie_word_embeddings\":%s}",
	        LAYERS, tied ? "true" : "false");
	model = model_from(text);
	check_ok(model_set_trainable(model, &count, is_trainable, (void *)(uintptr_t)mix));
	assert_true(count > 0);
	return model;
}

/* ---- a step ---- */

/* Rows of maximum length with every token a target: they use all planned memory. */
static struct host_batch batch_make(void)
{
	static int32_t id[TOKENS], position[TOKENS], start[TOKENS], end[TOKENS], row[TOKENS], label[TOKENS];

	for (int i = 0; i < TOKENS; i++) {
		id[i] = label[i] = i * 7 % 70;
		position[i] = row[i] = i;
		end[i] = TOKENS;
	}
	return (struct host_batch){.tokens = TOKENS,
	        .targets = TOKENS,
	        .documents = 1,
	        .id = id,
	        .position = position,
	        .doc_start = start,
	        .doc_end = end,
	        .target_row = row,
	        .own = {label}};
}

static void step_check(struct model *model, const struct plan_policy *policy, const char *what)
{
	struct engine_options o = {.model = model,
	        .world_size = 1,
	        .policy = *policy,
	        .crossing = SLAB_PINNED,
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	        .check_plans = 1};
	struct host_batch micro[MICROS] = {batch_make(), batch_make()};
	struct engine_memory planned;
	struct engine_result result;
	int64_t in_bytes, out_bytes;
	struct device_stats before, stats;
	struct engine *e;

	check_ok(adamw_isa_find(&o.isa, "auto"));
	check_ok(pool_open(&o.pool, 2));
	check_ok(device_open(&o.device, "host", &(struct device_options){.pool = o.pool}));
	check_ok(engine_open(&e, &o));
	engine_get_memory(e, &planned);
	/* plans count sums of squares apart: they are the norm's */
	planned.d2h_bytes += plan_bytes_of(engine_plan(e, PLAN_TRAIN), SPACE_STAGING, BUFFER_SUMS_OF_SQUARES);
	check_ok(engine_start(e));
	for (int step = 0; step < 3; step++) {
		device_get_stats(
		        o.device, &before); /* of the last step: with the updates of the one before */
		check_ok(engine_step(e, &result, micro, MICROS, MICROS * TOKENS, 1e-3, NULL));
	}
	device_get_stats(o.device, &stats);
	in_bytes = stats.copied_in_bytes - before.copied_in_bytes;
	out_bytes = stats.copied_out_bytes - before.copied_out_bytes;
	if (stats.arena_touched_bytes != planned.device_bytes ||
	        stats.slab_peak_bytes != planned.store_bytes + planned.staging_bytes ||
	        in_bytes != planned.h2d_bytes || out_bytes != planned.d2h_bytes)
		fail_msg("%s: took %lld bytes of the device, %lld of the host, copied %lld and %lld; planned "
		         "were "
		         "%lld, %lld + %lld, %lld and %lld",
		        what, (long long)stats.arena_touched_bytes, (long long)stats.slab_peak_bytes,
		        (long long)in_bytes, (long long)out_bytes, (long long)planned.device_bytes,
		        (long long)planned.store_bytes, (long long)planned.staging_bytes,
		        (long long)planned.h2d_bytes, (long long)planned.d2h_bytes);
	if (stats.slab_pinned_peak_bytes && stats.slab_pinned_peak_bytes != planned.pinned_bytes)
		fail_msg("%s: pinned %lld bytes, planned were %lld", what,
		        (long long)stats.slab_pinned_peak_bytes, (long long)planned.pinned_bytes);
	engine_close(e);
	device_close(o.device);
	pool_close(o.pool);
}

static void test_a_step_takes_what_is_planned(void **state)
{
	(void)state;
	for (size_t m = 0; m < sizeof(mixes) / sizeof(*mixes); m++)
		for (int n = 0; n < 16; n++) {
			int off = n & 1, tied = n >> 3 & 1;
			enum dtype dtype = n & 2 ? DTYPE_BF16 : DTYPE_F32;
			const struct mix *mix = &mixes[m];
			struct plan_policy policy = {.offload_params = !off,
			        .offload_gradients = !off,
			        .offload_optimizer = !off,
			        .activations = n & 4 ? ACTIVATION_OFFLOAD : ACTIVATION_RECOMPUTE,
			        .prefetch_units = 2,
			        .forward_prefetch = 1,
			        .compute_dtype = dtype,
			        .gradient_dtype = dtype,
			        .rope_positions = TOKENS,
			        .micro_batches = MICROS};
			char what[200];
			struct model *model;

			snprintf(what, sizeof(what), "%s%s, offload %s, %s", mix->text, tied ? ", tied" : "",
			        off ? "off" : "on", dtype_name(dtype));
			if (tied && mix->trains == head) /* is the embedding */
				continue;
			model = model_make(mix, tied);
			step_check(model, &policy, what);
			model_close(model);
		}
}

/* ---- the plan ---- */

static int is_of_gradients(enum plan_op_kind kind)
{
	switch (kind) {
	case PLAN_OP_ZERO:
	case PLAN_OP_NARROW:
	case PLAN_OP_SCATTER:
	case PLAN_OP_REDUCE:
	case PLAN_OP_ROUND:
	case PLAN_OP_CAST:
	case PLAN_OP_SUMSQ:
	case PLAN_OP_RETURN:
	case PLAN_OP_ACCUMULATE:
	case PLAN_OP_FINISH:
	case PLAN_OP_NORM:
	case PLAN_OP_UPDATE:
	case PLAN_OP_UPDATE_DEVICE:
		return 1;
	default:
		return 0;
	}
}

/* The first stage that reads what trains: gradients go back as far as that. */
static int first_stage_find(const struct model *model)
{
	for (int s = 0; s < model->stage_count; s++)
		for (int i = 0; i < model->stages[s].tensor_count; i++)
			if (model->tensors[model->stages[s].tensor[i]].trainable)
				return s;
	return model->stage_count;
}

static void unit_check(const struct plan *p, int unit, const char *verb, const char *what)
{
	if (unit >= 0 && !p->map->units[unit].trainable)
		fail_msg("%s: %s of %s, which is frozen", what, verb, p->map->units[unit].name);
}

static void plan_walk(const struct plan *p, const char *what)
{
	int first = first_stage_find(p->map->model), updates = 0, backwards = 0, trained = 0, heads = 0;

	for (int i = 0; i < p->op_count; i++) {
		const struct plan_op *op = &p->ops[i];

		if (is_of_gradients(op->kind))
			unit_check(p, op->unit, plan_op_name(op->kind), what);
		if ((op->kind == PLAN_OP_BACKWARD || op->kind == PLAN_OP_RECOMPUTE) && op->stage < first)
			fail_msg("%s: %s of stage %d, and nothing trains before stage %d", what,
			        plan_op_name(op->kind), op->stage, first);
		backwards += op->kind == PLAN_OP_BACKWARD;
		heads += op->kind == PLAN_OP_HEAD;
		updates += op->kind == PLAN_OP_UPDATE || op->kind == PLAN_OP_UPDATE_DEVICE;
	}
	for (int i = 0; i < p->buffer_count; i++)
		if (p->buffers[i].kind == BUFFER_GRADIENTS || p->buffers[i].kind == BUFFER_PLANE_GRADIENT)
			unit_check(p, p->buffers[i].unit, plan_buffer_name(p->buffers[i].kind), what);
	for (int u = 0; u < p->map->unit_count; u++)
		trained += p->map->units[u].trainable;
	/* and what trains is there */
	assert_true(heads == MICROS && updates >= trained);
	assert_int_equal(backwards, MICROS * max_i64(0, p->map->model->stage_count - 1 - first));
}

static void plans_walk(struct model *model, const char *what)
{
	static const enum wrap_policy wraps[] = {WRAP_TRANSFORMER, WRAP_SIZE, WRAP_NONE};

	for (int n = 0; n < 96; n++) {
		struct plan_policy policy = {.offload_params = n & 1,
		        .offload_gradients = n & 1,
		        .offload_optimizer = n & 1,
		        .activations = n & 2 ? ACTIVATION_OFFLOAD : ACTIVATION_RECOMPUTE,
		        .order = n & 4 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR,
		        .update_in_backward = !(n & 4) && n & 8,
		        .prefetch_units = 2,
		        .compute_dtype = DTYPE_BF16,
		        .gradient_dtype = DTYPE_BF16,
		        .reduce_dtype = DTYPE_BF16,
		        .rope_positions = TOKENS,
		        .max_tokens = TOKENS,
		        .max_targets = TOKENS,
		        .micro_batches = MICROS};
		struct unit_map *map;
		struct plan *p;
		char text[300];

		snprintf(text, sizeof(text), "%s, case %d", what, n);
		check_ok(unit_map_open(
		        &map, model, wraps[n / 32], 3000, DTYPE_F32, n >> 4 & 1, 1 + (n >> 4 & 1)));
		check_ok(plan_build(&p, PLAN_TRAIN, map, &policy));
		plan_walk(p, text);
		plan_free(p);
		unit_map_close(map);
	}
}

static void test_what_is_frozen_has_no_gradient(void **state)
{
	(void)state;
	for (size_t m = 0; m < sizeof(mixes) / sizeof(*mixes); m++)
		for (int tied = 0; tied < 2; tied++) {
			struct model *model = model_make(&mixes[m], tied);

			plans_walk(model, mixes[m].text);
			model_close(model);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_what_is_frozen_has_no_gradient),
	        cmocka_unit_test(test_a_step_takes_what_is_planned),
	};

	device_register(&backend_host);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
