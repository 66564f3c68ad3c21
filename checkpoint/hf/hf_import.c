/* Matches the tensors of a HuggingFace directory to the model's table. */
#include "checkpoint/hf/hf_import_parts.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/size.h"
#include "base/str.h"
#include "model/adapter.h"
#include "model/families/open.h"
#include "model/family.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian, and so is memory here");

enum { NAMES_SHOWN = 5 };

/* ---- tied heads ---- */

/* A tensor of the files. */
struct found {
	const struct safetensors *file;
	const struct safetensors_tensor *tensor;
	int file_index;
};

/* The embedding and a head, of a model that config.json calls tied. */
struct tied {
	struct found embedding, head;
	int is_head_alone; /* the head is the embedding, which has no name of its own in the files */
};

/* Whether two tensors of the same shape have the same numbers. */
static int compare_tensors(struct hf_import *import, int *same, const struct found *a, const struct found *b)
{
	struct hf_part one = {.file = a->file, .tensor = a->tensor},
	               other = {.file = b->file, .tensor = b->tensor};
	float *value = mem_alloc(PLANE_PIECE_COUNT, sizeof(*value));
	int64_t count = a->tensor->count;
	int err = value ? 0 : ERR_NOMEM;

	(void)format_of_weights(&one.format, (enum dtype)a->tensor->dtype);
	(void)format_of_weights(&other.format, (enum dtype)b->tensor->dtype);
	*same = 1;
	for (int64_t at = 0, piece; !err && *same && at < count; at += piece) {
		piece = min_i64(PLANE_PIECE_COUNT, count - at);
		err = hf_part_read(&one, import->value, import->raw, at, piece);
		if (!err)
			err = hf_part_read(&other, value, import->raw, at, piece);
		if (!err)
			*same = !memcmp(import->value, value, (size_t)piece * sizeof(*value));
	}
	mem_free(value);
	return err;
}

/* The first tensor in the files that matches `tensor` of the table (-1: a head). */
static struct found find_tensor(const struct hf_import *import, int tensor)
{
	for (int f = 0; f < import->dir->file_count; f++) {
		const struct safetensors *file = import->dir->files[f];

		for (int64_t i = 0; i < file->tensor_count; i++) {
			const char *name = file->tensors[i].name;

			if (tensor < 0 ? families_have_head(model_text_name(name))
			               : model_find_tensor(import->model, name) == tensor)
				return (struct found){file, &file->tensors[i], f};
		}
	}
	return (struct found){0};
}

/* Compares embedding and head of a model that config.json calls tied. */
static int settle_tied_head(struct hf_import *import, struct tied *tied, struct model *model)
{
	struct file_range range = {model_tensor_of(model, ROLE_EMBED, -1), 0, 0};
	struct file_ranges whole = {.range = &range, .count = 1, .rank = model->tensors[range.tensor].rank};
	struct hf_layout both = {0};
	int same = 0, err;

	*tied = (struct tied){
	        .embedding = find_tensor(import, range.tensor), .head = find_tensor(import, -1)};
	if (!tied->head.tensor)
		return 0;
	tied->is_head_alone = !tied->embedding.tensor;
	if (tied->is_head_alone)
		return 0;
	memcpy(whole.shape, model->tensors[range.tensor].shape, sizeof(whole.shape));
	err = hf_layout_add(&both, tied->head.file, 0, tied->head.tensor, &whole); /* checks them */
	if (!err)
		err = hf_layout_add(&both, tied->embedding.file, 0, tied->embedding.tensor, &whole);
	hf_layout_free(&both);
	if (!err)
		err = compare_tensors(import, &same, &tied->embedding, &tied->head);
	if (err || same)
		return err;
	log_warn("%s: tie_word_embeddings is true in config.json, but %s and %s differ; training them "
	         "separately",
	        import->dir->path, tied->embedding.tensor->name, tied->head.tensor->name);
	return model_untie(model);
}

/* ---- names ---- */

/* Refuses names of quantized checkpoints and adapters. Ignoring them would train another model. */
static int check_foreign(const struct safetensors *file, const char *name)
{
	static const char *const quantized[] = {".qweight", ".qzeros", ".scales", ".g_idx", ".weight_scale",
	        ".weight_scale_inv", ".input_scale", ".weight_packed", ".absmax", ".quant_map", ".SCB",
	        ".nested_absmax", ".weight_zero_point", "_blocks", "_scales", ".weight_global_scale"};

	for (size_t i = 0; i < sizeof(quantized) / sizeof(*quantized); i++) {
		if (str_ends_with(name, quantized[i]))
			return err_set(ERR_UNSUPPORTED,
			        "%s: tensor \"%s\" belongs to quantized weights of a kind that ferry does "
			        "not "
			        "read; use the original model in F32, F16 or BF16",
			        file->path, safetensors_name_show(name).text);
	}
	if (strstr(name, ".lora_A.") || strstr(name, ".lora_B.") || strstr(name, ".base_layer."))
		return err_set(ERR_UNSUPPORTED,
		        "%s: tensor \"%s\" belongs to an adapter; merge it into its model first", file->path,
		        safetensors_name_show(name).text);
	return 0;
}

