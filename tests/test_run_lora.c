/* links: cli */
/* Runs that train adapters: no setting of offload changes a bit, resumed runs equal others, checkpoints
 * verify and export, the result goes round, and refusals. */
#include "tests/run_fixture.h"
#include "tests/sparing.h"

#include <math.h>

static struct run_model tiny;

#define LORA                                                                                                 \
	"lora_rank=3 lora_alpha=6 learning_rate=1e-2 per_device_train_batch_size=2 max_steps=5 threads=1 "   \
	"logging_steps=1 lr_scheduler_type=constant overwrite_output_dir=on "

static void train(const char *out, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/%s " LORA "gradient_accumulation_steps=2 %s", tiny.dir,
	        tiny.data, work_dir, out, more);
}

/* Metrics, model and adapter. */
static void assert_same_results(const char *a, const char *b, const char *why)
{
	static const char *const files[] = {
	        "adapter/adapter_model.safetensors", "adapter/adapter_config.json"};
	char a_path[400], b_path[400];

	assert_same_runs(a, b, why);
	for (int i = 0; i < 2; i++) {
		snprintf(a_path, sizeof(a_path), "%s/%s/%s", work_dir, a, files[i]);
		snprintf(b_path, sizeof(b_path), "%s/%s/%s", work_dir, b, files[i]);
		assert_same_files(a_path, b_path, why);
	}
}

static void assert_differ(const char *a, const char *b)
{
	char command[1000];

	snprintf(command, sizeof(command), "cmp -s %s/%s %s/%s", work_dir, a, work_dir, b);
	assert_int_not_equal(system(command), 0);
}

static double loss_of(const char *model_and_keys, const char *path)
{
	json_t *got;
	double loss;

	assert_ferry_json(
	        &got, "eval %s%s data=%s compute_dtype=fp32 --json", model_and_keys, path, tiny.data);
	loss = json_number_value(json_object_get(got, "loss"));
	json_decref(got);
	return loss;
}

static void test_offload_changes_no_bit(void **state)
{
	static const char *const dtypes[] = {"compute_dtype=bf16", "compute_dtype=fp32 optimizer_state=8bit"};
	static const char *const others[] = {
	        "cpu_offload=on vram_budget=off",
	        "cpu_offload=on activations=offload",
	        "cpu_offload=params activations=recompute",
	        "cpu_offload=optimizer activations=keep stream_delay_seed=4",
	        "cpu_offload=off activations=recompute",
	        "cpu_offload=on vram_budget=off schedule=micro_batch_major",
	        "cpu_offload=off schedule=micro_batch_major",
	        "cpu_offload=on wrap_policy=size min_num_params=3000 stream_delay_seed=2",
	        "cpu_offload=on threads=2 wrap_policy=none",
	};
	char more[300];

	(void)state;
	for (size_t d = 0; d < 2; d++) {
		snprintf(more, sizeof(more), "%s cpu_offload=off activations=keep", dtypes[d]);
		train("base", more);
		for (size_t i = 0; i < sizeof(others) / sizeof(*others); i += (size_t)sparing(2)) {
			snprintf(more, sizeof(more), "%s %s", dtypes[d], others[i]);
			train("other", more);
			assert_same_results("base", "other", more);
		}
	}
}

/* B is zero at first: the first loss is the model's own. Without a step the result is the model. */
static void test_start(void **state)
{
	char *with, *without;

	(void)state;
	train("with", "max_steps=1 learning_rate=0");
	train("without", "max_steps=1 learning_rate=0 lora_rank=0");
	with = run_numbers("with");
	without = run_numbers("without");
	*strstr(with, " grad_norm") = 0;
	*strstr(without, " grad_norm") = 0;
	assert_string_equal(with, without);
	mem_free(with);
	mem_free(without);
	assert_false(run_has("without/adapter"));
	with = mem_printf("%s/with/model/model.safetensors", work_dir);
	without = mem_printf("%s/without/model/model.safetensors", work_dir);
	assert_same_files(with, without, "no step was made");
	mem_free(with);
	mem_free(without);
}

