/* links: cli */
/* not: asan */
/* Sums of whole models: test_run_watch runs there. */
/* Early stopping and the best checkpoint: beside transformers' Trainer (tests/golden/make_best.py), resumed
 * at every step, with adapters, frozen weights and ranks, and what is refused. */
#include "tests/golden_reference.h"
#include "tests/run_fixture.h"

#include "checkpoint/save.h"

static char golden[600]; /* tests/golden/best */
static const char *device;

#define KEYS                                                                                                 \
	"learning_rate=0.02 max_steps=24 per_device_train_batch_size=2 lr_scheduler_type=constant "          \
	"compute_dtype=fp32 export_dtype=fp32 shuffle=off logging_steps=1 save_total_limit=all "

/* Trains with these keys in work_dir/NAME; returns the report. */
static json_t *train(const char *name, const char *keys)
{
	json_t *report;

	assert_ferry_json(&report,
	        "train --json model=%s/model data=%s/train.jsonl eval_data=%s/eval.jsonl output_dir=%s/%s "
	        "device=%s " KEYS "%s",
	        golden, golden, golden, work_dir, name, device, keys);
	return report;
}

/* ---- beside transformers ---- */

static void settings_add(struct str *keys, const json_t *run)
{
	json_t *value;
	const char *name;

	json_object_foreach(json_object_get(run, "settings"), name, value)
	{
		str_printf(keys, "%s=", strcmp(name, "save_strategy") ? name : "save_steps");
		if (json_is_boolean(value))
			str_add(keys, json_is_true(value) ? "on " : "off ");
		else if (json_is_string(value))
			str_printf(keys, "%s ", json_string_value(value));
		else
			str_printf(keys, "%lld ", (long long)json_integer_value(value));
	}
	str_printf(keys, "early_stopping_patience=%d early_stopping_threshold=%g ",
	        (int)number(run, "patience"), number(run, "threshold"));
}

static void evaluations_compare(const char *what, const json_t *run)
{
	const json_t *want = json_object_get(run, "evals");
	json_t *rows = rows_with("eval_loss");

	assert_int_equal(json_array_size(rows), json_array_size(want));
	for (size_t i = 0; i < json_array_size(want); i++) {
		const json_t *row = json_array_get(rows, i), *pair = json_array_get(want, i);

		assert_int_equal((int)number(row, "step"), (int)number_at(pair, 0));
		assert_relative(number(row, "eval_loss"), number_at(pair, 1), 1e-5, what);
	}
	json_decref(rows);
}

/* Checkpoints are those of transformers, and the last step. */
static void checkpoints_compare(const char *what, const json_t *run)
{
	const json_t *want = json_object_get(run, "checkpoints");
	int end = (int)number(run, "end");

	for (int step = 1; step <= 24; step++) {
		char name[400];
		int is_wanted = step == end;

		for (size_t i = 0; i < json_array_size(want); i++)
			is_wanted |= step == (int)number_at(want, i);
		snprintf(name, sizeof(name), "%s/run/checkpoint-%06d", work_dir, step);
		if ((file_kind_of(name) == FILE_DIR) != is_wanted)
			fail_msg("%s: checkpoint of step %d is %s", what, step,
			        is_wanted ? "missing" : "there");
	}
}

static void final_compare(const char *what, const json_t *run)
{
	struct safetensors *file;
	const char *name;
	json_t *want;
	char path[400];

	snprintf(path, sizeof(path), "%s/run/model/model.safetensors", work_dir);
	assert_int_equal(safetensors_open(&file, path), 0);
	json_object_foreach(json_object_get(run, "final"), name, want)
	{
		int64_t count, stride;
		double *got = tensor_read(file, name, &count);

		stride = count / 4 > 1 ? count / 4 : 1;
		for (size_t i = 0; i < json_array_size(want); i++)
			if (!(fabs(got[(int64_t)i * stride] - number_at(want, i)) <= 2e-5))
				fail_msg("%s: element %zu of %s is %.10g, transformers' %.10g", what, i, name,
				        got[(int64_t)i * stride], number_at(want, i));
		free(got);
	}
	safetensors_close(file);
}

static void test_beside_transformers(void **state)
{
	static const char *const more[] = {"cpu_offload=off", "cpu_offload=on vram_budget=off",
	        "state_dict_type=FULL_STATE_DICT", "cpu_offload=on gradient_accumulation_steps=1"};
	char path[700];
	json_t *root, *run;
	size_t i;

	(void)state;
	snprintf(path, sizeof(path), "%s/expected.json", golden);
	assert_int_equal(json_read_file(&root, path, 1 << 24), 0);
	assert_int_equal(json_array_size(json_object_get(root, "runs")), 9);
	json_array_foreach(json_object_get(root, "runs"), i, run)
	{
		const char *what = json_string_value(json_object_get(run, "name"));
		struct str keys = {0};
		json_t *report, *best;

		settings_add(&keys, run);
		str_add(&keys, more[i % 4]);
		remove_run("run");
		report = train("run", keys.data);
		best = json_object_get(report, "best");
		assert_int_equal((int)number(report, "steps"), (int)number(run, "end"));
		assert_relative(number(best, "value"), number(run, "best_metric"), 1e-5, what);
		assert_int_equal((int)number(best, "step"), (int)number(run, "best_step"));
		assert_int_equal((int)number(best, "checkpoint_step"), (int)number(run, "best_checkpoint"));
		assert_int_equal(
		        json_is_true(json_object_get(best, "stopped_early")), number(run, "end") < 24);
		evaluations_compare(what, run);
		checkpoints_compare(what, run);
		final_compare(what, run);
		json_decref(report);
		str_free(&keys);
	}
	json_decref(root);
}

