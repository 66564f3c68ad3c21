/* links: cli */
/* The output of a run beside its model: checkpoints, metrics, evaluation, samples, gradients, a trace, its
 * configuration; and configurations of other programs. */
#include "tests/run_fixture.h"

#include "checkpoint/file/safetensors.h"

#include <math.h>

static struct run_model tiny;

static json_t *read_json(const char *name)
{
	char path[400];
	json_t *root;

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(json_read_file(&root, path, 1 << 26), 0);
	return root;
}

static void train(const char *out, const char *settings)
{
	remove_run(out);
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s %s %s", tiny.dir, tiny.data, work_dir,
	        out, strstr(settings, "vram_budget=") ? "" : "vram_budget=off", settings);
}

/* The rows of metrics.jsonl that have `key`: their steps as "1 2 3". */
static char *steps_with(const char *out, const char *key)
{
	char *numbers = run_numbers(out), *line, *rest = numbers, *end;
	struct str steps = {0};

	while (rest && (line = strsep(&rest, "\n")) && *line)
		if (strstr(line, key)) {
			if (steps.len_bytes)
				str_add_char(&steps, ' ');
			str_printf(&steps, "%ld", strtol(line + strlen(" step "), &end, 10));
		}
	mem_free(numbers);
	return str_take(&steps);
}

static void assert_steps(const char *out, const char *key, const char *want)
{
	char *got = steps_with(out, key);

	assert_string_equal(got, want);
	mem_free(got);
}

static void test_checkpoints_come_and_go(void **state)
{
	(void)state;
	train("a", "max_steps=10 save_steps=0.25 save_total_limit=2");
	assert_false(run_has("a/checkpoint-000003"));
	assert_false(run_has("a/checkpoint-000006"));
	assert_true(run_has("a/checkpoint-000009"));
	assert_true(run_has("a/checkpoint-000010"));
	train("a", "max_steps=5 save_steps=2 save_total_limit=0 save_first_step=on");
	assert_true(run_has("a/checkpoint-000001"));
	assert_true(run_has("a/checkpoint-000002"));
	assert_true(run_has("a/checkpoint-000004"));
	assert_true(run_has("a/checkpoint-000005"));
	train("a", "max_steps=4 save_steps=0");
	assert_false(run_has("a/checkpoint-000002"));
	assert_true(run_has("a/checkpoint-000004"));
	assert_ferry(0, NULL, "verify %s/a", work_dir);
}

static void test_logging(void **state)
{
	(void)state;
	train("a", "max_steps=10 logging_steps=4 eval_split=5 eval_steps=0.3 save_steps=0");
	assert_steps("a", " loss ", "4 8 10");
	assert_steps("a", "eval_loss", "3 6 9 10");
}

/* The last evaluation of a run is what `ferry eval` says of its model. */
static void test_eval_is_the_runs(void **state)
{
	static const char *const dtypes[] = {"fp32", "bf16"};

	(void)state;
	write_rows("eval.jsonl", 9, 3);
	for (int i = 0; i < 2; i++) {
		char settings[500], want[80], *numbers;
		json_t *eval;

		snprintf(settings, sizeof(settings),
		        "max_steps=3 learning_rate=1e-2 eval_data=%s/eval.jsonl compute_dtype=%s "
		        "per_device_eval_batch_size=%d",
		        work_dir, dtypes[i], 1 + 2 * i);
		train("a", settings);
		assert_ferry_json(&eval,
		        "eval model=%s/a/model data=%s/eval.jsonl compute_dtype=%s threads=1 "
		        "per_device_eval_batch_size=%d --json",
		        work_dir, work_dir, dtypes[i], 1 + 2 * i);
		snprintf(want, sizeof(want), " eval_loss %.17g",
		        json_number_value(json_object_get(eval, "loss")));
		numbers = run_numbers("a");
		if (!strstr(numbers, want))
			fail_msg("%s: no%s in\n%s", dtypes[i], want, numbers);
		mem_free(numbers);
		json_decref(eval);
	}
}

