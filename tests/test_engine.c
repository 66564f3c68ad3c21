/* links: offload model_families host_cpu device_meta */
/* also: tsan cuda */
/* The engine on the host device: the same numbers for any policy, number of threads and timing. */
#include "tests/engine_steps.h"
#include "tests/model_text.h"
#include "tests/sparing.h"

#include "base/mem.h"

#include <limits.h>
#include <math.h>

/* Compiled with FERRY_TEST_CUDA, all of it runs on the GPU; what only the host device knows (delays, poison)
 * it leaves out. There, `off` updates with the GPU's AdamW and `on` with the host's: same bits. */

static struct model *model_make(int layers, int tied)
{
	char text[512];

	snprintf(text, sizeof(text),
	        "{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":%d,"
	        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":64,\"rms_"
	        "norm_eps\":1e-5,"
	        "\"tie_word_embeddings\":%s,\"initializer_range\":0.2}",
	        layers, tied ? "true" : "false");
	return model_from(text);
}

static struct model *setting_model(const struct setting *s)
{
	return model_make(s->layers, s->tied);
}

/* ---- tests ---- */

/* The formats of optimizer state by turns. */
static enum adamw_state state_of(int n)
{
	static const enum adamw_state states[] = {ADAMW_STATE_F32, ADAMW_STATE_8BIT, ADAMW_STATE_BF16};

	return states[n % 3];
}

/* 1: leave this one of eight kinds out, where cases are spared. 0, 5 and 7 remain: each bit both ways, each
 * state. */
static int kind_is_spared(int kind)
{
	return sparing(10) >= 10 && kind != 0 && kind != 5 && kind != 7;
}

static void test_policies_change_no_bit(void **state)
{
	(void)state;
	for (int kind = 0; kind < 8; kind++) {
		struct setting s = plain;
		struct outcome base, other;

		if (kind_is_spared(kind))
			continue;
		s.tied = kind & 1;
		s.policy.compute_dtype = s.policy.gradient_dtype = kind & 2 ? DTYPE_BF16 : DTYPE_F32;
		s.policy.order = kind & 4 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
		s.policy.state = state_of(kind);
		s.policy.head_rows = kind % 4 * 4; /* several chunks, the last one smaller */
		policy_vary(&s, 0);
		setting_run(&s, &base);
		assert_true(base.loss[0] > 3 && base.norm[0] > 0);
		for (int n = 1 + kind; n < 64 * 27; n += 131 * sparing(10)) {
			policy_vary(&s, n);
			s.threads = 1 + n % 3;
			setting_run(&s, &other);
			assert_same(&other, &base, "policy", n);
		}
	}
}

/* A micro-batch without tokens in front of others is as if it were not there, though it is the first. */
static void test_empty_micro_batch(void **state)
{
	(void)state;
	for (int kind = 0; kind < 8; kind++) {
		struct setting s = plain;
		struct outcome alone, after;

		if (kind_is_spared(kind))
			continue;
		s.tied = kind & 1;
		s.policy.order = kind & 2 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
		s.wrap = kind & 4 ? WRAP_NONE : WRAP_TRANSFORMER;
		s.empty_first = -1;
		setting_run(&s, &alone);
		s.empty_first = 1;
		setting_run(&s, &after);
		assert_same(&after, &alone, "empty micro-batch", kind);
	}
}

static void test_updates_inside_backward_are_the_same(void **state)
{
	struct setting s = plain;
	struct outcome late, inside;

	(void)state;
	s.max_grad_norm = 0;
	for (int n = 0; n < 64 * 9; n += 37 * sparing(10)) {
		policy_vary(&s, n);
		s.policy.order = n % 2 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
		s.policy.state = state_of(n);
		s.skip_nonfinite = 1;
		s.policy.update_in_backward = 0;
		setting_run(&s, &late);
		s.skip_nonfinite = 0;
		s.policy.update_in_backward = 1;
		setting_run(&s, &inside);
		assert_same(&inside, &late, "policy", n);
	}
}

static void test_schedules_agree_to_rounding(void **state)
{
	struct setting s = plain;
	struct outcome layer, micro;

	(void)state;
	setting_run(&s, &layer);
	s.policy.order = ORDER_MICRO_BATCH_MAJOR;
	setting_run(&s, &micro);
	for (int i = 0; i < STEPS; i++)
		if (!(fabs(layer.loss[i] - micro.loss[i]) <= 5e-6 * layer.loss[i]))
			fail_msg("step %d: %.9g and %.9g", i, layer.loss[i], micro.loss[i]);
}

