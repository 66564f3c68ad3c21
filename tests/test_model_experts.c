/* links: model_families */
/* Experts in config.json: what is refused, and which layers have them. */
#include "tests/config_text.h"

#include "model/adapter.h"

#define QWEN "{\"model_type\":\"qwen3_moe\","
#define GLM "{\"model_type\":\"glm4_moe\","

static const struct {
	const char *config;
	int code;
	const char *says;
} refused[] = {
        {QWEN "\"num_experts\":4}", ERR_INPUT, "num_experts_per_tok is 8, but num_experts is only 4"},
        {QWEN "\"num_local_experts\":4}", ERR_INPUT, "but num_local_experts is only 4"},
        {QWEN "\"num_experts\":5000}", ERR_INPUT, "num_experts is 5000; it must be 0 .. 4096"},
        {QWEN "\"num_experts\":-1}", ERR_INPUT, "num_experts is -1"},
        {QWEN "\"num_experts\":\"8\"}", ERR_INPUT, "num_experts"},
        {QWEN "\"num_experts\":16,\"num_local_experts\":17}", ERR_INPUT,
                "num_experts is 16 and num_local_experts is 17; they must be equal"},
        {QWEN "\"num_experts_per_tok\":0}", ERR_INPUT, "num_experts_per_tok is 0"},
        {QWEN "\"moe_intermediate_size\":0}", ERR_INPUT, "moe_intermediate_size is 0"},
        {QWEN "\"decoder_sparse_step\":0}", ERR_INPUT, "decoder_sparse_step is 0"},
        {QWEN "\"mlp_only_layers\":[\"1\"]}", ERR_INPUT, "mlp_only_layers[0] is not an integer"},
        {QWEN "\"mlp_only_layers\":3}", ERR_INPUT, "mlp_only_layers"},
        {QWEN "\"output_router_logits\":5}", ERR_INPUT, "output_router_logits"},
        {QWEN "\"router_aux_loss_coef\":-0.5}", ERR_INPUT, "router_aux_loss_coef is -0.5"},
        {"{\"model_type\":\"mixtral\",\"num_local_experts\":0}", ERR_INPUT, "the number of experts is 0"},
        {"{\"model_type\":\"mixtral\",\"router_jitter_noise\":0.1}", ERR_UNSUPPORTED,
                "router_jitter_noise is 0.1"},
        {"{\"model_type\":\"olmoe\",\"clip_qkv\":-8.0}", ERR_INPUT, "clip_qkv is -8"},
        {GLM "\"n_group\":3}", ERR_INPUT, "n_routed_experts 128 is not a multiple of n_group 3"},
        {GLM "\"topk_group\":2}", ERR_INPUT, "topk_group is 2, but n_group is only 1"},
        {GLM "\"n_group\":32}", ERR_INPUT,
                "num_experts_per_tok is 8, but topk_group 1 leaves only 4 experts"},
        {GLM "\"n_group\":128}", ERR_UNSUPPORTED, "n_group is 128"},
        {GLM "\"routed_scaling_factor\":0}", ERR_INPUT, "routed_scaling_factor is 0"},
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct model *model = NULL;
		int code = open_text(&model, refused[i].config);

		if (code != refused[i].code || !strstr(err_text(), refused[i].says) || model)
			fail_msg("%s gave %d, \"%s\"; wanted \"%s\"", refused[i].config, code, err_text(),
			        refused[i].says);
	}
}

/* The layers of a text "eed..": with experts, or dense. */
static void check_layers(const char *config, const char *layers)
{
	struct model *model;

	check_ok(open_text(&model, config));
	assert_int_equal(model->config.L, strlen(layers));
	for (int l = 0; l < model->config.L; l++) {
		int is_sparse = model_tensor_of(model, ROLE_EXPERTS_DOWN_W, l) >= 0;

		assert_int_equal(is_sparse, layers[l] == 'e');
		assert_int_equal(model_tensor_of(model, ROLE_ROUTER_W, l) >= 0, is_sparse);
		assert_int_equal(model_tensor_of(model, ROLE_DOWN_W, l) >= 0, !is_sparse);
	}
	model_close(model);
}

static void test_layers(void **state)
{
	(void)state;
	check_layers(QWEN "\"num_hidden_layers\":4}", "eeee");
	check_layers(QWEN "\"num_hidden_layers\":4,\"num_experts\":0}", "dddd");
	check_layers(QWEN "\"num_hidden_layers\":5,\"decoder_sparse_step\":2}", "deded");
	check_layers(QWEN "\"num_hidden_layers\":5,\"decoder_sparse_step\":2,\"mlp_only_layers\":[3,7,-1]}",
	        "deddd");
	check_layers(GLM "\"num_hidden_layers\":3,\"first_k_dense_replace\":2}", "dde");
	check_layers(GLM "\"num_hidden_layers\":3,\"first_k_dense_replace\":0}", "eee");
}

