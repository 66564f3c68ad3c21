/* A HuggingFace model directory as a set of open safetensors files, independent of the model.
 *
 * Reads model.safetensors if it exists, else model.safetensors.index.json and its shards. The index must
 * agree with the shards: every tensor is in exactly one shard, the listed one. ferry reads nothing outside
 * the directory. Shard names must be plain file names. Links may only lead to files of the directory or, in
 * a snapshot of the hub's cache, into that cache's blobs/.
 *
 * A module of sentence-transformers has its tensors in a folder. 2_Dense/model.safetensors is one more file,
 * and its tensors are called 2_Dense.linear.weight; in a checkpoint it is 2_Dense@model.safetensors.
 */
#ifndef FERRY_CHECKPOINT_HF_HF_DIR_H
#define FERRY_CHECKPOINT_HF_HF_DIR_H

#include "checkpoint/file/safetensors.h"

struct hf_dir {
	char *path;
	struct safetensors **files;
	char **names; /* of the files, in the directory */
	int file_count;
	char **tensor_names; /* of tensors of folders */
	int64_t tensor_name_count;
};

/* ERR_INPUT (the text has file and reason), ERR_UNSUPPORTED (weights in another format), ERR_IO, ERR_NOMEM;
 * *dir is NULL after an error. Descriptors of all shards stay open. */
int hf_dir_open(struct hf_dir **dir, const char *path);
void hf_dir_close(struct hf_dir *dir);

/* Returns "DIR/NAME" (mem_free) for an existing file that the rule above allows. Returns 0 with *path NULL
 * if there is no such file. */
int hf_dir_resolve(char **path, const char *dir, const char *name);

#endif
