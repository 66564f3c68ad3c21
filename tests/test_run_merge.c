/* links: cli */
/* ferry merge: adapters of ferry and of other trainers, merged into their models; and adapters whose modules
 * differ in rank and scale. */
#include "tests/run_fixture.h"

#include <math.h>

static struct run_model tiny;

#define LORA                                                                                                 \
	"lora_rank=3 lora_alpha=6 learning_rate=1e-2 per_device_train_batch_size=2 max_steps=3 threads=1 "   \
	"lr_scheduler_type=constant overwrite_output_dir=on "

static void train(const char *out, const char *more)
{
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s " LORA "%s", tiny.dir, tiny.data,
	        work_dir, out, more);
}

static void merge(int code, const char *more)
{
	remove_run("merged");
	assert_ferry(code, NULL, "merge model=%s lora_adapter=%s/a/adapter output_dir=%s/merged %s", tiny.dir,
	        work_dir, work_dir, more);
}

static void assert_text(const char *name, const char *want)
{
	char path[400], *text;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(file_read_all(path, 1 << 20, &text, &len), 0);
	assert_string_equal(text, want);
	mem_free(text);
}

static void assert_merged_as_trained(const char *why)
{
	char a[400], b[400];

	snprintf(a, sizeof(a), "%s/a/model/model.safetensors", work_dir);
	snprintf(b, sizeof(b), "%s/merged/model.safetensors", work_dir);
	assert_same_files(a, b, why);
}

/* The merged model is the run's result, bit for bit, for one thread or more. */
static void test_merged(void **state)
{
	static const char *const dtypes[] = {"fp32", "bf16"};
	char more[300];

	(void)state;
	for (int i = 0; i < 2; i++) {
		snprintf(more, sizeof(more), "export_dtype=%s use_rslora=%s", dtypes[i], i ? "on" : "off");
		train("a", more);
		snprintf(more, sizeof(more), "export_dtype=%s", dtypes[i]);
		merge(0, more);
		assert_merged_as_trained(more);
	}
	merge(0, "export_dtype=bf16 max_shard_size=20KB");
	assert_true(run_has("merged/model.safetensors.index.json"));
	assert_ferry(0, NULL, "eval model=%s/merged data=%s", work_dir, tiny.data);
}

/* Ranks and scales by module go into the files that PEFT reads, and come back. */
static void test_patterns(void **state)
{
	json_t *config;
	char path[400];

	(void)state;
	train("a",
	        "export_dtype=fp32 'lora_target_modules=.*layers\\.[0-9]+\\.(self_attn|mlp)\\.(q|v|up)_proj' "
	        "'lora_rank_pattern={\"up_proj\":5,\"v_proj\":1}' 'lora_alpha_pattern={\"q_proj\":9}'");
	snprintf(path, sizeof(path), "%s/a/adapter/adapter_config.json", work_dir);
	assert_int_equal(json_read_file(&config, path, 1 << 20), 0);
	assert_int_equal(json_array_size(json_object_get(config, "target_modules")), 3);
	assert_int_equal(json_integer_value(json_object_get(config, "r")), 3);
	assert_int_equal(json_integer_value(json_object_get(config, "lora_alpha")), 9);
	assert_int_equal(
	        json_integer_value(json_object_get(json_object_get(config, "rank_pattern"), "up_proj")), 5);
	assert_int_equal(
	        json_integer_value(json_object_get(json_object_get(config, "rank_pattern"), "v_proj")), 1);
	assert_int_equal(
	        json_integer_value(json_object_get(json_object_get(config, "alpha_pattern"), "up_proj")), 6);
	json_decref(config);
	merge(0, "export_dtype=fp32");
	assert_merged_as_trained("patterns");
	remove_run("merged");
	assert_ferry(0, NULL, "export checkpoint=%s/a model=%s output_dir=%s/merged export_dtype=fp32",
	        work_dir, tiny.dir, work_dir);
	assert_merged_as_trained("patterns, from the checkpoint");

	/* goes on from it; and in the middle, as without a stop */
	snprintf(path, sizeof(path), "lora_rank=0 lora_alpha=auto lora_adapter=%s/a/adapter", work_dir);
	train("b", path);
	assert_ferry(0, NULL,
	        "train %s/a/config.yaml resume_from_checkpoint=auto max_steps=4 overwrite_output_dir=off",
	        work_dir);
	assert_null(strstr(ferry_said(), "from here on"));
	train("b", "max_steps=4 export_dtype=fp32 "
	           "'lora_target_modules=.*layers\\.[0-9]+\\.(self_attn|mlp)\\.(q|v|up)_proj' "
	           "'lora_rank_pattern={\"up_proj\":5,\"v_proj\":1}' 'lora_alpha_pattern={\"q_proj\":9}'");
	remove_run("merged");
	assert_ferry(0, NULL, "export checkpoint=%s/b model=%s output_dir=%s/merged export_dtype=fp32",
	        work_dir, tiny.dir, work_dir);
	assert_merged_as_trained("resumed and not");
}

/* Trainers save the tokenizer with their chat template beside the adapter; it belongs to the merged model. */
static void test_tokenizer_beside(void **state)
{
	(void)state;
	train("a", "");
	write_file("a/adapter/tokenizer.json", "{\"beside\":1}");
	write_file("a/adapter/chat_template.jinja", "{{ messages }}");
	write_file("a/adapter/generation_config.json", "{\"eos_token_id\":[7]}");
	merge(0, "");
	assert_non_null(strstr(ferry_said(), "tokenizer and chat template are those of"));
	assert_text("merged/tokenizer.json", "{\"beside\":1}");
	assert_text("merged/generation_config.json", "{\"eos_token_id\":[7]}");
	assert_true(run_has("merged/chat_template.jinja"));
}

static void test_refused(void **state)
{
	(void)state;
	train("a", "");
	assert_ferry(2, NULL, "merge model=%s output_dir=%s/merged", tiny.dir, work_dir);
	assert_non_null(strstr(ferry_said(), "lora_adapter"));
	merge(0, "");
	assert_ferry(2, NULL, "merge model=%s lora_adapter=%s/a/adapter output_dir=%s/merged", tiny.dir,
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "overwrite_output_dir"));
	assert_ferry(0, NULL,
	        "merge model=%s adapter_path=%s/a/adapter output_dir=%s/merged overwrite_output_dir=on",
	        tiny.dir, work_dir, work_dir);
	assert_ferry(2, NULL, "merge model=%s lora_adapter=%s/a/model output_dir=%s/no", tiny.dir, work_dir,
	        work_dir);
	assert_non_null(strstr(ferry_said(), "lora_adapter"));
	assert_false(run_has("no"));
	assert_ferry(2, NULL, "merge model=%s/a/adapter lora_adapter=%s/a/adapter output_dir=%s/no", work_dir,
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "is a LoRA adapter"));
	write_file("a/adapter/adapter_model.safetensors", "damaged");
	merge(2, "");
	assert_non_null(strstr(ferry_said(), "adapter_model.safetensors"));
	assert_false(run_has("merged"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_merged),
	        cmocka_unit_test(test_patterns),
	        cmocka_unit_test(test_tokenizer_beside),
	        cmocka_unit_test(test_refused),
	};
	int failed;

	ferry_run_begin("merge");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