/* "a, b, c and 7 more" */
struct name_list {
	struct str text;
	int64_t count;
	long layers; /* 1 + the highest layer number */
};

static void list_note_layer(struct name_list *list, const char *name)
{
	for (const char *dot = name; (dot = strchr(dot, '.')); dot++) {
		char *end = NULL;
		long number = isdigit((unsigned char)dot[1]) ? strtol(dot + 1, &end, 10) : -1;

		if (number >= list->layers && end && *end == '.' && number < INT32_MAX)
			list->layers = number + 1;
	}
}

static void list_add(struct name_list *list, const char *name)
{
	list_note_layer(list, name);
	if (list->count++ < NAMES_SHOWN)
		str_printf(
		        &list->text, "%s%s", list->count > 1 ? ", " : "", safetensors_name_show(name).text);
}

static void list_end(struct name_list *list)
{
	if (list->count > NAMES_SHOWN)
		str_printf(&list->text, " and %" PRId64 " more", list->count - NAMES_SHOWN);
}

/* What ferry does not read. A text model has no other parts. */
struct unknown {
	struct name_list own, others;
};

/* The list of a tensor's part: of the text, or of images and sound. */
static struct name_list *list_of(struct unknown *unknown, const struct model *model, const char *name)
{
	size_t len = model->whole ? strlen(model->prefix) : 0;
	int is_own = !model->whole || model_text_name(name) != name ||
	             (!strncmp(name, model->prefix, len) && !strncmp(name + len, "layers.", 7));

	return is_own ? &unknown->own : &unknown->others;
}

/* The matrix that a tensor belongs to, as its scales or the like; NULL: none. */
static const struct hf_coded *companion_of(const struct hf_import *import, const struct found *found)
{
	return hf_coded_of(&import->coded, found->file_index, found->tensor - found->file->tensors, 1);
}

/* The other name of the bias of a head of masked words, or NULL; a model without family has none. */
static const char *words_alias(const struct model *model)
{
	return model->family ? model->family->words_bias_alias : NULL;
}

/* 1: the tensor is the bias of a head of masked words by its other name, and is in the layout now. 0: it is
 * another one. */
static int place_words_bias(struct hf_import *import, const struct found *found, struct file_ranges *ranges)
{
	const struct model *model = import->model;
	const char *alias = words_alias(model);
	int tensor = model_tensor_of(model, ROLE_HEAD_B, -1), same = 1, err;
	struct found own;

	if (tensor < 0 || !alias || strcmp(found->tensor->name, alias))
		return 0;
	own = find_tensor(import, tensor);
	err = model_find_ranges(ranges, model, model->tensors[tensor].name);
	if (!err)
		err = (own.tensor ? hf_layout_add_copy : hf_layout_add)(
		        &import->layout, found->file, found->file_index, found->tensor, ranges);
	if (!err && own.tensor)
		err = own.tensor->count == found->tensor->count ? compare_tensors(import, &same, &own, found)
		                                                : 0;
	if (!err && !same)
		err = err_set(ERR_UNSUPPORTED,
		        "%s: %s and %s differ, but ferry trains one bias of the head; remove one of them",
		        import->dir->path, own.tensor->name, alias);
	return err ? err : 1;
}

/* Without a tied head the other name alone counts in transformers, so a result has to have it. */
static int check_words_bias(const struct hf_import *import)
{
	const struct model *model = import->model;
	const char *alias = words_alias(model);

	if (model->config.is_classifier != HEAD_OF_WORDS || model->config.tied || !alias)
		return 0;
	for (int f = 0; f < import->dir->file_count; f++)
		if (safetensors_find(import->dir->files[f], alias))
			return 0;
	return err_set(ERR_UNSUPPORTED,
	        "%s: the head for masked words is not tied to the embedding, and %s is missing; "
	        "set \"tie_word_embeddings\": true in config.json if it is",
	        import->dir->path, alias);
}

/* Adds a tensor of the files to the layout. */
static int place_tensor(struct hf_import *import, const struct found *found, const struct tied *tied,
        struct file_ranges *ranges, struct unknown *unknown)
{
	const char *name = found->tensor->name;
	const struct hf_coded *coded =
	        hf_coded_of(&import->coded, found->file_index, found->tensor - found->file->tensors, 0);
	int err = place_words_bias(import, found, ranges), is_head, embed;

