/* links: cli */
/* Reward models and rerankers through the commands, beside TRL and sentence-transformers
 * (golden/make_rewards.py). */
#include "tests/golden_trace.h"

static void test_runs(void **state)
{
	char *source = mem_printf("%s/tests/golden/rewards", getenv("FERRY_SOURCE")),
	     *path = mem_printf("%s/runs.json", source);
	const char *name;
	json_t *runs = NULL, *run;
	struct str out = {0};

	(void)state;
	assert_int_equal(json_read_file(&runs, path, 1 << 24), 0);
	assert_int_equal(json_object_size(runs), 3);
	json_object_foreach(runs, name, run) for (int pieces = 0; pieces < 2; pieces++)
	{
		char *dir = mem_printf("%s%s", name, pieces ? "_pieces" : "");

		assert_ferry(0, NULL,
		        "train model=%s/%s data=%s/%s.jsonl output_dir=%s/%s " TRACE_KEYS " %s %s", source,
		        json_string_value(json_object_get(run, "model")), source, name, work_dir, dir,
		        json_string_value(json_object_get(run, "keys")),
		        pieces ? "per_device_train_batch_size=1 gradient_accumulation_steps=2 ranks=2"
		               : "per_device_train_batch_size=4");
		trace_check(dir, run, "accuracy");
		mem_free(dir);
	}
	/* the result is evaluated, and says how many pairs are right */
	assert_ferry(0, &out, "eval model=%s/reward/model data=%s/reward.jsonl objective=reward", work_dir,
	        source);
	assert_non_null(strstr(out.data, "of 24 pairs right"));
	str_free(&out);
	assert_ferry(0, NULL, "eval model=%s/reranking/model data=%s/reranking.jsonl objective=reranking",
	        work_dir, source);
	json_decref(runs);
	mem_free(path);
	mem_free(source);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *model, *rows, *keys, *says;
	} cases[] = {
	        {"qwen3", "{\"text\":\"x\"}", "objective=reward", "objective=reward needs pairs"},
	        {"qwen3", "{\"chosen\":\"x\",\"rejected\":\"y\",\"margin\":\"z\"}", "objective=reward",
	                "\"margin\" is z; expected a number"},
	        {"bert", "{\"chosen\":\"x\",\"rejected\":\"y\"}", "objective=reward", "is an encoder"},
	        {"bert", "{\"text\":\"x\",\"text_pair\":\"y\",\"label\":2}", "objective=reranking",
	                "\"label\" is 2; expected a number from 0 to 1"},
	        {"bert", "{\"text\":\"x\",\"text_pair\":\"y\",\"label\":-0.5}", "objective=reranking",
	                "\"label\" is -0.5; expected a number from 0 to 1"},
	        {"bert", "{\"text\":\"x\",\"label\":0.5}", "objective=reranking",
	                "\"text_pair\" is missing; the row has"},
	        {"bert", "{\"text\":\"x\",\"label\":1}", "objective=reranking num_labels=3",
	                "has a head for 1 label;"},
	        {"bert", "{\"text\":\"x\",\"label\":1}", "objective=reranking center_rewards_coefficient=1",
	                "no effect without objective=reward"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		write_file("rows.jsonl", "%s\n", cases[i].rows);
		assert_ferry(2, NULL,
		        "train model=%s/tests/golden/rewards/%s data=%s/rows.jsonl output_dir=%s/no "
		        "max_steps=1 %s",
		        getenv("FERRY_SOURCE"), cases[i].model, work_dir, work_dir, cases[i].keys);
		if (!strstr(ferry_said(), cases[i].says))
			fail_msg("%s: %s", cases[i].keys, ferry_said());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs), cmocka_unit_test(test_refusals)};
	int failed;

	ferry_run_begin("rewards");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
