/* links: cli checkpoint_file */
/* Adapters of routers as PEFT makes them (tests/golden/make_router_adapters.py): the same losses, 20 steps
 * beside PEFT, the same files; what PEFT refuses is refused. */
#include "tests/adapter_files.h"

#include <math.h>

static const char *const names[] = {"mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "deepseek_v3", "gpt_oss",
        "granitemoehybrid", "nemotron_h", "gemma4"};
enum { NAMES = sizeof(names) / sizeof(*names), STEPS = 20 };

#define TRAIN                                                                                                \
	ADAPTER_RUN "shuffle=off weight_decay=0 max_grad_norm=0 learning_rate=1e-2 logging_steps=1 "         \
	            "per_device_train_batch_size=1 lr_scheduler_type=constant data_format=tokens "           \
	            "overwrite_output_dir=on export_dtype=fp32 "

static char golden[600], model[600]; /* of a case: its adapters, and the folder of its model and rows */

static void golden_find(const char *name)
{
	const char *source = getenv("FERRY_SOURCE");

	source = source ? source : ".";
	snprintf(golden, sizeof(golden), "%s/tests/golden/router_adapters/%s", source, name);
	snprintf(model, sizeof(model), "%s/tests/golden/expert_adapters/%s", source, name);
}

static void losses_check(const char *base, const char *adapter, const json_t *want, const char *what)
{
	json_t *got = adapter_losses(model, base, adapter);

	if (!(list_distance(got, want) <= 1e-5))
		fail_msg("%s, %s: token losses differ by %g", golden, what, list_distance(got, want));
	json_decref(got);
}

/* Rounding of fp32 grows over the steps of AdamW. */
static void near_tensors(const char *path, const char *other)
{
	struct safetensors *a, *b;

	assert_int_equal(safetensors_open(&a, path), 0);
	assert_int_equal(safetensors_open(&b, other), 0);
	assert_int_equal(a->tensor_count, b->tensor_count);
	for (int64_t i = 0; i < a->tensor_count; i++) {
		const struct safetensors_tensor *t = &a->tensors[i], *o = safetensors_find(b, t->name);
		float x[4096], y[4096];

		assert_non_null(o);
		assert_true(t->len_bytes == o->len_bytes && t->len_bytes <= (int64_t)sizeof(x));
		assert_int_equal(safetensors_read(a, t, x, 0, t->len_bytes), 0);
		assert_int_equal(safetensors_read(b, o, y, 0, t->len_bytes), 0);
		for (int64_t k = 0; k < t->count; k++)
			if (!(fabsf(x[k] - y[k]) <= 1e-4F))
				fail_msg("%s, %s: %g and %g", path, t->name, (double)x[k], (double)y[k]);
	}
	safetensors_close(a);
	safetensors_close(b);
}

static void test_of_peft(void **state)
{
	(void)state;
	for (int i = 0; i < NAMES; i++) {
		char base[700], adapter[700], path[800], again[400];
		json_t *all;

		golden_find(names[i]);
		snprintf(base, sizeof(base), "%s/base", model);
		snprintf(adapter, sizeof(adapter), "%s/adapter", golden);
		snprintf(path, sizeof(path), "%s/losses.json", golden);
		assert_int_equal(json_read_file(&all, path, 1 << 20), 0);
		assert_true(
		        list_distance(json_object_get(all, "plain"), json_object_get(all, "adapted")) > 5e-4);
		losses_check(base, adapter, json_object_get(all, "adapted"), "with the adapter");
		assert_ferry(0, NULL,
		        "merge model=%s lora_adapter=%s output_dir=%s/merged overwrite_output_dir=on "
		        "export_dtype=fp32",
		        base, adapter, work_dir);
		path_of(again, "merged");
		losses_check(again, "", json_object_get(all, "adapted"), "merged");
		assert_ferry(0, NULL,
		        "train model=%s lora_adapter=%s data=%s/rows.jsonl output_dir=%s/same " TRAIN
		        "learning_rate=0 max_steps=1",
		        base, adapter, model, work_dir);
		snprintf(path, sizeof(path), "%s/adapter_model.safetensors", adapter);
		path_of(again, "same/adapter/adapter_model.safetensors");
		assert_same_tensors(path, again);
		/* what ferry writes it reads */
		path_of(again, "same/adapter");
		losses_check(base, again, json_object_get(all, "adapted"), "written again");
		assert_ferry(0, NULL,
		        "train model=%s lora_adapter=%s data=%s/rows.jsonl output_dir=%s/steps " TRAIN
		        "max_steps=%d",
		        base, adapter, model, work_dir, STEPS);
		for (int step = 0; step < STEPS; step++) {
			double want = number_at(json_object_get(all, "steps"), (size_t)step),
			       got = metric_of("steps", step + 1, "loss");

			if (!(fabs(got - want) <= 1e-5))
				fail_msg("%s: step %d has loss %.9g, PEFT's %.9g", names[i], step + 1, got,
				        want);
		}
		snprintf(path, sizeof(path), "%s/trained/adapter_model.safetensors", golden);
		path_of(again, "steps/adapter/adapter_model.safetensors");
		near_tensors(path, again);
		json_decref(all);
	}
}

