/* links: cli */
/* Runs of mixtures of experts: where weights lie changes no bit, resumed runs equal others, adapters of
 * experts and of dense layers go round, a quantized base, several ranks. */
#include "tests/planned_bytes.h"
#include "tests/sparing.h"

#include <math.h>

static struct run_model mixture;
static const char *goldens; /* directory of golden models, or NULL */

#define COMMON                                                                                               \
	"per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=4 threads=1 logging_steps=1 " \
	"lr_scheduler_type=constant device=host "

#define LORA "lora_rank=3 lora_alpha=6 learning_rate=1e-2 "

/* Adapters: of all modules; of experts only; of all that is dense. */
static const char *const adapters[] = {
        LORA "lora_target_modules=q_proj,gate_proj,up_proj,down_proj ",
        LORA "'lora_target_modules=.*\\.experts\\..*' ",
        LORA,
        LORA "lora_target_modules=gate_proj,up_proj,o_proj lora_rank_pattern='{\"experts\\\\..*\": 2}' ",
};
enum { ADAPTERS = sizeof(adapters) / sizeof(*adapters) };

static void train(const struct run_model *m, const char *out, const char *settings, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/%s overwrite_output_dir=on " COMMON "%s %s", m->dir,
	        m->data, work_dir, out, settings, more);
}

/* Of all parameters, and of adapters. */
static void assert_same_results(const char *a, const char *b, const char *why)
{
	static const char *const files[] = {
	        "adapter/adapter_model.safetensors", "adapter/adapter_config.json"};
	char paths[2][400];

	assert_same_runs(a, b, why);
	for (int i = 0; i < 2; i++) {
		snprintf(paths[0], sizeof(paths[0]), "%s/%s/%s", work_dir, a, files[i]);
		snprintf(paths[1], sizeof(paths[1]), "%s/%s/%s", work_dir, b, files[i]);
		if (file_kind_of(paths[0]) == FILE_REGULAR)
			assert_same_files(paths[0], paths[1], why);
	}
}

static void offload_check(const struct run_model *m, const char *settings, int step)
{
	static const char *const ways[] = {
	        "cpu_offload=on vram_budget=off",
	        "cpu_offload=on vram_budget=off activations=offload stream_delay_seed=3",
	        "cpu_offload=params activations=recompute",
	        "cpu_offload=on vram_budget=off wrap_policy=size min_num_params=3000 prefetch_units=1",
	        "cpu_offload=optimizer activations=keep threads=2",
	};

	train(m, "off", settings, "cpu_offload=off");
	for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w += (size_t)(step * sparing(2))) {
		train(m, "on", settings, ways[w]);
		assert_same_results("off", "on", ways[w]);
	}
}

static void test_offload_changes_no_bit(void **state)
{
	static const char *const names[] = {"mixtral", "modern/gemma4_moe", "modern/glm4_moe",
	        "modern/deepseek_v2", "more/deepseek_v3", "modern/qwen3_5_moe", "modern/qwen2_moe",
	        "modern/qwen3_next"};

	(void)state;
	offload_check(&mixture, "compute_dtype=bf16", 1);
	offload_check(&mixture, "compute_dtype=fp32 optimizer_state=8bit", 2);
	for (int i = 0; i < ADAPTERS; i++)
		offload_check(&mixture, adapters[i], i ? 3 : 1);
	for (size_t i = 0; goldens && i < sizeof(names) / sizeof(*names); i += (size_t)sparing(3)) {
		struct run_model m;

		golden_model(&m, goldens, names[i]);
		offload_check(&m, i % 2 ? "compute_dtype=fp32" : "compute_dtype=bf16", 4);
	}
}

/* A run that SIGTERM stops, and its rest. */
static void resume_check(const struct run_model *m, const char *settings)
{
	const char *binary = getenv("FERRY_BINARY");
	char command[3000];
	pid_t pid;

	train(m, "whole", settings, "save_steps=2");
	remove_run("part");
	snprintf(command, sizeof(command),
	        "%s train model=%s data=%s output_dir=%s/part " COMMON "%s save_steps=2 host_copy_gbps=0.002",
	        binary ? binary : "build/ferry", m->dir, m->data, work_dir, settings);
	pid = run_start(command);
	assert_int_equal(run_signal(pid, SIGTERM, "part", 1, 0), 3);
	assert_false(run_has("part/model"));
	assert_ferry(0, NULL, "train %s/part/config.yaml resume_from_checkpoint=auto host_copy_gbps=off",
	        work_dir);
	assert_non_null(strstr(ferry_said(), "at step "));
	assert_same_results("whole", "part", settings);
	assert_ferry(0, NULL, "verify %s/part", work_dir);
}

