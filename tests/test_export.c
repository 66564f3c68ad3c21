/* links: cli */
/* not: asan */
/* most of its time is Python, and such runs are those of test_run */
/* Models from `ferry train` and `ferry export` load in transformers and have the same loss there. Needs a
 * python3 with transformers and torch. */
#include "tests/run_fixture.h"

static const char *const names[] = {"llama2", "llama3", "mistral", "qwen2", "qwen3", "gpt2", "gpt_neox",
        "modern/qwen3_5", "modern/gemma4", "modern/gemma4_e", "modern/lfm2", "modern/muse_glimmer",
        "modern/granitemoehybrid", "modern/nemotron_h", "own/falcon_h1", "own/falcon_h1_norm"};
enum { NAME_COUNT = sizeof(names) / sizeof(*names) };

static const char *golden;
static int python_serves, peft_serves;

/* Adds "DIR ROWS LOSS" for the checker. */
static void add_export(struct str *arguments, const char *name, const struct run_model *m)
{
	json_t *got;

	assert_ferry_json(
	        &got, "eval model=%s/%s data=%s compute_dtype=fp32 --json", work_dir, name, m->data);
	str_printf(arguments, " %s/%s %s %.17g", work_dir, name, m->data,
	        json_number_value(json_object_get(got, "loss")));
	json_decref(got);
}

/* A run's adapter, for peft. */
static void train_adapter(
        struct str *arguments, const char *name, const struct run_model *m, const char *keys)
{
	json_t *got;

	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/%s-lora max_steps=3 learning_rate=1e-2 lora_rank=3 "
	        "lora_alpha=6 %s",
	        m->dir, m->data, work_dir, name, keys);
	assert_ferry_json(&got,
	        "eval model=%s lora_adapter=%s/%s-lora/adapter data=%s compute_dtype=fp32 --json", m->dir,
	        work_dir, name, m->data);
	str_printf(arguments, " %s/%s-lora/adapter %s %.17g", work_dir, name, m->data,
	        json_number_value(json_object_get(got, "loss")));
	json_decref(got);
}

/* GPT-2 has another c_proj in attention; PEFT refuses out_proj of some families. */
static const char *adapter_keys(const char *name)
{
	if (!strcmp(name, "gpt2"))
		return "lora_target_modules=mlp.c_proj";
	return strstr(name, "_h") ? "lora_exclude_modules=out_proj" : "";
}

/* A run's model in fp32 shards, and its checkpoint exported in bf16 as one file. */
static void export_both(struct str *arguments, const char *name, const struct run_model *m)
{
	char model[300];

	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/%s max_steps=2 learning_rate=1e-3 export_dtype=fp32 "
	        "max_shard_size=100KB",
	        m->dir, m->data, work_dir, name);
	assert_ferry(0, NULL,
	        "export checkpoint=%s/%s/checkpoint-000002 output_dir=%s/%s/bf16 export_dtype=bf16", work_dir,
	        name, work_dir, name);
	snprintf(model, sizeof(model), "%s/model", name);
	add_export(arguments, model, m);
	snprintf(model, sizeof(model), "%s/bf16", name);
	add_export(arguments, model, m);
}

static void test_transformers(void **state)
{
	const char *source = getenv("FERRY_SOURCE");
	struct str command = {0};
	struct run_model m;

	(void)state;
	if (!python_serves)
		skip();
	str_printf(&command, "python3 %s/tests/check_export.py", source ? source : ".");
	tiny_model(&m);
	export_both(&command, "made", &m);
	if (peft_serves)
		train_adapter(&command, "made", &m, "use_rslora=on");
	for (int i = 0; i < NAME_COUNT && golden; i++) {
		const char *slash = strrchr(names[i], '/'), *name = slash ? slash + 1 : names[i];

		golden_model(&m, golden, names[i]);
		export_both(&command, name, &m);
		if (peft_serves)
			train_adapter(&command, name, &m, adapter_keys(name));
	}
	assert_int_equal(str_check(&command), 0);
	str_printf(&command, " >%s/stderr 2>&1", work_dir);
	if (system(command.data))
		fail_msg("%s", ferry_said());
	printf("%s", ferry_said());
	str_free(&command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_transformers)};
	int failed;

	golden = golden_dir("test_export with golden models");
	python_serves = !system("python3 -c 'import torch, transformers' 2>/dev/null");
	peft_serves = !system("python3 -c 'import peft' 2>/dev/null");
	if (!python_serves)
		printf("SKIPPED test_export: python3 has no transformers\n");
	else if (!peft_serves)
		printf("SKIPPED test_export of adapters: python3 has no peft\n");
	ferry_run_begin("export");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