static void generate(struct str *out, const char *model)
{
	assert_ferry(0, out,
	        "generate model=%s prompt_ids=1,2,3 max_new_tokens=20 do_sample=off compute_dtype=fp32 "
	        "--json",
	        model);
}

/* The frozen model with the adapter beside it computes what the merged model does. */
static void test_merged(void **state)
{
	char adapter[1000];
	double merged, beside, base;
	struct str with = {0}, of_merged = {0};

	(void)state;
	train("a", "export_dtype=fp32");
	snprintf(adapter, sizeof(adapter), "%s lora_adapter=%s/a/adapter", tiny.dir, work_dir);
	beside = loss_of("model=", adapter);
	snprintf(adapter, sizeof(adapter), "%s/a/model", work_dir);
	merged = loss_of("model=", adapter);
	base = loss_of("model=", tiny.dir);
	assert_true(fabs(merged - beside) <= 1e-6 * beside);
	assert_true(fabs(base - beside) > 1e-3 * base);
	snprintf(adapter, sizeof(adapter), "%s lora_adapter=%s/a/adapter", tiny.dir, work_dir);
	generate(&with, adapter);
	snprintf(adapter, sizeof(adapter), "%s/a/model", work_dir);
	generate(&of_merged, adapter);
	assert_string_equal(with.data, of_merged.data);
	str_free(&with);
	str_free(&of_merged);
}

/* A parameter of the model that trains as well is in the merged model and the checkpoint, not in the adapter.
 */
static void test_trainable(void **state)
{
	char path[400], other[400];

	(void)state;
	train("base", "trainable=lm_head.weight activations=keep cpu_offload=off");
	assert_non_null(
	        strstr(ferry_said(), "has the adapter only; lm_head.weight and other trained parameters"));
	train("a", "trainable=lm_head.weight cpu_offload=on vram_budget=off");
	assert_same_results("base", "a", "a trained head");
	train("b", "");
	assert_differ("a/adapter/adapter_model.safetensors", "b/adapter/adapter_model.safetensors");
	remove_run("out");
	assert_ferry(
	        0, NULL, "export checkpoint=%s/a model=%s output_dir=%s/out", work_dir, tiny.dir, work_dir);
	path_of(path, "a/model/model.safetensors");
	path_of(other, "out/model.safetensors");
	assert_same_files(path, other, "the exported checkpoint");
}

/* Without a step, an adapter comes out as it went in. */
static void test_adapter_comes_back(void **state)
{
	char more[1000];

	(void)state;
	train("a", "use_rslora=on lora_target_modules='[\"v_proj\",\"mlp.down_proj\"]'");
	snprintf(more, sizeof(more), "lora_rank=0 lora_alpha=auto lora_adapter=%s/a/adapter learning_rate=0",
	        work_dir);
	train("b", more);
	snprintf(more, sizeof(more),
	        "cmp %s/a/adapter/adapter_model.safetensors "
	        "%s/b/adapter/adapter_model.safetensors",
	        work_dir, work_dir);
	assert_int_equal(system(more), 0);
	snprintf(more, sizeof(more), "cmp %s/a/model/model.safetensors %s/b/model/model.safetensors",
	        work_dir, work_dir);
	assert_int_equal(system(more), 0);
}

static void test_ranks(void **state)
{
	static const char *const strategies[] = {"FULL_SHARD", "NO_SHARD"};
	char *one, *two, *at, *other;

	(void)state;
	train("one", "compute_dtype=fp32 export_dtype=fp32");
	one = run_numbers("one");
	for (int i = 0; i < 2; i++) {
		int rows = 0;

		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/two " LORA
		        "compute_dtype=fp32 export_dtype=fp32 gradient_accumulation_steps=1 ranks=2 "
		        "sharding_strategy=%s",
		        tiny.dir, tiny.data, work_dir, strategies[i]);
		at = one;
		other = two = run_numbers("two");
		while ((at = strstr(at, " loss ")) && (other = strstr(other, " loss "))) {
			double a = strtod(at += 6, NULL), b = strtod(other += 6, NULL);

			if (!(fabs(a - b) <= 1e-5 * a))
				fail_msg("one rank %.9g, two %.9g", a, b);
			rows++;
		}
		assert_int_equal(rows, 5);
		mem_free(two);
		assert_ferry(0, NULL, "verify %s/two", work_dir);
	}
	mem_free(one);
}

