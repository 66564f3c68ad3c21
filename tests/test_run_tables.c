/* links: cli */
/* not: asan */
/* Sums of whole models: test_model_lora runs there. */
/* Adapters of the embedding and the head in whole runs: 20 steps beside PEFT and transformers' Trainer
 * (tests/golden/make_tables.py), offload, ranks, resuming, merging, refusals. */
#include "tests/run_fixture.h"

#include "tests/golden_runs.h"

static struct run_model tiny;

static void train_golden(const json_t *run, const char *more)
{
	const char *name = json_string_value(json_object_get(run, "name"));
	const json_t *keys = json_object_get(run, "keys");

	assert_ferry(0, NULL,
	        "train model=%s/preference-run/model lora_adapter=%s/tables/%s data=%s/tuning/rows.jsonl "
	        "output_dir=%s/run compute_dtype=fp32 device=%s shuffle=off per_device_train_batch_size=2 "
	        "gradient_accumulation_steps=2 max_steps=20 lr_scheduler_type=linear logging_steps=1 "
	        "weight_decay=%.9g max_grad_norm=1 export_dtype=fp32 overwrite_output_dir=on "
	        "learning_rate=%.9g %s",
	        golden, golden, name, golden, work_dir, device, number(keys, "weight_decay"),
	        number(keys, "learning_rate"), more);
}

static double loss_of(const char *keys, const char *data)
{
	json_t *got;
	double loss;

	assert_ferry_json(&got, "eval %s data=%s compute_dtype=fp32 device=%s --json", keys, data, device);
	loss = number(got, "loss");
	json_decref(got);
	return loss;
}

static void compare(const json_t *run)
{
	static const char *const columns[] = {"loss", "grad_norm"};
	const char *name = json_string_value(json_object_get(run, "name"));
	json_t *rows = rows_with("loss");
	double want = number_at(list_of(run, "merged"), 0);
	char keys[1600], data[700];

	for (int c = 0; c < 2; c++) {
		const json_t *numbers = list_of(run, columns[c]);

		assert_int_equal(json_array_size(rows), json_array_size(numbers));
		for (size_t i = 0; i < json_array_size(numbers); i++)
			assert_relative(number(json_array_get(rows, i), columns[c]), number_at(numbers, i),
			        2e-5, name);
	}
	json_decref(rows);
	snprintf(data, sizeof(data), "%s/tuning/rows.jsonl", golden);
	snprintf(keys, sizeof(keys), "model=%s/run/model", work_dir);
	assert_relative(loss_of(keys, data), want, 2e-5, "the merged model");
	snprintf(keys, sizeof(keys), "model=%s/preference-run/model lora_adapter=%s/run/adapter", golden,
	        work_dir);
	assert_relative(loss_of(keys, data), want, 2e-5, "the adapter");
}

static void test_peft(void **state)
{
	(void)state;
	golden_runs_check("tables/expected.json", 3, train_golden, compare);
}

/* ---- fresh adapters ---- */

#define LORA                                                                                                 \
	"lora_rank=3 lora_alpha=6 learning_rate=1e-2 per_device_train_batch_size=2 max_steps=5 threads=1 "   \
	"gradient_accumulation_steps=2 logging_steps=1 lr_scheduler_type=constant overwrite_output_dir=on "
#define BOTH "'lora_target_modules=[\"embed_tokens\",\"lm_head\",\"v_proj\"]' "

static void train(const char *out, const char *more)
{
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/%s " LORA BOTH "%s", tiny.dir, tiny.data,
	        work_dir, out, more);
}

static void assert_same_results(const char *a, const char *b, const char *why)
{
	char a_path[400], b_path[400];

	assert_same_runs(a, b, why);
	snprintf(a_path, sizeof(a_path), "%s/%s/adapter/adapter_model.safetensors", work_dir, a);
	snprintf(b_path, sizeof(b_path), "%s/%s/adapter/adapter_model.safetensors", work_dir, b);
	assert_same_files(a_path, b_path, why);
}

static void test_offload_changes_no_bit(void **state)
{
	static const char *const numbers[] = {"compute_dtype=bf16 lora_dropout=0.2",
	        "compute_dtype=fp32 optimizer_state=8bit",
	        "use_dora=on compute_dtype=bf16 'lora_target_modules=[\"lm_head\",\"v_proj\"]'"};
	static const char *const others[] = {"cpu_offload=on vram_budget=off",
	        "cpu_offload=on activations=recompute stream_delay_seed=3",
	        "cpu_offload=on wrap_policy=size min_num_params=3000 threads=2"};
	char more[300];

	(void)state;
	for (size_t n = 0; n < sizeof(numbers) / sizeof(*numbers); n++) {
		snprintf(more, sizeof(more), "%s cpu_offload=off activations=keep", numbers[n]);
		train("base", more);
		for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
			snprintf(more, sizeof(more), "%s %s", numbers[n], others[i]);
			train("other", more);
			assert_same_results("base", "other", more);
		}
	}
}

