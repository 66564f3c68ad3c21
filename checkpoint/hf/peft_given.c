/* Finds weights of the model that PEFT stores beside an adapter although they are no part of it. */
#include "checkpoint/hf/peft.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/file/safetensors.h"
#include "model/family.h"

#include <inttypes.h>
#include <string.h>

int peft_given_tensor(const struct model *model, const char *name)
{
	int t = peft_find_tensor(model, name);

	if (t == MODEL_NAME_UNKNOWN)
		return -1;
	name += strlen(PEFT_PREFIX);
	if (t == MODEL_NAME_BUFFER && model->config.tied &&
	        family_is_head(model->family, model_text_name(name)))
		t = model_tensor_of(model, ROLE_EMBED, -1);
	if (t < 0)
		return -1;
	switch (model->tensors[t].role) {
	case ROLE_EMBED:
	case ROLE_HEAD_W:
	case ROLE_HEAD_B:
		return t;
	default:
		return -1;
	}
}

/* A vocabulary that was resized before the training. */
static int check_size(
        const struct safetensors *file, const struct safetensors_tensor *t, const struct model *model)
{
	if (t->rank && t->shape[0] == model->config.V)
		return 0;
	return err_set(ERR_INPUT,
	        "%s holds \"%s\" for %" PRId64
	        " tokens (PEFT's save_embedding_layers), but the model has %" PRId64
	        "; in transformers call resize_token_embeddings(%" PRId64
	        ") on the model, save it, and set model to "
	        "that",
	        file->path, safetensors_name_show(t->name).text, t->shape[0], model->config.V, t->shape[0]);
}

static int note(struct peft_config *config, const char *name)
{
	json_t *names = json_object_get(config->json, PEFT_GIVEN);

	if (!names) {
		if (json_object_set_new(config->json, PEFT_GIVEN, json_array()))
			return ERR_NOMEM;
		names = json_object_get(config->json, PEFT_GIVEN);
		config->options.given = names;
	}
	return json_array_append_new(names, json_string(name)) ? ERR_NOMEM : 0;
}

int peft_find_given(struct peft_config *config, const char *dir, struct model *model)
{
	char *path = file_join(dir, PEFT_WEIGHTS_NAME);
	struct safetensors *file = NULL;
	int err = path ? 0 : ERR_NOMEM;

	if (!err && file_kind_of(path) == FILE_REGULAR)
		err = safetensors_open(&file, path);
	for (int64_t i = 0; file && i < file->tensor_count && !err; i++) {
		int t = peft_given_tensor(model, file->tensors[i].name);

		if (t < 0 || model->tensors[t].in_adapter)
			continue;
		err = check_size(file, &file->tensors[i], model);
		if (!err)
			err = note(config, model->tensors[t].name);
		if (!err)
			model_give(model, t);
	}
	safetensors_close(file);
	mem_free(path);
	return err;
}
