/* links: cli */
/* Adapters as other programs write them: read, or refused by what is wrong. */
#include "tests/adapter_file.h"
#include "tests/run_disks.h"

static struct run_model tiny;

/* A new adapter of rank 2 in work_dir/a. */
static void make(void)
{
	char command[1200];

	snprintf(command, sizeof(command), "rm -rf %s/a %s/merged && cp -r %s/run/adapter %s/a", work_dir,
	        work_dir, work_dir, work_dir);
	assert_int_equal(system(command), 0);
}

static void merge(int code)
{
	assert_ferry(code, NULL, "merge model=%s lora_adapter=%s/a output_dir=%s/merged overwrite=on",
	        tiny.dir, work_dir, work_dir);
}

static void assert_said(const char *text)
{
	if (!strstr(ferry_said(), text))
		fail_msg("\"%s\" is not in: %s", text, ferry_said());
}

static void assert_same_results(const char *a, const char *b)
{
	char paths[2][400];

	path_of(paths[0], a);
	path_of(paths[1], b);
	assert_same_files(paths[0], paths[1], a);
}

/* One tensor under two names that each would fit. */
static void test_two_names(void **state)
{
	struct adapter_file f;

	(void)state;
	make();
	adapter_open(&f, "a");
	adapter_add(&f, "base_model.model.layers.1.self_attn.q_proj.lora_B.weight", 32, 2, 0);
	adapter_close(&f);
	merge(2);
	assert_said("\"base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight\" and "
	            "\"base_model.model.layers.1.self_attn.q_proj.lora_B.weight\" are two names of one "
	            "tensor");
	make();
	adapter_open(&f, "a");
	adapter_rename(
	        &f, "model.model.layers.1.self_attn.q_proj.lora_B", "model.layers.1.self_attn.q_proj.lora_B");
	adapter_close(&f);
	merge(0);
}

