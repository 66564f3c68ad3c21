/* links: cli */
/* Runs of latent attention (DeepSeek): where weights lie changes no bit, resumed runs equal others, adapters
 * of its matrices go round, a cache gives the tokens of whole passes. */
#include "tests/planned_bytes.h"
#include "tests/sparing.h"

#include <math.h>

static struct run_model v3, v2;

#define COMMON                                                                                               \
	"per_device_train_batch_size=2 gradient_accumulation_steps=2 max_steps=4 threads=1 logging_steps=1 " \
	"lr_scheduler_type=constant device=host "
#define LORA "lora_rank=3 lora_alpha=6 learning_rate=1e-2 "
#define SIZES                                                                                                \
	"\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":48,\"moe_intermediate_size\":16,"        \
	"\"num_hidden_layers\":3,\"num_attention_heads\":4,\"kv_lora_rank\":10,\"qk_rope_head_dim\":4,"      \
	"\"n_routed_experts\":6,\"num_experts_per_tok\":2,\"first_k_dense_replace\":1,"                      \
	"\"max_position_embeddings\":128,\"initializer_range\":0.2,\"tie_word_embeddings\":false"

/* Values that are narrower than keys, and wider ones. */
static void models_make(void)
{
	write_file("v3.json",
	        "{\"model_type\":\"deepseek_v3\"," SIZES
	        ",\"q_lora_rank\":12,\"qk_nope_head_dim\":6,\"v_head_dim\":7,\"n_group\":3,\"topk_group\":2,"
	        "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale\":1.0,\"mscale_all_dim\":0.8,"
	        "\"original_max_position_embeddings\":16}}");
	write_file("v2.json",
	        "{\"model_type\":\"deepseek_v2\"," SIZES
	        ",\"q_lora_rank\":null,\"qk_nope_head_dim\":4,\"v_head_dim\":10,\"attention_bias\":true}");
	write_rows("rows.jsonl", 23, 7);
	for (int i = 0; i < 2; i++) {
		struct run_model *m = i ? &v2 : &v3;
		const char *name = i ? "v2" : "v3";

		assert_ferry(0, NULL, "init config=%s/%s.json output_dir=%s/%s seed=1", work_dir, name,
		        work_dir, name);
		snprintf(m->dir, sizeof(m->dir), "%s/%s", work_dir, name);
		snprintf(m->data, sizeof(m->data), "%s/rows.jsonl", work_dir);
	}
}

static void train(const struct run_model *m, const char *out, const char *settings, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/%s overwrite_output_dir=on " COMMON "%s %s", m->dir,
	        m->data, work_dir, out, settings, more);
}

static const char *const kinds[] = {"compute_dtype=bf16", "compute_dtype=fp32 optimizer_state=8bit",
        "'freeze=.*(kv_a_layernorm|q_a_proj|kv_b_proj).*'",
        LORA "lora_target_modules=q_a_proj,q_b_proj,q_proj,kv_a_proj_with_mqa,kv_b_proj,o_proj",
        LORA "lora_target_modules=all-linear lora_dropout=0.1"};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

static void test_where_weights_lie(void **state)
{
	static const char *const ways[] = {"cpu_offload=on vram_budget=off",
	        "cpu_offload=on vram_budget=off activations=offload stream_delay_seed=3",
	        "cpu_offload=params activations=keep threads=2"};

	(void)state;
	for (int k = 0; k < KINDS; k++)
		for (int i = 0; i < 2; i++) {
			const struct run_model *m = i ? &v2 : &v3;

			train(m, "off", kinds[k], "cpu_offload=off");
			for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w += (size_t)sparing(2)) {
				train(m, "on", kinds[k], ways[w]);
				assert_same_runs("off", "on", ways[w]);
			}
		}
}

static void test_resumed(void **state)
{
	(void)state;
	for (int k = 0; k < KINDS; k++) {
		train(&v3, "whole", kinds[k], "save_steps=2");
		train(&v3, "part", kinds[k], "save_steps=2 max_steps=2");
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/part " COMMON
		        "%s save_steps=2 resume_from_checkpoint=auto",
		        v3.dir, v3.data, work_dir, kinds[k]);
		assert_same_runs("whole", "part", kinds[k]);
	}
}

static double loss_of(const char *model, const char *adapter)
{
	json_t *got;
	double loss;

	assert_ferry_json(&got, "eval model=%s%s%s data=%s compute_dtype=fp32 device=host --json", model,
	        *adapter ? " lora_adapter=" : "", adapter, v3.data);
	loss = json_number_value(json_object_get(got, "loss"));
	json_decref(got);
	return loss;
}