/* config.yaml repeats the run bit for bit, for any settings. */
static void test_config_repeats(void **state)
{
	static const char *const settings[] = {
	        "max_steps=4 packing=bfd max_length=40 eval_split=3 lr_scheduler_type=cosine "
	        "warmup_ratio=0.3",
	        "num_train_epochs=0.5 compute_dtype=fp32 wrap_policy=size min_num_params=5000 "
	        "cpu_offload=params,activations per_device_train_batch_size=2 schedule=micro_batch_major",
	        "max_steps=3 max_samples=9 shuffle=off learning_rate=0.00012345678901234567 "
	        "adam_epsilon=1e-7 "
	        "weight_decay=0.3 seed=123456789012 vram_budget=1.5GiB long_rows=drop max_length=20",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		train("a", settings[i]);
		remove_run("b");
		assert_ferry(0, NULL, "train %s/a/config.yaml output_dir=%s/b", work_dir, work_dir);
		assert_same_runs("a", "b", settings[i]);
	}
}

static void test_dry_run(void **state)
{
	(void)state;
	remove_run("dry");
	assert_ferry(
	        0, NULL, "train model=%s data=%s output_dir=%s/dry --dry-run", tiny.dir, tiny.data, work_dir);
	assert_ferry(5, NULL, "train model=%s data=%s output_dir=%s/dry --dry-run vram_budget=2KiB", tiny.dir,
	        tiny.data, work_dir);
	assert_false(run_has("dry"));
}

static int compare_numbers(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Queues do one thing at a time, and the events of a step are inside the file's time. */
static void trace_check(const json_t *trace, int steps)
{
	const json_t *events = json_object_get(trace, "traceEvents"), *event;
	double ends[8] = {0}, begins[4096];
	size_t i, losses = 0;

	json_array_foreach(events, i, event)
	{
		const char *ph = json_string_value(json_object_get(event, "ph"));
		double ts = json_number_value(json_object_get(event, "ts"));
		int64_t queue = json_integer_value(json_object_get(event, "tid"));

		assert_true(queue >= 0 && queue < 8);
		if (strcmp(ph, "X"))
			continue;
		assert_true(json_number_value(json_object_get(event, "dur")) >= 0);
		assert_true(ts >= 0);
		ends[queue]++;
		if (!strcmp(json_string_value(json_object_get(event, "name")), "FORWARD") && losses < 4096)
			begins[losses++] = ts;
	}
	assert_true(losses > 0 && losses % (size_t)steps == 0);
	assert_true(ends[0] > 0 && ends[1] > 0);
	qsort(begins, losses, sizeof(*begins), compare_numbers);
	assert_true(begins[0] < begins[losses - 1]);
}

static void test_trace(void **state)
{
	json_t *trace;

	(void)state;
	train("a", "max_steps=4 trace=2");
	trace = read_json("a/trace.json");
	trace_check(trace, 2);
	json_decref(trace);
	train("b", "max_steps=4");
	assert_same_runs("a", "b", "trace=2");
	train("a", "max_steps=2 trace=9");
	trace = read_json("a/trace.json");
	trace_check(trace, 2);
	json_decref(trace);
	/* fewer steps are left than were to be traced */
	assert_ferry(
	        0, NULL, "train %s/a/config.yaml resume_from_checkpoint=auto max_steps=4 trace=3", work_dir);
	trace = read_json("a/trace.json");
	trace_check(trace, 2);
	json_decref(trace);
}

/* The norm of the gradients that are dumped is the norm that is logged, in every layout of the run. */
static void test_gradients(void **state)
{
	static const char *const settings[] = {"", "cpu_offload=off", "wrap_policy=none activations=keep",
	        "cpu_offload=params,optimizer max_grad_norm=0 skip_nonfinite=off",
	        "schedule=micro_batch_major gradient_accumulation_steps=2"};
	char path[400], more[600], first[400] = "";

	(void)state;
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		struct safetensors *file;
		double sum = 0;
		char *numbers, want[64];

		snprintf(path, sizeof(path), "%s/grad-%zu.safetensors", work_dir, i);
		snprintf(more, sizeof(more), "max_steps=2 compute_dtype=fp32 dump_gradients=%s %s", path,
		        settings[i]);
		train("a", more);
		assert_int_equal(safetensors_open(&file, path), 0);
		assert_int_equal(file->tensor_count, 3 + 9 * 3);
		for (int64_t t = 0; t < file->tensor_count; t++) {
			const struct safetensors_tensor *tensor = &file->tensors[t];
			float *values = calloc((size_t)tensor->count, sizeof(*values));

			assert_int_equal(safetensors_read(file, tensor, values, 0, tensor->len_bytes), 0);
			for (int64_t k = 0; k < tensor->count; k++)
				sum += (double)values[k] * values[k];
			free(values);
		}
		safetensors_close(file);
		numbers = run_numbers("a");
		snprintf(want, sizeof(want), " grad_norm %.6g", sqrt(sum));
		want[strlen(want) - 1] = 0;
		if (!strstr(numbers, want))
			fail_msg("%s: the dumped norm is %.9g, logged is\n%s", more, sqrt(sum), numbers);
		mem_free(numbers);
		if (i == 0)
			snprintf(first, sizeof(first), "%s", path);
		else if (i < 4)
			assert_same_files(first, path, settings[i]);
	}
}

