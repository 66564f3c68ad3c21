/* links: cli */
/* not: asan */
/* Sums of whole models: test_run_preference runs there. */
/* Whole runs of preference training beside TRL's DPOTrainer (tests/golden/make_preference_run.py). */
#include "tests/golden_reference.h"

static char golden[600];   /* tests/golden/preference-run */
static const char *device; /* FERRY_TEST_DEVICE, or host */

static void train(const json_t *run, const char *more)
{
	char keys[1000] = "";

	if (json_is_true(json_object_get(run, "lora")))
		snprintf(keys, sizeof(keys), "lora_adapter=%s/adapter", golden);
	assert_ferry(0, NULL,
	        "train model=%s/model data=%s/pairs.jsonl output_dir=%s/run preference_loss=%s "
	        "preference_beta=%g "
	        "learning_rate=%.12g max_grad_norm=%g compute_dtype=fp32 device=%s shuffle=off "
	        "per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=6 "
	        "lr_scheduler_type=linear logging_steps=1 export_dtype=fp32 overwrite_output_dir=on %s %s",
	        golden, golden, work_dir, json_string_value(json_object_get(run, "preference_loss")),
	        number(run, "preference_beta"), number_at(list_of(run, "learning_rate"), 0),
	        number(run, "max_grad_norm"), device, keys, more);
}

static const struct {
	const char *key;
	double relative, absolute;
} columns[] = {{"loss", 1e-5, 0}, {"grad_norm", 1e-5, 0}, {"logps/chosen", 1e-6, 0},
        {"logps/rejected", 1e-6, 0}, {"rewards/chosen", 0, 2e-5}, {"rewards/rejected", 0, 2e-5},
        {"rewards/margins", 0, 2e-5}, {"rewards/accuracies", 0, 0}, {"learning_rate", 0, 1e-9}};

static void steps_compare(const json_t *run)
{
	json_t *rows = rows_with("loss");

	assert_int_equal(json_array_size(rows), 6);
	for (size_t step = 0; step < 6; step++)
		for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++) {
			double want = number_at(list_of(run, columns[i].key), step);
			double bound = columns[i].relative * fabs(want) + columns[i].absolute;
			double got = number(json_array_get(rows, step), columns[i].key);

			if (!(fabs(got - want) <= bound))
				fail_msg("%s, step %zu: %s is %.10g, TRL's %.10g",
				        json_string_value(json_object_get(run, "name")), step + 1,
				        columns[i].key, got, want);
		}
	json_decref(rows);
}

static void test_runs(void **state)
{
	static const char *const more[] = {"cpu_offload=off", "cpu_offload=on vram_budget=off"};
	char path[700];
	json_t *root, *run;
	size_t i;

	(void)state;
	snprintf(path, sizeof(path), "%s/expected.json", golden);
	assert_int_equal(json_read_file(&root, path, 1 << 24), 0);
	assert_true(json_array_size(json_object_get(root, "runs")) == 4);
	json_array_foreach(json_object_get(root, "runs"), i, run)
	{
		train(run, more[i % 2]);
		steps_compare(run);
		assert_trained(run);
	}
	json_decref(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs)};
	const char *source = getenv("FERRY_SOURCE");
	int failed;

	device = getenv("FERRY_TEST_DEVICE") ? getenv("FERRY_TEST_DEVICE") : "host";
	snprintf(golden, sizeof(golden), "%s/tests/golden/preference-run", source ? source : ".");
	ferry_run_begin("trl");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