/* A run that SIGTERM stops, and its rest. With sparse saves and with offload. */
static void test_resumed(void **state)
{
	static const char *const more[] = {
	        "cpu_offload=off", "cpu_offload=on vram_budget=off optimizer_state=8bit"};
	const char *binary = getenv("FERRY_BINARY");
	char command[2000];

	(void)state;
	for (int i = 0; i < 2; i++) {
		pid_t pid;

		train("whole", more[i]);
		remove_run("part");
		snprintf(command, sizeof(command),
		        "%s train model=%s data=%s output_dir=%s/part " LORA
		        "gradient_accumulation_steps=2 %s host_copy_gbps=0.0005",
		        binary ? binary : "build/ferry", tiny.dir, tiny.data, work_dir, more[i]);
		pid = run_start(command);
		assert_int_equal(run_signal(pid, SIGTERM, "part", 2, 0), 3);
		assert_false(run_has("part/model"));
		assert_false(run_has("part/adapter"));
		assert_ferry(0, NULL,
		        "train %s/part/config.yaml resume_from_checkpoint=auto host_copy_gbps=off "
		        "overwrite_output_dir=off",
		        work_dir);
		assert_non_null(strstr(ferry_said(), "at step "));
		assert_same_results("whole", "part", more[i]);
	}
}

/* Another rank, other modules, no adapters: other tensors. */
static void test_resume_refusals(void **state)
{
	static const char *const others[][2] = {
	        {"lora_rank=4",
	                "lora_rank was 3 in this run and is 4, so its adapters are others; set lora_rank=3"},
	        {"lora_target_modules=q_proj",
	                "lora_target_modules was all-linear in this run and is q_proj"},
	        {"lora_rank=0", "lora_rank was 3 in this run and is 0"},
	};

	char path[400];

	(void)state;
	train("a", "max_steps=2");
	for (int i = 0; i < 3; i++) {
		assert_ferry(2, NULL,
		        "train %s/a/config.yaml resume_from_checkpoint=auto max_steps=3 %s "
		        "overwrite_output_dir=off",
		        work_dir, others[i][0]);
		if (!strstr(ferry_said(), others[i][1]))
			fail_msg("%s: %s", others[i][0], ferry_said());
	}
	assert_ferry(0, NULL,
	        "train %s/a/config.yaml resume_from_checkpoint=auto max_steps=3 lora_alpha=9 "
	        "overwrite_output_dir=off",
	        work_dir);
	assert_non_null(
	        strstr(ferry_said(), "lora_alpha of the adapters is 9 from here on; the checkpoint had 6"));

	/* an adapter whose config was changed meanwhile */
	snprintf(path, sizeof(path), "lora_rank=0 lora_alpha=auto lora_adapter=%s/a/adapter max_steps=2",
	        work_dir);
	train("b", path);
	write_file("a/adapter/adapter_config.json",
	        "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":3,\"target_modules\":\"all-linear\"}");
	assert_ferry(0, NULL,
	        "train %s/b/config.yaml resume_from_checkpoint=auto max_steps=3 overwrite_output_dir=off",
	        work_dir);
	assert_non_null(
	        strstr(ferry_said(), "lora_alpha of the adapters is 3 from here on; the checkpoint had 9"));
}

