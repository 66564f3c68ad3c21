/* links: offload model_families host_cpu device_meta */
/* also: tsan */
/* Divided experts on the engine: the same bits for any number of parts, policy and number of threads, in as
 * many bytes as planned. */
#include "tests/engine_rig.h"
#include "tests/model_text.h"

#include "host/pool.h"
#include "model/adapter.h"
#include "model/experts_parts.h"

#include <string.h>

enum { MICROS = 3, ROW_TOKENS = 13, TOKENS = 2 * ROW_TOKENS, STEPS = 3, EXPERTS = 32 };

#define SIZES                                                                                                \
	"\"vocab_size\":70,\"hidden_size\":64,\"num_hidden_layers\":3,\"num_attention_heads\":4,"            \
	"\"num_key_value_heads\":2,\"head_dim\":16,\"max_position_embeddings\":64,\"initializer_range\":0."  \
	"2,"

/* Layers of experts with dense ones between; a shared expert, and the loss that keeps experts evenly used;
 * biases and matrices [in, out]. */
static const char *const configs[] = {
        "{\"model_type\":\"qwen3_moe\"," SIZES "\"num_experts\":32,\"num_experts_per_tok\":4,"
        "\"moe_intermediate_size\":64,\"intermediate_size\":96,\"mlp_only_layers\":[1],"
        "\"norm_topk_prob\":true,\"tie_word_embeddings\":false}",
        "{\"model_type\":\"qwen2_moe\"," SIZES "\"num_experts\":32,\"num_experts_per_tok\":3,"
        "\"moe_intermediate_size\":64,\"shared_expert_intermediate_size\":80,\"intermediate_size\":96,"
        "\"output_router_logits\":true,\"router_aux_loss_coef\":0.5,"
        "\"tie_word_embeddings\":true}",
        "{\"model_type\":\"gpt_oss\"," SIZES "\"num_local_experts\":32,\"num_experts_per_tok\":4,"
        "\"intermediate_size\":64,\"sliding_window\":4,\"tie_word_embeddings\":false}",
};

/* What trains. */
enum trained { ALL, ADAPTERS, ATTENTION, EXPERTS_DOWN, TRAINED_COUNT };

static int is_trained(const char *name, const char *other, void *arg)
{
	enum trained what = *(const enum trained *)arg;

	(void)other;
	return what == ALL || (what == ADAPTERS && strstr(name, "lora_")) ||
	       (what == ATTENTION && strstr(name, "self_attn")) ||
	       (what == EXPERTS_DOWN && strstr(name, "experts.down_proj"));
}

static struct model *model_make(int config, enum trained what, int64_t part)
{
	struct model *model = model_from(configs[config]);
	int64_t count;

	if (what == ADAPTERS) {
		struct adapter_options options = {.rank = 4, .alpha = 8};
		json_t *targets;

		check_ok(adapter_targets(&targets, "q_proj,gate_proj,up_proj,down_proj"));
		options.targets = targets;
		check_ok(model_adapt(model, &options));
		json_decref(targets);
	}
	check_ok(model_set_trainable(model, &count, is_trained, &what));
	if (part) {
		int64_t step = model_experts_step(model);

		assert_true(step > 0 && part % step == 0);
		check_ok(model_experts_divide(model, part));
		assert_true(model->group_count > 5);
	}
	return model;
}

struct rows {
	int32_t id[TOKENS], position[TOKENS], start[TOKENS], end[TOKENS], row[TOKENS], label[TOKENS];
	struct host_batch batch;
};

static void rows_make(struct rows *r, int step, int micro)
{
	int n = micro == 1 ? TOKENS - 5 : TOKENS;

	r->batch = (struct host_batch){
	        n, 0, 2, r->id, r->position, r->start, r->end, r->row, {r->label}, 1.0 / MICROS, 0, NULL};
	for (int i = 0; i < n; i++) {
		int doc = i / ROW_TOKENS;

		r->id[i] = (int32_t)rng_below(9, (uint64_t)step, (uint64_t)(micro * TOKENS + i), 70);
		r->position[i] = i % ROW_TOKENS;
		r->start[i] = doc * ROW_TOKENS;
		r->end[i] = doc == 1 ? n : ROW_TOKENS;
	}
	for (int i = 0; i + 1 < n; i++)
		if (r->end[i] != i + 1 && i % 3) {
			r->row[r->batch.targets] = i;
			r->label[r->batch.targets++] = r->id[i + 1];
		}
}

struct setting {
	const char *device;
	int config, threads;
	enum trained what;
	int64_t part;
	enum wrap_policy wrap;
	struct plan_policy policy;
	struct device_options device_options;
	double max_grad_norm;
	int skip_nonfinite, has_empty; /* 1: the first micro-batch has no tokens */
};

