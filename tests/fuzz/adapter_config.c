/* links: base model model_families checkpoint */
/* seeds: */
/* An adapter_config.json and a small model: what fits gives a model with adapters, and what is read of it,
 * read again, gives the same model. */
#include "tests/fuzz/fuzz.h"

#include "checkpoint/hf/peft.h"
#include "model/families/open.h"

static struct model *open_model(void)
{
	static const char config[] =
	        "{\"model_type\":\"gpt2\",\"vocab_size\":8,\"n_positions\":8,\"n_embd\":4,"
	        "\"n_layer\":2,\"n_head\":2}";
	struct model *model = NULL;
	json_t *root = NULL;

	fuzz_require(!json_parse(&root, "model", config, sizeof(config) - 1));
	fuzz_require(!model_open(&model, root, "model"));
	json_decref(root);
	return model;
}

/* Adapts a model as the object says; NULL: refused. */
static struct model *adapted(struct peft_config *config, const json_t *object)
{
	struct model *model = open_model();
	int err = peft_config_of(config, object, "fuzz");

	if (!err)
		err = model_adapt(model, &config->options);
	if (!err)
		return model;
	fuzz_refused(err);
	model_close(model);
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct peft_config config = {0}, again = {0};
	struct model *model, *other;
	json_t *root = NULL;

	if (json_parse(&root, "fuzz", (const char *)data, len))
		return 0;
	model = adapted(&config, root);
	json_decref(root);
	if (!model) {
		peft_config_free(&config);
		return 0;
	}
	fuzz_require(model->config.adapter_rank > 0);
	fuzz_require(model->config.adapter_magnitudes == config.options.use_dora);
	for (int t = 0; t < model->tensor_count; t++)
		fuzz_require(model_find_tensor(model, model->tensors[t].name) == t);
	other = adapted(&again, config.json);
	fuzz_require(other && other->tensor_count == model->tensor_count);
	for (int t = 0; t < model->tensor_count; t++)
		fuzz_require(other->tensors[t].count == model->tensors[t].count &&
		             other->tensors[t].in_adapter == model->tensors[t].in_adapter);
	model_close(other);
	model_close(model);
	peft_config_free(&again);
	peft_config_free(&config);
	return 0;
}