static void test_resumed(void **state)
{
	(void)state;
	resume_check(&mixture, "compute_dtype=bf16 cpu_offload=on vram_budget=off");
	resume_check(&mixture, "compute_dtype=fp32 optimizer_state=8bit cpu_offload=off");
	resume_check(&mixture, "'freeze=.*\\.mlp\\.gate\\..*|.*experts\\.down_proj'");
	for (int i = 0; i < ADAPTERS; i++)
		resume_check(&mixture, adapters[i]);
	for (int i = 0; goldens && i < 2; i++) {
		struct run_model m;

		golden_model(&m, goldens, i ? "modern/gemma4_moe" : "mixtral");
		resume_check(&m, "compute_dtype=bf16");
	}
}

static double loss_of(const char *model, const char *adapter)
{
	json_t *got;
	double loss;

	assert_ferry_json(&got, "eval model=%s%s%s data=%s compute_dtype=fp32 device=host --json", model,
	        *adapter ? " lora_adapter=" : "", adapter, mixture.data);
	loss = json_number_value(json_object_get(got, "loss"));
	json_decref(got);
	return loss;
}

/* PEFT takes every name in target_modules that ends as those of experts for all experts: there may be none of
 * another module. */
static void config_check(const char *path, int has_experts, int has_dense)
{
	json_t *config;
	const json_t *modules, *parameters, *one;
	int experts = 0;
	size_t i;

	assert_int_equal(json_read_file(&config, path, 1 << 20), 0);
	modules = json_object_get(config, "target_modules");
	parameters = json_object_get(config, "target_parameters");
	assert_true(json_is_array(modules));
	json_array_foreach(modules, i, one)
	{
		const char *name = json_string_value(one);
		int is_mlp =
		        strstr(name, "gate_proj") || strstr(name, "up_proj") || strstr(name, "down_proj");

		if (is_mlp && strncmp(name, "experts.", 8) != 0)
			fail_msg("%s: %s", path, name);
		experts += is_mlp;
	}
	assert_int_equal(experts > 0, has_experts);
	assert_int_equal(json_array_size(parameters) > 0, has_dense);
	json_array_foreach(parameters, i, one)
	{
		const char *name = json_string_value(one);

		if (strncmp(name, "model.layers.0.mlp.", 19) || !strstr(name, "_proj.weight"))
			fail_msg("%s: %s", path, name);
	}
	json_decref(config);
}

static void test_adapters_go_round(void **state)
{
	static const int has_experts[] = {1, 1, 0, 1}, has_dense[] = {1, 0, 1, 1};

	(void)state;
	for (int i = 0; i < ADAPTERS; i++) {
		char path[400], adapter[400], base[400];
		double merged, beside, before = loss_of(mixture.dir, "");

		train(&mixture, "out", adapters[i], "compute_dtype=fp32 export_dtype=fp32");
		path_of(path, "out/adapter/adapter_config.json");
		config_check(path, has_experts[i], has_dense[i]);
		path_of(adapter, "out/adapter");
		path_of(base, "out/model");
		beside = loss_of(mixture.dir, adapter);
		merged = loss_of(base, "");
		if (!(fabs(merged - beside) <= 1e-5 * beside) || !(fabs(before - beside) > 1e-4))
			fail_msg("%s: merged %.9g, with the adapter %.9g, before %.9g", adapters[i], merged,
			        beside, before);
		/* and goes on from the file */
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/next overwrite_output_dir=on " COMMON
		        "lora_adapter=%s/out/adapter learning_rate=0",
		        mixture.dir, mixture.data, work_dir, work_dir);
		snprintf(path, sizeof(path), "%s/next/adapter/adapter_model.safetensors", work_dir);
		snprintf(adapter, sizeof(adapter), "%s/out/adapter/adapter_model.safetensors", work_dir);
		assert_same_files(path, adapter, adapters[i]);
	}
}

static void test_other_parameters_are_refused(void **state)
{
	static const char *const cases[][3] = {
	        {"5", "target_parameters: not a list", "[\"q_proj\"]"},
	        {"[1]", "target_parameters: an entry is not a name", "[\"q_proj\"]"},
	        {"[\"experts.gate_up_proj\"]", "layers.1.mlp.experts.lora_A.weight\" is missing",
	                "[\"q_proj\"]"},
	        {"[\"experts.up_proj\"]", "experts.up_proj: the model has no such parameter", "[\"q_proj\"]"},
	        {"[\"model.layers.0.mlp.up_proj.weight\"]", "belongs to no adapter of this model",
	                "[\"q_proj\"]"},
	};

	(void)state;
	train(&mixture, "out", LORA "lora_target_modules=q_proj", "max_steps=1");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (i == 4)
			train(&mixture, "out", LORA, "max_steps=1");
		write_file("out/adapter/adapter_config.json",
		        "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":6,\"target_modules\":%s,"
		        "\"target_parameters\":%s}",
		        cases[i][2], cases[i][0]);
		assert_ferry(2, NULL, "merge model=%s lora_adapter=%s/out/adapter output_dir=%s/no",
		        mixture.dir, work_dir, work_dir);
		if (!strstr(ferry_said(), cases[i][1]))
			fail_msg("%s: %s", cases[i][0], ferry_said());
	}
}

