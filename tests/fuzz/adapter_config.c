/* links: base model model_families checkpoint */
/* seeds: */
/* An adapter_config.json and small models, one with experts: what fits gives a model with adapters, and what
 * is read of it, read again, gives the same model. */
#include "tests/fuzz/fuzz.h"

#include "checkpoint/hf/peft.h"
#include "model/families/open.h"

static const char *const configs[] = {
        "{\"model_type\":\"gpt2\",\"vocab_size\":8,\"n_positions\":8,\"n_embd\":4,"
        "\"n_layer\":2,\"n_head\":2}",
        "{\"model_type\":\"qwen2_moe\",\"vocab_size\":8,\"hidden_size\":4,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"num_experts\":3,\"num_experts_per_tok\":2,"
        "\"moe_intermediate_size\":2,\"shared_expert_intermediate_size\":2,\"mlp_only_layers\":[0]}"};

static struct model *open_model(const char *config)
{
	struct model *model = NULL;
	json_t *root = NULL;

	fuzz_require(!json_parse(&root, "model", config, strlen(config)));
	fuzz_require(!model_open(&model, root, "model"));
	json_decref(root);
	return model;
}

/* Adapts a model as the object says; NULL: refused. */
static struct model *adapted(struct peft_config *config, const json_t *object, const char *text)
{
	struct model *model = open_model(text);
	int err = peft_config_of(config, object, "fuzz");

	if (!err)
		err = model_adapt(model, &config->options);
	if (!err)
		return model;
	fuzz_refused(err);
	model_close(model);
	return NULL;
}

static void check(const json_t *root, const char *text)
{
	struct peft_config config = {0}, again = {0};
	struct model *model = adapted(&config, root, text), *other;

	if (!model) {
		peft_config_free(&config);
		return;
	}
	fuzz_require(model->config.adapter_rank > 0);
	fuzz_require(model->config.adapter_magnitudes == config.options.use_dora);
	for (int t = 0; t < model->tensor_count; t++)
		fuzz_require(model_find_tensor(model, model->tensors[t].name) == t);
	other = adapted(&again, config.json, text);
	fuzz_require(other && other->tensor_count == model->tensor_count);
	for (int t = 0; t < model->tensor_count; t++)
		fuzz_require(other->tensors[t].count == model->tensors[t].count &&
		             other->tensors[t].in_adapter == model->tensors[t].in_adapter);
	model_close(other);
	model_close(model);
	peft_config_free(&again);
	peft_config_free(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	json_t *root = NULL;

	if (json_parse(&root, "fuzz", (const char *)data, len))
		return 0;
	for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++)
		check(root, configs[i]);
	json_decref(root);
	return 0;
}
