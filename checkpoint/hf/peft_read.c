/* Reads adapters as PEFT stores them. */
#include "checkpoint/hf/peft.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"
#include "checkpoint/file/safetensors.h"
#include "checkpoint/file/weights.h"
#include "checkpoint/hf/hf_layout.h"
#include "checkpoint/hf/peft_experts.h"
#include "model/adapter.h"
#include "model/expert_names.h"
#include "model/module_names.h"

#include <math.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* Neither absent nor null, false or empty. */
static int is_set(const json_t *value)
{
	return value && !json_is_null(value) && !json_is_false(value) &&
	       !(json_is_object(value) && !json_object_size(value)) &&
	       !(json_is_array(value) && !json_array_size(value));
}

/* Refuses starts of A and B for which PEFT also changes the matrix itself, each time that it loads the
 * adapter. */
static int check_start(const json_t *config, const char *where)
{
	static const char *const others[] = {"pissa", "corda", "olora", "loftq", "lora_ga"};
	const char *start = json_string_value(json_object_get(config, "init_lora_weights"));

	for (size_t i = 0; start && i < sizeof(others) / sizeof(*others); i++)
		if (!strncmp(start, others[i], strlen(others[i])))
			return err_set(ERR_UNSUPPORTED,
			        "%s: init_lora_weights %.40s changes the model's own weights, which is not "
			        "supported; save the adapter with PEFT's "
			        "path_initial_model_for_weight_conversion",
			        where, start);
	return 0;
}

/* Refuses what is set in the config and changes what the adapter computes. */
static int check_kind(const json_t *config, const char *where)
{
	static const char *const others[] = {"use_qalora", "use_bdlora", "lora_bias",
	        "trainable_token_indices", "layer_replication", "alora_invocation_tokens", "arrow_config",
	        "kasa_config", "monteclora_config", "velora_config"};
	const char *type = json_string_value(json_object_get(config, "peft_type"));
	const char *bias = json_string_value(json_object_get(config, "bias"));

	if (!type || strcmp(type, "LORA"))
		return err_set(ERR_UNSUPPORTED, "%s: peft_type %s is not supported; only LORA is", where,
		        type ? type : "(absent)");
	if (bias && strcmp(bias, "none"))
		return err_set(ERR_UNSUPPORTED, "%s: bias %.40s is not supported; only none is", where, bias);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		const json_t *value = json_object_get(config, others[i]);

		if (is_set(value))
			return err_set(ERR_UNSUPPORTED, "%s: %s is not supported", where, others[i]);
	}
	return check_start(config, where);
}

/* Copies a key that is set. */
static int keep(struct peft_config *out, const json_t **value, const json_t *object, const char *key)
{
	json_t *found = json_object_get(object, key);

	if (!is_set(found))
		return 0;
	if (json_object_set(out->json, key, found))
		return ERR_NOMEM;
	*value = json_object_get(out->json, key);
	return 0;
}

/* "mlp.down_proj.weight" is the module "mlp.down_proj". NULL: it does not end so. */
static json_t *module_of(const char *parameter)
{
	size_t len = parameter ? strlen(parameter) : 0, end = sizeof(".weight") - 1;

	return len > end && !strcmp(parameter + len - end, ".weight") ? json_stringn(parameter, len - end)
	                                                              : NULL;
}

/* As keep; a pattern of a parameter is its module's. */
static int keep_pattern(struct peft_config *out, const json_t **value, const json_t *object, const char *key)
{
	json_t *found = json_object_get(object, key), *one, *patterns;
	int err = keep(out, value, object, key);
	const char *name;

	if (err || !is_set(found) || !json_is_object(found))
		return err;
	patterns = json_object();
	json_object_foreach(found, name, one)
	{
		json_t *module = module_of(name);

		if (json_object_set(patterns, module ? json_string_value(module) : name, one))
			err = ERR_NOMEM;
		json_decref(module);
	}
	if (json_object_set_new(out->json, key, patterns))
		err = ERR_NOMEM;
	*value = json_object_get(out->json, key);
	return err;
}

