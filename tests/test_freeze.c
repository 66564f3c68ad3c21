/* links: cli */
/* not: asan */
/* It trains for long: test_engine_frozen and test_checkpoint_load run what it runs there. */
/* freeze= and trainable=: the same result as PyTorch with requires_grad=False (tests/golden/freeze.json).
 *
 * The bits do not depend on offloading, wrapping, schedule and resuming. Frozen weights stay unchanged,
 * and take two bytes each in host memory.
 */
#include "tests/ferry_run.h"
#include "tests/sparing.h"

#include "base/mem.h"
#include "checkpoint/file/safetensors.h"

#include <math.h>

static const char *golden;

enum { STEPS = 20 };

#define TRACE                                                                                                \
	"device=host shuffle=off per_device_train_batch_size=2 gradient_accumulation_steps=2 "               \
	"learning_rate=1e-3 lr_scheduler_type=cosine_with_min_lr warmup_steps=4 min_lr_rate=0.1 "            \
	"adam_beta1=0.9 adam_beta2=0.95 adam_epsilon=1e-8 weight_decay=0.1 vram_budget=off "

static json_t *cases_read(void)
{
	char path[600];
	json_t *root;

	snprintf(path, sizeof(path), "%s/tests/golden/freeze.json", getenv("FERRY_SOURCE"));
	assert_int_equal(json_read_file(&root, path, 1 << 26), 0);
	return root;
}

/* "freeze=..." of a case, in a shell's quotes. */
static void settings_text(char *text, size_t cap, const json_t *settings)
{
	const char *key;
	json_t *value;
	size_t used = 0;

	json_object_foreach((json_t *)settings, key, value) used +=
	        (size_t)snprintf(text + used, cap - used, "'%s=%s' ", key, json_string_value(value));
}

static void assert_near(double got, double want, double bound, const char *what, size_t step)
{
	if (!(fabs(got - want) <= bound * fabs(want)))
		fail_msg("%s %zu: %.12g, reference %.12g, relative error %.3g", what, step, got, want,
		        fabs(got - want) / fabs(want));
}

static double number(const json_t *object, const char *key)
{
	assert_true(json_is_number(json_object_get(object, key)));
	return json_number_value(json_object_get(object, key));
}

static void metrics_compare(const char *dir, const json_t *want)
{
	char path[400], *line = NULL;
	size_t cap = 0, step = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, dir);
	f = fopen(path, "r");
	assert_non_null(f);
	for (; getline(&line, &cap, f) > 0; step++) {
		json_t *row;

		assert_int_equal(json_parse(&row, path, line, strlen(line)), 0);
		assert_near(number(row, "loss"),
		        json_number_value(json_array_get(json_object_get(want, "loss"), step)), 5e-6, "loss",
		        step);
		assert_near(number(row, "grad_norm"),
		        json_number_value(json_array_get(json_object_get(want, "grad_norm"), step)), 5e-6,
		        "grad_norm", step);
		json_decref(row);
	}
	assert_int_equal(step, STEPS);
	free(line);
	fclose(f);
}

static struct safetensors *model_file(const char *path)
{
	struct safetensors *file;

	assert_int_equal(safetensors_open(&file, path), 0);
	return file;
}

static void *tensor_bytes(const struct safetensors *file, const struct safetensors_tensor *t)
{
	void *bytes = malloc((size_t)t->len_bytes);

	assert_non_null(bytes);
	assert_int_equal(safetensors_read(file, t, bytes, 0, t->len_bytes), 0);
	return bytes;
}

/* Compares trained tensors with the reference, relative to their size. If the gradient of a tensor is only
 * rounding (k's bias has none), Adam makes arbitrary steps. */
static void weights_compare(const char *dir, const json_t *final)
{
	struct safetensors *file;
	char path[400];
	const char *name;
	json_t *want;

	snprintf(path, sizeof(path), "%s/%s/model/model.safetensors", work_dir, dir);
	file = model_file(path);
	json_object_foreach((json_t *) final, name, want)
	{
		const struct safetensors_tensor *t = safetensors_find(file, name);
		const json_t *elements = json_object_get(want, "elements");
		int64_t stride = (int64_t)number(want, "stride");
		double error = 0, size = 0;
		float *got;

		if (strstr(name, "c_attn.bias"))
			continue;
		assert_non_null(t);
		assert_int_equal(t->dtype, SAFETENSORS_F32);
		got = tensor_bytes(file, t);
		for (size_t i = 0; i < json_array_size(elements); i++) {
			double x = json_number_value(json_array_get(elements, i));

			error += (got[(int64_t)i * stride] - x) * (got[(int64_t)i * stride] - x);
			size += x * x;
		}
		if (!(sqrt(error) <= 5e-6 * sqrt(size)))
			fail_msg("%s: elements differ by %.3g of %.3g", name, sqrt(error), sqrt(size));
		free(got);
	}
	safetensors_close(file);
}

