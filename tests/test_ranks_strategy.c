/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* Sharding strategies: what is held by one rank and what by several changes no loss. */
#include "tests/ranks_run.h"

static struct run_model tiny;

/* Twelve rows a step, however many ranks share them; the last step of an epoch has fewer, and some ranks
 * none.
 */
#define SETTINGS                                                                                             \
	"learning_rate=1e-3 weight_decay=0.1 lr_scheduler_type=cosine warmup_steps=1 threads=1 "             \
	"compute_dtype=fp32 export_dtype=fp32 overwrite_output_dir=on "

static void train(int ranks, const struct run_model *m, const char *out, const char *more)
{
	assert_ranks(0, ranks,
	        "train model=%s data=%s output_dir=%s/%s gradient_accumulation_steps=%d " SETTINGS "%s",
	        m->dir, m->data, work_dir, out, 12 / ranks, more);
}

/* What is shared out and what is held by several: four ranks, two "hosts" of two. */
static void test_strategies(void **state)
{
	static const char *const strategies[] = {
	        "sharding_strategy=FULL_SHARD cpu_offload=off",
	        "sharding_strategy=FULL_SHARD cpu_offload=gradients stream_delay_seed=3",
	        "sharding_strategy=FULL_SHARD cpu_offload=params schedule=micro_batch_major",
	        "sharding_strategy=SHARD_GRAD_OP",
	        "sharding_strategy=SHARD_GRAD_OP cpu_offload=off stream_delay_seed=4",
	        "sharding_strategy=NO_SHARD check_replicas=1",
	        "sharding_strategy=NO_SHARD cpu_offload=off schedule=micro_batch_major",
	        "sharding_strategy=HYBRID_SHARD ranks_per_node=2 stream_delay_seed=5 check_replicas=3",
	        "sharding_strategy=HYBRID_SHARD ranks_per_node=2 cpu_offload=off",
	        "sharding_strategy=HYBRID_SHARD_ZERO2 ranks_per_node=2 cpu_offload=optimizer",
	};

	(void)state;
	train(1, &tiny, "one", "max_steps=4");
	for (size_t i = 0; i < sizeof(strategies) / sizeof(*strategies); i++) {
		char more[200];

		snprintf(more, sizeof(more), "max_steps=4 %s", strategies[i]);
		train(4, &tiny, "many", more);
		assert_near_runs("one", "many", 5e-6, strategies[i]);
	}
	/* gradients that are rounded before they are summed: nearer than their 8 bits, and not the same */
	train(4, &tiny, "many", "max_steps=4 reduce_dtype=bf16");
	assert_near_runs("one", "many", 4e-3, "reduce_dtype=bf16");
	assert_ranks(2, 4,
	        "train model=%s data=%s output_dir=%s/none sharding_strategy=HYBRID_SHARD ranks_per_node=3",
	        tiny.dir, tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "ferry train: sharding_strategy=HYBRID_SHARD: 4 ranks"));
	assert_false(run_has("none"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_strategies),
	};
	int failed;

	if (!ranks_begin("test_ranks_strategy"))
		return 0;
	ferry_run_begin("ranks-strategy");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