/* Finite values of which a product is not: no verb writes the sum. */
static void test_overflow(void **state)
{
	static const char *const dtypes[] = {"bf16", "fp32"};
	struct adapter_file f;

	(void)state;
	make();
	adapter_open(&f, "a");
	adapter_fill(&f, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", 3e38f);
	adapter_fill(&f, "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight", 2);
	adapter_close(&f);
	for (int i = 0; i < 2; i++) {
		assert_ferry(2, NULL, "merge model=%s lora_adapter=%s/a output_dir=%s/merged export_dtype=%s",
		        tiny.dir, work_dir, work_dir, dtypes[i]);
		assert_said("model.layers.0.self_attn.q_proj.weight is not finite at element 0");
		assert_false(run_has("merged"));
	}
	/* a run that takes no step has no result */
	remove_run("out");
	assert_ferry(4, NULL,
	        "train model=%s lora_adapter=%s/a data=%s output_dir=%s/out max_steps=2 threads=1", tiny.dir,
	        work_dir, tiny.data, work_dir);
	assert_said("all 2 steps were skipped, the last one because");
	assert_said("lower learning_rate");
	assert_false(run_has("out/model"));
	assert_false(run_has("out/adapter"));
}

/* Trains on from an adapter of this alpha that computes nothing yet. */
static void train_scaled(int code, double alpha, double rate, int steps)
{
	struct adapter_file f;
	const char *name;
	json_t *value;

	make();
	adapter_set("a", "lora_alpha", json_real(alpha));
	adapter_open(&f, "a");
	json_object_foreach(f.header, name, value)
	{
		if (strstr(name, "lora_B"))
			adapter_fill(&f, name, 0);
	}
	adapter_close(&f);
	remove_run("out");
	assert_ferry(code, NULL,
	        "train model=%s data=%s output_dir=%s/out lora_adapter=%s/a max_steps=%d threads=1 "
	        "learning_rate=%g lr_scheduler_type=constant compute_dtype=fp32",
	        tiny.dir, tiny.data, work_dir, work_dir, steps, rate);
}

/* The first step makes the adapters so large that the others are skipped, or that the sum is not finite. */
static void test_last_skipped(void **state)
{
	(void)state;
	train_scaled(0, 1e28, 100, 3);
	assert_said("the last 2 steps were skipped, because");
	assert_said("the result is that of step 1");
	train_scaled(4, 1e37, 1000, 1);
	assert_said("is not finite at element");
	assert_false(run_has("out/model"));
}

#define HEAD "base_model.model.lm_head.weight"
#define EMBED "base_model.model.model.embed_tokens.weight"

/* PEFT's save_embedding_layers: values of the model's own tensors, which no training changes. */
static void test_embedding_saved(void **state)
{
	struct adapter_file f;

	(void)state;
	for (int tied = 0; tied < 2; tied++) {
		char model[400];
		json_t *offsets;
		float value;

		write_file("own.json", TINY_CONFIG, tied ? "true" : "false");
		assert_ferry(0, NULL, "init config=%s/own.json output_dir=%s/own overwrite=on", work_dir,
		        work_dir);
		path_of(model, "own");
		make();
		adapter_open(&f, "a");
		adapter_add(&f, HEAD, 64, 32, 0.123f);
		adapter_add(&f, EMBED, 64, 32, tied ? 0.123f : 0.2f);
		adapter_close(&f);
		remove_run("out");
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/out lora_adapter=%s/a max_steps=2 threads=1 "
		        "learning_rate=1e-2 export_dtype=fp32 save_steps=1",
		        model, tiny.data, work_dir, work_dir);
		adapter_open(&f, "out/adapter");
		offsets = json_object_get(json_object_get(f.header, EMBED), "data_offsets");
		assert_non_null(offsets);
		memcpy(&value, f.data.data + json_integer_value(json_array_get(offsets, 0)), 4);
		assert_true(value == (tied ? 0.123f : 0.2f));
		assert_true(tied == !json_object_get(f.header, HEAD));
		adapter_close(&f);
		remove_run("merged");
		assert_ferry(0, NULL,
		        "merge model=%s lora_adapter=%s/out/adapter output_dir=%s/merged export_dtype=fp32",
		        model, work_dir, work_dir);
		assert_same_results("merged/model.safetensors", "out/model/model.safetensors");
		remove_run("merged");
		assert_ferry(0, NULL,
		        "export checkpoint=%s/out model=%s output_dir=%s/merged export_dtype=fp32", work_dir,
		        model, work_dir);
		assert_same_results("merged/model.safetensors", "out/model/model.safetensors");
	}
	/* values for one tensor that differ, and another vocabulary */
	adapter_open(&f, "a");
	adapter_fill(&f, HEAD, 1);
	adapter_close(&f);
	assert_ferry(2, NULL, "merge model=%s/own lora_adapter=%s/a output_dir=%s/no", work_dir, work_dir,
	        work_dir);
	assert_said("differ, but the model has one tensor for both");
	make();
	adapter_open(&f, "a");
	adapter_add(&f, EMBED, 66, 32, 1);
	adapter_close(&f);
	merge(2);
	assert_said(
	        "for 66 tokens (PEFT's save_embedding_layers), but the model has 64; in transformers call "
	        "resize_token_embeddings(66)");
}

/* What the file says and ferry does not do is said, where it matters. */
static void test_config_said(void **state)
{
	(void)state;
	make();
	adapter_set("a", "lora_dropout", json_real(0.05));
	adapter_set("a", "new_thing", json_pack("{s:i}", "a", 1));
	adapter_set("a", "other_thing", json_null());
	merge(0);
	assert_said("ignoring new_thing, which ferry does not know");
	assert_null(strstr(ferry_said(), "other_thing"));
	assert_null(strstr(ferry_said(), "dropout"));
	remove_run("out");
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/out lora_adapter=%s/a max_steps=1 threads=1", tiny.dir,
	        tiny.data, work_dir, work_dir);
	assert_said("has lora_dropout=0.05, and so has this run");
	adapter_set("a", "kasa_config", json_pack("{s:i}", "beta", 1));
	merge(2);
	assert_said("kasa_config is not supported");
	make();
	adapter_set("a", "lora_dropout", json_string("a"));
	merge(2);
	assert_said("lora_dropout");
}

