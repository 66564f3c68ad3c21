/* Reads and writes adapters as PEFT does. */
#include "checkpoint/peft.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "base/str.h"
#include "checkpoint/safetensors.h"
#include "model/adapter.h"
#include "model/families/text_part.h"

#include <math.h>
#include <string.h>

static const char prefix[] = "base_model.model.";
enum { CONFIG_BYTES_MAX = 16 << 20 };

/* ---- writing ---- */

static int has_adapter(const struct model *model, int tensor)
{
	return model_adapter_of(model, tensor) >= 0;
}

/* The last `parts` parts of a module's name, of a tensor of it. */
static json_t *module_name(const char *tensor_name, int parts)
{
	const char *end = strrchr(tensor_name, '.'), *begin = end;

	for (; begin > tensor_name && (begin[-1] != '.' || --parts); begin--)
		;
	return json_stringn(begin, (size_t)(end - begin));
}

/* Whether a module of block 0 without an adapter has the same last part, as GPT-2's two c_proj. */
static int is_ambiguous(const struct model *model, int tensor)
{
	json_t *name = module_name(model->tensors[tensor].name, 1);
	int found = 0;

	for (int t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *other = &model->tensors[t];
		json_t *its;

		if (other->layer > 0 || other->rank != 2 || model_tensor_is_adapter(other) ||
		        has_adapter(model, t))
			continue;
		its = module_name(other->name, 1);
		found |= json_equal(its, name);
		json_decref(its);
	}
	json_decref(name);
	return found;
}

static int list_has(const json_t *list, const json_t *item)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (json_equal(json_array_get(list, i), item))
			return 1;
	return 0;
}

/* PEFT's name. The adapter of a text part fits the whole model, of which it was made. */
static char *peft_name(const struct model *model, const char *name)
{
	static const char base[] = "model.";

	if (!model->whole || strncmp(name, base, sizeof(base) - 1))
		return mem_printf("%s%s", prefix, name);
	return mem_printf("%s%s%s", prefix, text_part_modules(model->whole), name + sizeof(base) - 1);
}

/* The module's whole name, as the other parts of a whole model may have modules of the same last name. */
static json_t *whole_name(const struct model *model, int tensor)
{
	char *name = peft_name(model, model->tensors[tensor].name);
	json_t *module = name ? json_stringn(name + strlen(prefix),
	                                (size_t)(strrchr(name, '.') - name) - strlen(prefix))
	                      : NULL;

	mem_free(name);
	return module;
}

/* The modules with adapters by the last parts of their names, each once; of a text part by their whole names.
 */