static void test_pytorch(void **state)
{
	json_t *root, *one;
	size_t i;

	(void)state;
	if (!golden)
		skip();
	root = cases_read();
	json_array_foreach(json_object_get(root, "cases"), i, one)
	{
		const char *model = json_string_value(json_object_get(one, "model"));
		char settings[512];

		if (i % (size_t)sparing(4))
			continue;
		settings_text(settings, sizeof(settings), json_object_get(one, "settings"));
		printf("  %s %s\n", model, settings);
		assert_ferry(0, NULL,
		        "train model=%s/%s/hf data=%s/%s/train.jsonl output_dir=%s/run max_steps=%d "
		        "compute_dtype=fp32 export_dtype=fp32 overwrite_output_dir=on "
		        "max_grad_norm=1.0 " TRACE "%s",
		        golden, model, golden, model, work_dir, STEPS, settings);
		metrics_compare("run", one);
		weights_compare("run", json_object_get(one, "final"));
	}
	assert_true(i >= 8);
	json_decref(root);
}

/* ---- the same bits ---- */

static void train(const char *model, const char *out, const char *settings)
{
	const char *place = golden_place(golden, model);

	assert_ferry(0, NULL,
	        "train model=%s/hf data=%s/train.jsonl output_dir=%s/%s overwrite_output_dir=on " TRACE "%s",
	        place, place, work_dir, out, settings);
}

/* Loss and gradient norm of every step, as they were printed. */
static void metrics_text(char *text, size_t cap, const char *out)
{
	char path[400], *line = NULL;
	size_t line_cap = 0, used = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, out);
	f = fopen(path, "r");
	assert_non_null(f);
	while (getline(&line, &line_cap, f) > 0) {
		json_t *row;

		assert_int_equal(json_parse(&row, path, line, strlen(line)), 0);
		used += (size_t)snprintf(text + used, cap - used, "%.17g %.17g\n", number(row, "loss"),
		        number(row, "grad_norm"));
		assert_true(used < cap);
		json_decref(row);
	}
	free(line);
	fclose(f);
}

static void assert_same_files(const char *a, const char *b, const char *name)
{
	char paths[2][400], *bytes[2];
	size_t len[2];

	for (int i = 0; i < 2; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/%s/%s", work_dir, i ? b : a, name);
		assert_int_equal(file_read_all(paths[i], 1 << 26, &bytes[i], &len[i]), 0);
	}
	if (len[0] != len[1] || memcmp(bytes[0], bytes[1], len[0]))
		fail_msg("%s and %s differ", paths[0], paths[1]);
	for (int i = 0; i < 2; i++)
		mem_free(bytes[i]);
}

static void assert_same_runs(const char *a, const char *b)
{
	static char texts[2][1 << 14];

	metrics_text(texts[0], sizeof(texts[0]), a);
	metrics_text(texts[1], sizeof(texts[1]), b);
	assert_string_equal(texts[0], texts[1]);
	assert_same_files(a, b, "model/model.safetensors");
}