/* A new adapter changes nothing, and the merged model computes what the adapter does. */
static void test_start_and_merge(void **state)
{
	char keys[900], merged[400], made[400];
	double before;

	(void)state;
	snprintf(keys, sizeof(keys), "model=%s", tiny.dir);
	before = loss_of(keys, tiny.data);
	train("a", "learning_rate=0 max_steps=1 compute_dtype=fp32 export_dtype=fp32");
	snprintf(keys, sizeof(keys), "model=%s lora_adapter=%s/a/adapter", tiny.dir, work_dir);
	assert_true(loss_of(keys, tiny.data) == before);
	train("a", "compute_dtype=fp32 export_dtype=fp32");
	assert_true(fabs(loss_of(keys, tiny.data) - before) > 1e-3);
	snprintf(merged, sizeof(merged), "model=%s/a/model", work_dir);
	assert_relative(loss_of(merged, tiny.data), loss_of(keys, tiny.data), 1e-6, "merged by train");
	remove_run("made");
	assert_ferry(0, NULL, "merge %s output_dir=%s/made export_dtype=fp32", keys, work_dir);
	snprintf(merged, sizeof(merged), "%s/a/model/model.safetensors", work_dir);
	snprintf(made, sizeof(made), "%s/made/model.safetensors", work_dir);
	assert_same_files(merged, made, "merged by merge");
}

static void test_ranks_and_resuming(void **state)
{
	(void)state;
	train("one", "optimizer_state=8bit compute_dtype=fp32");
	train("part", "optimizer_state=8bit compute_dtype=fp32 max_steps=2");
	assert_ferry(0, NULL,
	        "train %s/part/config.yaml resume_from_checkpoint=auto max_steps=5 overwrite_output_dir=off",
	        work_dir);
	assert_same_results("one", "part", "resumed");
	train("two", "ranks=2 gradient_accumulation_steps=1 compute_dtype=fp32 optimizer_state=8bit");
	for (int64_t step = 1; step <= 5; step++)
		assert_relative(
		        metric_of("two", step, "loss"), metric_of("one", step, "loss"), 1e-5, "two ranks");
}

static void refuse(const char *keys, const char *says)
{
	assert_ferry(2, NULL, "train %s data=%s output_dir=%s/no max_steps=1 lora_rank=3", keys, tiny.data,
	        work_dir);
	if (!strstr(ferry_said(), says))
		fail_msg("%s: wanted \"%s\": %s", keys, says, ferry_said());
	assert_false(run_has("no/model"));
}

static void test_refused(void **state)
{
	char keys[900];

	(void)state;
	snprintf(keys, sizeof(keys), "model=%s lora_target_modules=embed_tokens use_dora=on", tiny.dir);
	refuse(keys, "lora_target_modules: DoRA of the embedding is not supported; name other modules, or "
	             "leave use_dora");
	snprintf(keys, sizeof(keys), "model=%s lora_target_modules=embed_tokens loraplus_lr_ratio=4",
	        tiny.dir);
	refuse(keys, "loraplus_lr_ratio=4: LoRA+ is not supported with an adapter of the embedding");
	snprintf(keys, sizeof(keys), "model=%s lora_target_modules=lm_head lora_layers=0", tiny.dir);
	refuse(keys, "lora_target_modules: no module is left");
	write_file("tied.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"max_position_embeddings\":128,"
	        "\"tie_word_embeddings\":true}");
	assert_ferry(0, NULL, "init config=%s/tied.json output_dir=%s/tied", work_dir, work_dir);
	for (int i = 0; i < 2; i++) {
		const char *name = i ? "lm_head" : "embed_tokens";
		char says[100];

		snprintf(keys, sizeof(keys), "model=%s/tied 'lora_target_modules=[\"q_proj\",\"%s\"]'",
		        work_dir, name);
		snprintf(says, sizeof(says),
		        "lora_target_modules: %s: the model ties its embedding to its head", name);
		refuse(keys, says);
	}
	assert_ferry(0, NULL,
	        "train model=%s/tied data=%s output_dir=%s/excluded max_steps=1 lora_rank=3 "
	        "lora_exclude_modules=lm_head",
	        work_dir, tiny.data, work_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_peft),
	        cmocka_unit_test(test_offload_changes_no_bit), cmocka_unit_test(test_start_and_merge),
	        cmocka_unit_test(test_ranks_and_resuming), cmocka_unit_test(test_refused)};
	int failed;

	golden_runs_begin("tables");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
