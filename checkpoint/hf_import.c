/* Matches the tensors of a HuggingFace directory to the model's table. */
#include "checkpoint/hf_import_parts.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/quantity.h"
#include "base/str.h"
#include "model/adapter.h"
#include "model/families/open.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian, and so is memory here");

enum { NAMES_SHOWN = 5 };

/* Sets place->format. */
static int find_format(struct hf_place *place)
{
	const char *name = place->tensor->name;

	if (format_of_weights(&place->format, (enum dtype)place->tensor->dtype))
		return 0;
	return err_set(ERR_UNSUPPORTED,
	        "%s: tensor \"%s\" is %s; ferry reads weights in F32, F16 and BF16, not quantized ones",
	        place->file->path, name, safetensors_dtype_name(place->tensor->dtype));
}

static int check_shape(const struct hf_place *place, const struct model_tensor *wanted)
{
	const struct safetensors_tensor *found = place->tensor;
	int same = found->rank == wanted->rank;

	for (int i = 0; same && i < wanted->rank; i++)
		same = found->shape[i] == wanted->shape[i];
	if (same)
		return 0;
	return err_set(ERR_INPUT, "%s: tensor \"%s\" has shape %s; config.json gives %s", place->file->path,
	        found->name, safetensors_shape_show(found->shape, found->rank).text,
	        safetensors_shape_show(wanted->shape, wanted->rank).text);
}

void hf_place_widen(const struct hf_place *place, float *dst, const void *raw, int64_t count)
{
	const uint16_t *half = raw;

	switch (place->format) {
	case FORMAT_F32:
		memcpy(dst, raw, (size_t)count * sizeof(*dst));
		return;
	case FORMAT_F16:
		for (int64_t i = 0; i < count; i++)
			dst[i] = f16_to_f32(half[i]);
		return;
	case FORMAT_BF16:
		for (int64_t i = 0; i < count; i++)
			dst[i] = bf16_to_f32(half[i]);
		return;
	default: /* all formats of weights are above */
		break;
	}
	assert(!"a format of weights");
}

/* Reads elements of a file's tensor as fp32. Does not check values. */
static int read_values(const struct hf_place *place, float *dst, void *raw, int64_t first, int64_t count)
{
	int64_t width = hf_place_element_bytes(place);
	int err = safetensors_read(place->file, place->tensor, raw, first * width, count * width);

	if (!err)
		hf_place_widen(place, dst, raw, count);
	return err;
}

/* ---- tied heads ---- */

/* Whether two tensors of the same shape have the same numbers. */
static int compare_tensors(
        struct hf_import *import, int *same, const struct hf_place *a, const struct hf_place *b)
{
	float *other = mem_alloc(PLANE_PIECE_COUNT, sizeof(*other));
	int64_t count = a->tensor->count;
	int err = other ? 0 : ERR_NOMEM;

	*same = 1;
	for (int64_t at = 0; !err && *same && at < count; at += PLANE_PIECE_COUNT) {
		int64_t piece = count - at < PLANE_PIECE_COUNT ? count - at : PLANE_PIECE_COUNT;

		err = read_values(a, import->value, import->raw, at, piece);
		if (!err)
			err = read_values(b, other, import->raw, at, piece);
		if (!err)
			*same = !memcmp(import->value, other, (size_t)piece * sizeof(*other));
	}
	mem_free(other);
	return err;
}

/* The first tensor in the files that matches `tensor` of the table (-1: a head). */
static struct hf_place find_place(const struct hf_import *import, int tensor)
{
	for (int f = 0; f < import->dir->file_count; f++) {
		const struct safetensors *file = import->dir->files[f];

		for (int64_t i = 0; i < file->tensor_count; i++) {
			const char *name = file->tensors[i].name;

			if (tensor < 0 ? families_have_head(model_text_name(import->model, name))
			               : model_find_tensor(import->model, name) == tensor)
				return (struct hf_place){
				        .file = file, .tensor = &file->tensors[i], .file_index = f};
		}
	}
	return (struct hf_place){0};
}

/* Compares embedding and head of a model that config.json calls tied. *head is a head that the files have in
 * place of the embedding. */
static int settle_tied_head(struct hf_import *import, struct hf_place *head, struct model *model)
{
	int embed = model_tensor_of(model, ROLE_EMBED, -1);
	struct hf_place embedding = find_place(import, embed), found = find_place(import, -1);
	int same = 0, err;

	if (!found.tensor)
		return 0;
	if (!embedding.tensor) {
		*head = found;
		return 0;
	}
	err = find_format(&found);
	if (!err)
		err = find_format(&embedding);
	if (!err)
		err = check_shape(&found, &model->tensors[embed]);
	if (!err)
		err = check_shape(&embedding, &model->tensors[embed]);
	if (!err)
		err = compare_tensors(import, &same, &embedding, &found);
	if (err || same)
		return err;
	log_warn("%s: tie_word_embeddings is true in config.json, but %s and %s differ; training them "
	         "separately",
	        import->dir->path, embedding.tensor->name, found.tensor->name);
	return model_untie(model);
}

/* ---- names ---- */

