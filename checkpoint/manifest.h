/* manifest.json: the contents of a checkpoint directory, with checksums.
 *
 * It lists the step, the model's tensors, the training state, and the files: their lengths, the ranges of
 * tensors in each, and one XXH3 checksum for every block of SAFETENSORS_BLOCK_BYTES. Its last line is a
 * checksum of everything above. A directory without a valid manifest is not a checkpoint.
 * docs/reference/files.md describes the file.
 *
 * Reading checks types, bounds and names. The ranges of all files together must cover every tensor exactly
 * once.
 */
#ifndef FERRY_CHECKPOINT_MANIFEST_H
#define FERRY_CHECKPOINT_MANIFEST_H

#include "base/json.h"
#include "checkpoint/file/plane_io.h"
#include "model/model.h"

#include <stdint.h>

struct manifest_file {
	char *name; /* within the checkpoint: "rank-00000.safetensors", "hf/config.json" */
	int64_t len_bytes;
	uint64_t *hashes;
	int64_t block_count;
	struct plane_range *ranges; /* NULL with 0: a file of the model's directory, not a shard */
	int64_t range_count;
	int is_shard;
};

struct manifest_tensor {
	char *name;
	int rank;
	int trainable;                        /* 0: frozen in the run that saved it */
	unsigned planes;                      /* planes of this tensor, a subset of the manifest's */
	int64_t shape[MODEL_RANK_MAX], count; /* 1 beyond rank */
};

struct manifest {
	int64_t step;
	int world_size;         /* ranks that wrote it */
	unsigned planes;        /* bit 1 << enum plane */
	enum adamw_state state; /* of m and v; F32 if they were not saved */
	char *model_type;
	struct manifest_tensor *tensors;
	int tensor_count;
	struct manifest_file *files;
	int file_count;
	json_t *training; /* an object with the caller's data */
};

extern const char manifest_name[]; /* "manifest.json" */

/* Writes DIR/manifest.json, fsynced. */
int manifest_write(const char *dir, const struct manifest *manifest);

/* ERR_INPUT: absent, damaged, or in an unknown format; ERR_IO, ERR_NOMEM. */
int manifest_read(struct manifest **manifest, const char *dir);
void manifest_free(struct manifest *manifest);

/* The entry of one file in its own file, with the same checksum line: each rank gives it to the rank that
 * writes the manifest. manifest_add_part reads it and appends the file; the manifest's `tensors` must be set
 * to check ranges. manifest_add_copy appends an entry from memory. */
int manifest_write_part(const char *path, const struct manifest_file *file);
int manifest_add_part(struct manifest *manifest, const char *path);
int manifest_add_copy(struct manifest *manifest, const struct manifest_file *file);

/* Appends a zeroed file; NULL if out of memory. */
struct manifest_file *manifest_add_file(struct manifest *manifest);

/* Reads the whole file and compares length and blocks. ERR_INPUT "PATH: byte OFFSET: ..." if they differ. */
int manifest_verify_file(const char *dir, const struct manifest_file *file);

/* Sets length and hashes from the existing file file->name. */
int manifest_hash_file(const char *dir, struct manifest_file *file);

#endif
