/* links: cli */
/* ferry merge: adapters of ferry and of other trainers, merged into their models; and adapters whose modules
 * differ in rank and scale. */
#include "checkpoint/file/safetensors.h"
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
	assert_int_equal(json_integer_value(json_object_get(config, "lora_alpha")), 6);
	assert_int_equal(
	        json_integer_value(json_object_get(json_object_get(config, "rank_pattern"), "up_proj")), 5);
	assert_int_equal(
	        json_integer_value(json_object_get(json_object_get(config, "rank_pattern"), "v_proj")), 1);
	assert_int_equal(
	        json_integer_value(json_object_get(json_object_get(config, "alpha_pattern"), "q_proj")), 9);
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

/* A tokenizer with an id that the model's embedding lacks goes into the result, but not without a word. */
static void test_larger_tokenizer(void **state)
{
	static const char larger[] = "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0,\"b\":%d},"
	                             "\"unk_token\":\"a\"}}",
	                  warning[] = "the tokenizer's largest id is 64 ('b'); the model's vocabulary of 64";
	char other[300];

	(void)state;
	train("a", "");
	write_file("a/adapter/tokenizer.json", larger, 64);
	merge(0, "");
	assert_non_null(strstr(ferry_said(), warning));
	write_file("a/adapter/tokenizer.json", larger, 63);
	merge(0, "");
	assert_null(strstr(ferry_said(), "largest id"));
	write_file("tokenizer.json", larger, 64);
	snprintf(other, sizeof(other), "save_steps=3 tokenizer=%s/tokenizer.json", work_dir);
	train("b", other);
	assert_non_null(strstr(ferry_said(), warning));
	snprintf(other, sizeof(other), "data_format=tokens tokenizer=%s/tokenizer.json", work_dir);
	train("c", other);
	assert_non_null(strstr(ferry_said(), warning));
	remove_run("merged");
	assert_ferry(0, NULL, "export checkpoint=%s/b model=%s output_dir=%s/merged", work_dir, tiny.dir,
	        work_dir);
	assert_non_null(strstr(ferry_said(), warning));
}

static void test_refused(void **state)
{
	char path[400], older[400];

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
	path_of(path, "a/adapter/adapter_model.safetensors");
	path_of(older, "a/adapter/adapter_model.bin");
	assert_int_equal(rename(path, older), 0);
	merge(2, "");
	assert_non_null(
	        strstr(ferry_said(), "adapter_model.bin is not read; load it in PEFT and save it again"));
	write_file("a/adapter/adapter_model.safetensors", "damaged");
	merge(2, "");
	assert_non_null(strstr(ferry_said(), "adapter_model.safetensors"));
	assert_false(run_has("merged"));
}

static json_t *adapter_config(void)
{
	json_t *config;
	char path[400];

	path_of(path, "a/adapter/adapter_config.json");
	assert_int_equal(json_read_file(&config, path, 1 << 20), 0);
	return config;
}

static void set_adapter_key(const char *key, json_t *value)
{
	json_t *config = adapter_config();
	char *text;

	json_object_set_new(config, key, value);
	text = json_dumps(config, JSON_INDENT(2));
	write_file("a/adapter/adapter_config.json", "%s", text);
	free(text);
	json_decref(config);
}

/* The adapter's files and the checkpoint say which modules of other models have what, as PEFT reads it. */
static void test_names(void **state)
{
	static const struct {
		const char *model, *keys;
	} cases[] = {
	        {"gpt2", "'lora_rank_pattern={\"mlp.c_proj\":5}'"},
	        {"gpt2", "'lora_target_modules=.*attn\\.c_proj|transformer\\.h\\.1\\.mlp\\.c_proj'"},
	        {"gpt2", "lora_exclude_modules=mlp.c_proj lora_layers=1 lora_modules_to_save=ln_f,wpe"},
	        {"whole", "'lora_rank_pattern={\"q_proj\":5}'"},
	        {"whole", "'lora_alpha_pattern={\"layers\\\\.1\\\\..*\":5}'"},
	        {"whole", "'lora_rank_pattern={\"^model.language_model.layers.0.*\":5}'"},
	        {"whole", "'lora_target_modules=model.language_model.layers.0.self_attn.q_proj'"},
	        {"whole", "'lora_target_modules=.*language_model.*q_proj' "
	                  "lora_modules_to_save=model.language_model.norm,lm_head"},
	        {"tiny", "lora_modules_to_save=norm"},
	        {"tiny", "lora_modules_to_save=mlp"},
	        {"tiny", "lora_modules_to_save=lm_head,layers.1.mlp.down_proj"},
	};
	char config[600];

	(void)state;
	write_file("gpt2.json",
	        "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":64,\"n_embd\":32,\"n_layer\":2,"
	        "\"n_head\":4}");
	assert_ferry(0, NULL, "init config=%s/gpt2.json output_dir=%s/gpt2", work_dir, work_dir);
	assert_ferry(0, NULL, "init config=%s/tiny.json output_dir=%s/whole", work_dir, work_dir);
	snprintf(config, sizeof(config), "{\"model_type\":\"llava\",\"text_config\":" TINY_CONFIG "}",
	        "false");
	write_file("whole/config.json", "%s", config);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const char *model = cases[i].model, *keys = cases[i].keys;

		assert_ferry(0, NULL,
		        "train model=%s/%s data=%s output_dir=%s/a " LORA "export_dtype=fp32 %s", work_dir,
		        model, tiny.data, work_dir, keys);
		set_adapter_key("exclude_modules", json_pack("[s]", "no_such_module"));
		remove_run("merged");
		assert_ferry(0, NULL,
		        "merge model=%s/%s lora_adapter=%s/a/adapter output_dir=%s/merged export_dtype=fp32",
		        work_dir, model, work_dir, work_dir);
		assert_merged_as_trained(keys);
		remove_run("merged");
		assert_ferry(0, NULL,
		        "export checkpoint=%s/a model=%s/%s output_dir=%s/merged export_dtype=fp32", work_dir,
		        work_dir, model, work_dir);
		assert_merged_as_trained(keys);
	}
}

