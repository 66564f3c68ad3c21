/* links: cli checkpoint_file */
/* Adapters of all experts in one tensor, in the files of PEFT (tests/golden/make_expert_adapters.py): what
 * they compute, merged and beside the model, and what is written again, in either form. */
#include "tests/adapter_files.h"

static const char *const names[] = {"mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "qwen3_5_moe",
        "deepseek_v3", "gpt_oss", "gpt_oss_up", "gemma4", "granitemoehybrid", "nemotron_h", "qwen3_vl_moe"};
enum { NAMES = sizeof(names) / sizeof(*names) };

#define TRAIN                                                                                                \
	ADAPTER_RUN "max_steps=3 learning_rate=3e-2 logging_steps=1 per_device_train_batch_size=1 "          \
	            "lr_scheduler_type=constant "                                                            \
	            "overwrite_output_dir=on export_dtype=fp32 "

static char golden[600]; /* of a case */

static void golden_find(const char *name)
{
	const char *source = getenv("FERRY_SOURCE");

	snprintf(golden, sizeof(golden), "%s/tests/golden/expert_adapters/%s", source ? source : ".", name);
}

static json_t *losses_of(const char *model, const char *adapter)
{
	return adapter_losses(golden, model, adapter);
}

static void losses_check(
        const char *model, const char *adapter, const json_t *want, double bound, const char *what)
{
	json_t *got = losses_of(model, adapter);

	if (!(list_distance(got, want) <= bound))
		fail_msg("%s, %s: token losses differ by %g", golden, what, list_distance(got, want));
	json_decref(got);
}

static json_t *losses_golden(const char *key)
{
	char path[700];
	json_t *all, *list;

	snprintf(path, sizeof(path), "%s/losses.json", golden);
	assert_int_equal(json_read_file(&all, path, 1 << 20), 0);
	list = json_incref(json_object_get(all, key));
	json_decref(all);
	return list;
}

static void test_of_peft(void **state)
{
	(void)state;
	for (int i = 0; i < NAMES; i++) {
		char base[700], adapter[700], path[800], merged[400], again[400];
		json_t *plain, *adapted;

		golden_find(names[i]);
		plain = losses_golden("plain");
		adapted = losses_golden("adapted");
		assert_true(list_distance(plain, adapted) > 1e-3);
		snprintf(base, sizeof(base), "%s/base", golden);
		snprintf(adapter, sizeof(adapter), "%s/adapter", golden);
		losses_check(base, "", plain, 2e-5, "alone");
		losses_check(base, adapter, adapted, 2e-5, "with the adapter");
		assert_ferry(0, NULL,
		        "merge model=%s lora_adapter=%s output_dir=%s/merged overwrite_output_dir=on "
		        "export_dtype=fp32",
		        base, adapter, work_dir);
		path_of(merged, "merged");
		losses_check(merged, "", adapted, 2e-5, "merged");
		/* and the same file again */
		assert_ferry(0, NULL,
		        "train model=%s lora_adapter=%s data=%s/rows.jsonl data_format=tokens "
		        "output_dir=%s/same " TRAIN "learning_rate=0",
		        base, adapter, golden, work_dir);
		snprintf(path, sizeof(path), "%s/adapter_model.safetensors", adapter);
		path_of(again, "same/adapter/adapter_model.safetensors");
		assert_same_tensors(path, again);
		path_of(again, "same/adapter");
		losses_check(base, again, adapted, 2e-5, "with the adapter written again");
		json_decref(plain);
		json_decref(adapted);
	}
}

static void train(const char *base, const char *out, const char *settings, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s/rows.jsonl data_format=tokens output_dir=%s/%s lora_rank=2 "
	        "lora_alpha=3 " TRAIN "%s %s",
	        base, golden, work_dir, out, settings, more);
}

/* Whether the adapter's file has a tensor with this in its name. */
static int has_tensor(const char *out, const char *part)
{
	struct safetensors *file;
	char path[400];
	int found = 0;

	snprintf(path, sizeof(path), "%s/%s/adapter/adapter_model.safetensors", work_dir, out);
	assert_int_equal(safetensors_open(&file, path), 0);
	for (int64_t i = 0; i < file->tensor_count; i++)
		found |= strstr(file->tensors[i].name, part) != NULL;
	safetensors_close(file);
	return found;
}

/* Trained by parameters, by modules: PEFT loads what auto writes (check_experts.py), so it is fused where
 * PEFT would leave single experts out. Either form computes the same. */
