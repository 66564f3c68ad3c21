/* links: model_families model_blocks */
/* Names of tensors in checkpoints: with and without prefix, older ones, and those of buffers. */
#include "tests/config_text.h"

#include "model/model.h"

static void name_is(const struct model *model, const char *name, const char *table_name)
{
	int tensor = model_find_tensor(model, name);

	if (tensor < 0 || strcmp(model->tensors[tensor].name, table_name)) {
		print_error("%s: found %d\n", name, tensor);
		fail();
	}
}

static void test_names(void **state)
{
	struct model *model;

	(void)state;
	check_ok(open_text(&model, "{" LLAMA "}"));
	name_is(model, "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight");
	name_is(model, "layers.1.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight");
	name_is(model, "embed_tokens.weight", "model.embed_tokens.weight");
	name_is(model, "lm_head.weight", "lm_head.weight");
	assert_int_equal(model_find_tensor(model, "model.layers.2.mlp.up_proj.weight"), MODEL_NAME_UNKNOWN);
	assert_int_equal(model_find_tensor(model, "model.layers.01.mlp.up_proj.weight"), MODEL_NAME_UNKNOWN);
	assert_int_equal(
	        model_find_tensor(model, "model.layers.0.self_attn.q_proj.bias"), MODEL_NAME_UNKNOWN);
	assert_int_equal(model_find_tensor(model, "model.model.norm.weight"), MODEL_NAME_UNKNOWN);
	assert_int_equal(model_find_tensor(model, "model.lm_head.weight"), MODEL_NAME_UNKNOWN);
	assert_int_equal(model_find_tensor(model, ""), MODEL_NAME_UNKNOWN);
	assert_int_equal(model_find_tensor(model, "model."), MODEL_NAME_UNKNOWN);
	assert_int_equal(
	        model_find_tensor(model, "model.layers.0.self_attn.rotary_emb.inv_freq"), MODEL_NAME_BUFFER);
	assert_int_equal(model_find_tensor(model, "model.rotary_emb.inv_freq"), MODEL_NAME_BUFFER);
	assert_int_equal(model_find_tensor(model, "xrotary_emb.inv_freq"), MODEL_NAME_UNKNOWN);
	assert_int_equal(model_find_tensor(model, "model.layers.0.self_attn.bias"), MODEL_NAME_UNKNOWN);
	model_close(model);

	check_ok(open_text(&model, "{" GPT2 "}"));
	name_is(model, "wte.weight", "transformer.wte.weight");
	name_is(model, "h.1.attn.c_attn.bias", "transformer.h.1.attn.c_attn.bias");
	assert_int_equal(model_find_tensor(model, "h.1.attn.bias"), MODEL_NAME_BUFFER);
	assert_int_equal(model_find_tensor(model, "transformer.h.0.attn.masked_bias"), MODEL_NAME_BUFFER);
	assert_int_equal(model_find_tensor(model, "lm_head.weight"), MODEL_NAME_BUFFER); /* tied */
	assert_int_equal(model_find_tensor(model, "score.weight"), MODEL_NAME_UNKNOWN);
	model_close(model);

	check_ok(open_text(&model, "{\"model_type\":\"gpt_bigcode\"}"));
	name_is(model, "h.1.attn.c_attn.bias", "transformer.h.1.attn.c_attn.bias");
	assert_int_equal(model_find_tensor(model, "transformer.bias"), MODEL_NAME_BUFFER);
	assert_int_equal(model_find_tensor(model, "transformer.h.0.attn.bias"), MODEL_NAME_BUFFER);
	model_close(model);

	check_ok(open_text(&model, "{\"model_type\":\"gpt_neo\"}"));
	assert_int_equal(
	        model_find_tensor(model, "transformer.h.0.attn.attention.masked_bias"), MODEL_NAME_BUFFER);
	assert_int_equal(model_find_tensor(model, "transformer.h.0.attn.bias"), MODEL_NAME_UNKNOWN);
	model_close(model);

	check_ok(open_text(&model, "{\"model_type\":\"opt\"}"));
	name_is(model, "decoder.layers.1.fc1.bias", "model.decoder.layers.1.fc1.bias");
	name_is(model, "layers.1.fc1.bias", "model.decoder.layers.1.fc1.bias");
	name_is(model, "decoder.final_layer_norm.bias", "model.decoder.final_layer_norm.bias");
	assert_int_equal(model_find_tensor(model, "model.layers.1.fc1.bias"), MODEL_NAME_UNKNOWN);
	assert_int_equal(model_find_tensor(model, "model.decoder.version"), MODEL_NAME_BUFFER);
	model_close(model);

	check_ok(
	        open_text(&model, "{\"model_type\":\"RefinedWebModel\",\"architectures\":[\"RWForCausalLM\"],"
	                          "\"n_head\":71,\"n_layer\":1,\"multi_query\":true}"));
	name_is(model, "h.0.input_layernorm.bias", "transformer.h.0.input_layernorm.bias");
	assert_int_equal(model->config.KV, 1);
	model_close(model);

	check_ok(open_text(&model, "{\"model_type\":\"RefinedWeb\",\"hidden_size\":8192,\"n_head\":128,"
	                           "\"n_head_kv\":8,\"n_layer\":1}"));
	name_is(model, "h.0.ln_mlp.bias", "transformer.h.0.ln_mlp.bias");
	assert_int_equal(model->config.KV, 8);
	model_close(model);

	check_ok(open_text(&model, "{" NEOX "}"));
	name_is(model, "embed_out.weight", "embed_out.weight");
	name_is(model, "lm_head.weight", "embed_out.weight");
	name_is(model, "layers.0.attention.dense.bias", "gpt_neox.layers.0.attention.dense.bias");
	assert_int_equal(model_find_tensor(model, "gpt_neox.layers.0.attention.bias"), MODEL_NAME_BUFFER);
	assert_int_equal(
	        model_find_tensor(model, "gpt_neox.layers.1.attention.masked_bias"), MODEL_NAME_BUFFER);
	assert_int_equal(model_find_tensor(model, "gpt_neox.layers.1.attention.rotary_emb.inv_freq"),
	        MODEL_NAME_BUFFER);
	model_close(model);

	check_ok(open_text(&model, "{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"*\","
	                           "\"num_hidden_layers\":1}"));
	name_is(model, "model.layers.0.mixer.q_proj.weight", "backbone.layers.0.mixer.q_proj.weight");
	name_is(model, "layers.0.mixer.q_proj.weight", "backbone.layers.0.mixer.q_proj.weight");
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_names)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
