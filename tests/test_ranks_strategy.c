/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* Sharding strategies: the losses do not depend on how ranks share the state. */
#include "tests/ranks_run.h"

#include "base/quantity.h"

static struct run_model tiny, mixture;

/* Two cores of a host that computes; a rank on each "host". */
static const char machine[] =
        "name: host\ngpus: 0\nhost:\n  memory: 16GiB\n  memory_gbps: 40\n  gflops: 100\n";

static int64_t whole_of(const json_t *object, const char *key)
{
	assert_true(json_is_integer(json_object_get(object, key)));
	return json_integer_value(json_object_get(object, key));
}

/* The run counts the same messages as the plan, on rank 0 in each step and on all ranks. */
static void assert_traffic(const struct run_model *m, const char *out, const char *settings)
{
	char want[200], *said = mem_strdup(ferry_said());
	const char *of_run = strstr(settings, " check_replicas"); /* no key of a plan */
	int plan_len = of_run ? (int)(of_run - settings) : (int)strlen(settings);
	json_t *plan, *traffic;
	double *node, *network;
	int node_count, network_count;
	int64_t in_node, between;
	struct str texts[2] = {{0}};

	assert_ferry_json(&plan,
	        "plan model=%s machine=%s/host.yaml world_size=4 ranks_per_node=2 "
	        "gradient_accumulation_steps=3 max_length=32 compute_dtype=fp32 %.*s --json",
	        m->dir, work_dir, plan_len, settings);
	traffic = json_object_get(plan, "traffic");
	in_node = whole_of(traffic, "node_bytes");
	between = whole_of(traffic, "network_bytes");
	node = run_values(out, "sent_node_bytes", &node_count);
	network = run_values(out, "sent_network_bytes", &network_count);
	assert_true(node_count == 4 && network_count == 4 && in_node + between > 0);
	for (int i = 0; i < node_count; i++)
		if ((int64_t)node[i] != in_node || (int64_t)network[i] != between)
			fail_msg("%s, step %d: sent %.0f and %.0f bytes, planned were %lld and %lld",
			        settings, i + 1, node[i], network[i], (long long)in_node, (long long)between);
	quantity_bytes(&texts[0], 4 * in_node);
	quantity_bytes(&texts[1], 4 * between);
	snprintf(want, sizeof(want),
	        "all ranks sent %s within nodes and %s between nodes each step; planned: %s and %s",
	        texts[0].data, texts[1].data, texts[0].data, texts[1].data);
	str_free(&texts[0]);
	str_free(&texts[1]);
	assert_non_null(said);
	if (!strstr(said, want))
		fail_msg("%s: \"%s\" is not in %s", settings, want, said);
	mem_free(said);
	mem_free(node);
	mem_free(network);
	json_decref(plan);
}

/* State that is divided and state that several ranks hold: four ranks, two "hosts" of two. */
static void strategies_check(const struct run_model *m, size_t first, size_t step)
{
	static const char *const strategies[] = {
	        "sharding_strategy=FULL_SHARD cpu_offload=off",
	        "sharding_strategy=FULL_SHARD cpu_offload=gradients stream_delay_seed=3",
	        "sharding_strategy=FULL_SHARD cpu_offload=params schedule=micro_batch_major",
	        "sharding_strategy=SHARD_GRAD_OP",
	        "sharding_strategy=SHARD_GRAD_OP cpu_offload=off stream_delay_seed=4",
	        "sharding_strategy=NO_SHARD check_replicas=1",
	        "sharding_strategy=NO_SHARD cpu_offload=off schedule=micro_batch_major",
	        "sharding_strategy=HYBRID_SHARD stream_delay_seed=5 check_replicas=3",
	        "sharding_strategy=HYBRID_SHARD cpu_offload=off",
	        "sharding_strategy=HYBRID_SHARD_ZERO2 cpu_offload=optimizer",
	};
	static const char *const rounded[] = {
	        "reduce_dtype=bf16", "reduce_dtype=bf16 sharding_strategy=HYBRID_SHARD"};

	write_file("host.yaml", "%s", machine);
	train_twelve(1, m, "one", "max_steps=4");
	for (size_t i = first; i < sizeof(strategies) / sizeof(*strategies); i += step) {
		char more[200];

		snprintf(more, sizeof(more), "max_steps=4 ranks_per_node=2 %s", strategies[i]);
		train_twelve(4, m, "many", more);
		assert_traffic(m, "many", strategies[i]);
		assert_near_runs("one", "many", 5e-6, strategies[i]);
	}
	/* gradients that are rounded before they are summed: nearer than their 8 bits, and not the same */
	for (size_t i = 0; i < sizeof(rounded) / sizeof(*rounded); i++) {
		char more[200];

		snprintf(more, sizeof(more), "max_steps=4 ranks_per_node=2 %s", rounded[i]);
		train_twelve(4, m, "many", more);
		assert_traffic(m, "many", rounded[i]);
		assert_near_runs("one", "many", 4e-3, rounded[i]);
	}
}