/* A checkpoint holds adapters; export merges them into the model that it is told. */
static void test_export(void **state)
{
	static const char *const more[] = {
	        "", "use_rslora=on lora_alpha=5 lora_target_modules=q_proj export_dtype=fp32"};
	char path[400], other[400];
	const json_t *got_adapter;
	json_t *got;

	(void)state;
	for (int i = 0; i < 2; i++) {
		remove_run("out");
		train("a", more[i]);
		assert_ferry(0, NULL, "verify %s/a", work_dir);
		assert_ferry(0, NULL, "export checkpoint=%s/a model=%s output_dir=%s/out", work_dir, tiny.dir,
		        work_dir);
		snprintf(path, sizeof(path), "%s/a/model/model.safetensors", work_dir);
		snprintf(other, sizeof(other), "%s/out/model.safetensors", work_dir);
		assert_same_files(path, other, "the exported checkpoint");
	}
	assert_ferry(0, NULL, "inspect path=%s/a/adapter", work_dir);
	assert_ferry_json(&got, "inspect path=%s/a/checkpoint-000005 --json", work_dir);
	got_adapter = json_object_get(json_object_get(got, "training"), "adapter");
	assert_int_equal(json_integer_value(json_object_get(got_adapter, "lora_alpha")), 5);
	assert_true(json_is_true(json_object_get(got_adapter, "use_rslora")));
	json_decref(got);
	remove_run("out");
	assert_ferry(0, NULL, "export checkpoint=%s/a output_dir=%s/out", work_dir, work_dir);
	assert_same_files(path, other, "the model is that of the config.yaml beside the checkpoint");
	remove_run("out");
	assert_ferry(0, NULL, "init config=%s/tiny.json output_dir=%s/second seed=2", work_dir, work_dir);
	assert_ferry(2, NULL, "export checkpoint=%s/a model=%s/second output_dir=%s/out", work_dir, work_dir,
	        work_dir);
	assert_non_null(strstr(ferry_said(), "has other files of weights than the model that the run"));
	assert_ferry(2, NULL,
	        "train %s/a/config.yaml model=%s/second resume_from_checkpoint=auto max_steps=6 "
	        "overwrite_output_dir=off",
	        work_dir, work_dir);
	assert_non_null(
	        strstr(ferry_said(), "has other files of weights than the model that the run's adapters"));

	/* one that began with an adapter's files */
	snprintf(path, sizeof(path),
	        "lora_rank=0 lora_alpha=auto lora_adapter=%s/a/adapter export_dtype=fp32", work_dir);
	train("b", path);
	remove_run("out");
	assert_ferry(
	        0, NULL, "export checkpoint=%s/b model=%s output_dir=%s/out", work_dir, tiny.dir, work_dir);
	snprintf(path, sizeof(path), "%s/b/model/model.safetensors", work_dir);
	assert_same_files(path, other, "the exported checkpoint");
	assert_differ("a/model/model.safetensors", "b/model/model.safetensors");
}

static void refuse(const char *keys, const char *says)
{
	assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/no max_steps=1 %s", tiny.dir, tiny.data,
	        work_dir, keys);
	if (!strstr(ferry_said(), says))
		fail_msg("%s: wanted \"%s\": %s", keys, says, ferry_said());
	assert_false(run_has("no/model"));
}

