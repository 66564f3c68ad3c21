/* Lists which tensor of which file holds which elements of a model's table. */
#include "checkpoint/hf/hf_layout.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"
#include "checkpoint/hf/hf_coded.h"
#include "model/expert_names.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- entries ---- */

static int check_shape(const struct hf_layout *l, const struct safetensors *file,
        const struct safetensors_tensor *t, const struct file_ranges *wanted)
{
	if (t->rank == wanted->rank && !memcmp(t->shape, wanted->shape, (size_t)t->rank * sizeof(*t->shape)))
		return 0;
	return err_set(ERR_INPUT, "%s: tensor \"%s\" has shape %s; %s %s", file->path,
	        safetensors_name_show(t->name).text, safetensors_shape_show(t->shape, t->rank).text,
	        l->needs ? l->needs : "config.json gives",
	        safetensors_shape_show(wanted->shape, wanted->rank).text);
}

static int check_format(const struct safetensors *file, const struct safetensors_tensor *t)
{
	enum format format;

	if (format_of_weights(&format, (enum dtype)t->dtype))
		return 0;
	return err_set(ERR_UNSUPPORTED,
	        "%s: tensor \"%s\" is %s; ferry reads weights in F32, F16 and BF16, and codes with scales "
	        "beside them",
	        file->path, safetensors_name_show(t->name).text, safetensors_dtype_name(t->dtype));
}

/* Makes room for `more` rows behind `count`. */
static int grow(void **rows, int64_t *room, int64_t count, int64_t more, size_t row_bytes)
{
	void *grown;

	if (count + more <= *room)
		return 0;
	grown = mem_resize(*rows, (size_t)(2 * count + more + 16), row_bytes);
	if (!grown)
		return ERR_NOMEM;
	*rows = grown;
	*room = 2 * count + more + 16;
	return 0;
}

static int add(struct hf_layout *l, const struct hf_entry *entry, const struct file_ranges *ranges)
{
	int count = ranges ? ranges->count : 0;
	int err = grow((void **)&l->entries, &l->entry_room, l->entry_count, 1, sizeof(*l->entries));

	if (!err)
		err = grow((void **)&l->ranges, &l->range_room, l->range_count, count, sizeof(*l->ranges));
	if (err)
		return err;
	l->entries[l->entry_count] = *entry;
	l->entries[l->entry_count].range = l->range_count;
	l->entries[l->entry_count++].range_count = count;
	for (int i = 0; i < count; i++)
		l->ranges[l->range_count++] = ranges->range[i];
	if (!count) {
		l->carried_count++;
		l->carried_bytes += entry->tensor->len_bytes;
	}
	return 0;
}

int hf_layout_add(struct hf_layout *l, const struct safetensors *file, int file_index,
        const struct safetensors_tensor *tensor, const struct file_ranges *ranges)
{
	int err = ranges ? check_format(file, tensor) : 0;

	if (!err && ranges)
		err = check_shape(l, file, tensor, ranges);
	return err ? err
	           : add(l, &(struct hf_entry){.file = file, .tensor = tensor, .file_index = file_index},
	                     ranges);
}

int hf_layout_add_coded(
        struct hf_layout *l, const struct hf_coded *coded, int file_index, const struct file_ranges *ranges)
{
	int err = check_shape(l, coded->codes.file, &coded->as, ranges);

	return err ? err
	           : add(l,
	                     &(struct hf_entry){.file = coded->codes.file,
	                             .tensor = &coded->as,
	                             .file_index = file_index,
	                             .coded = coded},
	                     ranges);
}

int hf_layout_add_copy(struct hf_layout *l, const struct safetensors *file, int file_index,
        const struct safetensors_tensor *tensor, const struct file_ranges *ranges)
{
	int err = check_shape(l, file, tensor, ranges);

	return err ? err
	           : add(l,
	                     &(struct hf_entry){
	                             .file = file, .tensor = tensor, .file_index = file_index, .is_copy = 1},
	                     ranges);
}

/* ---- parts ---- */

static int compare_parts(const void *a, const void *b)
{
	const struct hf_part *left = a, *right = b;

	if (left->of != right->of)
		return left->of < right->of ? -1 : 1;
	if (left->first != right->first)
		return left->first < right->first ? -1 : 1;
	if (left->file_index != right->file_index)
		return left->file_index < right->file_index ? -1 : 1;
	return left->tensor < right->tensor ? -1 : left->tensor > right->tensor;
}

static void list_parts(struct hf_layout *l)
{
	for (int64_t e = 0; e < l->entry_count; e++) {
		const struct hf_entry *entry = &l->entries[e];
		int64_t at = 0;

		for (int r = 0; r < entry->range_count && !entry->is_copy; r++) {
			const struct file_range *range = &l->ranges[entry->range + r];
			struct hf_part *part = &l->parts[l->part_count++];

			*part = (struct hf_part){.file = entry->file,
			        .tensor = entry->tensor,
			        .file_index = entry->file_index,
			        .coded = entry->coded,
			        .of = range->tensor,
			        .first = range->first,
			        .count = range->count,
			        .at = at};
			(void)format_of_weights(&part->format, (enum dtype)entry->tensor->dtype);
			at += range->count;
		}
	}
}