static const struct setting plain = {
        .device = TEST_DEVICE,
        .threads = 2,
        .policy = {.offload_params = 1,
                .offload_gradients = 1,
                .offload_optimizer = 1,
                .activations = ACTIVATION_RECOMPUTE,
                .backward_prefetch = BACKWARD_PREFETCH_PRE,
                .forward_prefetch = 1,
                .prefetch_units = 2,
                .compute_dtype = DTYPE_F32,
                .gradient_dtype = DTYPE_F32,
                .micro_batches = MICROS},
        .max_grad_norm = 0.5,
        .skip_nonfinite = 1,
};

struct outcome {
	double loss[STEPS], norm[STEPS];
	uint64_t planes;
	struct device_stats stats;
	int64_t planned_bytes;
};

static uint64_t planes_hash(struct engine *e, const struct model *model, const struct plan_policy *policy)
{
	uint64_t hash = 14695981039346656037u;
	int last = policy->state == ADAMW_STATE_8BIT ? PLANE_V_SCALE : PLANE_V;

	for (int plane = PLANE_HI; plane <= last; plane++)
		for (int t = 0; t < model->tensor_count; t++) {
			int64_t count = model->tensors[t].count;
			size_t bytes = (size_t)plan_plane_bytes(policy, (enum plane)plane, count);
			unsigned char *data = calloc(1, bytes);

			if (model->tensors[t].trainable || plane <= PLANE_LO)
				check_ok(engine_read(e, t, (enum plane)plane, 0, count, data));
			for (size_t i = 0; i < bytes; i++)
				hash = (hash ^ data[i]) * 1099511628211u;
			free(data);
		}
	return hash;
}

static void steps_run(struct engine *e, struct outcome *out, int has_empty)
{
	static struct rows rows[MICROS];

	for (int step = 0; step < STEPS; step++) {
		struct host_batch micro[MICROS];
		struct engine_result result;
		int64_t targets = 0;
		int count = step == 2 ? MICROS - 1 : MICROS; /* the last step of an epoch is short */

		for (int m = 0; m < count; m++) {
			rows_make(&rows[m], step, m);
			if (has_empty && !m)
				rows[m].batch.tokens = rows[m].batch.targets = rows[m].batch.documents = 0;
			micro[m] = rows[m].batch;
			targets += micro[m].targets;
		}
		check_ok(engine_step(e, &result, micro, count, targets, 1e-2 / (1 + step), NULL));
		out->loss[step] = result.loss_sum / (double)targets;
		out->norm[step] = result.grad_norm;
	}
}

static void setting_run(const struct setting *s, struct outcome *out)
{
	struct model *model = model_make(s->config, s->what, s->part);
	struct device_options device_options = s->device_options;
	struct engine_options o = {
	        .model = model,
	        .wrap = s->wrap,
	        .min_num_params = 2000,
	        .world_size = 1,
	        .policy = s->policy,
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .eval = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = s->max_grad_norm,
	        .skip_nonfinite = s->skip_nonfinite,
	        .check_plans = 1,
	};
	struct engine_memory memory;
	struct engine *e;

	memset(out, 0, sizeof(*out));
	o.policy.rope_positions = ROW_TOKENS;
	check_ok(adamw_isa_find(&o.isa, "auto"));
	check_ok(pool_open(&o.pool, s->threads));
	device_options.pool = o.pool;
	check_ok(device_open(&o.device, s->device, &device_options));
	check_ok(engine_open(&e, &o));
	engine_get_memory(e, &memory);
	out->planned_bytes = memory.device_bytes;
	check_ok(engine_start(e));
	if (device_has_bytes(o.device))
		weights_write(e, model);
	steps_run(e, out, s->has_empty);
	if (device_has_bytes(o.device))
		out->planes = planes_hash(e, model, &o.policy);
	device_get_stats(o.device, &out->stats);
	engine_close(e);
	device_close(o.device);
	pool_close(o.pool);
	model_close(model);
}

static void assert_same(const struct outcome *got, const struct outcome *want, const char *what, int n)
{
	for (int i = 0; i < STEPS; i++)
		if (memcmp(&got->loss[i], &want->loss[i], sizeof(double)) ||
		        memcmp(&got->norm[i], &want->norm[i], sizeof(double)))
			fail_msg("%s %d: step %d has loss %.17g and norm %.17g, not %.17g and %.17g", what, n,
			        i, got->loss[i], got->norm[i], want->loss[i], want->norm[i]);
	if (got->planes != want->planes)
		fail_msg("%s %d: other weights or optimizer state", what, n);
}

/* ---- tests ---- */

