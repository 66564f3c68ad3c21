/* How files of weights hold a model: which tensor of a file has which elements of which tensor of the table.
 *
 * Mental model. Each tensor of the files is an *entry*. It has ranges of the table, one after the other, or
 * none: then no stage reads it, as a vision tower's, and it is *carried*: a result has its bytes under its
 * name. Turned around, each tensor of the table is a list of *parts*. Imports and adapters read by parts,
 * exports write by entries, so that a result has the names and forms of the files that were read.
 *
 *     hf_layout_add(&layout, file, 0, &file->tensors[i], &ranges);      each tensor of the files
 *     hf_layout_end(&layout, model, where);                             sorts and checks the parts
 *     hf_layout_read(&layout, values, raw, tensor, first, count);
 */
#ifndef FERRY_CHECKPOINT_HF_HF_LAYOUT_H
#define FERRY_CHECKPOINT_HF_HF_LAYOUT_H

#include "checkpoint/file/safetensors.h"
#include "model/file_ranges.h"

/* A tensor of the files. */
struct hf_coded;
struct hf_entry {
	const struct safetensors *file;
	const struct safetensors_tensor *tensor;
	int file_index;
	const struct hf_coded *coded; /* `tensor` stands for codes and scales; NULL: it is there itself */
	int is_copy;     /* of a tensor that another entry holds: a tied head beside the embedding */
	int64_t range;   /* first of its ranges in the layout's list */
	int range_count; /* 0: carried */
};

/* A piece of a tensor of the table. */
struct hf_part {
	const struct safetensors *file;
	const struct safetensors_tensor *tensor;
	int file_index;
	enum format format; /* of a coded one BF16, as which results write it */
	const struct hf_coded *coded;
	int of;               /* tensor of the table */
	int64_t first, count; /* elements of that */
	int64_t at;           /* the first of them in the file's tensor */
};

struct hf_layout {
	const struct model *model;
	const char *needs;        /* who gives shapes, in messages; NULL: "config.json gives" */
	struct hf_entry *entries; /* in the files' order */
	int64_t entry_count, entry_room;
	struct file_range *ranges;
	int64_t range_count, range_room;
	struct hf_part *parts; /* by tensor and first element */
	int64_t part_count;
	int64_t *begin; /* [tensor_count + 1]: the parts of each tensor */
	int64_t carried_count, carried_bytes;
	enum format format; /* of most elements of the table */
	/* 1: the files hold the table's tensors under the table's names, all in one format, and no others. A
	   result then needs no layout. */
	int is_plain;
};

/* Adds a tensor of the files with its ranges, after a check of shape and dtype. NULL: it is carried.
 * ERR_INPUT, ERR_UNSUPPORTED, ERR_NOMEM. */
int hf_layout_add(struct hf_layout *layout, const struct safetensors *file, int file_index,
        const struct safetensors_tensor *tensor, const struct file_ranges *ranges);

/* The same for a matrix in codes: its tensor is coded->as. */
int hf_layout_add_coded(struct hf_layout *layout, const struct hf_coded *coded, int file_index,
        const struct file_ranges *ranges);

/* The same for another name of a tensor that has an entry. */
int hf_layout_add_copy(struct hf_layout *layout, const struct safetensors *file, int file_index,
        const struct safetensors_tensor *tensor, const struct file_ranges *ranges);

/* Makes the parts. ERR_INPUT: two entries hold the same elements, or some of a tensor's are missing; tensors
 * that are missing whole have no parts. `where` begins messages. The model must outlive the layout. */
int hf_layout_end(struct hf_layout *layout, const struct model *model, const char *where);

void hf_layout_free(struct hf_layout *layout);

/* The parts of a tensor; *count 0: none. */
const struct hf_part *hf_layout_parts(const struct hf_layout *layout, int tensor, int64_t *count);

static inline int64_t hf_part_element_bytes(const struct hf_part *part)
{
	return safetensors_dtype_bits(part->tensor->dtype) / 8;
}

/* The place in the file of element `index` of the part's tensor. */
static inline int64_t hf_part_offset(const struct hf_part *part, int64_t index)
{
	return part->tensor->begin_bytes + (part->at + index - part->first) * hf_part_element_bytes(part);
}

/* Converts `count` elements at `raw` from the file's format to fp32. Does not check values. */
void hf_part_widen(const struct hf_part *part, float *dst, const void *raw, int64_t count);

/* ERR_INPUT for element `index` of the part's tensor, a value that is not finite. */
int hf_part_fail_value(const struct hf_part *part, int64_t index, float value);

/* Reads elements of the part's tensor as fp32; `raw` has room for them in the file's format. Does not check
 * values. */
int hf_part_read(const struct hf_part *part, float *dst, void *raw, int64_t first, int64_t count);

/* Reads elements of a tensor as fp32; `raw` has room for them in the files' format. ERR_INPUT names the first
 * that is not finite; ERR_IO. */
int hf_layout_read(
        const struct hf_layout *layout, float *dst, void *raw, int tensor, int64_t first, int64_t count);

#endif
