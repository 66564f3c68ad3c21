/* A HuggingFace model directory as a set of open safetensors files, before any model is known.
 *
 * model.safetensors where it is there, else model.safetensors.index.json and the shards it lists. What the
 * index says is checked against what the shards hold: every tensor lies in one shard, and in the one that is
 * listed. Nothing outside the directory is read: shard names are plain file names, and links may only lead to
 * files of the directory itself or, in a snapshot of the hub's cache, into that cache's blobs/.
 */
#ifndef FERRY_CHECKPOINT_HF_DIR_H
#define FERRY_CHECKPOINT_HF_DIR_H

#include "checkpoint/safetensors.h"

struct hf_dir {
	char *path;
	struct safetensors **files;
	char **names; /* of the files, in the directory */
	int file_count;
};

/* ERR_INPUT (what and where), ERR_UNSUPPORTED (weights in another format), ERR_IO, ERR_NOMEM; *dir is NULL
 * after an error. Descriptors of all shards stay open. */
int hf_dir_open(struct hf_dir **dir, const char *path);
void hf_dir_close(struct hf_dir *dir);

/* "DIR/NAME" (mem_free) for a file that is there and may be read by the rule above. *path stays NULL, and 0
 * comes back, when there is no such file. */
int hf_dir_resolve(char **path, const char *dir, const char *name);

#endif