static void test_forms(void **state)
{
	static const struct {
		const char *name, *settings;
		int is_fused, has_modules; /* as auto writes them; the files may have single experts */
	} cases[] = {
	        {"qwen3_moe", "lora_target_parameters=mlp.experts.gate_up_proj,mlp.experts.down_proj", 1, 1},
	        {"qwen3_moe", "lora_target_modules=gate_proj,up_proj,down_proj", 0, 1},
	        {"qwen3_moe", "lora_target_modules=up_proj,down_proj,q_proj", 1, 1},
	        {"qwen3_moe", "lora_target_modules=gate_proj,up_proj lora_rank_pattern='{\"up_proj\": 3}'", 1,
	                1},
	        {"qwen2_moe", "lora_target_modules=gate_proj,up_proj,down_proj", 1, 1},
	        {"qwen3_5_moe", "'lora_target_modules=.*experts\\..*'", 1, 1},
	        {"mixtral", "lora_target_modules=w1,w2,w3", 0, 1},
	        {"mixtral", "lora_target_parameters='[\"experts.down_proj\"]' lora_target_modules=q_proj", 1,
	                1},
	        {"nemotron_h", "lora_target_modules=up_proj,down_proj", 1, 1},
	        {"gpt_oss", "lora_target_parameters=gate_up_proj,down_proj lora_target_modules=", 1, 0},
	        {"granitemoehybrid", "lora_target_parameters=block_sparse_moe.experts.gate_up_proj", 1, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		static const char *const forms[] = {"auto", "fused", "per_expert"};
		json_t *want = NULL, *plain;
		char base[700];

		golden_find(cases[i].name);
		snprintf(base, sizeof(base), "%s/base", golden);
		plain = losses_golden("plain");
		for (int form = 0; form < 3; form++) {
			int is_fused = form == 1 || !cases[i].has_modules || (!form && cases[i].is_fused);
			char key[100], adapter[400], model[400];

			snprintf(key, sizeof(key), "lora_expert_form=%s", forms[form]);
			train(base, "out", cases[i].settings, key);
			path_of(adapter, "out/adapter");
			path_of(model, "out/model");
			want = want ? want : losses_of(model, "");
			assert_true(list_distance(want, plain) > 1e-4);
			losses_check(base, adapter, want, 2e-5, cases[i].settings);
			if (has_tensor("out", "experts.lora_A") != is_fused ||
			        has_tensor("out", ".experts.1.") == is_fused)
				fail_msg("%s, %s: another form", cases[i].settings, key);
		}
		json_decref(want);
		json_decref(plain);
	}
}

/* Where weights lie changes no bit; a run goes on from a checkpoint, and from its adapter's file. */
static void test_runs(void **state)
{
	static const char *const settings[] = {
	        "lora_target_parameters=experts.gate_up_proj,experts.down_proj compute_dtype=bf16",
	        "lora_target_parameters=experts.gate_up_proj lora_target_modules= optimizer_state=8bit"};
	char base[700];

	(void)state;
	for (int i = 0; i < 4; i++) {
		const char *s = settings[i % 2];
		char paths[2][400];

		golden_find(i < 2 ? "gpt_oss" : "qwen2_moe");
		snprintf(base, sizeof(base), "%s/base", golden);
		train(base, "off", s, "cpu_offload=off");
		train(base, "on", s,
		        "cpu_offload=on vram_budget=off activations=offload stream_delay_seed=5");
		assert_same_runs("off", "on", s);
		train(base, "part", s, "max_steps=2 save_steps=2 save_strategy=steps");
		assert_ferry(0, NULL, "train %s/part/config.yaml resume_from_checkpoint=auto max_steps=3",
		        work_dir);
		train(base, "whole", s, "save_steps=2");
		assert_same_runs("part", "whole", s);
		path_of(paths[0], "part/adapter/adapter_model.safetensors");
		path_of(paths[1], "whole/adapter/adapter_model.safetensors");
		assert_same_files(paths[0], paths[1], s);
	}
}

/* Experts and routers that train whole beside an adapter: its files have them under transformers' names, and
 * no module within another one of the list, on which PEFT fails. */
static void test_whole_modules(void **state)
{
	static const struct {
		const char *name, *saved, *module, *tensor;
	} cases[] = {{"gpt_oss", "experts", "0.mlp.experts", "0.mlp.experts.gate_up_proj_bias"},
	        {"qwen3_moe", "experts", "1.mlp.experts", "1.mlp.experts.gate_up_proj"},
	        {"granitemoehybrid", "experts", "0.block_sparse_moe.experts",
	                "0.block_sparse_moe.experts.down_proj"},
	        {"granitemoehybrid", "router", "0.block_sparse_moe.router",
	                "0.block_sparse_moe.router.weight"},
	        {"mixtral", "experts", "0.mlp.experts", "0.mlp.experts.gate_up_proj"},
	        {"mixtral", "mlp.gate", "0.mlp.gate", "0.mlp.gate.weight"},
	        {"gemma4", "router", "0.router", "0.router.proj.weight"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char base[700], path[400], settings[200], module[100];
		json_t *config, *plain, *adapted, *saved;
		size_t k;

		golden_find(cases[i].name);
		snprintf(base, sizeof(base), "%s/base", golden);
		snprintf(settings, sizeof(settings), "lora_target_modules=q_proj lora_modules_to_save=%s",
		        cases[i].saved);
		train(base, "saved", settings, "lora_expert_form=fused");
		assert_non_null(strstr(
		        ferry_said(), "lora_expert_form=fused has no effect: no expert has an adapter"));
		plain = losses_of(base, "");
		path_of(path, "saved/adapter");
		adapted = losses_of(base, path);
		if (!(list_distance(plain, adapted) > 2e-4))
			fail_msg("%s, %s: nothing was trained", cases[i].name, cases[i].saved);
		path_of(path, "saved/model");
		losses_check(path, "", adapted, 1e-5, "merged");
		path_of(path, "saved/adapter/adapter_config.json");
		assert_int_equal(json_read_file(&config, path, 1 << 20), 0);
		saved = json_object_get(config, "modules_to_save");
		snprintf(module, sizeof(module), "model.layers.%s", cases[i].module);
		assert_string_equal(json_string_value(json_array_get(saved, 0)), module);
		for (k = 1; k < json_array_size(saved); k++)
			assert_null(strstr(json_string_value(json_array_get(saved, k)), ".proj"));
		snprintf(module, sizeof(module), "base_model.model.model.layers.%s", cases[i].tensor);
		assert_true(has_tensor("saved", module));
		json_decref(config);
		json_decref(plain);
		json_decref(adapted);
	}
}

static void test_refused(void **state)
{
	static const char *const cases[][2] = {
	        {"lora_target_parameters=mlp.experts.gate_proj",
	                "mlp.experts.gate_proj: the model has no such parameter; those of its experts are "
	                "experts.gate_up_proj, experts.down_proj"},
	        {"lora_target_parameters=mlp.experts.gate_up_proj,mlp.experts.dwn_proj",
	                "mlp.experts.dwn_proj"},
	        {"lora_target_parameters=embed_tokens.weight",
	                "an adapter of this parameter is not supported"},
	        {"lora_target_parameters=experts.down_proj use_dora=on", "DoRA of experts is not supported"},
	        {"lora_target_parameters=experts.down_proj lora_dropout=0.1",
	                "adapters of experts and routers have none"},
	        {"lora_target_modules=", "names no module"},
	};
	char base[700];

	(void)state;
	golden_find("qwen3_moe");
	snprintf(base, sizeof(base), "%s/base", golden);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_ferry(2, NULL,
		        "train model=%s data=%s/rows.jsonl data_format=tokens output_dir=%s/no "
		        "lora_rank=2 " TRAIN "%s",
		        base, golden, work_dir, cases[i][0]);
		if (!strstr(ferry_said(), cases[i][1]))
			fail_msg("%s: %s", cases[i][0], ferry_said());
	}
}

/* A file's header with a tensor less: `from` of its name becomes `to`, of the same length. */
static void rename_in(const char *path, const char *from, const char *to)
{
	size_t len;
	char *data = read_file(path, &len), *at = memmem(data, len, from, strlen(from));

	assert_non_null(at);
	assert_int_equal(strlen(from), strlen(to));
	memcpy(at, to, strlen(to));
	assert_int_equal(file_write_all(path, data, len), 0);
	mem_free(data);
}

/* tests/golden/draw_bad_mixtures.py draws more. */
static void test_missing_experts_are_named(void **state)
{
	static const struct {
		const char *name, *file, *from, *to, *says;
	} cases[] = {
	        {"qwen2_moe", "base/model.safetensors", "layers.1.mlp.experts.3.up_proj",
	                "layers.9.mlp.experts.3.up_proj",
	                "\"model.layers.1.mlp.experts.3.up_proj.weight\" is missing, and"},
	        {"mixtral", "base/model.safetensors", "experts.4.w2.weight", "experts.7.w2.weight",
	                "experts.7.w2.weight"},
	        {"nemotron_h", "adapter/adapter_model.safetensors", "experts.base_layer.lora_B",
	                "experts.base_layer.lora_C", "model.layers.3.mixer.experts.base_layer.lora_"},
	        {"gpt_oss", "adapter/adapter_model.safetensors", "layers.1.mlp.experts.lora_A",
	                "layers.9.mlp.experts.lora_A", "layers.9.mlp.experts.lora_A"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char command[1500], path[400];

		golden_find(cases[i].name);
		remove_run("bad");
		snprintf(command, sizeof(command), "cp -r %s %s/bad && chmod -R u+w %s/bad", golden, work_dir,
		        work_dir);
		assert_int_equal(system(command), 0);
		snprintf(path, sizeof(path), "%s/bad/%s", work_dir, cases[i].file);
		rename_in(path, cases[i].from, cases[i].to);
		assert_ferry(2, NULL, "merge model=%s/bad/base lora_adapter=%s/bad/adapter output_dir=%s/no",
		        work_dir, work_dir, work_dir);
		if (!strstr(ferry_said(), cases[i].says))
			fail_msg("%s: %s", cases[i].says, ferry_said());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_of_peft), cmocka_unit_test(test_forms),
	        cmocka_unit_test(test_runs), cmocka_unit_test(test_whole_modules),
	        cmocka_unit_test(test_refused), cmocka_unit_test(test_missing_experts_are_named)};
	int failed;

	ferry_run_begin("run-expert-files");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
