/* links: cli */
/* not: asan */
/* Sums of whole models: test_run_preference runs there. */
/* Whole runs of preference training beside TRL's DPOTrainer (tests/golden/make_preference_run.py), and its
 * ORPOTrainer and CPOTrainer (make_orpo_run.py). */
#include "tests/golden_runs.h"

static void train_by(const json_t *run, const char *batches, const char *more)
{
	static const char *const own[] = {
	        "preference_own_tokens", "preference_own_weight", "preference_gamma"};
	struct str keys = {0};

	if (json_is_true(json_object_get(run, "lora")))
		str_printf(&keys, " lora_adapter=%s/preference-run/adapter", golden);
	for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
		if (json_object_get(run, own[i]))
			str_printf(&keys, " %s=%s", own[i], json_string_value(json_object_get(run, own[i])));
	assert_ferry(0, NULL,
	        "train model=%s/preference-run/model data=%s/preference-run/pairs.jsonl output_dir=%s/run "
	        "preference_loss=%s "
	        "preference_beta=%g "
	        "learning_rate=%.12g max_grad_norm=%g compute_dtype=fp32 device=%s shuffle=off "
	        "%s max_steps=6 "
	        "lr_scheduler_type=linear logging_steps=1 export_dtype=fp32 overwrite_output_dir=on%s %s",
	        golden, golden, work_dir, json_string_value(json_object_get(run, "preference_loss")),
	        number(run, "preference_beta"), number_at(list_of(run, "learning_rate"), 0),
	        number(run, "max_grad_norm"), device, batches, keys.data ? keys.data : "", more);
	str_free(&keys);
}

static void train(const json_t *run, const char *more)
{
	train_by(run, "per_device_train_batch_size=2 gradient_accumulation_steps=2", more);
}

static void train_one_by_one(const json_t *run, const char *more)
{
	train_by(run, "per_device_train_batch_size=1 gradient_accumulation_steps=4", more);
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
	(void)state;
	golden_runs_check("preference-run/expected.json", 4, train, steps_compare);
}

/* Without a reference, with the chosen text's own loss. */
static void test_own(void **state)
{
	(void)state;
	golden_runs_check("orpo-run/expected.json", 4, train_one_by_one, steps_compare);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs), cmocka_unit_test(test_own)};
	int failed;

	golden_runs_begin("trl");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
