/* links: cli */
/* not: asan */
/* Sums of whole models: test_run_judged runs there. */
/* Whole runs of KTO beside TRL's KTOTrainer (tests/golden/make_kto_run.py). */
#include "tests/golden_runs.h"

static void train(const json_t *run, const char *more)
{
	char keys[1000] = "", first[700];

	if (json_is_true(json_object_get(run, "lora")))
		snprintf(keys, sizeof(keys), "lora_adapter=%s/preference-run/adapter", golden);
	snprintf(first, sizeof(first), "%s/first.safetensors", work_dir);
	(void)remove(first);
	assert_ferry(0, NULL,
	        "train model=%s/preference-run/model data=%s/kto-run/answers.jsonl output_dir=%s/run "
	        "preference_loss=kto preference_beta=%g preference_desirable_weight=%g "
	        "preference_undesirable_weight=%g learning_rate=%.12g max_grad_norm=%g compute_dtype=fp32 "
	        "device=%s shuffle=off max_length=20 per_device_train_batch_size=%g "
	        "gradient_accumulation_steps=%g ranks=%g max_steps=20 lr_scheduler_type=linear "
	        "logging_steps=1 export_dtype=fp32 overwrite_output_dir=on dump_gradients=%s %s %s",
	        golden, golden, work_dir, number(run, "preference_beta"),
	        number(run, "preference_desirable_weight"), number(run, "preference_undesirable_weight"),
	        number_at(list_of(run, "learning_rate"), 0), number(run, "max_grad_norm"), device,
	        number(run, "rows"), number(run, "accumulation"), number(run, "ranks"), first, keys, more);
}

/* whole: only where a step is one batch of one process, because TRL logs means over those. */
static const struct {
	const char *key;
	double relative, absolute;
	int whole;
} columns[] = {{"loss", 2e-6, 0, 0}, {"grad_norm", 1e-5, 0, 0}, {"kl", 0, 2e-5, 0},
        {"learning_rate", 0, 1e-9, 0}, {"logps/chosen", 1e-6, 0, 1}, {"logps/rejected", 1e-6, 0, 1},
        {"rewards/chosen", 0, 2e-5, 1}, {"rewards/rejected", 0, 2e-5, 1}, {"rewards/margins", 0, 2e-5, 1}};

static void steps_compare(const json_t *run)
{
	json_t *rows = rows_with("loss");
	int is_whole = number(run, "accumulation") * number(run, "ranks") == 1;

	assert_int_equal(json_array_size(rows), 20);
	for (size_t step = 0; step < 20; step++)
		for (size_t i = 0; i < sizeof(columns) / sizeof(*columns); i++) {
			const json_t *want = json_array_get(list_of(run, columns[i].key), step),
			             *got = json_object_get(json_array_get(rows, step), columns[i].key);
			double w = json_number_value(want), g = json_number_value(got);

			if (columns[i].whole && !is_whole)
				continue;
			if (json_is_null(want) != json_is_null(got) ||
			        !(fabs(g - w) <= columns[i].relative * fabs(w) + columns[i].absolute))
				fail_msg("%s, step %zu: %s is %.10g, TRL's %.10g",
				        json_string_value(json_object_get(run, "name")), step + 1,
				        columns[i].key, g, w);
		}
	json_decref(rows);
}

static void gradients_compare(const json_t *run)
{
	struct safetensors *file;
	char path[700];
	const char *name;
	json_t *entry;
	int compared = 0;

	snprintf(path, sizeof(path), "%s/first.safetensors", work_dir);
	assert_int_equal(safetensors_open(&file, path), 0);
	json_object_foreach(json_object_get(run, "final"), name, entry)
	{
		const json_t *want = json_object_get(entry, "gradient");
		int64_t count;
		double *got = tensor_read(file, name, &count), l2 = number(want, "l2");

		assert_relative(norm_of_difference(got, NULL, count), l2, 1e-5, name);
		for (size_t i = 0; i < json_array_size(list_of(want, "elements")); i++) {
			double w = number_at(list_of(want, "elements"), i),
			       g = got[i * (size_t)number(entry, "stride")];

			if (!(fabs(g - w) <= 1e-5 * l2))
				fail_msg("%s: first gradient %zu of %s: %.9g, TRL's %.9g",
				        json_string_value(json_object_get(run, "name")), i, name, g, w);
		}
		free(got);
		compared++;
	}
	assert_int_equal(compared, file->tensor_count);
	safetensors_close(file);
}

static void run_compare(const json_t *run)
{
	steps_compare(run);
	gradients_compare(run);
}

static void test_runs(void **state)
{
	(void)state;
	golden_runs_check("kto-run/expected.json", 5, train, run_compare);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_runs)};
	int failed;

	golden_runs_begin("kto");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