static void train(const char *out, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s/base data=%s/rows.jsonl output_dir=%s/%s lora_rank=2 max_steps=3 " TRAIN "%s",
	        model, model, work_dir, out, more);
}

/* Whether an entry of this list of the adapter's config is the name, or ends with it behind a dot. */
static int config_names(const char *key, const char *name)
{
	char path[400];
	json_t *config;
	const json_t *one;
	size_t i;
	int found = 0;

	path_of(path, "out/adapter/adapter_config.json");
	assert_int_equal(json_read_file(&config, path, 1 << 20), 0);
	json_array_foreach(json_object_get(config, key), i, one)
	{
		const char *entry = json_string_value(one);
		size_t len = strlen(entry), end = strlen(name);

		found |= len >= end && !strcmp(entry + len - end, name) &&
		         (len == end || entry[len - end - 1] == '.');
	}
	json_decref(config);
	return found;
}

/* Offload changes no bit. all-linear has no routers; where they are modules, they are named as such. */
static void test_names(void **state)
{
	(void)state;
	golden_find("qwen3_moe");
	train("out", "lora_target_parameters=mlp.gate.weight lora_target_modules=q_proj compute_dtype=bf16");
	assert_true(config_names("target_parameters", "layers.1.mlp.gate.weight"));
	train("on", "lora_target_parameters=mlp.gate.weight lora_target_modules=q_proj compute_dtype=bf16 "
	            "cpu_offload=on vram_budget=off activations=offload stream_delay_seed=3");
	assert_same_runs("out", "on", "offload");
	train("out", "lora_target_modules=all-linear");
	assert_false(config_names("target_parameters", "mlp.gate.weight"));
	golden_find("gemma4");
	train("out", "lora_target_modules=router.proj,q_proj lora_dropout=0.1 use_dora=on");
	assert_true(config_names("target_modules", "proj")); /* q_proj is another one */
}

static void test_refused(void **state)
{
	static const char *const cases[][3] = {
	        {"qwen3_moe", "lora_target_modules=gate",
	                "gate: PEFT adapts a router by its weight; name that in lora_target_parameters, as "
	                "model.layers.1.mlp.gate.weight"},
	        {"mixtral", "lora_target_modules=q_proj,gate", "as model.layers.0.mlp.gate.weight"},
	        {"granitemoehybrid", "'lora_target_modules=.*router.*'",
	                "as model.layers.0.block_sparse_moe.router.weight"},
	        {"gpt_oss", "lora_target_parameters=mlp.router.weight lora_dropout=0.1",
	                "adapters of experts and routers have none"},
	        {"deepseek_v3", "lora_target_parameters=mlp.gate.weight use_dora=on",
	                "DoRA of routers is not supported"},
	        {"deepseek_v3", "lora_target_parameters=mlp.gate.e_score_correction_bias",
	                "the model has no such parameter"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		golden_find(cases[i][0]);
		assert_ferry(2, NULL,
		        "train model=%s/base data=%s/rows.jsonl output_dir=%s/no lora_rank=2 " TRAIN "%s",
		        model, model, work_dir, cases[i][1]);
		if (!strstr(ferry_said(), cases[i][2]))
			fail_msg("%s: %s", cases[i][1], ferry_said());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_of_peft), cmocka_unit_test(test_names), cmocka_unit_test(test_refused)};
	int failed;

	ferry_run_begin("run-routers");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