static int read_numbers(struct peft_config *out, const json_t *object, const char *where)
{
	struct adapter_options *o = &out->options;
	int rc = json_get_int(object, where, "r", &o->rank);

	if (rc >= 0)
		rc = json_get_num(object, where, "lora_alpha", &o->alpha);
	if (rc >= 0)
		rc = json_get_bool(object, where, "use_rslora", &o->use_rslora);
	if (rc >= 0)
		rc = json_get_bool(object, where, "use_dora", &o->use_dora);
	if (rc < 0)
		return rc;
	if (o->rank < 1 || o->rank > ADAPTER_RANK_MAX || !(o->alpha > 0) || !isfinite(o->alpha))
		return err_set(ERR_INPUT, "%s: r and lora_alpha must be above 0", where);
	return json_object_set_new(out->json, "r", json_integer((json_int_t)o->rank)) ||
	                       json_object_set_new(out->json, "lora_alpha", json_of_number(o->alpha)) ||
	                       json_object_set_new(out->json, "use_rslora", json_boolean(o->use_rslora)) ||
	                       (o->use_dora && json_object_set_new(out->json, "use_dora", json_true()))
	               ? ERR_NOMEM
	               : 0;
}

int peft_config_of(struct peft_config *out, const json_t *object, const char *where)
{
	struct adapter_options *o = &out->options;
	int err = check_kind(object, where);

	*out = (struct peft_config){
	        .options = {.rank = 8,
	                .alpha = 8,
	                .called = {"target_modules", "target_parameters", "exclude_modules",
	                        "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern",
	                        "modules_to_save", "use_dora"}}};
	out->json = json_pack("{s:s}", "peft_type", "LORA");
	if (!err && !out->json)
		err = ERR_NOMEM;
	if (!err)
		err = read_numbers(out, object, where);
	if (!err)
		err = keep(out, &o->targets, object, "target_modules");
	if (!err)
		err = keep(out, &o->parameters, object, "target_parameters");
	if (!err)
		err = keep(out, &o->exclude, object, "exclude_modules");
	if (!err)
		err = keep(out, &o->layers, object, "layers_to_transform");
	if (!err)
		err = keep(out, &o->layers_pattern, object, "layers_pattern");
	if (!err)
		err = keep(out, &o->saved, object, "modules_to_save");
	if (!err)
		err = keep_pattern(out, &o->rank_pattern, object, "rank_pattern");
	if (!err)
		err = keep_pattern(out, &o->alpha_pattern, object, "alpha_pattern");
	if (!err)
		err = keep(out, &o->given, object, PEFT_GIVEN);
	if (!err && json_get_num(object, where, "lora_dropout", &o->dropout) < 0)
		err = ERR_INPUT;
	if (!err && !(o->dropout >= 0 && o->dropout < 1))
		err = err_set(ERR_INPUT, "%s: lora_dropout is %g, not from 0 to below 1", where, o->dropout);
	if (!err && o->dropout > 0 &&
	        json_object_set_new(out->json, "lora_dropout", json_of_number(o->dropout)))
		err = ERR_NOMEM;
	if (err)
		peft_config_free(out);
	return err;
}

/* Keys of PEFT 0.21 that are not read here, or only refused if set: names, notes, how A and B began. */
static const char *const other_keys[] = {"auto_mapping", "base_model_name_or_path", "bias", "corda_config",
        "ensure_weight_tying", "eva_config", "fan_in_fan_out", "inference_mode", "init_lora_weights",
        "loftq_config", "lora_dropout", "lora_ga_config", "megatron_config", "megatron_core", "peft_type",
        "peft_version", "qalora_group_size", "revision", "runtime_config", "task_type", "use_dora",
        "use_rslora"};

/* Keys of other programs, and of later versions of PEFT, may change what the adapter computes. */
static int warn_unknown(const struct peft_config *read, const json_t *object, const char *where)
{
	struct str names = {0};
	const char *key;
	json_t *value;
	int count = 0, err;

	json_object_foreach((json_t *)object, key, value)
	{
		int is_known = !is_set(value) || json_object_get(read->json, key);

		for (size_t i = 0; i < sizeof(other_keys) / sizeof(*other_keys) && !is_known; i++)
			is_known = !strcmp(key, other_keys[i]);
		if (!is_known)
			str_printf(&names, "%s%.60s", count++ ? ", " : "", safetensors_name_show(key).text);
	}
	err = str_check(&names);
	if (!err && count)
		log_warn("%s: ignoring %s, which ferry does not know; compare with PEFT whether the adapter "
		         "computes "
		         "the same",
		        where, names.data);
	str_free(&names);
	return err;
}

