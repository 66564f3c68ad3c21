/* links: cli */
/* not: asan */
/* Sums of whole models: test_run_preference runs there. */
/* Label smoothing and LoRA+ in whole runs, beside transformers' Trainer (tests/golden/make_tuning.py). */
#include "tests/golden_runs.h"

static void train(const json_t *run, const char *more)
{
	const json_t *keys = json_object_get(run, "keys"), *value;
	struct str text = {0};
	const char *key;

	if (json_is_true(json_object_get(run, "lora")))
		str_printf(&text, " lora_adapter=%s/preference-run/adapter", golden);
	json_object_foreach((json_t *)keys, key, value)
	        str_printf(&text, " %s=%.12g", key, json_number_value(value));
	assert_ferry(0, NULL,
	        "train model=%s/preference-run/model data=%s/tuning/rows.jsonl output_dir=%s/run "
	        "eval_data=%s/tuning/rows.jsonl eval_steps=6 compute_dtype=fp32 device=%s shuffle=off "
	        "per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=6 "
	        "lr_scheduler_type=linear logging_steps=1 export_dtype=fp32 overwrite_output_dir=on %s %s",
	        golden, golden, work_dir, golden, device, text.data, more);
	str_free(&text);
}

static void columns_compare(const json_t *run)
{
	static const struct {
		const char *key, *row;
		double bound;
	} columns[] = {{"loss", "loss", 1e-5}, {"grad_norm", "loss", 2e-5}, {"learning_rate", "loss", 1e-6},
	        {"eval_loss", "eval_loss", 1e-5}};

	for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++) {
		const json_t *want = list_of(run, columns[i].key);
		json_t *rows = rows_with(columns[i].row);

		assert_int_equal(json_array_size(rows), json_array_size(want));
		for (size_t step = 0; step < json_array_size(want); step++)
			assert_relative(number(json_array_get(rows, step), columns[i].key),
			        number_at(want, step), columns[i].bound, columns[i].key);
		json_decref(rows);
	}
}

static void test_runs(void **state)
{
	(void)state;
	golden_runs_check("tuning/expected.json", 4, train, columns_compare);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs)};
	int failed;

	golden_runs_begin("tuning");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
