/* links: cli */
/* Runs with FP8 products: where weights lie changes no bit, resumed runs equal others, frozen weights are
 * codes, codes cross the link, plans are met to the byte, and what has no FP8 products is refused. */
#include "tests/planned_bytes.h"
#include "tests/sparing.h"

#include <math.h>

static struct run_model wide;
static const char *goldens; /* directory of golden models, or NULL */

#define COMMON                                                                                               \
	"per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=4 threads=1 logging_steps=1 " \
	"lr_scheduler_type=constant device=host compute_dtype=fp8 "

#define LORA "lora_rank=3 lora_alpha=6 learning_rate=1e-2 "

/* All parameters; adapters; some matrices; a part of each kind. */
static const char *const kinds[] = {"learning_rate=1e-3", LORA, "'freeze=.*(up_proj|k_proj).*'",
        "optimizer_state=8bit max_grad_norm=0 skip_nonfinite=off"};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

static void train(const struct run_model *m, const char *out, const char *settings, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/%s overwrite_output_dir=on " COMMON "%s %s", m->dir,
	        m->data, work_dir, out, settings, more);
}

static void offload_check(const struct run_model *m, const char *settings, int step)
{
	static const char *const ways[] = {
	        "cpu_offload=on vram_budget=off",
	        "cpu_offload=on vram_budget=off activations=offload stream_delay_seed=3",
	        "cpu_offload=params activations=recompute",
	        "cpu_offload=on vram_budget=off wrap_policy=size min_num_params=3000 prefetch_units=1",
	        "cpu_offload=optimizer activations=keep threads=2",
	        "cpu_offload=on vram_budget=2MiB",
	};

	train(m, "off", settings, "cpu_offload=off");
	for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w += (size_t)(step * sparing(2))) {
		train(m, "on", settings, ways[w]);
		assert_same_runs("off", "on", ways[w]);
	}
}

static void test_offload_changes_no_bit(void **state)
{
	static const char *const names[] = {"gpt2", "more/phi3", "modern/qwen3_5", "gemma3_text"};

	(void)state;
	for (int i = 0; i < KINDS; i++)
		offload_check(&wide, kinds[i], i ? 2 : 1);
	for (size_t i = 0; goldens && i < sizeof(names) / sizeof(*names); i += (size_t)sparing(2)) {
		struct run_model m;

		golden_model(&m, goldens, names[i]);
		offload_check(&m, kinds[i % 2], 3);
	}
}

/* A run that SIGTERM stops, and its rest. */
static void test_resumed(void **state)
{
	const char *binary = getenv("FERRY_BINARY");
	char command[3000];

	(void)state;
	for (int i = 0; i < KINDS; i++) {
		pid_t pid;

		train(&wide, "whole", kinds[i], "save_steps=2 cpu_offload=on vram_budget=off");
		remove_run("part");
		snprintf(command, sizeof(command),
		        "%s train model=%s data=%s output_dir=%s/part " COMMON
		        "%s save_steps=2 cpu_offload=on vram_budget=off host_copy_gbps=0.002",
		        binary ? binary : "build/ferry", wide.dir, wide.data, work_dir, kinds[i]);
		pid = run_start(command);
		assert_int_equal(run_signal(pid, SIGTERM, "part", 1, 0), 3);
		assert_ferry(0, NULL,
		        "train %s/part/config.yaml resume_from_checkpoint=auto host_copy_gbps=off", work_dir);
		assert_same_runs("whole", "part", kinds[i]);
	}
}

static double loss_of(const char *model, const char *more)
{
	json_t *got;
	double loss;

	assert_ferry_json(
	        &got, "eval model=%s data=%s device=host threads=1 --json %s", model, wide.data, more);
	loss = json_real_value(json_object_get(got, "loss"));
	json_decref(got);
	return loss;
}

/* Codes made while loading, by the key or without it, and on the device of bf16 weights are the same; bf16
 * products of them are not, nor are those of bf16. */