int peft_config_read(struct peft_config *out, const char *dir)
{
	char *path = file_join(dir, PEFT_CONFIG_NAME);
	json_t *object = NULL;
	int err = path ? json_read_file(&object, path, CONFIG_BYTES_MAX) : ERR_NOMEM;

	*out = (struct peft_config){0};
	if (!err)
		err = peft_config_of(out, object, path);
	if (!err)
		err = warn_unknown(out, object, path);
	json_decref(object);
	mem_free(path);
	return err;
}

void peft_config_free(struct peft_config *config)
{
	json_decref(config->json);
	*config = (struct peft_config){0};
}

/* ---- values ---- */

struct peft {
	struct safetensors *file;
	struct hf_layout layout;
	void *raw;          /* PLANE_PIECE_COUNT elements in the file's format */
	char *is_fused_b;   /* [tensor_count]: the file has it in another order */
	int ordered_tensor; /* one of these, in the table's order, for peft_read; -1: none */
	float *ordered;
};

/* Whether two tensors of the file have the same bytes. */
static int check_same(struct peft *p, const struct safetensors_tensor *a, const struct safetensors_tensor *b)
{
	enum { PIECE_BYTES = PLANE_PIECE_COUNT };
	char *one = p->raw, *other = one + PIECE_BYTES;
	int is_same = a->dtype == b->dtype && a->len_bytes == b->len_bytes, err = 0;

	for (int64_t at = 0, len; at < a->len_bytes && is_same && !err; at += len) {
		len = min_i64(PIECE_BYTES, a->len_bytes - at);
		err = safetensors_read(p->file, a, one, at, len);
		if (!err)
			err = safetensors_read(p->file, b, other, at, len);
		is_same = !err && !memcmp(one, other, (size_t)len);
	}
	if (err || is_same)
		return err;
	return err_set(ERR_UNSUPPORTED,
	        "%s: \"%s\" and \"%s\" differ, but the model has one tensor for both (tie_word_embeddings)",
	        p->file->path, safetensors_name_show(a->name).text, safetensors_name_show(b->name).text);
}

/* The model's tensor of this name in the file, by any name that the model's files may use. A tied head is the
 * embedding, where the file gives that. */
static int find_tensor(const struct model *model, const char *name)
{
	int t = peft_find_tensor(model, name), given;

	if (t != MODEL_NAME_BUFFER)
		return t;
	given = peft_given_tensor(model, name);
	return given >= 0 && model->tensors[given].in_adapter == IN_ADAPTER_GIVEN ? given : t;
}

/* Refuses a tensor that would be left out in silence: of another model, or of a part that ferry does not
 * read. */
static int fail_foreign(const struct peft *p, const char *name, const char *whole)
{
	return err_set(ERR_INPUT, "%s: tensor \"%s\" belongs to no adapter of this model%s", p->file->path,
	        safetensors_name_show(name).text,
	        whole ? "; of a model that also reads images or sound, ferry reads the text part alone" : "");
}

/* The entry of a tensor of the model, or NULL. */
static const struct hf_entry *entry_of(const struct hf_layout *l, int tensor)
{
	for (int64_t e = 0; e < l->entry_count; e++)
		if (l->ranges[l->entries[e].range].tensor == tensor)
			return &l->entries[e];
	return NULL;
}

/* The place of a tensor of the file in the model's, of which it is all or, of an expert's, a part. 0: it has
 * none. */
static int find_range(struct file_ranges *ranges, int *is_b, const struct model *model, const char *name)
{
	size_t len = strlen(PEFT_PREFIX);
	int64_t index = -1, experts = 1;
	int t = find_tensor(model, name);
	const struct model_tensor *wanted;

	*is_b = 0;
	if (t < 0 && !strncmp(name, PEFT_PREFIX, len))
		t = expert_adapter_find(model, name + len, &index);
	if (t < 0 && !strncmp(name, PEFT_PREFIX, len))
		return peft_fused_find(ranges, is_b, model, name + len);
	if (t < 0 || !model->tensors[t].in_adapter)
		return 0;
	wanted = &model->tensors[t];
	if (expert_is_adapter(wanted->role)) {
		if (index < 0)
			return 0;
		experts = model->config.block[wanted->layer].experts.count;
	}
	ranges->rank = wanted->rank;
	memcpy(ranges->shape, wanted->shape, sizeof(ranges->shape));
	ranges->shape[0] /= experts;
	ranges->range[0] = (struct file_range){
	        t, (index < 0 ? 0 : index) * (wanted->count / experts), wanted->count / experts};
	return 1;
}

