/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* Training on several ranks: the same losses as one rank on the same rows, for any number of ranks. The
 * ranks share one machine, and there are far more ranks than cores. */
#include "tests/ranks_run.h"

static struct run_model tiny;
static const char *goldens; /* directory of golden models, or NULL */

/* Each kind of block that families of 2026 brought, and mixtures of experts, beside the plain one. */
static const struct trace {
	const char *name;
	int ranks_max;
} traces[] = {{"llama2", 4}, {"modern/gemma4", 2}, {"modern/gemma4_e", 3}, {"modern/lfm2", 3},
        {"modern/muse_glimmer", 2}, {"modern/qwen3_5", 3}, {"mixtral", 4}, {"modern/gemma4_moe", 3},
        {"modern/glm4_moe", 2}, {"more/deepseek_v3", 2}, {"modern/deepseek_v2", 3}, {"modern/qwen3_5_moe", 3},
        {"own/falcon_h1", 3}, {"own/falcon_h1_norm", 2}, {"modern/granitemoehybrid", 3},
        {"modern/nemotron_h", 2}};

static void test_golden_trace(void **state)
{
	(void)state;
	if (!goldens)
		skip();
	for (size_t i = 0; i < sizeof(traces) / sizeof(*traces); i++) {
		struct run_model golden;
		char more[700];

		golden_model(&golden, goldens, traces[i].name);
		snprintf(more, sizeof(more), "max_steps=9 eval_steps=4 eval_data=%s/../eval.jsonl",
		        golden.dir);
		train_twelve(1, &golden, "one", more);
		for (int ranks = 2; ranks <= traces[i].ranks_max; ranks++) {
			char why[60];

			snprintf(why, sizeof(why), "golden %s on %d ranks", traces[i].name, ranks);
			train_twelve(ranks, &golden, "many", more);
			assert_near_runs("one", "many", 5e-6, why);
		}
		train_twelve(traces[i].ranks_max, &golden, "again", more);
		assert_same_runs("many", "again", "the same world twice");
	}
}

/* Options that move work, on three ranks, which divide no tensor evenly. */
static void test_policies(void **state)
{
	static const char *const policies[] = {
	        "wrap_policy=none stream_delay_seed=1",
	        "wrap_policy=size min_num_params=1 activations=offload prefetch_units=1",
	        "wrap_policy=size min_num_params=5000 backward_prefetch=NO_PREFETCH forward_prefetch=off",
	        "max_grad_norm=0 skip_nonfinite=off stream_delay_seed=2",
	};

	(void)state;
	train_twelve(1, &tiny, "one", "max_steps=4");
	train_twelve(3, &tiny, "base", "max_steps=4");
	assert_near_runs("one", "base", 5e-6, "three ranks");
	for (size_t i = 0; i < sizeof(policies) / sizeof(*policies); i++) {
		char more[200];

		snprintf(more, sizeof(more), "max_steps=4 %s", policies[i]);
		train_twelve(3, &tiny, "many", more);
		if (strstr(more, "max_grad_norm")) {
			train_twelve(1, &tiny, "one", more);
			assert_near_runs("one", "many", 5e-6, policies[i]);
		} else if (!strstr(more, "wrap_policy")) { /* units decide where shards begin */
			assert_same_runs("base", "many", policies[i]);
		} else {
			assert_near_runs("base", "many", 5e-6, policies[i]);
		}
	}
	train_twelve(1, &tiny, "one", "max_steps=4 schedule=micro_batch_major");
	train_twelve(3, &tiny, "many", "max_steps=4 schedule=micro_batch_major");
	assert_near_runs("one", "many", 5e-6, "micro_batch_major");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_golden_trace),
	        cmocka_unit_test(test_policies),
	};
	int failed;

	if (!ranks_begin("test_ranks"))
		return 0;
	ferry_run_begin("ranks");
	tiny_model(&tiny);
	goldens = golden_dir("test_ranks with golden models");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