/* Random delays on every stream and poison in every dead buffer: a wait that is missing would show. */
static void test_random_schedules_change_no_bit(void **state)
{
	const char *wanted = getenv("FERRY_SCHEDULES");
	int count = wanted ? atoi(wanted) : 50 / sparing(5);
	struct outcome base[4], other;

	(void)state;
	for (int n = -4; n < count; n++) {
		struct setting s = plain;
		int kind = n & 3;

		s.tied = kind & 1;
		s.policy.order = kind & 2 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
		s.policy.state = state_of(kind);
		if (n < 0) {
			setting_run(&s, &base[kind]);
			continue;
		}
		policy_vary(&s, 7 + 64 * (n % 27) + 8 * (n % 5));
		s.policy.discard = 1;
		s.device_options.poison = 1;
		s.device_options.stream_delay_seed = 1 + (uint64_t)n;
		s.device_options.check_races = 1;
		setting_run(&s, &other);
		assert_same(&other, &base[kind], "schedule", n);
	}
}

/* On the meta device too. One that remembers what passes cost counts as one that prices each op. */
static void test_the_arena_is_used_to_its_end(void **state)
{
	(void)state;
	for (int n = 0; n < 64 * 27; n += 61 * sparing(10)) {
		struct setting s = plain;
		struct outcome host, meta, again;

		s.tied = n & 1;
		s.policy.compute_dtype = s.policy.gradient_dtype = n & 2 ? DTYPE_BF16 : DTYPE_F32;
		s.policy.state = state_of(n);
		s.policy.head_rows = n % 3 * 4;
		policy_vary(&s, n);
		setting_run(&s, &host);
		if (host.touched_bytes != host.planned_bytes)
			fail_msg("policy %d: planned %lld bytes, touched %lld", n,
			        (long long)host.planned_bytes, (long long)host.touched_bytes);
		s.device = "meta";
		setting_run(&s, &meta);
		assert_int_equal(meta.planned_bytes, host.planned_bytes);
		assert_int_equal(meta.touched_bytes, host.touched_bytes);
		s.device_options.remembers = 1;
		setting_run(&s, &again);
		assert_true(meta.stats.now_ns > 0);
		assert_memory_equal(&again.stats, &meta.stats, sizeof(meta.stats));
	}
}

/* The head in larger chunks: almost the same sums, and the planned memory is used. */
static void test_rows_of_the_head(void **state)
{
	struct setting s = plain;
	struct outcome few, all;

	(void)state;
	s.wrap = WRAP_NONE;
	s.policy.head_rows = 3;
	setting_run(&s, &few);
	s.policy.head_rows = 4096;
	setting_run(&s, &all);
	assert_int_equal(few.touched_bytes, few.planned_bytes);
	assert_int_equal(all.touched_bytes, all.planned_bytes);
	assert_true(few.planes != all.planes); /* they are sums of other parts */
	for (int i = 0; i < STEPS; i++) {
		assert_true(fabs(few.loss[i] - all.loss[i]) <= 1e-4 * all.loss[i]);
		assert_true(fabs(few.norm[i] - all.norm[i]) <= 1e-4 * all.norm[i]);
	}
}

/* The same bits for any use of a budget, from nothing to everything on the device. The arena is used to
 * its end. */