/* gate and up of experts are one parameter of transformers: PEFT loads only both, alike, of single
 * experts. */
static void test_halves_are_warned_of(void **state)
{
	static const char *const halves[] = {"lora_target_modules=gate_proj,down_proj",
	        "lora_target_modules=gate_proj,up_proj lora_rank_pattern='{\"up_proj\": 5}'"};
	char more[200];

	(void)state;
	for (int i = 0; i < 2; i++) {
		snprintf(more, sizeof(more), "%s lora_expert_form=per_expert", halves[i]);
		train(&mixture, "out", LORA, more);
		assert_non_null(strstr(ferry_said(), "PEFT does not load this form in this family"));
		train(&mixture, "out", LORA, halves[i]);
		assert_null(strstr(ferry_said(), "PEFT"));
	}
	train(&mixture, "out", adapters[0], "lora_expert_form=per_expert");
	assert_null(strstr(ferry_said(), "PEFT"));
}

/* Codes of experts: wherever they lie, the same numbers, and other ones than those of bf16. */
static void test_quantized_base(void **state)
{
	static const char *const formats[] = {"base_format=nf4", "base_format=fp8", "base_format=int8"};

	(void)state;
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
		char settings[400], *numbers[2];

		snprintf(settings, sizeof(settings), "%s %s", adapters[i % 2], formats[i]);
		offload_check(&mixture, settings, 4);
		train(&mixture, "bf16", adapters[i % 2], "base_format=bf16");
		numbers[0] = run_numbers("bf16");
		numbers[1] = run_numbers("off");
		assert_string_not_equal(numbers[0], numbers[1]);
		mem_free(numbers[0]);
		mem_free(numbers[1]);
		resume_check(&mixture, settings);
	}
}

/* Losses on two ranks are those of one, to rounding. */
static void test_ranks(void **state)
{
	static const char *const strategies[] = {"FULL_SHARD", "NO_SHARD"};

	(void)state;
	for (int i = 0; i < 2 * ADAPTERS; i++) {
		char more[200], *one, *two, *at, *other;
		int rows = 0;

		train(&mixture, "one", adapters[i / 2], "compute_dtype=fp32");
		snprintf(more, sizeof(more),
		        "compute_dtype=fp32 gradient_accumulation_steps=1 ranks=2 sharding_strategy=%s",
		        strategies[i % 2]);
		train(&mixture, "two", adapters[i / 2], more);
		at = one = run_numbers("one");
		other = two = run_numbers("two");
		while ((at = strstr(at, " loss ")) && (other = strstr(other, " loss "))) {
			double a = strtod(at += 6, NULL), b = strtod(other += 6, NULL);

			if (!(fabs(a - b) <= 1e-5 * a))
				fail_msg("%s: one rank %.9g, two %.9g", more, a, b);
			rows++;
		}
		assert_int_equal(rows, 4);
		mem_free(one);
		mem_free(two);
	}
}

/* The run takes what the plan says, where a step has the longest row alone and every token is a target. */
static void test_planned_bytes(void **state)
{
	static const char *const ways[] = {"cpu_offload=on vram_budget=off", "cpu_offload=off",
	        "cpu_offload=on vram_budget=off " LORA "lora_target_modules=gate_proj,up_proj,q_proj"};
	struct run_model m = mixture;

	(void)state;
	target_rows_write(&m);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		char settings[600];

		snprintf(settings, sizeof(settings),
		        COMMON "compute_dtype=bf16 per_device_train_batch_size=1 %s", ways[i]);
		assert_planned_bytes(&m, settings);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_adapters_go_round),
	        cmocka_unit_test(test_halves_are_warned_of),
	        cmocka_unit_test(test_other_parameters_are_refused), cmocka_unit_test(test_planned_bytes),
	        cmocka_unit_test(test_ranks), cmocka_unit_test(test_resumed),
	        cmocka_unit_test(test_quantized_base), cmocka_unit_test(test_offload_changes_no_bit)};
	int failed;

	ferry_run_begin("run-experts");
	mixture_model(&mixture);
	goldens = golden_dir("test_run_experts with golden models");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
