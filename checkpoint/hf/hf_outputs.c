/* Lists the tensors of a result. */
#include "checkpoint/hf/hf_outputs.h"

#include "base/err.h"
#include "base/mem.h"
#include "checkpoint/hf/side_files.h"

#include <stdlib.h>
#include <string.h>

/* The tensor of `model` that is the one of the layout's model. */
static int same_tensor(const struct hf_layout *l, const struct model *model, int tensor)
{
	const struct model_tensor *t = &l->model->tensors[tensor];

	return l->model == model ? tensor : model_tensor_of(model, t->role, t->layer);
}

static void finish(struct hf_outputs *o, struct hf_output *out, enum safetensors_dtype dtype)
{
	out->place = out - o->output;
	out->dtype = dtype;
	out->count = 1;
	for (int i = 0; i < out->rank; i++)
		out->count *= out->shape[i];
	out->bytes = out->carried ? out->carried->tensor->len_bytes
	                          : out->count * safetensors_dtype_bits(dtype) / 8;
	out->folder_len = side_folder_is(out->name) ? (int)strcspn(out->name, ".") : 0;
	o->elements += out->folder_len ? 0 : out->count;
	o->bytes += out->folder_len ? 0 : out->bytes;
	o->folder_bytes += out->folder_len ? out->bytes : 0;
}

/* Adds a tensor of the table, or what files have in its place: nothing, if its rows stand in another's. */
static int of_tensor(struct hf_outputs *o, struct file_ranges *found, int64_t *range_count,
        const struct model *model, int t, enum safetensors_dtype dtype)
{
	struct hf_output *out = &o->output[o->count];
	struct file_range *grown;
	char *name;
	int err = model_woven_name(&name, model, t);

	if (err < 0 || (err && !name))
		return err < 0 ? err : 0;
	if (name)
		o->names[o->name_count++] = name;
	*out = (struct hf_output){.name = name ? name : model->tensors[t].name};
	found->count = 0;
	err = name ? model_find_ranges(found, model, name)
	           : file_ranges_add(found, model, t, 0, model->tensors[t].count);
	if (err)
		return err;
	grown = mem_resize(o->ranges, (size_t)(*range_count + found->count + 1), sizeof(*grown));
	if (!grown)
		return ERR_NOMEM;
	o->ranges = grown;
	memcpy(grown + *range_count, found->range, (size_t)found->count * sizeof(*grown));
	*range_count += found->count;
	out->rank = found->rank;
	out->range_count = found->count;
	memcpy(out->shape, found->shape, sizeof(found->shape));
	o->count++;
	finish(o, out, dtype);
	return 0;
}

static int of_table(struct hf_outputs *o, const struct model *model, enum safetensors_dtype dtype)
{
	struct file_ranges found = {0};
	int64_t range_count = 0;
	int err = 0;

	o->names = mem_alloc((size_t)model->tensor_count + 1, sizeof(*o->names));
	if (!o->names)
		return ERR_NOMEM;
	for (int t = 0; t < model->tensor_count && !err; t++)
		err = of_tensor(o, &found, &range_count, model, t, dtype);
	range_count = 0;
	for (int64_t i = 0; i < o->count; i++) {
		o->output[i].range = o->ranges + range_count;
		range_count += o->output[i].range_count;
	}
	mem_free(found.range);
	return err;
}

static void of_files(struct hf_outputs *o, const struct hf_layout *l, const struct model *model,
        enum safetensors_dtype dtype)
{
	for (int64_t e = 0; e < l->entry_count; e++) {
		const struct hf_entry *entry = &l->entries[e];
		struct hf_output *out = &o->output[o->count++];
		int is_wide = l->format != FORMAT_F32 && entry->tensor->dtype == SAFETENSORS_F32;

		*out = (struct hf_output){.name = entry->tensor->name,
		        .rank = entry->tensor->rank,
		        .carried = entry->range_count ? NULL : entry,
		        .range = &o->ranges[entry->range],
		        .range_count = entry->range_count};
		memcpy(out->shape, entry->tensor->shape, sizeof(out->shape));
		for (int r = 0; r < out->range_count; r++) {
			out->range[r] = l->ranges[entry->range + r];
			out->range[r].tensor = same_tensor(l, model, out->range[r].tensor);
		}
		finish(o, out, out->carried || is_wide ? entry->tensor->dtype : dtype);
	}
}

/* By their first element in the table; carried ones stay in the files' order. */
static int compare(const void *a, const void *b)
{
	const struct hf_output *left = a, *right = b;

	if (!left->range_count != !right->range_count)
		return left->range_count ? -1 : 1;
	if (left->range_count && left->range->tensor != right->range->tensor)
		return left->range->tensor < right->range->tensor ? -1 : 1;
	if (left->range_count && left->range->first != right->range->first)
		return left->range->first < right->range->first ? -1 : 1;
	return left->place < right->place ? -1 : left->place > right->place;
}

static void deal_shards(struct hf_outputs *o, int64_t shard_bytes)
{
	int64_t limit = shard_bytes ? shard_bytes : INT64_MAX, filled = 0;

	o->shard_count = 1;
	for (int64_t i = 0; i < o->count; i++) {
		if (o->output[i].folder_len)
			continue;
		if (filled && filled + o->output[i].bytes > limit) {
			o->shard_count++;
			filled = 0;
		}
		filled += o->output[i].bytes;
		o->output[i].shard = o->shard_count - 1;
	}
	o->file_count = o->shard_count;
	for (int64_t i = 0; i < o->count; i++) {
		struct hf_output *out = &o->output[i];
		int64_t other = 0;

		while (out->folder_len && other < i &&
		        (o->output[other].folder_len != out->folder_len ||
		                strncmp(o->output[other].name, out->name, (size_t)out->folder_len) != 0))
			other++;
		if (out->folder_len)
			out->shard = other < i ? o->output[other].shard : o->file_count++;
	}
}

int hf_outputs_open(struct hf_outputs *o, const struct hf_layout *layout, const struct model *model,
        enum safetensors_dtype dtype, int64_t shard_bytes)
{
	int64_t count = layout ? layout->entry_count : model->tensor_count;
	int64_t ranges = layout ? layout->range_count : 0;
	int err = 0;

	*o = (struct hf_outputs){.output = mem_alloc((size_t)count + 1, sizeof(*o->output)),
	        .ranges = mem_alloc((size_t)ranges + 1, sizeof(*o->ranges))};
	if (!o->output || !o->ranges)
		return ERR_NOMEM;
	if (layout)
		of_files(o, layout, model, dtype);
	else
		err = of_table(o, model, dtype);
	qsort(o->output, (size_t)o->count, sizeof(*o->output), compare);
	deal_shards(o, shard_bytes);
	return err;
}

void hf_outputs_close(struct hf_outputs *o)
{
	for (int i = 0; i < o->name_count; i++)
		mem_free(o->names[i]);
	mem_free(o->names);
	mem_free(o->output);
	mem_free(o->ranges);
	*o = (struct hf_outputs){0};
}
