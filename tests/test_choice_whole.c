/* links: placement model_families host_cpu device_meta */
/* Choices for many micro-batches: plans of a few of them say what plans of all take, and a choice needs few
 * plans whatever their number. */
#include "tests/check.h"
#include "tests/model_text.h"

#include "base/mem.h"
#include "device/backend.h"
#include "placement/choice.h"
#include "placement/choice_candidate.h"

#include <math.h>
#include <stdlib.h>

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
	                        .prefetch_units = 2,
	                        .compute_dtype = DTYPE_BF16,
	                        .gradient_dtype = DTYPE_BF16,
	                        .micro_batches = micro_batches,
	                        .rope_positions = 256,
	                },
	        .train = {.max_tokens = 256, .max_targets = 256},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	};
}

static const char llama[] = "{\"model_type\":\"llama\",\"vocab_size\":2048,\"hidden_size\":256,"
                            "\"intermediate_size\":768,\"num_hidden_layers\":8,\"num_attention_heads\":8,"
                            "\"num_key_value_heads\":2,\"max_position_embeddings\":1024,"
                            "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false}";

static unsigned dice_state = 7;

static int roll(int most)
{
	dice_state = dice_state * 1103515245u + 12345u;
	return (int)(dice_state >> 16 & 0x7fff) % (most + 1);
}

/* Estimates of a drawn candidate beside its plan with all micro-batches. Steps in layer-major order differ by
 * where in a visit a copy ends. */
static void test_estimates(void **state)
{
	struct model *model = model_from(llama);
	int exact = 0;
	enum { DRAWS = 60 };

	(void)state;
	for (int i = 0; i < DRAWS; i++) {
		struct engine_options o = options_of(model, 5 + roll(60));
		struct choice_limits none = {0};
		struct choice choice = {0};
		struct chooser s = {.choice = &choice, .base = &o, .limits = &none, .micros = CHOICE_MICROS};
		struct device_options meta = {.remembers = 1};
		struct choice_candidate k = {.ahead = 1 + roll(2), .spills = roll(1)}, whole;

		o.policy.update_in_backward = roll(1);
		check_ok(device_open(&s.meta, "meta", &meta));
		check_ok(engine_units_open(&s.map, &o));
		k.states = roll(s.map->unit_count);
		k.weights = roll(s.map->unit_count - k.states);
		k.kept = roll(8 - k.spills);
		whole = k;
		assert_true(chooser_estimates(&s));
		check_ok(candidate_judge(&s, &k));
		check_ok(candidate_judge_whole(&s, &whole));
		assert_int_equal(k.link_bytes, whole.link_bytes);
		exact += fabs((double)(k.device_bytes - whole.device_bytes)) <=
		         0.001 * (double)whole.device_bytes;
		if (fabs((double)(k.device_bytes - whole.device_bytes)) > 0.01 * (double)whole.device_bytes ||
		        fabs((double)(k.host_bytes - whole.host_bytes)) > 0.02 * (double)whole.host_bytes ||
		        !(fabs(k.step_ms - whole.step_ms) <= 0.03 * whole.step_ms))
			fail_msg("draw %d, %d micro-batches: %lld and %lld bytes, %g ms, not %lld, %lld, %g",
			        i, o.policy.micro_batches, (long long)k.device_bytes, (long long)k.host_bytes,
			        k.step_ms, (long long)whole.device_bytes, (long long)whole.host_bytes,
			        whole.step_ms);
		chooser_close(&s);
	}
	print_message("%d of %d estimates of device memory are right to a thousandth\n", exact, (int)DRAWS);
	assert_true(exact >= DRAWS * 8 / 10);
	model_close(model);
}

static int plans_of(const struct model *model, int micro_batches, int64_t device_bytes)
{
	const struct choice_limits limits = {.device_bytes = device_bytes};
	const struct choice_freedom freedom = {1, 1, 1, 1};
	const struct device_speed speed = {0};
	struct engine_options o = options_of(model, micro_batches);
	struct choice choice;
	int count;

	check_ok(choice_find(&choice, &o, &limits, &freedom, &speed));
	assert_true(choice.best >= 0);
	assert_true(choice.list[choice.best].device_bytes <= device_bytes);
	assert_true(choice.list[choice.best].step_ms > 0);
	count = choice.planned_count;
	choice_free(&choice);
	return count;
}

/* The count of plans, not the time: a choice of 256 micro-batches, which has a larger budget, tries some more
 * than one of 8, because it searches parts of activations again where estimates were wrong. */
static void test_count(void **state)
{
	struct model *model = model_from(llama);
	int few = plans_of(model, 8, 64 << 20), many = plans_of(model, 256, 512 << 20);

	(void)state;
	print_message("8 micro-batches: %d plans; 256: %d\n", few, many);
	assert_true(few <= 200);
	assert_true(many <= 300);
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_estimates),
	        cmocka_unit_test(test_count),
	};

	device_register(&backend_meta);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