/* ---- the result is the best checkpoint ---- */

static void assert_result_is(const char *run, int step, const char *why)
{
	char made[400], result[400];

	remove_run("exported");
	assert_ferry(0, NULL,
	        "export checkpoint=%s/%s/checkpoint-%06d output_dir=%s/exported export_dtype=fp32", work_dir,
	        run, step, work_dir);
	snprintf(made, sizeof(made), "%s/exported/model.safetensors", work_dir);
	snprintf(result, sizeof(result), "%s/%s/model/model.safetensors", work_dir, run);
	assert_same_files(made, result, why);
}

static void test_kinds_of_runs(void **state)
{
	static const char *const kinds[] = {"lora_rank=2 learning_rate=0.05", "freeze=.*layers.0.*",
	        "optimizer_state=8bit", "ranks=2 per_device_train_batch_size=1",
	        "ranks=2 per_device_train_batch_size=1 load=rank0_only state_dict_type=FULL_STATE_DICT",
	        "save_total_limit=1", "vram_budget=64KiB cpu_offload=on",
	        "save_steps=best save_total_limit=2"};

	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		char keys[300];
		json_t *report, *best;
		int step;

		if (strstr(kinds[i], "ranks=") && strcmp(device, "host"))
			continue;
		snprintf(keys, sizeof(keys), "%s eval_steps=2 load_best_model_at_end=on %s",
		        strstr(kinds[i], "save_steps") ? "" : "save_steps=2", kinds[i]);
		if (strstr(kinds[i], "vram_budget"))
			snprintf(keys, sizeof(keys), "save_steps=2 eval_steps=2 load_best_model_at_end=on");
		remove_run("a");
		report = train("a", keys);
		best = json_object_get(report, "best");
		step = (int)number(best, "checkpoint_step");
		assert_true(step > 0 && step < 24); /* or the last model would pass too */
		assert_result_is("a", step, kinds[i]);
		assert_true(run_has("a/checkpoint-000024"));
		json_decref(report);
	}
}

/* ---- resumed or not ---- */

/* Makes work_dir/TO as the run FROM was after the checkpoint of this step. */
static void cut_at(const char *from, const char *to, int step)
{
	char command[1200];

	remove_run(to);
	snprintf(command, sizeof(command),
	        "cp -r %s/%s %s/%s && cd %s/%s && rm -r model && for c in checkpoint-*; do "
	        "[ $c '>' checkpoint-%06d ] && rm -r $c; done; true",
	        work_dir, from, work_dir, to, work_dir, to, step);
	assert_int_equal(system(command), 0);
}

static void test_resumed(void **state)
{
	json_t *whole = train(
	        "whole", "eval_steps=1 save_steps=2 early_stopping_patience=4 load_best_model_at_end=on");

	(void)state;
	for (int step = 2; step <= 9; step += step < 8 ? 2 : 1) {
		json_t *report;

		cut_at("whole", "again", step);
		report = train("again", "eval_steps=1 save_steps=2 early_stopping_patience=4 "
		                        "load_best_model_at_end=on resume_from_checkpoint=auto");
		if (!json_equal(json_object_get(whole, "best"), json_object_get(report, "best")))
			fail_msg("resumed at step %d: another best", step);
		assert_same_runs("whole", "again", "resumed");
		if (step == 9)
			assert_non_null(
			        strstr(ferry_said(), "the run stopped early at step 9; ferry only writes "
			                             "the results; to train on, raise "
			                             "early_stopping_patience"));
		json_decref(report);
	}
	json_decref(whole);
}

/* A run that goes on with more patience, and one by another metric. */
static void test_resumed_with_other_keys(void **state)
{
	(void)state;
	remove_run("a");
	json_decref(train("a", "eval_steps=2 save_steps=2 early_stopping_patience=1"));
	assert_true(run_has("a/checkpoint-000006"));
	json_decref(train("a", "eval_steps=2 save_steps=2 early_stopping_patience=3 max_steps=10 "
	                       "resume_from_checkpoint=auto"));
	assert_true(run_has("a/checkpoint-000010"));
	json_decref(train("a", "eval_steps=2 save_steps=2 early_stopping_patience=3 max_steps=12 "
	                       "greater_is_better=on resume_from_checkpoint=auto"));
	assert_non_null(
	        strstr(ferry_said(), "the run compared its evaluations by eval_loss, lower is better; "
	                             "the best so far is forgotten"));
}