static void test_strategies(void **state)
{
	(void)state;
	strategies_check(&tiny, 0, 1);
	assert_ranks(2, 4,
	        "train model=%s data=%s output_dir=%s/none sharding_strategy=HYBRID_SHARD ranks_per_node=3",
	        tiny.dir, tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "ferry train: sharding_strategy=HYBRID_SHARD: 4 ranks"));
	assert_false(run_has("none"));
}

static void test_strategies_of_experts(void **state)
{
	(void)state;
	strategies_check(&mixture, 1, 2);
}

/* Bytes of the device that a rank of four plans for. */
static int64_t planned_bytes(const char *more)
{
	json_t *plan;
	int64_t bytes;

	assert_ferry_json(&plan,
	        "plan model=%s data=%s machine=%s/host.yaml world_size=4 ranks_per_node=2 "
	        "gradient_accumulation_steps=3 compute_dtype=fp32 %s --json",
	        tiny.dir, tiny.data, work_dir, more);
	bytes = whole_of(plan, "device_bytes");
	json_decref(plan);
	return bytes;
}

/* State that stays on the device of each rank changes no bit, and no rank exceeds its limit. */
static void test_a_budget_changes_no_bit(void **state)
{
	static const char *const ways[] = {"", "max_grad_norm=0 skip_nonfinite=off"};

	(void)state;
	write_file("host.yaml", "%s", machine);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		char more[500];
		int64_t least, most, budget;
		double *peak;
		int count;

		snprintf(more, sizeof(more), "activations=recompute %s", ways[i]);
		least = planned_bytes(more);
		snprintf(more, sizeof(more), "cpu_offload=off activations=keep %s", ways[i]);
		most = planned_bytes(more);
		budget = least + (most - least) / 2;
		assert_true(least < budget && budget < most);
		snprintf(more, sizeof(more), "max_steps=4 ranks_per_node=2 %s", ways[i]);
		train_twelve(4, &tiny, "streamed", more);
		/* chosen by rates that all ranks measure; then by those that rank 0 reads */
		snprintf(more, sizeof(more), "max_steps=4 ranks_per_node=2 vram_budget=%lld %s",
		        (long long)budget, ways[i]);
		train_twelve(4, &tiny, "many", more);
		assert_same_runs("streamed", "many", more);
		snprintf(more, sizeof(more),
		        "max_steps=4 ranks_per_node=2 vram_budget=%lld machine=%s/host.yaml %s",
		        (long long)budget, work_dir, ways[i]);
		train_twelve(4, &tiny, "many", more);
		assert_same_runs("streamed", "many", more);
		peak = run_values("many", "device_peak_bytes", &count);
		assert_true(count == 4 && (int64_t)peak[3] > least && (int64_t)peak[3] <= budget);
		mem_free(peak);
	}
}

/* Of few rows each rank has fewer micro-batches than it could; which is the largest is for all ranks' rows to
 * say. */
static void test_rows_of_ranks_are_planned_for(void **state)
{
	static const int tokens[] = {3, 4, 30, 5, 6};
	struct str rows = {0};
	char settings[1000];
	json_t *plan, *alone;
	double *peak;
	int count;

	(void)state;
	for (int row = 0; row < 5; row++) {
		str_add(&rows, "{\"input_ids\":[1");
		for (int i = 1; i < tokens[row]; i++)
			str_printf(&rows, ",%d", i);
		str_add(&rows, "]}\n");
	}
	write_file("few.jsonl", "%s", rows.data);
	str_free(&rows);
	snprintf(settings, sizeof(settings),
	        "model=%s data=%s/few.jsonl shuffle=off max_steps=1 threads=1 compute_dtype=fp32", tiny.dir,
	        work_dir);
	assert_ranks(0, 2, "train %s gradient_accumulation_steps=2 output_dir=%s/few", settings, work_dir);
	assert_ferry_json(&plan, "plan %s gradient_accumulation_steps=2 world_size=2 --json", settings);
	assert_ferry_json(&alone, "plan %s gradient_accumulation_steps=2 --json", settings);
	peak = run_values("few", "device_peak_bytes", &count);
	assert_true(count == 1 && (int64_t)peak[0] == whole_of(plan, "device_bytes"));
	assert_true(whole_of(alone, "step_tokens") == 2 * 4 && whole_of(plan, "step_tokens") == 2 * 2 * 30);
	json_decref(alone);
	json_decref(plan);
	assert_ferry_json(&plan, "plan %s gradient_accumulation_steps=9 --json", settings);
	assert_int_equal(whole_of(plan, "step_tokens"), 5 * 30);
	json_decref(plan);
	mem_free(peak);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_strategies),
	        cmocka_unit_test(test_strategies_of_experts),
	        cmocka_unit_test(test_a_budget_changes_no_bit),
	        cmocka_unit_test(test_rows_of_ranks_are_planned_for),
	};
	int failed;

	if (!ranks_begin("test_ranks_strategy"))
		return 0;
	ferry_run_begin("ranks-strategy");
	tiny_model(&tiny);
	mixture_model(&mixture);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