static json_t *module_list(const struct model *model)
{
	json_t *list = json_array();

	for (int t = 0; t < model->tensor_count && list; t++) {
		json_t *name;

		if ((model->tensors[t].layer != 0 && !model->whole) || !has_adapter(model, t))
			continue;
		name = model->whole ? whole_name(model, t)
		                    : module_name(model->tensors[t].name, is_ambiguous(model, t) ? 2 : 1);
		if (list_has(list, name)) {
			json_decref(name);
		} else if (json_array_append_new(list, name)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

/* As an integer if it is one: not every reader takes 16.0. */
static json_t *alpha_of(const struct model_config *c)
{
	double alpha = c->adapter.scale * (double)c->adapter.rank;

	return alpha == floor(alpha) && alpha < 1e9 ? json_integer((json_int_t)alpha) : json_real(alpha);
}

static int write_config(const char *dir, const struct peft_export *o, const struct model *model)
{
	const struct model_config *c = &model->config;
	json_t *config = json_pack("{s:s,s:s,s:o,s:I,s:o,s:f,s:s,s:o,s:b,s:b,s:b,s:b,s:b}", "peft_type",
	        "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", json_of_text(o->base), "r",
	        (json_int_t)c->adapter.rank, "lora_alpha", alpha_of(c), "lora_dropout", 0.0, "bias", "none",
	        "target_modules", module_list(model), "fan_in_fan_out", c->weight_in_out, "use_rslora", 0,
	        "use_dora", 0, "inference_mode", 1, "init_lora_weights", 1);
	char *path = file_join(dir, PEFT_CONFIG_NAME), *text = NULL;
	int err = json_write(&text, config, JSON_INDENT(2));

	if (!err)
		err = path ? file_write_all(path, text, strlen(text)) : ERR_NOMEM;
	json_decref(config);
	mem_free(text);
	mem_free(path);
	return err;
}

static int append_tensor(struct safetensors_writer *writer, const struct model *model, int t,
        const struct plane_source *source, uint16_t *hi, int16_t *lo, float *value)
{
	int64_t total = model->tensors[t].count;
	int err = 0;

	for (int64_t at = 0, count; at < total && !err; at += count) {
		count = min_i64(PLANE_PIECE_COUNT, total - at);
		err = source->read(source->context, t, PLANE_HI, at, count, hi);
		if (!err)
			err = source->read(source->context, t, PLANE_LO, at, count, lo);
		for (int64_t i = 0; i < count && !err; i++)
			value[i] = f32_from_bits(plane_join(hi[i], lo[i]));
		if (!err)
			err = safetensors_append(writer, value, (size_t)count * sizeof(*value));
	}
	return err;
}

static int write_weights(const char *dir, const struct model *model, const struct plane_source *source)
{
	static const struct safetensors_text metadata = {"format", "pt"};
	struct safetensors_decl *decls = mem_alloc((size_t)model->tensor_count, sizeof(*decls));
	uint16_t *hi = mem_alloc(PLANE_PIECE_COUNT, sizeof(*hi));
	int16_t *lo = mem_alloc(PLANE_PIECE_COUNT, sizeof(*lo));
	float *value = mem_alloc(PLANE_PIECE_COUNT, sizeof(*value));
	char *path = file_join(dir, PEFT_WEIGHTS_NAME);
	struct safetensors_writer *writer = NULL;
	int64_t count = 0;
	int err = decls && hi && lo && value && path ? 0 : ERR_NOMEM;

	for (int t = 0; t < model->tensor_count && !err; t++) {
		const struct model_tensor *tensor = &model->tensors[t];

		if (!model_tensor_is_adapter(tensor))
			continue;
		decls[count] = (struct safetensors_decl){.name = peft_name(model, tensor->name),
		        .dtype = SAFETENSORS_F32,
		        .rank = tensor->rank};
		memcpy(decls[count].shape, tensor->shape, sizeof(tensor->shape));
		err = decls[count++].name ? 0 : ERR_NOMEM;
	}
	if (!err)
		err = safetensors_create(&writer, path, decls, count, &metadata, 1, SAFETENSORS_PLAIN);
	for (int t = 0; t < model->tensor_count && !err; t++)
		if (model_tensor_is_adapter(&model->tensors[t]))
			err = append_tensor(writer, model, t, source, hi, lo, value);
	if (!err)
		err = safetensors_finish(writer);
	safetensors_writer_free(writer);
	for (int64_t i = 0; i < count; i++)
		mem_free((char *)decls[i].name);
	mem_free(decls);
	mem_free(hi);
	mem_free(lo);
	mem_free(value);
	mem_free(path);
	return err;
}

int peft_write(
        const struct peft_export *options, const struct model *model, const struct plane_source *source)
{
	struct result_dir dir;
	int err = result_dir_open(&dir, options->dir, options->existing);

	if (err)
		return err;
	err = write_config(dir.temp, options, model);
	if (!err)
		err = write_weights(dir.temp, model, source);
	if (!err && options->may_appear)
		err = options->may_appear();
	if (!err)
		err = result_dir_commit(&dir);
	result_dir_close(&dir);
	return err;
}

/* ---- reading ---- */

/* Refuses what is set in the config and changes what the adapter computes. */
static int check_kind(const json_t *config, const char *where)
{
	static const char *const others[] = {"use_dora", "use_qalora", "use_bdlora", "lora_bias",
	        "modules_to_save", "trainable_token_indices", "target_parameters", "rank_pattern",
	        "alpha_pattern", "layer_replication", "layers_to_transform", "exclude_modules",
	        "alora_invocation_tokens", "arrow_config"};
	const char *type = json_string_value(json_object_get(config, "peft_type"));
	const char *bias = json_string_value(json_object_get(config, "bias"));

	if (!type || strcmp(type, "LORA"))
		return err_set(ERR_UNSUPPORTED, "%s: peft_type %s is not supported; only LORA is", where,
		        type ? type : "(absent)");
	if (bias && strcmp(bias, "none"))
		return err_set(ERR_UNSUPPORTED, "%s: bias %.40s is not supported; only none is", where, bias);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		const json_t *value = json_object_get(config, others[i]);

		if (value && !json_is_null(value) && !json_is_false(value) &&
		        !(json_is_object(value) && !json_object_size(value)) &&
		        !(json_is_array(value) && !json_array_size(value)))
			return err_set(ERR_UNSUPPORTED, "%s: %s is not supported", where, others[i]);
	}
	return 0;
}

static int read_targets(struct peft_config *out, const json_t *config, const char *where)
{
	const json_t *targets = json_object_get(config, "target_modules");
	if (json_is_array(targets))
		return json_write(&out->targets, targets, JSON_COMPACT);
	if (json_is_string(targets) && strpbrk(json_string_value(targets), "*+?()[]{}|\\^$"))
		return err_set(ERR_UNSUPPORTED,
		        "%s: target_modules is a regular expression, which is not supported; list the "
		        "modules",
		        where);
	if (!json_is_string(targets))
		return err_set(ERR_INPUT, "%s: target_modules is neither a name nor a list", where);
	out->targets = mem_strdup(json_string_value(targets));
	return out->targets ? 0 : ERR_NOMEM;
}

int peft_config_read(struct peft_config *out, const char *dir)
{
	char *path = file_join(dir, PEFT_CONFIG_NAME);
	json_t *config = NULL;
	double alpha = 8;
	int use_rslora = 0, err = path ? json_read_file(&config, path, CONFIG_BYTES_MAX) : ERR_NOMEM, found;

	*out = (struct peft_config){.rank = 8};
	if (!err)
		err = check_kind(config, path);
	if (!err && (found = json_get_int(config, path, "r", &out->rank)) < 0)
		err = found;
	if (!err && (found = json_get_num(config, path, "lora_alpha", &alpha)) < 0)
		err = found;
	if (!err && (found = json_get_bool(config, path, "use_rslora", &use_rslora)) < 0)
		err = found;
	if (!err && (out->rank < 1 || !(alpha > 0) || !isfinite(alpha)))
		err = err_set(ERR_INPUT, "%s: r and lora_alpha must be above 0", path);
	if (!err)
		err = read_targets(out, config, path);
	if (!err)
		out->scale = alpha / (use_rslora ? sqrt((double)out->rank) : (double)out->rank);
	json_decref(config);
	mem_free(path);
	if (err)
		peft_config_free(out);
	return err;
}

void peft_config_free(struct peft_config *config)
{
	mem_free(config->targets);
	config->targets = NULL;
}

/* Finds the file's tensors for those of the model, by any name that the model's files may use. */
static int find_tensors(
        const struct safetensors_tensor **of, const struct safetensors *file, const struct model *model)
{
	size_t len = strlen(prefix);

	for (int64_t i = 0; i < file->tensor_count; i++) {
		const char *name = file->tensors[i].name;
		int t = strncmp(name, prefix, len) ? -1 : model_find_tensor(model, name + len);

		if (t < 0 || !model_tensor_is_adapter(&model->tensors[t]))
			return err_set(ERR_INPUT, "%s: tensor \"%s\" belongs to no adapter of this model",
			        file->path, safetensors_name_show(name).text);
		of[t] = &file->tensors[i];
	}
	return 0;
}

/* Reads a part of a tensor as fp32 in `value`; `half` takes 16-bit values. */
static int read_values(const struct safetensors *file, const struct safetensors_tensor *t, float *value,
        uint16_t *half, int64_t first, int64_t count)
{
	int64_t width = safetensors_dtype_bits(t->dtype) / 8;
	int err = safetensors_read(
	        file, t, width == 4 ? (void *)value : (void *)half, first * width, count * width);

	for (int64_t i = 0; i < count && !err && width == 2; i++)
		value[i] = t->dtype == SAFETENSORS_BF16 ? bf16_to_f32(half[i]) : f16_to_f32(half[i]);
	for (int64_t i = 0; i < count && !err; i++)
		if (!isfinite(value[i]))
			err = err_set(ERR_INPUT, "%s: tensor \"%s\" holds a value that is not finite",
			        file->path, safetensors_name_show(t->name).text);
	return err;
}

static int load_range(const struct safetensors *file, const struct safetensors_tensor *t,
        const struct plane_sink *sink, const struct plane_range *range, float *value, uint16_t *hi,
        int16_t *lo)
{
	int err = 0;

	for (int64_t at = 0, count; at < range->count && !err; at += count) {
		count = min_i64(PLANE_PIECE_COUNT, range->count - at);
		err = read_values(file, t, value, hi, range->first + at, count);
		for (int64_t i = 0; i < count && !err; i++) {
			hi[i] = plane_hi(f32_bits(value[i]));
			lo[i] = plane_lo(f32_bits(value[i]));
		}
		if (!err)
			err = sink->write(
			        sink->context, range->tensor, PLANE_HI, range->first + at, count, hi);
		if (!err)
			err = sink->write(
			        sink->context, range->tensor, PLANE_LO, range->first + at, count, lo);
	}
	return err;
}

/* Checks the file's tensor for one of the model; NULL: there is none. */
static int check_tensor(
        const struct safetensors_tensor *t, const struct safetensors *file, const struct model_tensor *wanted)
{
	enum format format;

	if (!t)
		return err_set(ERR_INPUT, "%s: \"%s%s\" is missing", file->path, prefix, wanted->name);
	if (t->rank != 2 || t->shape[0] != wanted->shape[0] || t->shape[1] != wanted->shape[1])
		return err_set(ERR_INPUT, "%s: tensor \"%s\" has shape %s; the model needs %s", file->path,
		        safetensors_name_show(t->name).text, safetensors_shape_show(t->shape, t->rank).text,
		        safetensors_shape_show(wanted->shape, wanted->rank).text);
	if (!format_of_weights(&format, (enum dtype)t->dtype))
		return err_set(ERR_UNSUPPORTED, "%s: tensor \"%s\" is %s; ferry reads F32, F16 and BF16",
		        file->path, safetensors_name_show(t->name).text, safetensors_dtype_name(t->dtype));
	return 0;
}

int peft_load(const char *dir, const struct model *model, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count)
{
	char *path = file_join(dir, PEFT_WEIGHTS_NAME);
	uint16_t *hi = mem_alloc(PLANE_PIECE_COUNT, sizeof(*hi));
	int16_t *lo = mem_alloc(PLANE_PIECE_COUNT, sizeof(*lo));
	float *value = mem_alloc(PLANE_PIECE_COUNT, sizeof(*value));
	const struct safetensors_tensor **of = mem_alloc((size_t)model->tensor_count, sizeof(const void *));
	struct safetensors *file = NULL;
	int err = path && hi && lo && value && of ? safetensors_open(&file, path) : ERR_NOMEM;

	if (!err)
		err = find_tensors(of, file, model);
	for (int64_t i = 0; i < range_count && !err; i++) {
		err = check_tensor(of[ranges[i].tensor], file, &model->tensors[ranges[i].tensor]);
		if (!err)
			err = load_range(file, of[ranges[i].tensor], sink, &ranges[i], value, hi, lo);
	}
	mem_free(of);
	safetensors_close(file);
	mem_free(path);
	mem_free(hi);
	mem_free(lo);
	mem_free(value);
	return err;
}