static const struct {
	const char *model, *settings;
} mixes[] = {
        {"llama3", "'freeze=.*embed_tokens.*|model\\.layers\\.[01]\\..*'"}, /* tied; only the last block */
        {"llama3", "'trainable=model\\.layers\\.1\\.self_attn\\.(q|v)_proj\\.weight'"},
        {"qwen3", "'freeze=.*(norm|q_proj|down_proj).*'"},
        {"gpt2", "'freeze=transformer\\.w.*|.*\\.c_attn\\..*'"},
        {"gpt_neox", "'trainable=embed_out.*'"},
        {
                "mistral",
                "'trainable=.*'",
        },
        {"modern/qwen3_5", "'freeze=.*(conv1d|A_log|linear_attn\\.norm|q_norm|in_proj_z|v_proj).*'"},
        {"modern/qwen3_5", "'trainable=.*(dt_bias|in_proj_a|q_proj).*'"},
        {"modern/granitemoehybrid", "'freeze=.*(conv1d|A_log|dt_bias|mamba\\.norm|input_linear).*'"},
        {"own/falcon_h1", "'freeze=.*(conv1d|A_log|mamba\\.D|q_proj|input_layernorm).*'"},
        {"own/falcon_h1_norm", "'trainable=.*(dt_bias|mamba\\.norm|in_proj|k_proj|down_proj).*'"},
        {"modern/nemotron_h", "'freeze=.*(mixer\\.D|conv1d\\.bias|experts\\..*up_proj|in_proj).*'"},
        {"modern/nemotron_h", "'trainable=.*(A_log|dt_bias|mixer\\.norm|out_proj).*'"},
        {"modern/lfm2", "'freeze=.*conv\\.conv\\..*|.*(operator_norm|w1)\\..*'"},
        {"modern/gemma4_e", "'freeze=.*(embed_tokens|per_layer_projection|k_proj).*'"},
        {"modern/gemma4_e", "'trainable=.*(embed_tokens_per_layer|v_proj|per_layer_input_gate).*'"},
        {"modern/gemma4", "'freeze=.*(q_norm|k_proj|layernorm).*'"},
        {"modern/muse_glimmer", "'freeze=.*(gate_proj|layernorm)\\..*'"},
        {"mixtral", "'freeze=.*\\.(experts|gate)\\..*'"},
        {"mixtral", "'trainable=.*(mlp|block_sparse_moe)\\.gate\\.weight'"},
        {"modern/gemma4_moe", "'freeze=.*experts.*'"},
        {"modern/gemma4_moe", "'trainable=.*(experts.down_proj|router.scale|layernorm_2).*'"},
        {"modern/glm4_moe", "'trainable=.*experts\\.gate_up_proj|.*shared_experts\\.up_proj.*'"},
        {"more/deepseek_v3", "'freeze=.*(q_a_proj|kv_a_layernorm|kv_b_proj|o_proj).*'"},
        {"modern/deepseek_v2", "'trainable=.*layers\\.1\\.self_attn\\.(kv_a|q_)proj.*'"},
        {"modern/qwen3_5_moe", "'freeze=.*(shared_expert_gate|experts\\.down_proj|mlp\\.gate\\.).*'"},
};

static const char *const ways[] = {
        "cpu_offload=off",
        "cpu_offload=params",
        "activations=offload wrap_policy=size min_num_params=3000",
        "activations=keep wrap_policy=none",
        "backward_prefetch=BACKWARD_POST forward_prefetch=off activations=recompute",
        "backward_prefetch=NO_PREFETCH",
        "stream_delay_seed=7 activations=offload",
        "threads=1 cpu_offload=optimizer",
};

static void test_same_bits(void **state)
{
	char settings[700];

	(void)state;
	if (!golden)
		skip();
	for (size_t m = 0; m < sizeof(mixes) / sizeof(*mixes); m += (size_t)sparing(3))
		for (int fp32 = 0; fp32 < 2; fp32++) {
			const char *dtype = fp32 ? "compute_dtype=fp32" : "compute_dtype=bf16";

			snprintf(settings, sizeof(settings), "max_steps=3 %s %s", dtype, mixes[m].settings);
			train(mixes[m].model, "one", settings);
			for (size_t w = fp32; w < sizeof(ways) / sizeof(*ways); w += 2) {
				snprintf(settings, sizeof(settings), "max_steps=3 %s %s %s", dtype,
				        mixes[m].settings, ways[w]);
				train(mixes[m].model, "two", settings);
				assert_same_runs("one", "two");
			}
		}
}

/* Updates inside backward, and sums in a plane of their own: other roundings than above, on and off alike. */
static void test_other_schedules(void **state)
{
	static const char *const schedules[] = {"schedule=micro_batch_major",
	        "max_grad_norm=0 skip_nonfinite=off",
	        "max_grad_norm=0 skip_nonfinite=off schedule=micro_batch_major", "optimizer_state=8bit",
	        "optimizer_state=bf16 gradient_dtype=fp32"};
	char settings[700];

	(void)state;
	if (!golden)
		skip();
	for (size_t s = 0; s < sizeof(schedules) / sizeof(*schedules); s += (size_t)sparing(2)) {
		const char *model = mixes[s % 4].model;

		for (int off = 0; off < 2; off++) {
			snprintf(settings, sizeof(settings), "max_steps=3 compute_dtype=bf16 %s %s %s",
			        mixes[s % 4].settings, schedules[s], off ? "cpu_offload=off" : "");
			train(model, off ? "two" : "one", settings);
		}
		assert_same_runs("one", "two");
	}
}