/* Digits of n choose a policy that must not change a bit. */
static void policy_vary(struct setting *s, int n)
{
	s->policy.offload_params = n & 1;
	s->policy.offload_gradients = n >> 1 & 1;
	s->policy.offload_optimizer = n >> 2 & 1;
	s->policy.forward_prefetch = n >> 3 & 1;
	s->policy.prefetch_units = 1 + n % 4;
	s->policy.resident_weights = n % 11 % 6;
	s->policy.resident_states = n % 13 % 5;
	s->policy.kept_blocks = n % 7 % 6;
	s->policy.backward_prefetch = (enum backward_prefetch)(n % 3);
	s->policy.activations = (enum activation_policy)(n / 3 % 3);
	s->wrap = (enum wrap_policy)(n / 9 % 3);
	s->threads = 1 + n % 3;
}

/* Parts of trained experts begin at multiples of 16 experts of these sizes; frozen ones anywhere. */
static int64_t part_of(const struct setting *s, int n)
{
	static const int64_t frozen[] = {1, 5, 8, 16, 31};

	return s->what == ALL || s->what == EXPERTS_DOWN ? 16 : frozen[n % 5];
}

static void test_parts_change_no_bit(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3 * TRAINED_COUNT; kind++) {
		struct setting s = plain;
		struct outcome base, other;

		s.config = kind % 3;
		s.what = (enum trained)(kind / 3);
		if (s.what == ADAPTERS && s.config == 2)
			continue; /* its modules of experts have other names */
		s.policy.compute_dtype = s.policy.gradient_dtype = kind & 1 ? DTYPE_BF16 : DTYPE_F32;
		s.policy.state = kind % 2 ? ADAMW_STATE_8BIT : ADAMW_STATE_F32;
		s.has_empty = kind % 4 == 2;
		for (int order = 0; order < 2; order++) {
			s.policy.order = order ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
			policy_vary(&s, 7);
			s.part = 0;
			setting_run(&s, &base);
			assert_true(base.loss[0] > 3 && base.norm[0] > 0);
			for (int n = 1 + kind; n < 27 * 16; n += 97) {
				policy_vary(&s, n);
				s.part = part_of(&s, n);
				setting_run(&s, &other);
				assert_same(&other, &base, "policy", n + 1000 * kind);
			}
		}
	}
}

static void test_updates_inside_backward(void **state)
{
	struct setting s = plain;
	struct outcome late, inside;

	(void)state;
	s.max_grad_norm = 0;
	s.part = 16;
	for (int n = 0; n < 27 * 16; n += 71) {
		policy_vary(&s, n);
		s.skip_nonfinite = 1;
		s.policy.update_in_backward = 0;
		setting_run(&s, &late);
		s.skip_nonfinite = 0;
		s.policy.update_in_backward = 1;
		setting_run(&s, &inside);
		assert_same(&inside, &late, "policy", n);
	}
}

/* Delays on every stream and poison in every dead buffer: a wait that is missing would show. */
static void test_schedules_change_no_bit(void **state)
{
	struct outcome base, other;

	(void)state;
	for (int n = 0; n < 12; n++) {
		struct setting s = plain;

		s.config = n % 3;
		s.policy.order = n & 1 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
		setting_run(&s, &base);
		policy_vary(&s, 7 + 37 * n);
		s.part = 16;
		s.policy.discard = 1;
		s.device_options.poison = 1;
		s.device_options.stream_delay_seed = 1 + (uint64_t)n;
		s.device_options.check_races = 1;
		setting_run(&s, &other);
		assert_same(&other, &base, "schedule", n);
	}
}

/* On the meta device too. */
static void test_planned_bytes_are_used(void **state)
{
	(void)state;
	for (int n = 0; n < 27 * 16; n += 61) {
		struct setting s = plain;
		struct outcome host, meta;

		policy_vary(&s, n);
		s.config = n % 3;
		s.part = 16;
		setting_run(&s, &host);
		if (host.stats.arena_touched_bytes != host.planned_bytes)
			fail_msg("policy %d: planned %lld bytes, touched %lld", n,
			        (long long)host.planned_bytes, (long long)host.stats.arena_touched_bytes);
		s.device = "meta";
		setting_run(&s, &meta);
		assert_int_equal(meta.planned_bytes, host.planned_bytes);
		assert_int_equal(meta.stats.arena_touched_bytes, host.stats.arena_touched_bytes);
	}
}

/* Weights and gradients of a few parts are on the device, not those of a block. */
static void test_parts_save_memory(void **state)
{
	struct setting s = plain;
	struct outcome whole, parts;

	(void)state;
	s.policy.prefetch_units = 1;
	setting_run(&s, &whole);
	s.part = 16;
	setting_run(&s, &parts);
	assert_true(parts.planned_bytes < whole.planned_bytes * 3 / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_parts_change_no_bit),
	        cmocka_unit_test(test_updates_inside_backward),
	        cmocka_unit_test(test_schedules_change_no_bit),
	        cmocka_unit_test(test_planned_bytes_are_used),
	        cmocka_unit_test(test_parts_save_memory),
	};
	int rc = engine_rig_begin();

	device_register(&backend_meta);
	return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