/* Refuses names of quantized checkpoints and adapters. Ignoring them would train another model. */
static int check_foreign(const struct safetensors *file, const char *name)
{
	static const char *const quantized[] = {".qweight", ".qzeros", ".scales", ".g_idx", ".weight_scale",
	        ".weight_scale_inv", ".input_scale", ".weight_packed", ".absmax", ".quant_map", ".SCB",
	        ".nested_absmax", ".weight_zero_point", "_blocks", "_scales"};

	for (size_t i = 0; i < sizeof(quantized) / sizeof(*quantized); i++) {
		if (str_ends_with(name, quantized[i]))
			return err_set(ERR_UNSUPPORTED,
			        "%s: tensor \"%s\" belongs to quantized weights; use the original model in "
			        "F32, F16 or BF16",
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

static int place_tensor(struct hf_import *import, struct hf_place *found, struct name_list *unknown)
{
	const char *name = found->tensor->name;
	int tensor = model_find_tensor(import->model, name);
	struct hf_place *place;
	int err;

	if (tensor == MODEL_NAME_BUFFER)
		return 0;
	if (tensor < 0) {
		list_add(unknown, name);
		return check_foreign(found->file, name);
	}
	place = &import->places[tensor];
	if (place->tensor)
		return err_set(ERR_INPUT, "%s: \"%s\" and \"%s\" are two names of one tensor; remove one",
		        import->dir->path, safetensors_name_show(place->tensor->name).text,
		        safetensors_name_show(name).text);
	err = find_format(found);
	if (!err)
		err = check_shape(found, &import->model->tensors[tensor]);
	if (!err)
		*place = *found;
	return err;
}

static int check_complete(struct hf_import *import, struct name_list *unknown)
{
	const struct model *model = import->model;
	struct name_list missing = {0};
	int err = 0, head = 0;

	for (int t = 0; t < model->tensor_count; t++) {
		if (import->places[t].tensor || model_tensor_is_adapter(&model->tensors[t]))
			continue;
		list_add(&missing, model->tensors[t].name);
		head |= model->tensors[t].role == ROLE_HEAD_W;
	}
	list_end(&missing);
	list_end(unknown);
	err = str_check(&missing.text);
	if (!err)
		err = str_check(&unknown->text);
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
		        unknown->count ? "; the files contain: " : "",
		        unknown->count ? unknown->text.data : "");
	else if (unknown->count && model->whole)
		log_warn("%s: reading only the text part of a %s model: %" PRId64
		         " tensor%s of its other parts %s left out, and a result of training has none: %s",
		        import->dir->path, model->whole, unknown->count, plural_s(unknown->count),
		        unknown->count == 1 ? "is" : "are", unknown->text.data);
	else if (unknown->count && unknown->layers > model->config.L)
		log_warn("%s: config.json has %d layers, the files %ld; ignoring %" PRId64 " tensor%s: %s",
		        import->dir->path, (int)model->config.L, unknown->layers, unknown->count,
		        plural_s(unknown->count), unknown->text.data);
	else if (unknown->count)
		log_warn("%s: ignoring %" PRId64 " tensor%s that a %s model does not have: %s",
		        import->dir->path, unknown->count, plural_s(unknown->count), model->config.model_type,
		        unknown->text.data);
out:
	str_free(&missing.text);
	return err;
}

static int match(struct hf_import *import, struct model *model)
{
	struct name_list unknown = {0};
	struct hf_place head = {0};
	int err = model->config.tied ? settle_tied_head(import, &head, model) : 0;

	if (err)
		return err;
	import->places = mem_alloc((size_t)model->tensor_count, sizeof(*import->places));
	if (!import->places)
		return ERR_NOMEM;
	for (int f = 0; f < import->dir->file_count; f++) {
		const struct safetensors *file = import->dir->files[f];

		for (int64_t i = 0; !err && i < file->tensor_count; i++)
			err = place_tensor(import,
			        &(struct hf_place){
			                .file = file, .tensor = &file->tensors[i], .file_index = f},
			        &unknown);
	}
	if (!err && head.tensor) {
		int embed = model_tensor_of(model, ROLE_EMBED, -1);

		err = find_format(&head);
		if (!err)
			err = check_shape(&head, &model->tensors[embed]);
		import->places[embed] = head;
	}
	if (!err)
		err = check_complete(import, &unknown);
	str_free(&unknown.text);
	return err;
}

int hf_import_open(struct hf_import **out, const char *dir, struct model *model)
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
	import->raw = mem_alloc(PLANE_PIECE_COUNT, 4);
	import->value = mem_alloc(PLANE_PIECE_COUNT, sizeof(*import->value));
	if (!import->raw || !import->value) {
		err = ERR_NOMEM;
		goto out;
	}
	err = match(import, model);
	for (int t = 0; t < model->tensor_count && !err; t++)
		if (import->places[t].tensor && !model->tensors[t].in_adapter)
			model->tensors[t].storage = import->places[t].format;
out:
	if (err)
		hf_import_close(import);
	else
		*out = import;
	return err;
}

void hf_import_close(struct hf_import *import)
{
	if (!import)
		return;
	hf_dir_close(import->dir);
	mem_free(import->places);
	mem_free(import->raw);
	mem_free(import->value);
	mem_free(import);
}

/* ---- values ---- */

int hf_import_fail_value(const struct hf_place *place, int64_t index, float value)
{
	return err_set(ERR_INPUT,
	        "%s: tensor \"%s\" holds %f at element %" PRId64 ", byte %" PRId64
	        "; the file is damaged, or the training that made it diverged",
	        place->file->path, place->tensor->name, (double)value, index,
	        place->tensor->begin_bytes + index * hf_place_element_bytes(place));
}

int hf_import_read(struct hf_import *import, float *dst, int tensor, int64_t first, int64_t count)
{
	const struct hf_place *place = &import->places[tensor];
	int err;

	assert(count <= PLANE_PIECE_COUNT && first >= 0 && first <= place->tensor->count - count);
	err = read_values(place, dst, import->raw, first, count);
	for (int64_t i = 0; !err && i < count; i++) {
		if ((f32_bits(dst[i]) & 0x7f800000) == 0x7f800000)
			err = hf_import_fail_value(place, first + i, dst[i]);
	}
	return err;
}