/* Finds the file's tensors for those of the model. */
static int find_tensors(struct peft *p, const struct model *model)
{
	int err = 0;

	for (int64_t i = 0; i < p->file->tensor_count && !err; i++) {
		const struct safetensors_tensor *tensor = &p->file->tensors[i];
		struct file_range range = {0};
		struct file_ranges ranges = {.range = &range, .count = 1};
		const struct hf_entry *same = NULL;
		const struct model_tensor *wanted;
		int t, is_b, found = find_range(&ranges, &is_b, model, tensor->name);

		if (found <= 0)
			return found ? found : fail_foreign(p, tensor->name, model->whole);
		t = range.tensor;
		p->is_fused_b[t] |= (char)is_b;
		wanted = &model->tensors[t];
		if (wanted->in_adapter == IN_ADAPTER_GIVEN && model->config.tied)
			same = entry_of(&p->layout, t);
		if (same) {
			err = check_same(p, same->tensor, tensor);
			if (!err)
				err = hf_layout_add_copy(&p->layout, p->file, 0, tensor, &ranges);
		} else {
			err = hf_layout_add(&p->layout, p->file, 0, tensor, &ranges);
		}
	}
	return err ? err : hf_layout_end(&p->layout, model, p->file->path);
}

/* Checks that the file has all of the adapter. */
static int check_complete(const struct peft *p, const struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++) {
		int64_t parts;
		char *own, *name;
		int err;

		(void)hf_layout_parts(&p->layout, t, &parts);
		if (parts || !model->tensors[t].in_adapter)
			continue;
		own = expert_is_adapter(model->tensors[t].role) ? peft_expert_name(model, t)
		                                                : model_parameter_name(model, t);
		name = own ? peft_name(model, model->whole, own) : NULL;
		err = name ? err_set(ERR_INPUT, "%s: \"%s\" is missing", p->file->path, name) : ERR_NOMEM;
		mem_free(own);
		mem_free(name);
		return err;
	}
	return 0;
}

/* PEFT's older file is a pickle, which runs code when it is read. */
static int check_file(const char *dir, const char *path)
{
	char *older = file_join(dir, "adapter_model.bin");
	int is_older = older && file_kind_of(path) == FILE_NONE && file_kind_of(older) == FILE_REGULAR;
	int err = older ? 0 : ERR_NOMEM;

	if (is_older)
		err = err_set(ERR_UNSUPPORTED,
		        "%s is not read; load it in PEFT and save it again, which writes " PEFT_WEIGHTS_NAME,
		        older);
	mem_free(older);
	return err;
}

int peft_open(struct peft **peft, const char *dir, const struct model *model)
{
	char *path = file_join(dir, PEFT_WEIGHTS_NAME);
	struct peft *p = mem_alloc(1, sizeof(*p));
	int err;

	*peft = p;
	if (p) {
		p->layout.needs = "the model needs";
		p->raw = mem_alloc(PLANE_PIECE_COUNT, sizeof(float));
		p->is_fused_b = mem_alloc((size_t)model->tensor_count, 1);
		p->ordered_tensor = -1;
	}
	err = path && p && p->raw && p->is_fused_b ? check_file(dir, path) : ERR_NOMEM;
	if (!err)
		err = safetensors_open(&p->file, path);
	if (!err)
		err = find_tensors(p, model);
	if (!err)
		err = check_complete(p, model);
	mem_free(path);
	if (err) {
		peft_close(p);
		*peft = NULL;
	}
	return err;
}

void peft_close(struct peft *p)
{
	if (!p)
		return;
	hf_layout_free(&p->layout);
	safetensors_close(p->file);
	mem_free(p->raw);
	mem_free(p->is_fused_b);
	mem_free(p->ordered);
	mem_free(p);
}

