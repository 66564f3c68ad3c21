/* Adds the adapters of a checkpoint to its model. */
#include "checkpoint/load_parts.h"

#include "base/err.h"
#include "base/mem.h"
#include "model/adapter.h"

#include <string.h>

/* The modules that have an A, and its rank. */
static json_t *find_modules(int64_t *rank, const struct manifest *manifest)
{
	static const char a[] = ".lora_A.weight";
	json_t *modules = json_array();

	for (int t = 0; t < manifest->tensor_count; t++) {
		const struct manifest_tensor *tensor = &manifest->tensors[t];
		size_t len = strlen(tensor->name), tail = sizeof(a) - 1;

		if (len <= tail || strcmp(tensor->name + len - tail, a))
			continue;
		*rank = tensor->shape[0];
		if (json_array_append_new(modules, json_stringn(tensor->name, len - tail))) {
			json_decref(modules);
			return NULL;
		}
	}
	return modules;
}

int checkpoint_adapt(const struct checkpoint *checkpoint, struct model *model)
{
	const json_t *scale = json_object_get(checkpoint->manifest->training, "adapter_scale");
	struct adapter_options options = {.scale = json_number_value(scale)};
	json_t *modules = find_modules(&options.rank, checkpoint->manifest);
	char *targets = NULL;
	int err = modules ? json_write(&targets, modules, JSON_COMPACT) : ERR_NOMEM;

	options.targets = targets;
	if (!err && json_array_size(modules) && options.scale > 0)
		err = model_adapt(model, &options);
	else if (!err && json_array_size(modules))
		err = err_set(ERR_INPUT, "%s: it has adapters, but not their scale", manifest_name);
	json_decref(modules);
	mem_free(targets);
	return err ? err_note(err, "%s", checkpoint->path) : 0;
}