/* Shapes, and what one token uses of a layer's experts. */
static void test_shapes(void **state)
{
	static const int64_t shape[] = {128, 2 * 768, 2048};
	struct model *model;
	int t;

	(void)state;
	check_ok(open_text(&model, QWEN "\"num_hidden_layers\":2}"));
	t = model_tensor_of(model, ROLE_EXPERTS_GATE_UP_W, 1);
	assert_string_equal(model->tensors[t].name, "model.layers.1.mlp.experts.gate_up_proj");
	assert_int_equal(model->tensors[t].rank, 3);
	assert_memory_equal(model->tensors[t].shape, shape, sizeof(shape));
	assert_int_equal(model->tensors[t].count, shape[0] * shape[1] * shape[2]);
	assert_true(model_active_count(model, t) == 8.0 * (double)(shape[1] * shape[2]));
	model_close(model);
}

/* Adapters of experts alone, in some blocks of a named list. */
static void test_lists(void **state)
{
	static const enum tensor_role a[] = {
	        ROLE_EXPERTS_GATE_LORA_A, ROLE_EXPERTS_UP_LORA_A, ROLE_EXPERTS_DOWN_LORA_A};
	static const char *const targets[] = {"gate_proj", "up_proj", "down_proj"};

	(void)state;
	for (unsigned set = 1; set < 8; set++) {
		json_t *names = json_array(), *layers = json_integer(1), *list = json_string("layers");
		struct adapter_options options = {.rank = 2,
		        .alpha = 2,
		        .targets = names,
		        .layers = layers,
		        .layers_pattern = list,
		        .called = {.targets = "targets", .layers_pattern = "pattern"}};
		struct model *model;

		for (int i = 0; i < 3; i++)
			if (set & 1u << i)
				json_array_append_new(names, json_string(targets[i]));
		check_ok(open_text(&model, QWEN "\"num_hidden_layers\":3,\"num_experts\":16}"));
		check_ok(model_adapt(model, &options));
		for (int l = 0; l < 3; l++)
			for (int i = 0; i < 3; i++)
				assert_int_equal(
				        model_tensor_of(model, a[i], l) >= 0, l == 1 && set & 1u << i);
		for (int t = 0; t < model->tensor_count; t++) /* a token uses 8 of 16 experts */
			if (model_tensor_is_adapter(&model->tensors[t]))
				assert_true(
				        2 * model_active_count(model, t) == (double)model->tensors[t].count);
		model_close(model);
		json_decref(names);
		json_decref(layers);
		json_decref(list);
	}
}

/* Files of Qwen3-VL have experts in either orientation; the first that is seen decides. Equal sides are
 * [out, in], as in transformers. */
static void test_either_orientation(void **state)
{
	static const struct {
		int64_t shape[3];
		int inner, in_out;
	} cases[] = {{{60, 32, 12}, 6, 1}, {{60, 12, 32}, 6, 0}, {{60, 32, 32}, 16, 0}, {{60, 32, 14}, 6, 1},
	        {{60, 12, 32}, 6, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct model *model;
		char text[300];
		int first, down;

		snprintf(text, sizeof(text),
		        "{\"model_type\":\"qwen3_vl_moe_text\",\"hidden_size\":32,\"num_hidden_layers\":3,"
		        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"mlp_only_layers\":[0],"
		        "\"moe_intermediate_size\":%d}",
		        cases[i].inner);
		check_ok(open_text(&model, text));
		first = model_first_experts(model);
		assert_int_equal(model->tensors[first].layer, 1);
		check_ok(model_fit_experts(model, model->tensors[0].name, 3, cases[i].shape));
		check_ok(model_fit_experts(model, "no.such.name", 3, cases[i].shape));
		check_ok(model_fit_experts(model, model->tensors[first].name, 2, cases[i].shape));
		assert_int_equal(model->config.block[2].experts.in_out, 1);
		check_ok(model_fit_experts(model, model->tensors[first].name, 3, cases[i].shape));
		first = model_first_experts(model);
		down = model_tensor_of(model, ROLE_EXPERTS_DOWN_W, 2);
		assert_int_equal(model->config.block[2].experts.in_out, cases[i].in_out);
		assert_int_equal(model->tensors[first].shape[1], cases[i].in_out ? 32 : 2 * cases[i].inner);
		assert_int_equal(model->tensors[down].shape[1], cases[i].in_out ? cases[i].inner : 32);
		model_close(model);
	}
	{
		struct model *model;
		const int64_t turned[3] = {128, 2048, 1536};

		check_ok(open_text(&model, QWEN "\"num_hidden_layers\":1}"));
		check_ok(
		        model_fit_experts(model, model->tensors[model_first_experts(model)].name, 3, turned));
		assert_int_equal(model->config.block[0].experts.in_out, 0); /* that family has one */
		model_close(model);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_either_orientation),
	        cmocka_unit_test(test_refused), cmocka_unit_test(test_layers), cmocka_unit_test(test_shapes),
	        cmocka_unit_test(test_lists)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