static void test_codes_are_one(void **state)
{
	char dir[400];
	double fp8 = loss_of(wide.dir, "compute_dtype=fp8"), trained, step;

	(void)state;
	assert_true(fp8 == loss_of(wide.dir, "compute_dtype=fp8 base_format=fp8"));
	assert_true(fp8 == loss_of(wide.dir, "compute_dtype=fp8 base_format=bf16"));
	assert_true(fp8 != loss_of(wide.dir, "compute_dtype=bf16 base_format=fp8"));
	assert_true(fp8 != loss_of(wide.dir, "compute_dtype=bf16"));
	assert_true(fabs(fp8 - loss_of(wide.dir, "compute_dtype=fp32")) < 0.02);
	/* the evaluation of a run, of weights in training, and of its result */
	assert_ferry(0, NULL,
	        "train model=%s data=%s eval_data=%s eval_steps=4 output_dir=%s/evaluated " COMMON
	        "overwrite_output_dir=on learning_rate=1e-3 per_device_eval_batch_size=4",
	        wide.dir, wide.data, wide.data, work_dir);
	step = metric_of("evaluated", 4, "eval_loss");
	snprintf(dir, sizeof(dir), "%s/evaluated/model", work_dir);
	trained = loss_of(dir, "compute_dtype=fp8 per_device_eval_batch_size=4");
	if (!(fabs(trained - step) <= 1e-9 * step))
		fail_msg("eval says %.12g, the run %.12g", trained, step);
}

/* The run takes what the plan says, where a step has the longest row alone and every token is a target. */
static void test_planned_bytes(void **state)
{
	static const char *const ways[] = {"cpu_offload=on vram_budget=off", "cpu_offload=off",
	        "cpu_offload=on vram_budget=off " LORA, "cpu_offload=on vram_budget=2MiB"};
	struct run_model m = wide;

	(void)state;
	target_rows_write(&m);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		char settings[600];

		snprintf(settings, sizeof(settings), COMMON "per_device_train_batch_size=1 %s", ways[i]);
		assert_planned_bytes(&m, settings);
	}
}

static double planned(const char *settings, const char *key)
{
	json_t *plan;
	double value;

	assert_ferry_json(&plan, "plan model=%s data=%s device=host max_steps=4 %s --json", wide.dir,
	        wide.data, settings);
	value = (double)json_integer_value(json_object_get(plan, key));
	json_decref(plan);
	return value;
}

/* Codes cross instead of bf16 weights, where the host updates them and where they are frozen. What else
 * crosses is the embedding, the head and norms: 21,000 of 633,000 parameters. */
static void test_codes_cross(void **state)
{
	static const char *const ways[] = {
	        "cpu_offload=on vram_budget=off", "cpu_offload=on vram_budget=off " LORA};

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		char settings[2][300];
		double bf16, fp8;

		snprintf(settings[0], sizeof(settings[0]), "%s compute_dtype=bf16", ways[i]);
		snprintf(settings[1], sizeof(settings[1]), "%s compute_dtype=fp8", ways[i]);
		bf16 = planned(settings[0], "h2d_bytes");
		fp8 = planned(settings[1], "h2d_bytes");
		if (!(fp8 < 0.56 * bf16))
			fail_msg("%s: %g bytes, with bf16 %g", ways[i], fp8, bf16);
	}
}

static void test_refused(void **state)
{
	static const struct {
		const char *settings, *says;
	} cases[] = {
	        {LORA "base_format=nf4", "set base_format=fp8 or compute_dtype=bf16"},
	        {LORA "use_dora=on", "FP8 products with DoRA are not supported yet; set compute_dtype=bf16"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_ferry(2, NULL,
		        "train model=%s data=%s output_dir=%s/no overwrite_output_dir=on " COMMON "%s",
		        wide.dir, wide.data, work_dir, cases[i].settings);
		assert_non_null(strstr(ferry_said(), cases[i].says));
	}
	if (goldens) {
		assert_ferry(2, NULL, "eval model=%s/mixtral/hf data=%s device=host compute_dtype=fp8",
		        goldens, wide.data);
		assert_non_null(strstr(ferry_said(), "FP8 products of experts are not supported yet"));
	}
}

/* A small Llama whose sides have several blocks. */
static void wide_model(struct run_model *m)
{
	write_file("wide.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":160,\"intermediate_size\":296,"
	        "\"num_hidden_layers\":3,\"num_attention_heads\":5,\"num_key_value_heads\":1,"
	        "\"max_position_embeddings\":128,\"initializer_range\":0.08,\"tie_word_embeddings\":false}");
	write_rows("rows.jsonl", 23, 7);
	assert_ferry(0, NULL, "init config=%s/wide.json output_dir=%s/wide seed=1", work_dir, work_dir);
	snprintf(m->dir, sizeof(m->dir), "%s/wide", work_dir);
	snprintf(m->data, sizeof(m->data), "%s/rows.jsonl", work_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes_are_one),
	        cmocka_unit_test(test_refused), cmocka_unit_test(test_codes_cross),
	        cmocka_unit_test(test_planned_bytes), cmocka_unit_test(test_resumed),
	        cmocka_unit_test(test_offload_changes_no_bit)};
	int failed;

	ferry_run_begin("run-fp8");
	wide_model(&wide);
	goldens = golden_dir("test_run_fp8 with golden models");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
