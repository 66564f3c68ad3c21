/* links: placement model_families host_cpu device_meta */
/* What candidates take at least, from a few simulated plans: never more than a plan of the candidate takes,
 * and close to it. */
#include "tests/check.h"
#include "tests/model_text.h"

#include "base/mem.h"
#include "base/work.h"
#include "device/backend.h"
#include "model/experts_parts.h"
#include "placement/choice_bound.h"
#include "placement/simulate.h"

#include <math.h>

static struct engine_options options_of(const struct model *model, int micro_batches)
{
	return (struct engine_options){
	        .model = model,
	        .world_size = 1,
	        .policy =
	                {
	                        .offload_params = 1,
	                        .offload_gradients = 1,
	                        .offload_optimizer = 1,
	                        .activations = ACTIVATION_RECOMPUTE,
	                        .forward_prefetch = 1,
	                        .prefetch_units = 1,
	                        .compute_dtype = DTYPE_BF16,
	                        .gradient_dtype = DTYPE_BF16,
	                        .micro_batches = micro_batches,
	                        .rope_positions = 1024,
	                },
	        .train = {.max_tokens = 1024, .max_targets = 1024},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	};
}

/* A chooser with a way to stream and its bounds. */
static void rig_open(struct chooser *s, struct choice *choice, const struct engine_options *o,
        const struct choice_limits *limits, int spills)
{
	struct device_options meta = {.remembers = 1};

	*s = (struct chooser){.choice = choice, .base = o, .limits = limits};
	check_ok(device_open(&s->meta, "meta", &meta));
	check_ok(engine_units_open(&s->map, o));
	s->units = s->states = s->map->unit_count;
	s->blocks = o->model->block_group_count;
	for (int i = 0; i <= spills; i++) {
		s->ways[i] = (struct way){.ahead = 2, .spills = i};
		s->way_count++;
		check_ok(choice_bound_open(&s->ways[i].bound, s, &s->ways[i], i ? s->ways[0].bound : NULL));
	}
}

static void rig_close(struct chooser *s)
{
	for (int i = s->way_count - 1; i >= 0; i--)
		choice_bound_close(s->ways[i].bound);
	chooser_close(s);
}

/* One candidate: its bound is the plan's own or a little lower. It may fit what it takes, but not two thirds
 * of that. */
static void candidate_check(struct chooser *s, struct choice_candidate k)
{
	const struct choice_bound *bound = s->ways[k.spills].bound;
	int kept, weights;

	check_ok(candidate_judge(s, &k));
	assert_true(k.step_ms > 0);
	if (!(choice_bound_ms(bound, &k) <= k.bound_ms * (1 + 1e-9) &&
	            choice_bound_ms(bound, &k) >= 0.9 * k.bound_ms))
		fail_msg("states %d, kept %d, weights %d: %.6f beside %.6f", k.states, k.kept, k.weights,
		        choice_bound_ms(bound, &k), k.bound_ms);
	kept = choice_bound_kept(bound, &k, s->blocks, k.device_bytes);
	weights = choice_bound_weights(bound, &k, s->units - k.states, k.device_bytes);
	if (kept < k.kept || weights < k.weights)
		fail_msg("states %d, kept %d, weights %d: at most %d and %d said to fit", k.states, k.kept,
		        k.weights, kept, weights);
	assert_true(choice_bound_least(bound, &k, k.device_bytes).step_ms <= k.step_ms);
	if (choice_bound_least(bound, &k, k.device_bytes).host_bytes > k.host_bytes)
		fail_msg("states %d, kept %d, weights %d: %lld bytes of the host, not %lld", k.states, k.kept,
		        k.weights, (long long)k.host_bytes,
		        (long long)choice_bound_least(bound, &k, k.device_bytes).host_bytes);
	if (!model_experts_part(s->base->model) && k.kept &&
	        choice_bound_kept(bound, &k, k.kept, k.device_bytes * 2 / 3) == k.kept)
		fail_msg("states %d, kept %d of %d: all fit two thirds", k.states, k.kept, s->blocks);
}