static void test_resume(void **state)
{
	static const char *const how[] = {"compute_dtype=fp32", "compute_dtype=bf16 optimizer_state=8bit"};
	char settings[700], path[400];

	(void)state;
	if (!golden)
		skip();
	for (size_t m = 0; m < 4; m += (size_t)sparing(3)) {
		snprintf(settings, sizeof(settings), "max_steps=6 save_steps=3 %s %s", how[m % 2],
		        mixes[m].settings);
		train(mixes[m].model, "one", settings);
		snprintf(path, sizeof(path), "%s/two", work_dir);
		if (file_kind_of(path) == FILE_DIR)
			assert_int_equal(file_remove_tree(path), 0);
		assert_ferry(0, NULL,
		        "train model=%s/%s/hf data=%s/%s/train.jsonl output_dir=%s/two " TRACE
		        "resume_from_checkpoint=%s/one/checkpoint-000003 %s",
		        golden, mixes[m].model, golden, mixes[m].model, work_dir, work_dir, settings);
		assert_same_files("one", "two", "model/model.safetensors");
		assert_same_files("one", "two", "checkpoint-000006/rank-00000.safetensors");
		assert_ferry(0, NULL, "verify %s/one/checkpoint-000006", work_dir);
		assert_ferry(0, NULL, "inspect %s/one/checkpoint-000006", work_dir);
		assert_ferry(0, NULL,
		        "export checkpoint=%s/one/checkpoint-000006 output_dir=%s/exported "
		        "overwrite_output_dir=on",
		        work_dir, work_dir);
		/* another choice of what trains is another run */
		assert_ferry(2, NULL,
		        "train model=%s/%s/hf data=%s/%s/train.jsonl output_dir=%s/three " TRACE
		        "resume_from_checkpoint=%s/one/checkpoint-000003 max_steps=6 %s",
		        golden, mixes[m].model, golden, mixes[m].model, work_dir, work_dir, how[m % 2]);
		assert_non_null(strstr(ferry_said(), "so it trains other tensors; set "));
	}
}

/* ---- frozen weights ---- */

/* A tensor of a directory of one file or of shards. */
static void *source_bytes(const char *dir, const char *name, int64_t *len, enum safetensors_dtype *dtype)
{
	char path[700];
	void *bytes = NULL;

	for (int shard = 0; shard < 3 && !bytes; shard++) {
		struct safetensors *file;
		const struct safetensors_tensor *t;

		snprintf(path, sizeof(path),
		        shard ? "%s/model-%05d-of-00002.safetensors" : "%s/model.safetensors", dir, shard);
		if (file_kind_of(path) != FILE_REGULAR)
			continue;
		file = model_file(path);
		t = safetensors_find(file, name);
		if (t) {
			bytes = tensor_bytes(file, t);
			*len = t->len_bytes;
			*dtype = t->dtype;
		}
		safetensors_close(file);
	}
	return bytes;
}

static int is_frozen_in(const json_t *inspected, const char *name)
{
	(void)inspected;
	return !strstr(name, "q_proj") && !strstr(name, "mlp.c_fc");
}

/* Frozen tensors are exported bit for bit as in the source, in any dtype. */
static void test_frozen_exports(void **state)
{
	static const struct {
		const char *model, *trainable, *dtype;
	} sources[] = {{"llama3", ".*q_proj.*", "bf16"}, {"gpt2", ".*mlp\\.c_fc.*", "fp32"},
	        {"qwen3", ".*q_proj.*", "bf16"}};
	char settings[300], dirs[2][400];

	(void)state;
	if (!golden)
		skip();
	for (size_t s = 0; s < sizeof(sources) / sizeof(*sources); s++) {
		struct safetensors *file;
		int frozen = 0, moved = 0;

		snprintf(settings, sizeof(settings),
		        "max_steps=3 compute_dtype=bf16 'trainable=%s' export_dtype=%s", sources[s].trainable,
		        sources[s].dtype);
		train(sources[s].model, "one", settings);
		snprintf(dirs[0], sizeof(dirs[0]), "%s/%s/hf", golden, sources[s].model);
		snprintf(dirs[1], sizeof(dirs[1]), "%s/one/model/model.safetensors", work_dir);
		file = model_file(dirs[1]);
		for (int64_t i = 0; i < file->tensor_count; i++) {
			const struct safetensors_tensor *t = &file->tensors[i];
			enum safetensors_dtype dtype = SAFETENSORS_F32;
			int64_t len = 0;
			void *was = source_bytes(dirs[0], t->name, &len, &dtype), *is = tensor_bytes(file, t);
			int same;

			assert_non_null(was);
			assert_int_equal(dtype, t->dtype);
			assert_int_equal(len, t->len_bytes);
			same = !memcmp(was, is, (size_t)len);
			if (is_frozen_in(NULL, t->name) && !same)
				fail_msg("%s of %s is frozen and moved", t->name, sources[s].model);
			frozen += is_frozen_in(NULL, t->name);
			moved += !same;
			free(was);
			free(is);
		}
		assert_true(frozen > 0 && moved > 0);
		safetensors_close(file);
	}
}