/* All of a tensor that the file has in another order. */
static int ordered_read(struct peft *p, int tensor)
{
	struct peft_fused_b b = peft_fused_b(p->layout.model, tensor);
	int64_t total = p->layout.model->tensors[tensor].count;
	float *values = mem_alloc((size_t)total, sizeof(*values)),
	      *ordered = mem_alloc((size_t)total, sizeof(*ordered));
	int err = values && ordered ? 0 : ERR_NOMEM;

	for (int64_t at = 0, count; at < total && !err; at += count) {
		count = min_i64(PLANE_PIECE_COUNT, total - at);
		err = hf_layout_read(&p->layout, values + at, p->raw, tensor, at, count);
	}
	for (int64_t i = 0; i < total && !err; i++)
		ordered[i] = values[peft_fused_place(&b, i)];
	mem_free(values);
	mem_free(p->ordered);
	p->ordered = ordered;
	p->ordered_tensor = err ? -1 : tensor;
	return err;
}

int peft_read(struct peft *p, float *dst, int tensor, int64_t first, int64_t count)
{
	int err = 0;

	if (!p->is_fused_b[tensor])
		return hf_layout_read(&p->layout, dst, p->raw, tensor, first, count);
	if (p->ordered_tensor != tensor)
		err = ordered_read(p, tensor);
	if (!err)
		memcpy(dst, p->ordered + first, (size_t)count * sizeof(*dst));
	return err;
}

/* Loads what a range has of these rows of B, which `rows` holds in the file's order; `value` is room for
 * as many. */
static int load_rows(struct weights_target *target, const struct plane_range *range,
        const struct peft_fused_b *b, int64_t row, int64_t count, const float *rows, float *value)
{
	int err = 0;

	for (int64_t e = 0; e < b->experts && !err; e++) {
		int64_t base = (e * b->out + row) * b->rank, first = max_i64(range->first, base),
		        end = min_i64(range->first + range->count, base + count * b->rank);

		for (int64_t i = first; i < end; i++)
			value[i - first] = rows[peft_fused_place(b, i) - row * b->rank * b->experts];
		if (first < end)
			err = weights_put(target, FORMAT_F32, range->tensor, first, end - first, value);
	}
	return err;
}

/* A range of a tensor that the file has in another order: as many rows of it at once as a piece has, so that
 * memory stays small. */
static int load_fused_b(struct peft *p, struct weights_target *target, const struct plane_range *range)
{
	struct peft_fused_b b = peft_fused_b(p->layout.model, range->tensor);
	int64_t cols = b.rank * b.experts, most = max_i64(1, PLANE_PIECE_COUNT / cols);
	float *rows = mem_alloc((size_t)(most * cols), sizeof(*rows)),
	      *value = mem_alloc((size_t)(most * b.rank), sizeof(*value));
	int err = rows && value ? 0 : ERR_NOMEM;

	for (int64_t row = 0, count; row < b.out && !err; row += count) {
		count = min_i64(most, b.out - row);
		for (int64_t at = 0, n; at < count * cols && !err; at += n) {
			n = min_i64(PLANE_PIECE_COUNT, count * cols - at);
			err = hf_layout_read(
			        &p->layout, rows + at, p->raw, range->tensor, row * cols + at, n);
		}
		if (!err)
			err = load_rows(target, range, &b, row, count, rows, value);
	}
	mem_free(rows);
	mem_free(value);
	return err;
}

/* `value` holds a piece. */
static int load_range(
        struct peft *p, struct weights_target *target, const struct plane_range *range, float *value)
{
	int err = 0;

	if (p->is_fused_b[range->tensor])
		return load_fused_b(p, target, range);
	for (int64_t at = 0, count; at < range->count && !err; at += count) {
		count = min_i64(PLANE_PIECE_COUNT, range->count - at);
		err = peft_read(p, value, range->tensor, range->first + at, count);
		if (!err)
			err = weights_put(target, FORMAT_F32, range->tensor, range->first + at, count, value);
	}
	return err;
}

int peft_load(const char *dir, const struct model *model, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count)
{
	float *value = mem_alloc(PLANE_PIECE_COUNT, sizeof(*value));
	struct weights_target target;
	struct peft *p = NULL;
	int err = value ? peft_open(&p, dir, model) : ERR_NOMEM;

	weights_target_open(&target, sink, model);
	for (int64_t i = 0; i < range_count && !err; i++)
		err = load_range(p, &target, &ranges[i], value);
	weights_target_close(&target);
	peft_close(p);
	mem_free(value);
	return err;
}