	if (err)
		return err < 0 ? err : 0;
	err = model_find_ranges(ranges, import->model, coded ? coded->as.name : name);
	if (err)
		return err;
	if (ranges->count && coded)
		return hf_layout_add_coded(&import->layout, coded, found->file_index, ranges);
	if (ranges->count)
		return hf_layout_add(&import->layout, found->file, found->file_index, found->tensor, ranges);
	if (companion_of(import, found)) {
		err = model_find_ranges(ranges, import->model, companion_of(import, found)->as.name);
		if (err || ranges->count)
			return err;
		return hf_layout_add(&import->layout, found->file, found->file_index, found->tensor, NULL);
	}
	is_head = tied->is_head_alone && found->tensor == tied->head.tensor;
	if (is_head || (ranges->is_buffer && families_have_head(model_text_name(name)))) {
		embed = model_tensor_of(import->model, ROLE_EMBED, -1);
		err = model_find_ranges(ranges, import->model, import->model->tensors[embed].name);
		if (!err)
			err = (is_head ? hf_layout_add : hf_layout_add_copy)(
			        &import->layout, found->file, found->file_index, found->tensor, ranges);
		return err;
	}
	if (!ranges->is_buffer) {
		list_add(list_of(unknown, import->model, name), name);
		err = check_foreign(found->file, name);
	}
	return err ? err
	           : hf_layout_add(&import->layout, found->file, found->file_index, found->tensor, NULL);
}

static void say_unread(
        const struct hf_import *import, const struct name_list *own, const struct name_list *others)
{
	const struct model *model = import->model;
	const char *dir = import->dir->path;

	if (others->count)
		log_info("%s: reading the text part of a %s model; %" PRId64
		         " tensor%s of its other parts stay%s unchanged: %s",
		        dir, model->whole, others->count, plural_s(others->count),
		        others->count == 1 ? "s" : "", others->text.data);
	if (own->count && own->layers > model->config.L)
		log_warn("%s: config.json has %d layers, the files %ld; leaving %" PRId64
		         " tensor%s unused and unchanged: %s",
		        dir, (int)model->config.L, own->layers, own->count, plural_s(own->count),
		        own->text.data);
	else if (own->count)
		log_warn("%s: leaving %" PRId64
		         " tensor%s unused and unchanged that a %s model does not have: %s",
		        dir, own->count, plural_s(own->count), model->config.model_type, own->text.data);
}

static int check_complete(struct hf_import *import, struct unknown *unknown, struct model *model)
{
	const struct name_list *found = unknown->own.count ? &unknown->own : &unknown->others;
	struct name_list missing = {0}, fresh = {0};
	int err = 0, head = 0, of_words = model->config.is_classifier == HEAD_OF_WORDS;

	for (int t = 0; t < model->tensor_count; t++) {
		int64_t parts;

		(void)hf_layout_parts(&import->layout, t, &parts);
		if (parts || model_tensor_is_adapter(&model->tensors[t]))
			continue;
		if (model_tensor_is_of_classes(&model->tensors[t]) ||
		        (of_words &&
		                model->tensors[t].role >= ROLE_POOL_W)) { /* the model has no such head yet */
			model->tensors[t].is_new = import->has_new = 1;
			list_add(&fresh, model->tensors[t].name);
			continue;
		}
		list_add(&missing, model->tensors[t].name);
		head |= model->tensors[t].role == ROLE_HEAD_W;
	}
	list_end(&missing);
	list_end(&fresh);
	list_end(&unknown->own);
	list_end(&unknown->others);
	err = str_check(&missing.text);
	if (!err)
		err = str_check(&unknown->own.text);
	if (!err)
		err = str_check(&unknown->others.text);
	if (err)
		goto out;
	if (missing.count == 1 && head)
		err = err_set(ERR_INPUT,
		        "%s: tensor %s is missing; if the head is the embedding, set "
		        "\"tie_word_embeddings\": true in config.json",
		        import->dir->path, missing.text.data);
	else if (missing.count)
		err = err_set(ERR_INPUT, "%s: %" PRId64 " of %d tensors are missing: %s%s%s",
		        import->dir->path, missing.count, model->tensor_count, missing.text.data,
		        found->count ? "; the files contain: " : "", found->count ? found->text.data : "");
	else
		say_unread(import, &unknown->own, &unknown->others);
	if (!err && fresh.count)
		log_info("%s: the head for %s begins with random values: %s", import->dir->path,
		        of_words ? "masked words" : "classes", fresh.text.data ? fresh.text.data : "");
out:
	str_free(&fresh.text);
	str_free(&missing.text);
	return err;
}

/* Takes the orientation of experts that the first file with any has. */
static int settle_experts(const struct hf_import *import, struct model *model)
{
	int first = model_first_experts(model);
	struct found found = first < 0 ? (struct found){0} : find_tensor(import, first);

	return found.tensor
	               ? model_fit_experts(model, found.tensor->name, found.tensor->rank, found.tensor->shape)
	               : 0;
}