static int model_is_too_large(void *context, const struct file_call *call)
{
	(void)context;
	return call->kind == FILE_CALL_WRITE && call->path && strstr(call->path, "/out/model.") ? ENOSPC : 0;
}

/* Without room for the merged model the adapter is there, and the next call completes the result. */
static void test_adapter_first(void **state)
{
	(void)state;
	remove_run("out");
	assert_int_equal(run_hooked(model_is_too_large, NULL,
	                         "train model=%s data=%s output_dir=%s/out lora_rank=2 max_steps=2 threads=1 "
	                         "device=host",
	                         tiny.dir, tiny.data, work_dir),
	        1);
	assert_said("out/adapter holds the adapter of step 2; only the merged model is missing");
	assert_false(run_has("out/model"));
	assert_ferry(0, NULL, "merge model=%s lora_adapter=%s/out/adapter output_dir=%s/merged", tiny.dir,
	        work_dir, work_dir);
	assert_ferry(0, NULL, "train %s/out/config.yaml resume_from_checkpoint=auto", work_dir);
	assert_true(run_has("out/model/model.safetensors"));
}

/* Lists of targets for several models: what fits counts; if nothing does, an error. */
static void test_other_models(void **state)
{
	(void)state;
	make();
	adapter_set("a", "target_modules", json_pack("[s,s,s,s]", "wq", "q_proj", "c_attn", "v_proj"));
	adapter_set("a", "modules_to_save", json_pack("[s]", "score"));
	merge(0);
	assert_null(strstr(ferry_said(), "wq"));
	adapter_set("a", "target_modules", json_pack("[s,s]", "wq", "c_attn"));
	merge(2);
	assert_said("target_modules: wq, c_attn: the model has no such module; it has: embed_tokens, q_proj, "
	            "k_proj");
	adapter_set("a", "target_modules", json_pack("[s,s,s]", "q_proj", "v_proj", "lm_head"));
	merge(2);
	assert_said("\"base_model.model.lm_head.lora_A.weight\" is missing");
	remove_run("out");
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/out lora_rank=2 max_steps=1 threads=1 "
	        "lora_target_modules=q_proj,wq,c_attn lora_modules_to_save=score,norm",
	        tiny.dir, tiny.data, work_dir);
	assert_said("lora_target_modules: the model has no module wq, c_attn; it has embed_tokens, q_proj, "
	            "k_proj");
	assert_said("lora_modules_to_save: the model has no module score");
	assert_ferry(2, NULL,
	        "train model=%s data=%s output_dir=%s/no lora_rank=2 lora_target_modules=wq,c_attn", tiny.dir,
	        tiny.data, work_dir);
	assert_said("wq, c_attn: the model has no such module; it has: embed_tokens, q_proj");
	assert_ferry(2, NULL,
	        "train model=%s data=%s output_dir=%s/no lora_rank=2 lora_modules_to_save=score", tiny.dir,
	        tiny.data, work_dir);
	assert_said("score: the model has no such module");
}

/* The head of GPT-NeoX is embed_out in models and lm_head in the modules of transformers 5, so in adapters.
 */
static void test_head_name(void **state)
{
	static const char *const names[] = {"embed_out", "lm_head"};
	char path[400];
	json_t *config;

	(void)state;
	write_file("neox.json",
	        "{\"model_type\":\"gpt_neox\",\"vocab_size\":64,\"hidden_size\":32,"
	        "\"intermediate_size\":48,\"num_hidden_layers\":2,\"num_attention_heads\":4}");
	assert_ferry(0, NULL, "init config=%s/neox.json output_dir=%s/neox overwrite=on", work_dir, work_dir);
	for (int i = 0; i < 2; i++) {
		struct adapter_file f;

		remove_run("out");
		assert_ferry(0, NULL,
		        "train model=%s/neox data=%s output_dir=%s/out lora_rank=2 max_steps=1 threads=1 "
		        "lora_modules_to_save=%s learning_rate=1e-2",
		        work_dir, tiny.data, work_dir, names[i]);
		path_of(path, "out/adapter/adapter_config.json");
		assert_int_equal(json_read_file(&config, path, 1 << 20), 0);
		assert_string_equal(
		        json_string_value(json_array_get(json_object_get(config, "modules_to_save"), 0)),
		        "lm_head");
		json_decref(config);
		adapter_open(&f, "out/adapter");
		assert_non_null(json_object_get(f.header, "base_model.model.lm_head.weight"));
		if (i) /* and as transformers 4 names it */
			adapter_rename(&f, "lm_head", "embed_out");
		adapter_close(&f);
		if (i)
			adapter_set("out/adapter", "modules_to_save", json_pack("[s]", "embed_out"));
		remove_run("merged");
		assert_ferry(0, NULL, "merge model=%s/neox lora_adapter=%s/out/adapter output_dir=%s/merged",
		        work_dir, work_dir, work_dir);
		assert_same_results("merged/model.safetensors", "out/model/model.safetensors");
	}
}