/* ---- bytes ---- */

static double plan_number(const json_t *plan, const char *key)
{
	return number(plan, key);
}

static json_t *plan_of(const char *settings)
{
	json_t *plan;

	assert_ferry_json(&plan,
	        "plan model=%s/llama3/hf device=host per_device_train_batch_size=2 max_length=64 "
	        "vram_budget=off %s --json",
	        golden, settings);
	return plan;
}

/* A frozen bf16 parameter takes two bytes of host memory; a trained one takes as many as before. */
static void test_host_bytes(void **state)
{
	json_t *all, *head;
	double parameters;

	(void)state;
	if (!golden)
		skip();
	all = plan_of("compute_dtype=bf16");
	head = plan_of("compute_dtype=bf16 'trainable=model\\.norm\\.weight'");
	parameters = plan_number(all, "parameters");
	/* 64 of the norm train, at 14 bytes; every tensor is padded to 256 elements */
	assert_true(plan_number(all, "store_bytes") >= 14 * parameters);
	assert_true(plan_number(head, "store_bytes") >= 2 * (parameters - 64) + 14 * 64);
	assert_true(plan_number(head, "store_bytes") <= 2 * (parameters + 32 * 256) + 14 * 256);
	assert_true(plan_number(head, "d2h_bytes") < plan_number(all, "d2h_bytes"));
	assert_true(plan_number(head, "h2d_bytes") < plan_number(all, "h2d_bytes"));
	assert_int_equal((int64_t)plan_number(head, "trained_parameters"), 64);
	json_decref(all);
	json_decref(head);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *settings, *says;
	} wrong[] = {
	        {"freeze=q_proj", "'freeze=.*\\.q_proj\\..*'"},
	        {"freeze=q_pro", "'freeze=.*\\.q_pro.*'"},
	        {"freeze=proj", "'freeze=.*proj\\..*'"},
	        {"freeze=model.layers.1", "'freeze=model\\.layers\\.1\\..*'"},
	        {"'freeze=model\\.layers\\.1'", "'freeze=model\\.layers\\.1\\..*'"},
	        {"freeze=layers.1.", "'freeze=.*\\.layers\\.1\\..*'"},
	        {"freeze=weight", "matches no whole parameter name; the nearest are"},
	        {"freeze=1", "'freeze=.*\\.1\\..*'"},
	        {"'freeze=[\"q_proj\",\"k_proj\"]'", "'freeze=.*(q_proj|k_proj).*'"},
	        {"'trainable=norm|q_pro'", "'trainable=.*(norm|q_pro).*'"},
	        {"'freeze=*norm*'", "for any text write .*"},
	        {"'freeze=.*'", "leaves no parameter to train"},
	        {"'freeze=model.layers.0.self_attn.q_proj'", "model.layers.0.self_attn.q_proj.weight"},
	        {"'trainable=lm_heads.weight'",
	                "matches no whole parameter name; the nearest are model.embed_tokens.weight, model"},
	        {"'freeze=(('", "invalid regular expression"},
	        {"'trainable=.*norm.*' 'freeze=.*norm.*'", "leaves no parameter to train"},
	};

	(void)state;
	if (!golden)
		skip();
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i += (size_t)sparing(4)) {
		assert_ferry(2, NULL, "plan model=%s/llama3/hf device=host %s", golden, wrong[i].settings);
		if (!strstr(ferry_said(), wrong[i].says))
			fail_msg("%s: said %s", wrong[i].settings, ferry_said());
	}
	assert_ferry(0, NULL, "plan model=%s/llama3/hf device=host 'trainable=lm_head.weight'", golden);
	assert_non_null(strstr(ferry_said(), "tied"));
}

static int setup(void **state)
{
	(void)state;
	ferry_run_begin("freeze");
	golden = golden_dir("test_freeze");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ferry_run_end();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_refusals),
	        cmocka_unit_test(test_host_bytes),
	        cmocka_unit_test(test_pytorch),
	        cmocka_unit_test(test_frozen_exports),
	        cmocka_unit_test(test_resume),
	        cmocka_unit_test(test_same_bits),
	        cmocka_unit_test(test_other_schedules),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
