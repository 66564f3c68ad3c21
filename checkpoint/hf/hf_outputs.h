/* The tensors of a result: under which name, in which format, in which file, and where their bytes come
 * from. */
#ifndef FERRY_CHECKPOINT_HF_HF_OUTPUTS_H
#define FERRY_CHECKPOINT_HF_HF_OUTPUTS_H

#include "checkpoint/hf/hf_layout.h"

struct hf_output {
	const char *name;
	enum safetensors_dtype dtype;
	int rank;
	int64_t shape[SAFETENSORS_RANK_MAX];
	int64_t count, bytes;
	const struct hf_entry *carried; /* its bytes; NULL: it has values of the model */
	struct file_range *range;       /* those, one after the other */
	int range_count;
	int64_t place;  /* in the files' order */
	int shard;      /* its file: of shards, then of folders */
	int folder_len; /* of its name, the folder of a module: "2_Dense"; 0: it is not in one */
};

struct hf_outputs {
	struct hf_output *output; /* in table order, carried ones at the end */
	struct file_range *ranges;
	char **names; /* of woven tensors, where files name none */
	int name_count;
	int64_t count, elements, bytes; /* elements and bytes: in shards */
	int64_t folder_bytes;
	int shard_count, file_count; /* a file for each folder follows those of shards */
};

/* Lists the tensors of `model` as the layout's files hold them, in shards of at most shard_bytes (0: one).
 * Tensors are in `dtype`, or in F32 where the files have F32 and most of them have another. Without a layout:
 * the table's tensors under its names, woven ones as the family's files have them. The layout's model may
 * have adapters that `model` lacks. ERR_NOMEM. */
int hf_outputs_open(struct hf_outputs *outputs, const struct hf_layout *layout, const struct model *model,
        enum safetensors_dtype dtype, int64_t shard_bytes);
void hf_outputs_close(struct hf_outputs *outputs);

#endif