/* A resumed run dumps the first step that it does, and leaves a file that is there as it is. */
static void test_gradients_of_a_resumed_run(void **state)
{
	char first[400], second[400], third[400];

	(void)state;
	snprintf(first, sizeof(first), "%s/first.safetensors", work_dir);
	snprintf(second, sizeof(second), "%s/second.safetensors", work_dir);
	snprintf(third, sizeof(third), "%s/third.safetensors", work_dir);
	train("a", "max_steps=1 save_steps=1");
	assert_ferry(0, NULL,
	        "train %s/a/config.yaml resume_from_checkpoint=auto max_steps=3 dump_gradients=%s", work_dir,
	        first);
	assert_non_null(strstr(ferry_said(), "gradients of step 2 written to"));
	train("b", "max_steps=1 save_steps=1");
	assert_ferry(0, NULL,
	        "train %s/b/config.yaml resume_from_checkpoint=auto max_steps=2 dump_gradients=%s", work_dir,
	        second);
	assert_same_files(first, second, "both are of step 2");
	assert_int_equal(file_copy(second, third), 0);
	assert_ferry(0, NULL, "train %s/b/config.yaml resume_from_checkpoint=auto max_steps=3", work_dir);
	assert_non_null(strstr(ferry_said(), "second.safetensors exists and is kept"));
	assert_same_files(second, third, "the file was there");
}

/* ---- steps that are not finite ---- */

static void test_nonfinite(void **state)
{
	static const char *const ends[] = {"nonfinite_limit=3", "skip_nonfinite=off",
	        "skip_nonfinite=off max_grad_norm=0", "skip_nonfinite=off max_grad_norm=0 cpu_offload=off"};
	char *numbers;

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		remove_run("n");
		assert_ferry(4, NULL,
		        "train model=%s data=%s output_dir=%s/n max_steps=60 learning_rate=1000 "
		        "weight_decay=900 save_first_step=on %s",
		        tiny.dir, tiny.data, work_dir, ends[i]);
		assert_non_null(strstr(ferry_said(), "not finite"));
		assert_non_null(strstr(ferry_said(), "the last checkpoint is of step 1"));
		assert_false(run_has("n/model"));
		assert_ferry(0, NULL, "verify %s/n", work_dir);
	}
	/* skipped steps leave the state as it is: three in a row are three logged rows, and the exit */
	remove_run("n");
	assert_ferry(4, NULL,
	        "train model=%s data=%s output_dir=%s/n max_steps=60 learning_rate=1000 weight_decay=900 "
	        "nonfinite_limit=3",
	        tiny.dir, tiny.data, work_dir);
	numbers = run_numbers("n");
	assert_non_null(strstr(numbers, "skipped true"));
	mem_free(numbers);
	/* a model that diverged has nothing to say */
	remove_run("n");
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/n max_steps=40 learning_rate=1000 weight_decay=900 "
	        "nonfinite_limit=100",
	        tiny.dir, tiny.data, work_dir);
	assert_ferry(4, NULL, "generate model=%s/n/model prompt_ids=1,2 max_new_tokens=2", work_dir);
	assert_non_null(strstr(ferry_said(), "not finite"));
	assert_ferry(4, NULL, "generate model=%s/n/model prompt_ids=1,2 temperature=1", work_dir);
}