/* The parts of a tensor end, or have a gap, at an element. */
static int fail_missing(const struct hf_layout *l, int tensor, int64_t end, const char *where)
{
	const struct model_tensor *t = &l->model->tensors[tensor];
	char *name = expert_name_at(l->model, tensor, end);
	int64_t count;
	const struct hf_part *part = hf_layout_parts(l, tensor, &count);
	int err;

	if (name)
		err = err_set(ERR_INPUT, "%s: \"%s\" is missing, and \"%s\" is there", where, name,
		        safetensors_name_show(part[0].tensor->name).text);
	else
		err = err_set(ERR_INPUT,
		        "%s: only parts of %s are there, %" PRId64 ", as \"%s\"; the one for element %" PRId64
		        " of %" PRId64 " is missing",
		        where, t->name, count, safetensors_name_show(part[0].tensor->name).text, end,
		        t->count);
	mem_free(name);
	return err;
}

/* Checks that the parts of each tensor follow each other up to its end. */
static int check_parts(const struct hf_layout *l, const char *where)
{
	for (int t = 0; t < l->model->tensor_count; t++) {
		const struct model_tensor *tensor = &l->model->tensors[t];
		int64_t count, end = 0;
		const struct hf_part *part = hf_layout_parts(l, t, &count);

		for (int64_t i = 0; i < count && part[i].first <= end; i++) {
			if (part[i].first < end)
				return err_set(ERR_INPUT,
				        "%s: \"%s\" and \"%s\" are two names of one tensor; remove one",
				        where, safetensors_name_show(part[i - 1].tensor->name).text,
				        safetensors_name_show(part[i].tensor->name).text);
			end = part[i].first + part[i].count;
		}
		if (count && end < tensor->count)
			return fail_missing(l, t, end, where);
	}
	return 0;
}

/* Finds the format of most elements, and whether the files are as a table alone would make them. */
static void note_forms(struct hf_layout *l)
{
	int64_t elements[FORMAT_COUNT] = {0};

	for (int64_t i = 0; i < l->part_count; i++)
		elements[l->parts[i].format] += l->parts[i].count;
	l->format = FORMAT_F32;
	for (int f = 0; f < FORMAT_COUNT; f++)
		if (elements[f] > elements[l->format])
			l->format = (enum format)f;
	l->is_plain = !l->carried_count && !l->model->whole;
	for (int64_t e = 0; e < l->entry_count && l->is_plain; e++) {
		const struct hf_entry *entry = &l->entries[e];
		const struct model_tensor *t = &l->model->tensors[l->ranges[entry->range].tensor];

		l->is_plain = !entry->is_copy && entry->range_count == 1 &&
		              !strcmp(t->name, entry->tensor->name) && entry->tensor->count == t->count;
	}
	for (int64_t i = 0; i < l->part_count && l->is_plain; i++)
		l->is_plain = l->parts[i].format == l->format;
}

int hf_layout_end(struct hf_layout *l, const struct model *model, const char *where)
{
	int tensors = model->tensor_count;

	l->model = model;
	l->parts = mem_alloc((size_t)l->range_count + 1, sizeof(*l->parts));
	l->begin = mem_alloc((size_t)tensors + 1, sizeof(*l->begin));
	if (!l->parts || !l->begin)
		return ERR_NOMEM;
	list_parts(l);
	qsort(l->parts, (size_t)l->part_count, sizeof(*l->parts), compare_parts);
	for (int64_t t = 0, i = 0; t <= tensors; t++) {
		while (i < l->part_count && l->parts[i].of < t)
			i++;
		l->begin[t] = i;
	}
	note_forms(l);
	return check_parts(l, where);
}

void hf_layout_free(struct hf_layout *l)
{
	mem_free(l->entries);
	mem_free(l->ranges);
	mem_free(l->parts);
	mem_free(l->begin);
	*l = (struct hf_layout){0};
}

const struct hf_part *hf_layout_parts(const struct hf_layout *l, int tensor, int64_t *count)
{
	*count = l->begin[tensor + 1] - l->begin[tensor];
	return l->parts + l->begin[tensor];
}

/* ---- values ---- */

void hf_part_widen(const struct hf_part *part, float *dst, const void *raw, int64_t count)
{
	const uint16_t *half = raw;

	switch (part->format) {
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

int hf_part_fail_value(const struct hf_part *part, int64_t index, float value)
{
	return err_set(ERR_INPUT,
	        "%s: tensor \"%s\" holds %f at element %" PRId64 ", byte %" PRId64
	        "; the file is damaged, or the training that made it diverged",
	        part->file->path, safetensors_name_show(part->tensor->name).text, (double)value,
	        part->at + index - part->first, hf_part_offset(part, index));
}

int hf_part_read(const struct hf_part *part, float *dst, void *raw, int64_t first, int64_t count)
{
	int64_t width = hf_part_element_bytes(part);
	int err;

	if (part->coded)
		return hf_coded_read(part->coded, dst, part->at + first - part->first, count);
	err = safetensors_read(
	        part->file, part->tensor, raw, (part->at + first - part->first) * width, count * width);

	if (!err)
		hf_part_widen(part, dst, raw, count);
	return err;
}

static int read_finite(const struct hf_part *part, float *dst, void *raw, int64_t first, int64_t count)
{
	int err = hf_part_read(part, dst, raw, first, count);

	for (int64_t i = 0; i < count && !err; i++)
		if ((f32_bits(dst[i]) & 0x7f800000) == 0x7f800000)
			err = hf_part_fail_value(part, first + i, dst[i]);
	return err;
}

int hf_layout_read(const struct hf_layout *l, float *dst, void *raw, int tensor, int64_t first, int64_t count)
{
	int64_t parts, end = first + count;
	const struct hf_part *part = hf_layout_parts(l, tensor, &parts);
	int err = 0;

	for (int64_t i = 0; i < parts && !err; i++) {
		int64_t from = max_i64(first, part[i].first),
		        to = min_i64(end, part[i].first + part[i].count);

		if (from < to)
			err = read_finite(&part[i], dst + (from - first), raw, from, to - from);
	}
	return err;
}