static void test_whatever_stays_gives_the_same_bits(void **state)
{
	int mixed_count = 0;

	(void)state;
	for (int n = 0; n < 64 * 27; n += 391 * sparing(5)) {
		struct setting s = plain;
		struct outcome base, off, other;

		s.layers = 5;
		s.tied = n & 1;
		s.policy.compute_dtype = s.policy.gradient_dtype = n & 2 ? DTYPE_BF16 : DTYPE_F32;
		s.policy.order = n & 4 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
		s.policy.state = state_of(n);
		policy_vary(&s, n);
		s.policy.offload_params = s.policy.offload_gradients = s.policy.offload_optimizer = 1;
		if (n % 5 == 2) {
			s.max_grad_norm = 0;
			s.skip_nonfinite = 0;
			s.policy.update_in_backward = 1;
		}
		s.policy.resident_weights = s.policy.resident_states = s.policy.kept_blocks =
		        s.policy.hosted_blocks = 0;
		setting_run(&s, &base);
		assert_int_equal(base.memory.resident_states + base.memory.resident_weights, 0);
		s.policy.resident_states = INT_MAX;
		setting_run(&s, &off);
		assert_same(&off, &base, "all resident", n);
		assert_int_equal(off.memory.store_bytes, 0);
		assert_int_equal(off.memory.resident_weights, 0);
		for (int step = 0; step < 7; step++) {
			uint64_t key = (uint64_t)(n * 7 + step);
			int others; /* blocks that do not keep their activations */

			s.policy.resident_states = (int)rng_below(3, 0, key, 7);
			s.policy.resident_weights = (int)rng_below(3, 1, key, 4);
			s.policy.kept_blocks = (int)rng_below(3, 2, key, 6);
			s.policy.hosted_blocks = (int)rng_below(3, 6, key, 4);
			s.policy.kept_level = (enum acts_level)rng_below(3, 7, key, ACTS_LEVELS);
			s.policy.hosted_level = (enum acts_level)rng_below(3, 8, key, ACTS_LEVELS);
			s.policy.activations = (enum activation_policy)rng_below(3, 3, key, 3);
			s.policy.prefetch_units = 1 + (int)rng_below(3, 4, key, 3);
			s.policy.forward_prefetch = rng_below(3, 5, key, 4) > 0;
			if (!s.policy.forward_prefetch)
				s.policy.backward_prefetch = BACKWARD_PREFETCH_NONE;
			s.policy.discard = step & 1;
			s.device_options.poison = step & 1;
			s.device_options.check_races = step & 1;
			s.device_options.stream_delay_seed = (uint64_t)(step & 1) * (uint64_t)(n + step);
			setting_run(&s, &other);
			assert_same(&other, &base, "what stays", n);
			assert_int_equal(other.touched_bytes, other.planned_bytes);
			assert_true(!s.policy.resident_states || other.memory.resident_states);
			others =
			        s.policy.activations == ACTIVATION_KEEP ? 0 : s.layers - s.policy.kept_blocks;
			others = others < 0 ? 0 : others;
			assert_int_equal(other.memory.hosted_blocks,
			        s.policy.hosted_blocks < others ? s.policy.hosted_blocks : others);
			mixed_count += other.memory.resident_weights && other.memory.resident_states;
		}
	}
	assert_true(mixed_count > 0);
}

/* Each level leaves out more of what is computed again, the last one all products, on the device or by way of
 * the host. On the meta device, because it counts. */
static void test_levels_leave_out_work(void **state)
{
	static const enum acts_level levels[] = {ACTS_MIXED, ACTS_PROJECTED, ACTS_PRODUCTS, ACTS_ALL};

	(void)state;
	for (int hosted = 0; hosted < 2; hosted++) {
		struct setting s = plain;
		struct outcome before, now;

		s.device = "meta";
		s.policy.activations = ACTIVATION_RECOMPUTE;
		setting_run(&s, &before);
		for (int i = 0; i < 4; i++) {
			s.policy.kept_blocks = hosted ? 0 : s.layers;
			s.policy.hosted_blocks = hosted ? s.layers : 0;
			s.policy.kept_level = s.policy.hosted_level = levels[i];
			setting_run(&s, &now);
			assert_int_equal(now.memory.hosted_blocks, s.policy.hosted_blocks);
			if (levels[i] == ACTS_ALL)
				assert_true(now.stats.flops == before.stats.flops);
			else
				assert_true(now.stats.flops < before.stats.flops);
			assert_true(hosted ? now.memory.d2h_bytes > before.memory.d2h_bytes
			                   : now.planned_bytes > before.planned_bytes);
			before = now;
		}
	}
}

/* A budget is only not to be passed: one byte less than the plan takes is refused. */
static void test_a_budget_is_not_passed(void **state)
{
	struct model *model = model_make(3, 0);
	struct engine_options o = {.model = model,
	        .world_size = 1,
	        .policy = plain.policy,
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS}};
	struct engine_memory memory, within;
	struct engine *e;

	(void)state;
	o.policy.rope_positions = ROW_TOKENS;
	check_ok(engine_open(&e, &o));
	engine_get_memory(e, &memory);
	engine_close(e);
	o.device_budget_bytes = memory.device_bytes - 1;
	assert_int_equal(engine_open(&e, &o), ERR_FIT);
	o.policy.resident_states = 2;
	o.device_budget_bytes = INT64_MAX;
	check_ok(engine_open(&e, &o));
	engine_get_memory(e, &within);
	assert_int_equal(within.resident_states, 2);
	assert_int_equal(within.spared_bytes,
	        memory.h2d_bytes + memory.d2h_bytes - within.h2d_bytes - within.d2h_bytes);
	assert_true(within.spared_bytes > 0);
	engine_close(e);
	model_close(model);
}