static const char nemotron_config[] =
        "{\"model_type\":\"nemotron_h\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,"
        "\"hybrid_override_pattern\":\"M*-\",\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"head_dim\":8,\"mamba_num_heads\":4,\"mamba_head_dim\":16,\"n_groups\":2,\"ssm_state_size\":8}";

/* The modules of Nemotron-H are "backbone." in models and "model." in transformers 5, so in adapters; both
 * are read. */
static void test_module_prefix(void **state)
{
	static const char *const modules[] = {"in_proj,q_proj,up_proj", "model\\.layers\\..*(in|q|up)_proj",
	        "backbone\\.layers\\..*(in|q|up)_proj"};
	static const char module[] = "base_model.model.model.layers.0.mixer.in_proj.lora_A.weight";
	char path[400];
	json_t *config;

	(void)state;
	write_file("nemotron.json", nemotron_config);
	assert_ferry(0, NULL, "init config=%s/nemotron.json output_dir=%s/nemotron overwrite=on", work_dir,
	        work_dir);
	assert_ferry(0, NULL, "train model=%s/nemotron data=%s output_dir=%s/out lora_rank=2 dry_run=on",
	        work_dir, tiny.data, work_dir);
	assert_said(
	        "PEFT loads no adapter of out_proj in this family; for an adapter that it loads whole, set "
	        "lora_exclude_modules=out_proj");
	for (int i = 0; i < 3; i++) {
		struct adapter_file f;

		remove_run("out");
		assert_ferry(0, NULL,
		        "train model=%s/nemotron data=%s output_dir=%s/out lora_rank=2 max_steps=1 threads=1 "
		        "'lora_target_modules=%s' learning_rate=1e-2",
		        work_dir, tiny.data, work_dir, modules[i]);
		path_of(path, "out/adapter/adapter_config.json");
		assert_int_equal(json_read_file(&config, path, 1 << 20), 0);
		assert_string_equal(
		        json_string_value(json_array_get(json_object_get(config, "target_modules"), 0)),
		        "model.layers.0.mixer.in_proj");
		json_decref(config);
		adapter_open(&f, "out/adapter");
		assert_int_equal(json_object_size(f.header), 1 + 3 * 2);
		assert_non_null(json_object_get(f.header, module));
		adapter_close(&f);
		remove_run("merged");
		assert_ferry(0, NULL,
		        "merge model=%s/nemotron lora_adapter=%s/out/adapter output_dir=%s/merged", work_dir,
		        work_dir, work_dir);
		assert_same_results("merged/model.safetensors", "out/model/model.safetensors");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_two_names),
	        cmocka_unit_test(test_module_prefix),
	        cmocka_unit_test(test_other_models),
	        cmocka_unit_test(test_head_name),
	        cmocka_unit_test(test_embedding_saved),
	        cmocka_unit_test(test_config_said),
	        cmocka_unit_test(test_overflow),
	        cmocka_unit_test(test_last_skipped),
	        cmocka_unit_test(test_adapter_first),
	};
	int failed;

	ferry_run_begin("adapter");
	tiny_model(&tiny);
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/run lora_rank=2 lora_target_modules=q_proj,v_proj "
	        "max_steps=1 threads=1 learning_rate=1e-2",
	        tiny.dir, tiny.data, work_dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