/* ---- configurations of other programs ---- */

static void test_foreign_configurations(void **state)
{
	static const struct {
		const char *text, *same_as;
	} rows[] = {
	        {"compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\n"
	         "fsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n  fsdp_min_num_params: 5000\n"
	         "  fsdp_backward_prefetch: BACKWARD_POST\n  fsdp_offload_params: true\n"
	         "  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_use_orig_params: true\nnum_processes: 1\n"
	         "use_cpu: false\n",
	                "max_steps=3 cpu_offload=on wrap_policy=size min_num_params=5000"},
	        {"fsdp_config:\n  offload_params: true\nmixed_precision: 'no'\n",
	                "max_steps=3 cpu_offload=on compute_dtype=fp32"},
	        {"per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\nlearning_rate: 2e-4\n"
	         "lr_scheduler_type: cosine\nwarmup_ratio: 0.1\nbf16: true\ngradient_checkpointing: true\n"
	         "report_to: none\n",
	                "max_steps=3 per_device_train_batch_size=2 gradient_accumulation_steps=2 "
	                "learning_rate=2e-4 "
	                "lr_scheduler_type=cosine warmup_ratio=0.1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		write_file("foreign.yaml", "%s", rows[i].text);
		remove_run("a");
		assert_ferry(0, NULL, "train %s/foreign.yaml model=%s data=%s output_dir=%s/a max_steps=3",
		        work_dir, tiny.dir, tiny.data, work_dir);
		train("b", rows[i].same_as);
		assert_same_runs("a", "b", rows[i].text);
	}
}

/* ---- samples ---- */

/* Needs a tokenizer: the golden one that the repository carries. */
static void test_samples(void **state)
{
	(void)state;
	speaker_make();
	write_file("words.jsonl", "{\"instruction\":\"Say a.\",\"input\":\"\",\"output\":\"a\"}\n"
	                          "{\"instruction\":\"Say b.\",\"input\":\"\",\"output\":\"b\"}\n");
	remove_run("a");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/words.jsonl output_dir=%s/a max_steps=2 sample_prompt='Say "
	        "a.' "
	        "max_new_tokens=3",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "step 0: Say a. ->"));
	assert_null(strstr(ferry_said(), "step 1: Say a. ->"));
	assert_non_null(strstr(ferry_said(), "step 2: Say a. ->"));
	assert_true(run_has("a/model/tokenizer.json"));
	remove_run("b");
	assert_ferry(0, NULL,
	        "train model=%s/speaker data=%s/words.jsonl output_dir=%s/b max_steps=2 sample_prompt='Say "
	        "a.' "
	        "max_new_tokens=3 sample_steps=1",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "step 1: Say a. ->"));
	assert_same_runs("a", "b", "sampling changes nothing");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_checkpoints_come_and_go),
	        cmocka_unit_test(test_logging),
	        cmocka_unit_test(test_eval_is_the_runs),
	        cmocka_unit_test(test_config_repeats),
	        cmocka_unit_test(test_dry_run),
	        cmocka_unit_test(test_trace),
	        cmocka_unit_test(test_gradients),
	        cmocka_unit_test(test_gradients_of_a_resumed_run),
	        cmocka_unit_test(test_nonfinite),
	        cmocka_unit_test(test_foreign_configurations),
	        cmocka_unit_test(test_samples),
	};
	int failed;

	ferry_run_begin("run-watch");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