/* If copies are as slow as the arithmetic, running both at once takes less time than one after the other.
 * Uses the meta device, because its clock is exact. */
static void test_copies_hide_under_compute(void **state)
{
	struct setting s = plain;
	struct outcome out;
	double sum = 0;

	(void)state;
	s.device = "meta";
	s.layers = 8;
	s.policy.compute_dtype = s.policy.gradient_dtype = DTYPE_BF16;
	s.device_options.speed = (struct device_speed){.matmul_flops_bf16 = 1e9,
	        .matmul_flops_f32 = 1e9,
	        .memory_bytes = 1e12,
	        .h2d_bytes = 1e7,
	        .d2h_bytes = 1e7,
	        .host_memory_bytes = 1e9,
	        .comm_bytes = 1e12};
	setting_run(&s, &out);
	/* gradients return while the next ones are computed */
	assert_true((double)out.stats.wait_ns[QUEUE_D2H] < 0.01 * (double)out.stats.busy_ns[QUEUE_D2H]);
	for (int q = 0; q < QUEUE_COUNT; q++)
		sum += (double)out.stats.busy_ns[q];
	if (!((double)out.stats.now_ns < 0.8 * sum))
		fail_msg("%.0f ns; one after the other %.0f", (double)out.stats.now_ns, sum);
}

/* A step that is not finite is skipped, says what is not, and changes no plane. With an infinite weight that
 * is the loss. Where the last norm's weight is 0, large weights of the head change no logit, but the norm's
 * gradient. */
static void test_a_step_that_is_not_finite_changes_nothing(void **state)
{
	struct model *model = model_make(2, 0);
	struct engine_options o = {
	        .model = model,
	        .world_size = 1,
	        .policy = plain.policy,
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	};
	const uint16_t infinite[] = {0x7f80}, large[] = {0x7f60}, zero[] = {0};
	int down = model_tensor_of(model, ROLE_DOWN_W, 1), head = model_tensor_of(model, ROLE_HEAD_W, -1);
	int norm = model_tensor_of(model, ROLE_FINAL_NORM_W, -1);
	static struct rows rows;
	struct engine_result result;
	struct engine *e;
	uint64_t before;

	(void)state;
	o.policy.rope_positions = ROW_TOKENS;
	check_ok(pool_open(&o.pool, 2));
	check_ok(device_open(&o.device, TEST_DEVICE, &(struct device_options){.pool = o.pool}));
	check_ok(engine_open(&e, &o));
	check_ok(engine_start(e));
	weights_write(e, model);
	rows_make(&rows, 0, 0);
	for (int i = 0; i < 2; i++) {
		if (!i)
			check_ok(engine_write(e, down, PLANE_HI, 3, 1, infinite));
		before = planes_hash(e, model, &o.policy);
		check_ok(engine_step(e, &result, &rows.batch, 1, 1, 1e-2, NULL));
		assert_int_equal(result.skipped, 1);
		assert_string_equal(result.nonfinite, i ? "gradients of 1 of 21 tensors are not finite "
		                                          "(nearest to the loss: model.norm.weight)"
		                                        : "the loss is not finite");
		assert_int_equal(engine_update_count(e), 0);
		assert_true(planes_hash(e, model, &o.policy) == before);
		check_ok(engine_write(e, down, PLANE_HI, 3, 1, zero));
		check_ok(engine_write(e, norm, PLANE_HI, 0, 1, zero));
		for (int64_t t = 0; t < rows.batch.targets; t++)
			check_ok(engine_write(e, head, PLANE_HI, rows.label[t] * (int64_t)32, 1, large));
	}
	engine_close(e);
	device_close(o.device);
	pool_close(o.pool);
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_policies_change_no_bit),
	        cmocka_unit_test(test_empty_micro_batch),
	        cmocka_unit_test(test_updates_inside_backward_are_the_same),
	        cmocka_unit_test(test_schedules_agree_to_rounding),
	        cmocka_unit_test(test_random_schedules_change_no_bit),
	        cmocka_unit_test(test_the_arena_is_used_to_its_end),
	        cmocka_unit_test(test_rows_of_the_head),
	        cmocka_unit_test(test_whatever_stays_gives_the_same_bits),
	        cmocka_unit_test(test_levels_leave_out_work),
	        cmocka_unit_test(test_a_budget_is_not_passed),
	        cmocka_unit_test(test_copies_hide_under_compute),
	        cmocka_unit_test(test_a_step_that_is_not_finite_changes_nothing),
	};

	device_register(&backend_meta);
	if (engine_rig_begin())
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
