/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it. test_model_lora and test_ops_noise have the same passes there. */

/* lora_dropout and neftune_noise_alpha in whole runs: what is random follows from the data and the step, so
 * nothing else changes a bit of it. */
#include "tests/ranks_run.h"

static struct run_model tiny;

#define NOISE "lora_rank=3 lora_dropout=0.3 neftune_noise_alpha=4 "

static double value_of(const char *run, const char *key, int at)
{
	int count;
	double *values = run_values(run, key, &count), value;

	assert_true(at < count);
	value = values[at];
	mem_free(values);
	return value;
}

static void train(const char *out, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/%s learning_rate=2e-2 threads=1 logging_steps=1 "
	        "overwrite_output_dir=on export_dtype=fp32 max_steps=5 gradient_accumulation_steps=3 %s",
	        tiny.dir, tiny.data, work_dir, out, more);
}

static void test_offload_changes_no_bit(void **state)
{
	static const char *const dtypes[] = {NOISE "compute_dtype=bf16", NOISE "compute_dtype=fp32"};
	static const char *const others[] = {
	        "cpu_offload=on vram_budget=off",
	        "cpu_offload=on activations=offload",
	        "cpu_offload=params activations=recompute schedule=micro_batch_major",
	        "cpu_offload=on vram_budget=off stream_delay_seed=4 threads=2",
	};
	char more[300];

	(void)state;
	for (size_t d = 0; d < 2; d++) {
		snprintf(more, sizeof(more), "%s cpu_offload=off activations=keep", dtypes[d]);
		train("base", more);
		for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
			snprintf(more, sizeof(more), "%s %s", dtypes[d], others[i]);
			train("other", more);
			assert_same_runs("base", "other", more);
		}
	}
}

/* Rows have their numbers wherever they are computed. */
static void test_ranks_and_micro_batches(void **state)
{
	(void)state;
	train_twelve(1, &tiny, "one", NOISE "max_steps=4");
	train_twelve(3, &tiny, "many", NOISE "max_steps=4");
	assert_near_runs("one", "many", 5e-6, "three ranks");
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/other per_device_train_batch_size=6 "
	        "gradient_accumulation_steps=2 vram_budget=off " TWELVE_ROWS NOISE "max_steps=4",
	        tiny.dir, tiny.data, work_dir);
	assert_near_runs("one", "other", 5e-6, "six rows a micro-batch");
}

static void test_resumed(void **state)
{
	char a[400], b[400];

	(void)state;
	train("whole", NOISE "save_steps=2 save_total_limit=all");
	remove_run("part");
	train("part", NOISE "save_steps=2 save_total_limit=all");
	remove_run("other");
	assert_ferry(0, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=%s/part/checkpoint-000002 "
	        "output_dir=%s/other "
	        "overwrite_output_dir=off",
	        work_dir, work_dir, work_dir);
	path_of(a, "whole/model/model.safetensors");
	path_of(b, "other/model/model.safetensors");
	assert_same_files(a, b, "resumed");
	/* another share goes on from here, and is said */
	remove_run("other");
	assert_ferry(0, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=%s/part/checkpoint-000002 "
	        "output_dir=%s/other overwrite_output_dir=off lora_dropout=0.2",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "lora_dropout is 0.2 from here on; the checkpoint had 0.3"));
}

/* Only training is random: the same model evaluates to the same loss, and each step draws anew. */
static void test_evaluation(void **state)
{
	static const char *const same[] = {
	        "lora_dropout=0", "lora_dropout=0.3", "lora_dropout=0 neftune_noise_alpha=4"};
	char more[1500], config[400], *text;
	double loss[3], eval[3];
	size_t len;

	(void)state;
	train("start", "lora_rank=3");
	for (int i = 0; i < 3; i++) {
		snprintf(more, sizeof(more),
		        "lora_adapter=%s/start/adapter %s learning_rate=1e-30 eval_data=%s eval_steps=1 "
		        "max_steps=2 data_split=train[:3] num_train_epochs=2 shuffle=off",
		        work_dir, same[i], tiny.data);
		train("run", more);
		loss[i] = value_of("run", "loss", 0);
		eval[i] = value_of("run", "eval_loss", 0);
		assert_true(eval[i] == value_of("run", "eval_loss", 1));
		if (i) /* the same rows again */
			assert_true(loss[i] != value_of("run", "loss", 1));
		else
			assert_true(fabs(loss[i] - value_of("run", "loss", 1)) < 1e-9);
	}
	assert_true(eval[1] == eval[0] && eval[2] == eval[0]);
	assert_true(fabs(loss[1] - loss[0]) > 1e-4 && fabs(loss[2] - loss[0]) > 1e-4);

	/* the adapter says how it was trained, and training goes on so */
	snprintf(more, sizeof(more), "lora_adapter=%s/start/adapter lora_dropout=0.3", work_dir);
	train("run", more);
	path_of(config, "run/adapter/adapter_config.json");
	text = read_file(config, &len);
	assert_non_null(strstr(text, "\"lora_dropout\": 0.29999"));
	mem_free(text);
	snprintf(more, sizeof(more), "lora_adapter=%s/run/adapter", work_dir);
	train("on", more);
	assert_non_null(strstr(ferry_said(), "has lora_dropout=0.3, and so has this run"));
	snprintf(more, sizeof(more), "lora_adapter=%s/run/adapter lora_dropout=0.3", work_dir);
	train("said", more);
	assert_same_runs("on", "said", "dropout of the file");
}

/* A frozen base, whole modules, and adapters of some layers, with dropout. */
static void test_mixtures(void **state)
{
	static const char *const more[] = {NOISE
	        "lora_target_modules=q_proj,down_proj lora_modules_to_save=lm_head lora_layers=1",
	        NOISE "packing=bfd max_length=64", "neftune_noise_alpha=5 freeze=model.embed_tokens.weight"};

	(void)state;
	for (int i = 0; i < 3; i++) {
		train("a", more[i]);
		train("b", more[i]);
		assert_same_runs("a", "b", more[i]);
		assert_true(isfinite(value_of("a", "loss", 4)));
	}
	assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/c lora_dropout=0.1", tiny.dir, tiny.data,
	        work_dir);
	assert_non_null(strstr(ferry_said(), "lora_dropout=0.1 has no effect without lora_rank; set it"));
	assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/c lora_rank=2 lora_dropout=1", tiny.dir,
	        tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "lora_dropout=1 must be between 0 and 0.999"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_offload_changes_no_bit),
	        cmocka_unit_test(test_ranks_and_micro_batches),
	        cmocka_unit_test(test_resumed),
	        cmocka_unit_test(test_evaluation),
	        cmocka_unit_test(test_mixtures),
	};
	int failed;

	if (!ranks_begin("test_run_noise"))
		return 0;
	ferry_run_begin("noise");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