/* A file of PEFT may have patterns for modules without adapters; a user who types one made a slip. */
static void test_needless_pattern(void **state)
{
	(void)state;
	train("a", "export_dtype=fp32 lora_target_modules=q_proj");
	set_adapter_key("rank_pattern", json_pack("{s:i}", "v_proj", 8));
	set_adapter_key("alpha_pattern", json_pack("{s:i}", "nowhere", 8));
	merge(0, "export_dtype=fp32");
	assert_merged_as_trained("needless patterns");
	assert_ferry(2, NULL,
	        "train model=%s data=%s output_dir=%s/no " LORA
	        "lora_target_modules=q_proj 'lora_rank_pattern={\"v_proj\":8}'",
	        tiny.dir, tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "lora_rank_pattern: v_proj names no module with an adapter"));
}

/* The bits of peft's merge_and_unload, in each dtype of a base (tests/golden/make_merge.py). */
static void test_as_peft(void **state)
{
	static const char *const names[] = {"fp16", "bf16", "fp32", "gpt2-fp16"};
	const char *source = getenv("FERRY_SOURCE");

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct safetensors *want, *got;
		char dir[500], path[600];

		snprintf(dir, sizeof(dir), "%s/tests/golden/merge/%s", source ? source : ".", names[i]);
		remove_run("merged");
		assert_ferry(0, NULL, "merge model=%s/base lora_adapter=%s/adapter output_dir=%s/merged", dir,
		        dir, work_dir);
		snprintf(path, sizeof(path), "%s/merged.safetensors", dir);
		assert_int_equal(safetensors_open(&want, path), 0);
		snprintf(path, sizeof(path), "%s/merged/model.safetensors", work_dir);
		assert_int_equal(safetensors_open(&got, path), 0);
		assert_int_equal(got->tensor_count, want->tensor_count);
		for (int64_t t = 0; t < want->tensor_count; t++) {
			const struct safetensors_tensor *a = &want->tensors[t],
			                                *b = safetensors_find(got, a->name);
			char *bytes[2];

			assert_non_null(b);
			assert_int_equal(a->dtype, b->dtype);
			assert_int_equal(a->len_bytes, b->len_bytes);
			bytes[0] = mem_alloc((size_t)a->len_bytes, 1);
			bytes[1] = mem_alloc((size_t)a->len_bytes, 1);
			assert_int_equal(safetensors_read(want, a, bytes[0], 0, a->len_bytes), 0);
			assert_int_equal(safetensors_read(got, b, bytes[1], 0, a->len_bytes), 0);
			if (memcmp(bytes[0], bytes[1], (size_t)a->len_bytes))
				fail_msg("%s: %s differs from peft's", names[i], a->name);
			mem_free(bytes[0]);
			mem_free(bytes[1]);
		}
		safetensors_close(want);
		safetensors_close(got);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_merged),
	        cmocka_unit_test(test_as_peft),
	        cmocka_unit_test(test_patterns),
	        cmocka_unit_test(test_names),
	        cmocka_unit_test(test_needless_pattern),
	        cmocka_unit_test(test_tokenizer_beside),
	        cmocka_unit_test(test_larger_tokenizer),
	        cmocka_unit_test(test_refused),
	};
	int failed;

	ferry_run_begin("merge");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
