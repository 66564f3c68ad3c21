/* links: model_families */
/* Heads of classes by config.json, and what a model computes for a token. */
#include "tests/config_text.h"

#include "model/family.h"

/* transformers caps and divides the logits of the vocabulary only. */
static void test_logits(void **state)
{
	static const struct {
		const char *config;
		double cap, divisor;
	} cases[] = {
	        {"{\"model_type\":\"gemma2\"}", 30, 0},
	        {"{\"model_type\":\"gemma2\",\"architectures\":[\"Gemma2ForTokenClassification\"]}", 0, 0},
	        {"{\"model_type\":\"gemma2\",\"architectures\":[\"Gemma2ForSequenceClassification\"]}", 0, 0},
	        {"{\"model_type\":\"granite\",\"logits_scaling\":8}", 0, 8},
	};
	struct model *model;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		check_ok(open_text(&model, cases[i].config));
		assert_true(model->config.logit_cap == cases[i].cap);
		assert_true(model->config.logit_divisor == cases[i].divisor);
		check_ok(model_classify(model, HEAD_OF_TOKENS, 3));
		assert_true(model->config.logit_cap == 0 && model->config.logit_divisor == 0);
		model_close(model);
	}
}

static void test_refused(void **state)
{
	static const char *const configs[][2] = {
	        {"{\"model_type\":\"modernbert\",\"classifier_pooling\":5}", "classifier_pooling"},
	        {"{\"model_type\":\"modernbert\",\"classifier_pooling\":\"max\"}", "expected cls or mean"},
	        {"{\"model_type\":\"granitemoehybrid\",\"position_embedding_type\":1}",
	                "position_embedding_type"},
	        {"{\"model_type\":\"granitemoehybrid\",\"mamba_d_head\":64.5}", "mamba_d_head"},
	        {"{\"model_type\":\"granitemoehybrid\",\"mamba_n_heads\":0}", "mamba_n_heads is 0"},
	        {"{\"model_type\":\"nemotron_h\",\"mamba_head_dim\":\"64\"}", "mamba_head_dim"},
	        {"{\"model_type\":\"bert\",\"position_embedding_type\":[1]}", "position_embedding_type"},
	        {"{\"model_type\":\"qwen3_5_text\",\"output_gate_type\":1}", "output_gate_type"},
	        {"{\"model_type\":\"falcon_h1\",\"ssm_multipliers\":[1,1,1]}", "ssm_multipliers has 3"},
	        {"{\"model_type\":\"falcon_h1\",\"mlp_multipliers\":[1,0]}", "mlp_multipliers is 0"},
	        {"{\"model_type\":\"falcon_h1\",\"mamba_n_heads\":96}", "is not mamba_d_ssm 1024"},
	        {"{\"model_type\":\"deepseek_v2\",\"num_experts_per_tok\":2,\"topk_method\":1}",
	                "topk_method"},
	};
	struct model *model = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++) {
		assert_int_equal(open_text(&model, configs[i][0]), ERR_INPUT);
		if (!strstr(err_text(), configs[i][1]))
			fail_msg("%s", err_text());
	}
}

/* Layers with a recurrent state count its numbers: those of Mamba-2 and of the delta rule. */
static void test_states(void **state)
{
	static const struct {
		const char *config;
		double numbers;
	} cases[] = {{"{\"model_type\":\"nemotron_h\",\"layers_block_type\":[\"mamba\",\"mlp\",\"mamba\"]}",
	                     2.0 * 128 * 64 * 128},
	        {"{\"model_type\":\"qwen3_5_text\",\"num_hidden_layers\":4}", 3.0 * 32 * 128 * 128}};
	struct model *model;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		double matrices, with_states;

		check_ok(open_text(&model, cases[i].config));
		with_states = model_flops_per_token(model, 0);
		for (int64_t l = 0; l < model->config.L; l++)
			model->config.block[l].delta.key_dim = 0;
		matrices = model_flops_per_token(model, 0);
		assert_true(with_states - matrices == 18 * cases[i].numbers);
		model_close(model);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_logits), cmocka_unit_test(test_refused), cmocka_unit_test(test_states)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