static int match(struct hf_import *import, struct model *model)
{
	struct unknown unknown = {0};
	struct file_ranges ranges = {0};
	struct tied tied = {0};
	int err = model->config.tied ? settle_tied_head(import, &tied, model) : 0;

	if (!err)
		err = check_words_bias(import);
	if (!err)
		err = settle_experts(import, model);
	for (int f = 0; !err && f < import->dir->file_count; f++) {
		const struct safetensors *file = import->dir->files[f];

		for (int64_t i = 0; !err && i < file->tensor_count; i++)
			err = place_tensor(import, &(struct found){file, &file->tensors[i], f}, &tied,
			        &ranges, &unknown);
	}
	if (!err)
		err = hf_layout_end(&import->layout, model, import->dir->path);
	if (!err)
		err = check_complete(import, &unknown, model);
	mem_free(ranges.range);
	str_free(&unknown.own.text);
	str_free(&unknown.others.text);
	return err;
}

/* The format with codes that all parts of a tensor have and that can be kept; NULL: there is none. */
static const struct weight_format *stored_format(
        const struct model_tensor *t, const struct hf_part *part, int64_t parts)
{
	int64_t cols = model_tensor_cols(t);
	const struct weight_format *format = NULL;

	for (int64_t i = 0; i < parts; i++) {
		const struct weight_format *own = NULL;
		int is_rows = part[i].first % cols == 0 && part[i].count % cols == 0;

		if (part[i].coded && is_rows)
			own = hf_coded_format(part[i].coded, part[i].at, part[i].count / cols, cols);
		if (own && (own != format && i))
			own = NULL;
		if (own && part[i].first % weight_format_granule(own, cols))
			own = NULL;
		if (!own)
			return NULL;
		format = own;
	}
	return format;
}

/* The format of a tensor's first values: of its parts the one that holds most. */
static void set_storage(struct model *model, const struct hf_layout *layout)
{
	for (int t = 0; t < model->tensor_count; t++) {
		int64_t parts;
		const struct hf_part *part = hf_layout_parts(layout, t, &parts);

		for (int64_t i = 0; i < parts && !model->tensors[t].in_adapter; i++) {
			enum format format = part[i].coded ? FORMAT_F32 : part[i].format;

			if (!i || format != model->tensors[t].storage)
				model->tensors[t].storage = i ? FORMAT_F32 : format;
		}
		model->tensors[t].stored = parts ? stored_format(&model->tensors[t], part, parts) : NULL;
		model->tensors[t].is_stored_turned = model->tensors[t].stored && part->coded->is_turned;
	}
}

static int open_files(struct hf_import **out, const char *dir, struct model *model)
{
	struct hf_import *import = mem_alloc(1, sizeof(*import));
	int err;

	*out = NULL;
	if (!import)
		return ERR_NOMEM;
	import->model = model;
	err = hf_dir_open(&import->dir, dir);
	if (err)
		goto out;
	err = hf_coded_find(&import->coded, import->dir);
	if (err)
		goto out;
	import->raw = mem_alloc(PLANE_PIECE_COUNT, 4);
	import->value = mem_alloc(PLANE_PIECE_COUNT, sizeof(*import->value));
	if (!import->raw || !import->value) {
		err = ERR_NOMEM;
		goto out;
	}
	err = match(import, model);
out:
	if (err)
		hf_import_close(import);
	else
		*out = import;
	return err;
}

int hf_import_open(struct hf_import **import, const char *dir, struct model *model)
{
	int err = open_files(import, dir, model);

	if (!err)
		set_storage(model, &(*import)->layout);
	return err;
}

int hf_import_open_values(struct hf_import **import, const char *dir, struct model *model)
{
	return open_files(import, dir, model);
}

const char *hf_import_coded_name(const struct hf_import *import)
{
	return import && import->coded.count ? import->coded.coded->format->name : NULL;
}

void hf_import_close(struct hf_import *import)
{
	if (!import)
		return;
	hf_coded_free(&import->coded);
	hf_dir_close(import->dir);
	hf_layout_free(&import->layout);
	mem_free(import->raw);
	mem_free(import->value);
	mem_free(import);
}

const struct hf_layout *hf_import_layout(const struct hf_import *import)
{
	return import && !import->layout.is_plain && !import->has_new ? &import->layout : NULL;
}

int hf_import_read(struct hf_import *import, float *dst, int tensor, int64_t first, int64_t count)
{
	assert(count <= PLANE_PIECE_COUNT && first >= 0 &&
	        first <= import->model->tensors[tensor].count - count);
	return hf_layout_read(&import->layout, dst, import->raw, tensor, first, count);
}