static void test_refused_modules(void **state)
{
	static const char *const cases[][2] = {
	        {"lora_target_modules='[\"k_prj\",\"q_prj\"]'",
	                "lora_target_modules: k_prj, q_prj: the model has no such module"},
	        {"lora_target_modules=proj", "proj: the model has no such module"},
	        {"lora_target_modules=input_layernorm",
	                "input_layernorm: it cannot have an adapter; these can: embed_tokens, q_proj"},
	        {"lora_layers=3", "lora_layers: there is no block 3; the model has blocks 0 to 2"},
	        {"'lora_layers=[0,x]'",
	                "lora_layers: \"x\" is no block number; write a list of them, as 0,1"},
	        {"lora_layers=1 lora_layers_pattern=h",
	                "lora_layers_pattern: names no list of blocks of this model"},
	        {"lora_layers_pattern=layers", "lora_layers_pattern: has no effect without lora_layers"},
	        {"lora_layers=-1", "lora_layers: there is no block -1; the model has blocks 0 to 2"},
	        {"'lora_layers=[1]' lora_target_modules=layers.0.self_attn.q_proj", "no module is left"},
	        {"lora_modules_to_save=heads", "lora_modules_to_save: heads: the model has no such module"},
	        {"'lora_modules_to_save=[1]'", "lora_modules_to_save: neither a name nor a list of names"},
	        {"lora_target_modules='[]'", "lora_target_modules"},
	        {"lora_target_modules=", "lora_target_modules"},
	        {"'lora_target_modules=.*(q|v)_prj'", ".*(q|v)_prj: the model has no such module"},
	        {"'lora_target_modules=q_proj|v_proj'", "q_proj|v_proj: the model has no such module"},
	        {"'lora_target_modules=.*(q|v_proj'",
	                "lora_target_modules: .*(q|v_proj: invalid regular expression at character 12"},
	        {"'lora_target_modules=.*'", ".*: it cannot have an adapter"},
	        {"'lora_target_modules=[\"v_proj\", \".*q_proj\"]'", "an expression stands alone"},
	        {"lora_exclude_modules=all-linear", "lora_target_modules (default): no module is left"},
	        {"lora_exclude_modules=q_prj", "lora_exclude_modules: q_prj: the model has no such module"},
	        {"'lora_exclude_modules=.*(q|v)_prj'", "lora_exclude_modules: .*(q|v)_prj: the model has no"},
	        {"'lora_exclude_modules=*'", "lora_exclude_modules: *: invalid regular expression"},
	        {"'lora_rank_pattern={\"gate\":4}'", "lora_rank_pattern: gate names no module"},
	        {"'lora_rank_pattern={\"q_proj\":1.5}'", "\"q_proj\" is not a whole number above 0"},
	        {"'lora_rank_pattern={\"q_proj\":70000}'", "\"q_proj\" is not a whole number above 0"},
	        {"'lora_rank_pattern={\"(\":1}'",
	                "lora_rank_pattern=(: invalid regular expression at character 2"},
	        {"'lora_rank_pattern={'", "lora_rank_pattern:1:"},
	        {"lora_alpha_pattern=3", "lora_alpha_pattern: not an object"},
	        {"'lora_alpha_pattern={\"q_proj\":-1}'", "\"q_proj\" is not a number above 0"},
	        {"'lora_alpha_pattern={\"q_proj\":\"2\"}'", "\"q_proj\" is not a number above 0"},
	};
	char keys[300];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		snprintf(keys, sizeof(keys), "lora_rank=3 %s", cases[i][0]);
		refuse(keys, cases[i][1]);
	}
}

static void test_refused_adapters(void **state)
{
	char keys[400];

	(void)state;
	train("a", "");
	snprintf(keys, sizeof(keys), "lora_adapter=%s/a/adapter lora_rank=4", work_dir);
	refuse(keys, "lora_rank=4, but the adapter in");
	snprintf(keys, sizeof(keys), "lora_adapter=%s/a/adapter lora_rank=3 lora_alpha=3", work_dir);
	refuse(keys, "lora_alpha=3 is a scale of 1, but the adapter in");
	snprintf(keys, sizeof(keys), "lora_adapter=%s/nothing", work_dir);
	refuse(keys, "lora_adapter");

	/* of a model with other shapes */
	write_file("wide.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":64,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"max_position_embeddings\":128}");
	assert_ferry(0, NULL, "init config=%s/wide.json output_dir=%s/wide", work_dir, work_dir);
	assert_ferry(2, NULL,
	        "train model=%s/wide data=%s output_dir=%s/no max_steps=1 lora_adapter=%s/a/adapter",
	        work_dir, tiny.data, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "has shape [3, 32]; the model needs [3, 64]"));
	assert_false(run_has("no/model"));
	assert_ferry(2, NULL, "eval model=%s/wide data=%s lora_adapter=%s/a/adapter", work_dir, tiny.data,
	        work_dir);
	assert_non_null(strstr(ferry_said(), "has shape [3, 32]; the model needs [3, 64]"));
}

/* output_dir/adapter is a run's, as output_dir/model is: overwriting removes it, unless the run reads it or
 * it has files of others; a branch leaves it behind. */
