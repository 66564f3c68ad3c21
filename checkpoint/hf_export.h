/* A model's planes written as a HuggingFace directory that transformers loads as it is.
 *
 * The tensors of the table in its order, under their names, in shards of at most shard_bytes (a larger tensor
 * gets one of its own); model.safetensors alone, or shards with model.safetensors.index.json. A tied head is
 * no tensor of the table and so is not written. config.json, generation_config.json and the tokenizer's files
 * are copied byte for byte from the directory that the model came from: the dtype that config.json states is
 * the original's and a hint only, the tensors carry their own.
 *
 * F32 is the master exactly. BF16 is the hi plane: nearest with ties away from zero, the very weights that
 * bf16 training computes with (other programs round ties to even: half of the ties, 1 value in 131072, differ
 * in the last bit). F16 is rounded to nearest even; a value beyond its range is refused, not made infinite.
 *
 * The directory appears whole or not at all: it is written under a temporary name beside it, fsynced,
 * renamed. What an earlier export left unfinished is removed.
 */
#ifndef FERRY_CHECKPOINT_HF_EXPORT_H
#define FERRY_CHECKPOINT_HF_EXPORT_H

#include "checkpoint/plane_io.h"
#include "checkpoint/safetensors.h"
#include "model/model.h"

#include <stdint.h>

enum hf_export_existing {
	HF_EXPORT_REFUSE,  /* `dir` must be absent or an empty directory */
	HF_EXPORT_REPLACE, /* its content is replaced as a whole */
};

struct hf_export {
	const char *dir;
	enum hf_export_existing existing;
	enum safetensors_dtype dtype; /* F32, BF16 or F16 */
	int64_t shard_bytes;          /* 0: 5 GB */
	const char *files_from;       /* directory of config.json and the tokenizer; may be NULL */
	const char *config_path;      /* config.json, where it lies elsewhere; may be NULL */
};

/* Reads HI (and LO, for F32 and F16) of all tensors from the source, in pieces. Peak memory: the ring of
 * checkpoint/block_writer.h.
 * ERR_INPUT (dir is there, a weight does not fit F16), ERR_IO, ERR_NOMEM, the source's errors. */
int hf_export_write(
        const struct hf_export *options, const struct model *model, const struct plane_source *source);

/* Copies the files that belong to a model beside its weights, as above, into the existing directory `to`;
 * fsyncs the files, not the directory. `from` and config_path may be NULL. */
int hf_export_copy_files(const char *from, const char *config_path, const char *to);

#endif