static void test_adapters(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct run_model *m = i ? &v2 : &v3;
		char adapter[400], merged[400];
		double before = loss_of(m->dir, ""), beside, after;

		train(m, "out", kinds[3], "compute_dtype=fp32 export_dtype=fp32");
		path_of(adapter, "out/adapter");
		path_of(merged, "out/model");
		beside = loss_of(m->dir, adapter);
		after = loss_of(merged, "");
		if (!(fabs(after - beside) <= 1e-5 * beside) || !(fabs(before - beside) > 1e-4))
			fail_msg("merged %.9g, with the adapter %.9g, before %.9g", after, beside, before);
	}
}

/* The most likely next token of every prefix of a text, in a pass of its own, is what the cache gives. */
static void test_generated(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		const struct run_model *m = i ? &v2 : &v3;
		json_t *got, *again;
		const json_t *ids;

		assert_ferry_json(&got,
		        "generate model=%s prompt_ids=3,9,27 max_new_tokens=12 temperature=0 "
		        "compute_dtype=fp32 "
		        "device=host --json",
		        m->dir);
		ids = json_object_get(got, "ids");
		assert_in_range(json_array_size(ids), 5, 12);
		for (size_t n = 1; n < json_array_size(ids); n += 3) {
			char prompt[300] = "3,9,27";

			for (size_t j = 0; j < n; j++)
				snprintf(prompt + strlen(prompt), sizeof(prompt) - strlen(prompt), ",%lld",
				        json_integer_value(json_array_get(ids, j)));
			assert_ferry_json(&again,
			        "generate model=%s prompt_ids=%s max_new_tokens=1 temperature=0 "
			        "compute_dtype=fp32 device=host --json",
			        m->dir, prompt);
			assert_int_equal(json_integer_value(json_array_get(json_object_get(again, "ids"), 0)),
			        json_integer_value(json_array_get(ids, n)));
			json_decref(again);
		}
		json_decref(got);
	}
}

/* The run takes what the plan says, where all rows are as long and every token is a target: also with a
 * correction bias that files have in fp32. */
static void test_planned_bytes(void **state)
{
	static const char *const ways[] = {"cpu_offload=on vram_budget=off", "cpu_offload=off",
	        "cpu_offload=on vram_budget=off " LORA "lora_target_modules=kv_b_proj,q_a_proj,q_proj"};
	const char *golden = golden_dir("test_run_latent with golden models");
	struct run_model models[3] = {v3, v2};
	struct str rows = {0};

	(void)state;
	if (golden)
		golden_model(&models[2], golden, "more/deepseek_v3");
	for (int row = 0; row < 16; row++) {
		str_add(&rows, "{\"input_ids\":[1");
		for (int i = 1; i < 30; i++)
			str_printf(&rows, ",%d", (i * i + row) % 64);
		str_add(&rows, "]}\n");
	}
	write_file("all.jsonl", "%s", rows.data);
	str_free(&rows);
	for (int m = 0; m < 2 + (golden != NULL); m++)
		for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
			char settings[600];

			snprintf(models[m].data, sizeof(models[m].data), "%s/all.jsonl", work_dir);
			snprintf(settings, sizeof(settings), COMMON "compute_dtype=bf16 %s", ways[i]);
			assert_planned_bytes(&models[m], settings);
		}
}

static void test_refused(void **state)
{
	static const char *const cases[][2] = {
	        {"\"deepseek_v2\",\"num_experts_per_tok\":2,\"topk_method\":\"noaux_tc\"",
	                "topk_method is \"noaux_tc\"; supported: greedy, group_limited_greedy"},
	        {"\"deepseek_v2\"", "num_experts_per_tok is missing"},
	        {"\"deepseek_v2\",\"num_experts_per_tok\":2,\"mlp_bias\":true", "mlp_bias is true"},
	        {"\"deepseek_v3\",\"kv_lora_rank\":0", "kv_lora_rank is 0"},
	        {"\"deepseek_v3\",\"qk_rope_head_dim\":7", "head_dim must be even"},
	        {"\"deepseek_v3\",\"v_head_dim\":-1", "v_head_dim is -1"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		write_file("bad.json", "{\"model_type\":%s}", cases[i][0]);
		assert_ferry(2, NULL, "init config=%s/bad.json output_dir=%s/bad", work_dir, work_dir);
		if (!strstr(ferry_said(), cases[i][1]))
			fail_msg("%s: %s", cases[i][0], ferry_said());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_where_weights_lie),
	        cmocka_unit_test(test_resumed), cmocka_unit_test(test_adapters),
	        cmocka_unit_test(test_generated), cmocka_unit_test(test_planned_bytes),
	        cmocka_unit_test(test_refused)};
	int failed;

	ferry_run_begin("run-latent");
	models_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