static void test_output_dir(void **state)
{
	char keys[2000], path[400];

	(void)state;
	remove_run("a");
	train("a", "save_steps=2 save_total_limit=all");
	snprintf(keys, sizeof(keys), "model=%s data=%s output_dir=%s/a max_steps=1 overwrite_output_dir=on",
	        tiny.dir, tiny.data, work_dir);
	assert_ferry(2, NULL, "train %s lora_adapter=%s/a/adapter", keys, work_dir);
	assert_non_null(strstr(ferry_said(), "overwrite_output_dir would remove lora_adapter="));
	write_file("a/adapter/mine", "x");
	assert_ferry(2, NULL, "train %s", keys);
	assert_non_null(strstr(ferry_said(), "mine"));
	path_of(path, "a/adapter/mine");
	assert_int_equal(remove(path), 0);

	assert_ferry(0, NULL,
	        "train %s/a/config.yaml resume_from_checkpoint=%s/a/checkpoint-000002 max_steps=3 "
	        "overwrite_output_dir=off learning_rate=1e-3",
	        work_dir, work_dir);
	assert_true(run_has("a/abandoned-1/adapter/adapter_model.safetensors"));
	assert_true(run_has("a/abandoned-1/model"));
	assert_differ(
	        "a/adapter/adapter_model.safetensors", "a/abandoned-1/adapter/adapter_model.safetensors");

	assert_ferry(0, NULL, "train %s", keys);
	assert_true(run_has("a/model"));
	assert_false(run_has("a/adapter") || run_has("a/abandoned-1"));
}

/* How adapters are made, in runs that make none. */
static void test_without_effect(void **state)
{
	static const char all[] =
	        "train model=%s data=%s output_dir=%s/no max_steps=1 overwrite_output_dir=on %s%s";
	char adapter[400];

	(void)state;
	train("a", "");
	snprintf(adapter, sizeof(adapter), "lora_adapter=%s/a/adapter ", work_dir);
	assert_ferry(2, NULL, all, tiny.dir, tiny.data, work_dir, "", "lora_alpha=6");
	assert_non_null(strstr(ferry_said(), "lora_alpha=6 has no effect without lora_rank; set it"));
	for (int i = 0; i < 2; i++) {
		assert_ferry(0, NULL, all, tiny.dir, tiny.data, work_dir, i ? adapter : "lora_rank=0 ",
		        "lora_alpha=6 use_rslora=on lora_target_modules=q_proj");
		assert_int_equal(count_of(ferry_said(), i ? "has no effect with lora_adapter"
		                                          : "has no effect with lora_rank=0"),
		        3);
	}
	assert_ferry(0, NULL, all, tiny.dir, tiny.data, work_dir, "lora_rank=3 ", "lora_alpha=6");
	assert_int_equal(count_of(ferry_said(), "has no effect"), 0);
	assert_ferry(0, NULL, all, tiny.dir, tiny.data, work_dir, adapter, "lora_rank=3 lora_alpha=6");
	assert_int_equal(count_of(ferry_said(), "has no effect"), 0);
}

/* Kinds of adapters that ferry lacks, by name. */
static void test_refused_kinds(void **state)
{
	static const char *const kinds[][2] = {
	        {"\"use_qalora\":true", "use_qalora"},
	        {"\"rank_pattern\":{\"q_proj\":0}", "rank_pattern: the value of \"q_proj\""},
	        {"\"alpha_pattern\":[4]", "alpha_pattern: not an object"},
	        {"\"exclude_modules\":\"q_proj\"", "target_modules: no module is left"},
	        {"\"modules_to_save\":[\"lm_head\"]", "belongs to no adapter of this model"},
	        {"\"layers_to_transform\":[0]", "belongs to no adapter of this model"},
	        {"\"layers_pattern\":\"h\"", "layers_pattern: has no effect without layers_to_transform"},
	        {"\"trainable_token_indices\":[1]", "trainable_token_indices"},
	        {"\"bias\":\"all\"", "bias"},
	        {"\"init_lora_weights\":\"pissa_niter_4\"", "pissa_niter_4 changes the model's own weights"},
	        {"\"init_lora_weights\":\"olora\"", "init_lora_weights olora"},
	        {"\"lora_bias\":true", "lora_bias"},
	        {"\"peft_type\":\"IA3\"", "peft_type"},
	};
	char keys[400], path[400], to[400];

	(void)state;
	train("a", "");
	remove_run("kind");
	path_of(path, "kind");
	assert_int_equal(file_make_dir(path), 0);
	path_of(path, "a/adapter/adapter_model.safetensors");
	path_of(to, "kind/adapter_model.safetensors");
	assert_int_equal(file_copy(path, to), 0);
	snprintf(keys, sizeof(keys), "lora_adapter=%s/kind", work_dir);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		write_file("kind/adapter_config.json",
		        "{%s\"r\":3,\"lora_alpha\":6,\"target_modules\":[\"q_proj\"],%s}",
		        strstr(kinds[i][0], "peft_type") ? "" : "\"peft_type\":\"LORA\",", kinds[i][0]);
		refuse(keys, kinds[i][1]);
	}
	/* its tensors are of more modules than these */
	write_file("kind/adapter_config.json",
	        "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":6,\"target_modules\":[\"q_proj\"]}");
	refuse(keys, "k_proj");
}

