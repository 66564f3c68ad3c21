/* Makes and finds the names of tensors in PEFT's files. */
#include "checkpoint/hf/peft_experts.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/families/text_part.h"
#include "model/family.h"
#include "model/module_names.h"

#include <string.h>

char *peft_name(const struct model *model, const char *whole, const char *name)
{
	static const char base[] = "model.";
	const char *head = family_head_name(model->family), *alias = model->family->head_alias;
	size_t len = head ? (size_t)(strrchr(head, '.') - head) + 1 : 0;

	if (alias && head && !strncmp(name, head, len)) /* its own tensor, or its adapter's */
		return mem_printf(
		        "%s%.*s.%s", PEFT_PREFIX, (int)(strrchr(alias, '.') - alias), alias, name + len);
	if (!whole && model->family->module_prefix && !strncmp(name, model->prefix, strlen(model->prefix)))
		return mem_printf(
		        "%s%s%s", PEFT_PREFIX, model->family->module_prefix, name + strlen(model->prefix));
	if (!whole || strncmp(name, base, sizeof(base) - 1))
		return mem_printf("%s%s", PEFT_PREFIX, name);
	return mem_printf("%s%s%s", PEFT_PREFIX, text_part_modules(whole), name + sizeof(base) - 1);
}

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

/* The same by a name that is another in the model's files. */
static int find_renamed(const struct model *model, const char *name)
{
	char *own = model_file_name(model, name);
	int t = own ? model_find_tensor(model, own) : ERR_NOMEM;

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
	if (t == MODEL_NAME_UNKNOWN)
		t = find_renamed(model, name);
	mem_free(plain);
	return t;
}
