/* Which blocks get adapters. */
#include "model/adapter_layers.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/name_pattern.h"

#include <inttypes.h>

int adapter_keep_layers(char *chosen, const struct model *model, const json_t *layers)
{
	int64_t L = model->config.L, count = json_is_array(layers) ? (int64_t)json_array_size(layers) : 1;
	char *kept = mem_alloc((size_t)L, 1);

	if (!kept)
		return ERR_NOMEM;
	for (int64_t i = 0; i < count; i++) {
		const json_t *item = json_is_array(layers) ? json_array_get(layers, (size_t)i) : layers;
		json_int_t layer = json_is_integer(item) ? json_integer_value(item) : -1;

		if (layer < 0 || layer >= L) {
			mem_free(kept);
			if (!json_is_integer(item))
				return err_set(ERR_INPUT,
				        "an entry is %s; expected block numbers from 0 to %" PRId64,
				        json_kind_name(item), L - 1);
			return err_set(ERR_INPUT,
			        "there is no block %" JSON_INTEGER_FORMAT
			        "; the model has blocks 0 to %" PRId64,
			        layer, L - 1);
		}
		kept[layer] = 1;
	}
	for (int t = 0; t < model->tensor_count; t++)
		if (chosen[t] && !kept[model->tensors[t].layer])
			chosen[t] = 0;
	mem_free(kept);
	return 0;
}

/* 1: the tensor's block is an item of a list with this name, as "layers" in "model.layers.0.mlp.up_proj". */
static int is_in_list(const struct model_tensor *t, const char *list)
{
	struct name_pattern *pattern;
	struct str text = {0};
	int found;

	str_printf(&text, ".*\\.(?:%s)\\.%d\\..*", list, t->layer);
	found = str_check(&text);
	if (!found)
		found = name_pattern_open(&pattern, NULL, text.data);
	if (!found) {
		found = name_pattern_matches(pattern, t->name);
		name_pattern_close(pattern);
	}
	str_free(&text);
	return found;
}

int adapter_keep_lists(char *chosen, const struct model *model, const json_t *lists)
{
	size_t count = json_is_array(lists) ? json_array_size(lists) : 1;
	int found = 0, is_any = 0;

	for (int t = 0; t < model->tensor_count && found >= 0; t++) {
		found = 0;
		for (size_t i = 0; i < count && chosen[t] && !found; i++) {
			const char *list =
			        json_string_value(json_is_array(lists) ? json_array_get(lists, i) : lists);

			found = list ? is_in_list(&model->tensors[t], list)
			             : err_set(ERR_INPUT, "is no text, as in layers");
		}
		if (found == 0)
			chosen[t] = 0;
		is_any |= chosen[t];
	}
	if (found >= 0 && !is_any)
		found = err_set(ERR_INPUT, "names no list of blocks of this model");
	return found < 0 ? found : 0;
}
