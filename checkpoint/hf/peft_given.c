/* Finds weights of the model that PEFT stores beside an adapter although they are no part of it. */
#include "checkpoint/hf/peft.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/file/safetensors.h"
#include "model/family.h"

#include <inttypes.h>
#include <string.h>

/* The same by the name of the head in the model's files, where transformers 5 has another. */
static int find_of_head(const struct model *model, const char *name)
{
	const char *head = family_head_name(model->family), *alias = model->family->head_alias;
	size_t len = alias ? (size_t)(strrchr(alias, '.') - alias) + 1 : 0;
	char *own;
	int t;

	if (!head || !alias || strncmp(name, alias, len) != 0)
		return MODEL_NAME_UNKNOWN;
	own = mem_printf("%.*s.%s", (int)(strrchr(head, '.') - head), head, name + len);
	t = own ? model_find_tensor(model, own) : ERR_NOMEM;
	mem_free(own);
	return t;
}

int peft_find_tensor(const struct model *model, const char *name)
{
	static const char *const within[] = {PEFT_WITHIN ".weight", PEFT_WITHIN ".bias"};
	size_t len = strlen(PEFT_PREFIX);
	char *plain = NULL;
	int t;

	if (strncmp(name, PEFT_PREFIX, len) != 0)
		return MODEL_NAME_UNKNOWN;
	name += len;
	for (int i = 0; i < 2 && name && !plain; i++)
		if (str_ends_with(name, within[i]))
			name = plain = mem_printf("%.*s%s", (int)(strlen(name) - strlen(within[i])), name,
			        within[i] + strlen(PEFT_WITHIN));
	if (!name)
		return ERR_NOMEM;
	t = model_find_tensor(model, name);
	if (t == MODEL_NAME_UNKNOWN)
		t = find_of_head(model, name);
	mem_free(plain);
	return t;
}

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