static void model_check(const char *text, enum visit_order order, int micro_batches, int lora, int parts)
{
	struct model *model = model_from(text);
	struct engine_options o = options_of(model, micro_batches);
	struct choice_limits none = {0};
	struct choice choice = {0};
	struct chooser s;

	if (parts)
		check_ok(model_experts_divide(model, model_experts_step(model)));
	assert_true(!parts || model->group_count > model->block_group_count + 2);
	o.policy.order = order;
	for (int t = 0; t < model->tensor_count && lora; t++)
		model->tensors[t].trainable = t % 9 == 3;
	rig_open(&s, &choice, &o, &none, order == ORDER_LAYER_MAJOR);
	for (int spills = 0; spills < s.way_count; spills++)
		for (int states = 0; states <= s.states; states += 3)
			for (int kept = 0; kept <= s.blocks - spills; kept += 2)
				for (int weights = 0; weights <= s.units - states; weights += 2)
					candidate_check(&s, (struct choice_candidate){.ahead = 2,
					                            .spills = spills,
					                            .states = states,
					                            .kept = kept,
					                            .weights = weights});
	rig_close(&s);
	model_close(model);
}

#define SIZES                                                                                                \
	"\"vocab_size\":4096,\"hidden_size\":512,\"intermediate_size\":1024,\"num_hidden_layers\":6,"        \
	"\"num_attention_heads\":8,\"num_key_value_heads\":2,\"max_position_embeddings\":1024,"              \
	"\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false"

static const char llama[] = "{\"model_type\":\"llama\"," SIZES "}";
static const char mixture[] = "{\"model_type\":\"qwen3_moe\"," SIZES ",\"head_dim\":64,"
                              "\"moe_intermediate_size\":256,\"num_experts\":8,\"num_experts_per_tok\":2,"
                              "\"decoder_sparse_step\":2}";

static void test_candidates(void **state)
{
	(void)state;
	model_check(llama, ORDER_LAYER_MAJOR, 1, 0, 0);
	model_check(llama, ORDER_LAYER_MAJOR, 3, 0, 0);
	model_check(llama, ORDER_LAYER_MAJOR, 1, 1, 0);
	model_check(mixture, ORDER_LAYER_MAJOR, 2, 0, 0);
	model_check(mixture, ORDER_LAYER_MAJOR, 1, 0, 1);
	model_check(mixture, ORDER_LAYER_MAJOR, 3, 0, 1);
	model_check(mixture, ORDER_LAYER_MAJOR, 2, 1, 1);
}

/* Sums over micro-batches: each has a pass of its own. */
static void test_passes(void **state)
{
	(void)state;
	model_check(llama, ORDER_MICRO_BATCH_MAJOR, 3, 0, 0);
	model_check(mixture, ORDER_MICRO_BATCH_MAJOR, 2, 0, 0);
	model_check(mixture, ORDER_MICRO_BATCH_MAJOR, 2, 0, 1);
}

/* What does not fit alone is said so. */
static void test_too_small(void **state)
{
	struct model *model = model_from(llama);
	struct engine_options o = options_of(model, 1);
	struct choice_candidate k = {.ahead = 2};
	struct choice_limits none = {0};
	struct choice choice = {0};
	struct chooser s;

	(void)state;
	rig_open(&s, &choice, &o, &none, 0);
	check_ok(candidate_plan(&s, &k));
	assert_int_equal(choice_bound_kept(s.ways[0].bound, &k, 6, k.device_bytes / 3), -1);
	assert_true(choice_bound_kept(s.ways[0].bound, &k, 6, k.device_bytes) >= 0);
	assert_true(isinf(choice_bound_least(s.ways[0].bound, &k, k.device_bytes / 3).step_ms));
	assert_int_equal(choice_bound_kept(NULL, &k, 6, 1), 6);
	rig_close(&s);
	model_close(model);
}

static double step_of(const struct engine_options *o, int has_spans)
{
	struct simulated step;
	struct engine *e;
	struct run_span *spans;

	check_ok(engine_open(&e, o));
	check_ok(engine_start(e));
	spans = mem_alloc((size_t)engine_plan(e, PLAN_TRAIN)->op_count, sizeof(*spans));
	check_ok(simulate_step(&step, e, o, has_spans ? spans : NULL));
	mem_free(spans);
	engine_close(e);
	return step.step_ms;
}

/* A simulated step takes as long when nobody asks for its spans, and is no work that a user waits for. */
static void test_spans_change_no_time(void **state)
{
	static const char planning[] = "planning";
	struct model *model = model_from(llama);
	struct engine_options o = options_of(model, 24);
	struct device_options meta = {0};
	struct work_state work;

	(void)state;
	check_ok(device_open(&o.device, "meta", &meta));
	work_begin(planning, 1);
	assert_true(step_of(&o, 1) == step_of(&o, 0));
	assert_int_equal(work_now(&work), 1);
	assert_ptr_equal(work.what, planning);
	work_end();
	device_close(o.device);
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_candidates),
	        cmocka_unit_test(test_passes),
	        cmocka_unit_test(test_too_small),
	        cmocka_unit_test(test_spans_change_no_time),
	};

	device_register(&backend_meta);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
