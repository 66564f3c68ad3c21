/* Shared by the files of hf_import.h. hf_import.c matches names, hf_load.c moves bytes. */
#ifndef FERRY_CHECKPOINT_HF_IMPORT_PARTS_H
#define FERRY_CHECKPOINT_HF_IMPORT_PARTS_H

#include "checkpoint/hf_dir.h"
#include "checkpoint/hf_import.h"

/* The file and tensor for a tensor of the table. */
struct hf_place {
	const struct safetensors *file;
	const struct safetensors_tensor *tensor;
	int file_index;
	enum format format; /* format of the weights */
};

struct hf_import {
	struct hf_dir *dir;
	const struct model *model;
	struct hf_place *places; /* [model->tensor_count] */
	void *raw;    /* staging of hf_import_read: PLANE_PIECE_COUNT elements in the file's format */
	float *value; /* the same as fp32 */
};

static inline int64_t hf_place_element_bytes(const struct hf_place *place)
{
	return safetensors_dtype_bits(place->tensor->dtype) / 8;
}

/* Converts `count` elements at `raw` from the file's format to fp32. Does not check values. */
void hf_place_widen(const struct hf_place *place, float *dst, const void *raw, int64_t count);

/* ERR_INPUT for element `index` of the tensor, a value that is not finite. */
int hf_import_fail_value(const struct hf_place *place, int64_t index, float value);

/* A hash of a file's length, header, 32 blocks of 4 KiB and the first 4 KiB of each tensor. ERR_IO. */
int hf_file_sample(uint64_t *hash, const struct safetensors *file);

#endif
