/* Shared by the files of hf_import.h. hf_import.c matches names, hf_load.c moves bytes. */
#ifndef FERRY_CHECKPOINT_HF_HF_IMPORT_PARTS_H
#define FERRY_CHECKPOINT_HF_HF_IMPORT_PARTS_H

#include "checkpoint/hf/hf_coded.h"
#include "checkpoint/hf/hf_dir.h"
#include "checkpoint/hf/hf_import.h"
#include "checkpoint/hf/hf_layout.h"

struct hf_import {
	struct hf_dir *dir;
	const struct model *model;
	struct hf_coded_set coded;
	struct hf_layout layout;
	int has_new;  /* 1: a tensor of a classifier's head is in no file */
	void *raw;    /* staging of hf_import_read: PLANE_PIECE_COUNT elements in the file's format */
	float *value; /* the same as fp32 */
};

/* A hash of a file's length, header, 32 blocks of 4 KiB and the first 4 KiB of each tensor. ERR_IO. */
int hf_file_sample(uint64_t *hash, const struct safetensors *file);

#endif
