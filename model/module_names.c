/* Makes and lists the names of modules and parameters. */
#include "model/module_names.h"

#include "base/mem.h"
#include "model/adapter.h"
#include "model/expert_names.h"
#include "model/family.h"

#include <string.h>

/* Whether "a, b, c" has this name. */
static int has_name(const char *list, const char *name, size_t len)
{
	for (; list; list = strstr(list, ", ")) {
		list += *list == ',' ? 2 : 0;
		if (!strncmp(list, name, len) && (!list[len] || list[len] == ','))
			return 1;
	}
	return 0;
}

void name_list_add(struct str *list, const char *name, size_t len)
{
	if (!list->data || !has_name(list->data, name, len))
		str_printf(list, "%s%.*s", list->len_bytes ? ", " : "", (int)len, name);
}

/* The name with the first of the parts that it has replaced. */
static char *renamed(const struct model *model, const char *name, int is_back)
{
	for (const struct family_rename *r = model->family->renames; r && r->in_files; r++) {
		const char *from = is_back ? r->now : r->in_files, *at = strstr(name, from);

		if (at)
			return mem_printf("%.*s%s%s", (int)(at - name), name, is_back ? r->in_files : r->now,
			        at + strlen(from));
	}
	return mem_strdup(name);
}

char *model_parameter_name(const struct model *model, int tensor)
{
	return renamed(model, model->tensors[tensor].name, 0);
}

char *model_file_name(const struct model *model, const char *name)
{
	return renamed(model, name, 1);
}

void model_list_modules(struct str *out, const struct model *model, int is_adapted)
{
	struct str names = {0};

	for (int i = 0; i < model->tensor_count; i++) {
		const struct model_tensor *t = &model->tensors[i];
		const char *end = strrchr(t->name, '.'), *begin;

		if (is_adapted &&
		        role_is_a(t->role)) /* its module: .lora_A.weight or the embedding's follows */
			end = strstr(t->name, ".lora_");
		else if (is_adapted || !model_may_adapt(model, t->role) || expert_parts(t->role) ||
		         model_is_parameter(model, t->role))
			continue;
		begin = end;
		while (begin > t->name && begin[-1] != '.')
			begin--;
		name_list_add(&names, begin, (size_t)(end - begin));
	}
	str_add(out, names.data ? names.data : "");
	out->broken |= names.broken;
	str_free(&names);
}