/* A frozen A is in the checkpoint too: the model's files do not have it. */
static void test_frozen_adapters(void **state)
{
	char a[400], b[400];

	(void)state;
	train("a", "'freeze=.*lora_A.*' max_steps=4 save_steps=2");
	remove_run("out");
	assert_ferry(
	        0, NULL, "export checkpoint=%s/a model=%s output_dir=%s/out", work_dir, tiny.dir, work_dir);
	snprintf(a, sizeof(a), "%s/a/model/model.safetensors", work_dir);
	snprintf(b, sizeof(b), "%s/out/model.safetensors", work_dir);
	assert_same_files(a, b, "the exported checkpoint");
	remove_run("b");
	assert_ferry(0, NULL,
	        "train %s/a/config.yaml resume_from_checkpoint=%s/a/checkpoint-000002 output_dir=%s/b "
	        "overwrite_output_dir=off",
	        work_dir, work_dir, work_dir);
	snprintf(b, sizeof(b), "%s/b/model/model.safetensors", work_dir);
	assert_same_files(a, b, "resumed with a frozen A");
}

/* What a run reads is not removed, and a base of other weights is none. */
static void test_kept_inputs(void **state)
{
	char keys[700];

	(void)state;
	train("a", "");
	snprintf(keys, sizeof(keys), "lora_adapter=%s/a/adapter", work_dir);
	assert_ferry(2, NULL, "train model=%s data=%s output_dir=%s/a max_steps=1 overwrite_output_dir=on %s",
	        tiny.dir, tiny.data, work_dir, keys);
	assert_non_null(strstr(ferry_said(), "would remove lora_adapter="));
	assert_ferry(2, NULL,
	        "train %s/a/config.yaml resume_from_checkpoint=auto init_weights=random max_steps=6 "
	        "overwrite_output_dir=off",
	        work_dir);
	assert_non_null(strstr(ferry_said(), "init_weights=random: the run began with"));
	train("b", "ranks=2 load=rank0_only max_steps=2");
	assert_ferry(0, NULL,
	        "train %s/b/config.yaml resume_from_checkpoint=auto max_steps=3 overwrite_output_dir=off",
	        work_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_offload_changes_no_bit),
	        cmocka_unit_test(test_start),
	        cmocka_unit_test(test_merged),
	        cmocka_unit_test(test_trainable),
	        cmocka_unit_test(test_adapter_comes_back),
	        cmocka_unit_test(test_ranks),
	        cmocka_unit_test(test_resumed),
	        cmocka_unit_test(test_resume_refusals),
	        cmocka_unit_test(test_export),
	        cmocka_unit_test(test_refused_modules),
	        cmocka_unit_test(test_refused_adapters),
	        cmocka_unit_test(test_refused_kinds),
	        cmocka_unit_test(test_without_effect),
	        cmocka_unit_test(test_output_dir),
	        cmocka_unit_test(test_frozen_adapters),
	        cmocka_unit_test(test_kept_inputs),
	};
	int failed;

	ferry_run_begin("lora");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