static void test_best_is_gone(void **state)
{
	char path[400];

	(void)state;
	remove_run("a");
	json_decref(train("a", "eval_steps=2 save_steps=2 max_steps=8"));
	json_decref(train("a", "eval_steps=2 save_steps=2 max_steps=8 overwrite_output_dir=on "
	                       "load_best_model_at_end=on"));
	cut_at("a", "b", 6);
	snprintf(path, sizeof(path), "%s/b/checkpoint-000004", work_dir);
	assert_int_equal(file_remove_tree(path), 0);
	json_decref(train("b", "eval_steps=2 save_steps=2 max_steps=8 load_best_model_at_end=on "
	                       "resume_from_checkpoint=auto"));
	assert_non_null(strstr(ferry_said(), "the best checkpoint, of step 4, cannot be opened"));
	assert_result_is("b", 8, "the last model where the best is gone");
	snprintf(path, sizeof(path), "%s/a/checkpoint-000006", work_dir);
	remove_run("c");
	assert_ferry(0, NULL, "train %s/a/config.yaml output_dir=%s/c resume_from_checkpoint=%s", work_dir,
	        work_dir, path);
	assert_non_null(strstr(ferry_said(), "the best checkpoint so far, of step 4, is not in output_dir"));
}

/* ---- other metrics, messages ---- */

static void test_perplexity(void **state)
{
	json_t *by_loss, *by_perplexity;

	(void)state;
	remove_run("a");
	by_loss = train("a", "eval_steps=2 save_steps=2 max_steps=8 metric_for_best_model=loss");
	remove_run("a");
	by_perplexity =
	        train("a", "eval_steps=2 save_steps=2 max_steps=8 metric_for_best_model=eval_perplexity");
	assert_int_equal((int)number(json_object_get(by_loss, "best"), "step"), 4);
	assert_int_equal((int)number(json_object_get(by_perplexity, "best"), "step"), 4);
	json_decref(by_loss);
	json_decref(by_perplexity);
}

static void test_messages(void **state)
{
	static const struct {
		int code;
		const char *keys, *says;
	} cases[] = {
	        {2, "eval_steps=4 save_steps=6 load_best_model_at_end=on",
	                "load_best_model_at_end=on needs a checkpoint at evaluations, so save_steps, which "
	                "is 6 "
	                "steps, must be a multiple of eval_steps, 4; set save_steps=8, or save_steps=best"},
	        {2, "eval_steps=4 save_steps=0 load_best_model_at_end=on", "set save_steps=4"},
	        {2, "eval_steps=4 save_only_model=on load_best_model_at_end=on",
	                "load_best_model_at_end=on needs checkpoints; set save_only_model=off"},
	        {2, "early_stopping_patience=2",
	                "early_stopping_patience=2 needs evaluations during the run; set eval_steps"},
	        {2, "eval_data= save_steps=best",
	                "save_steps=best needs rows to evaluate on; set "
	                "eval_data or eval_split"},
	        {2, "eval_steps=2 metric_for_best_model=accuracy",
	                "metric_for_best_model=accuracy: this run does not measure it; it measures "
	                "eval_loss, "
	                "eval_perplexity"},
	        {2, "eval_steps=2 metric_for_best_model=eval_tokens", "this run does not measure it"},
	        {0, "max_steps=1 early_stopping_threshold=0.5",
	                "early_stopping_threshold has no effect without early_stopping_patience"},
	        {0, "max_steps=1 greater_is_better=on",
	                "greater_is_better has no effect without metric_for_best_model"},
	        {0, "max_steps=3 eval_steps=1 save_steps=5 load_best_model_at_end=on",
	                "a run of 3 steps with save_steps=5 saves only the last step"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		remove_run("m");
		assert_ferry(cases[i].code, NULL,
		        "train model=%s/model data=%s/train.jsonl eval_data=%s/eval.jsonl output_dir=%s/m "
		        "device=%s " KEYS "%s",
		        golden, golden, golden, work_dir, device, cases[i].keys);
		if (!strstr(ferry_said(), cases[i].says))
			fail_msg("%s: %s", cases[i].keys, ferry_said());
		assert_int_equal(run_has("m"), cases[i].code == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_beside_transformers),
	        cmocka_unit_test(test_kinds_of_runs), cmocka_unit_test(test_resumed),
	        cmocka_unit_test(test_resumed_with_other_keys), cmocka_unit_test(test_best_is_gone),
	        cmocka_unit_test(test_perplexity), cmocka_unit_test(test_messages)};
	const char *source = getenv("FERRY_SOURCE");
	int failed;

	device = getenv("FERRY_TEST_DEVICE") ? getenv("FERRY_TEST_DEVICE") : "host";
	snprintf(golden, sizeof(golden), "%s/tests/golden/best", source ? source : ".");
	ferry_run_begin("best");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
