/* Writes a model's planes as a HuggingFace directory that transformers loads.
 *
 * With a layout the result replaces the files that were read: it has their tensors under their names, those
 * of the model with new values, others byte for byte. Without one it has the table's, and no tied head. The
 * order is the table's, then carried tensors, in shards of at most shard_bytes; a larger tensor gets its own
 * shard. The directory has model.safetensors alone, or shards with model.safetensors.index.json. config.json,
 * generation_config.json and the files of tokenizer and processor are copies of the trained model's files
 * (side_files.h), with two changes. The dtype in config.json becomes that of the tensors, unless a
 * layout's files have it (hf_dtype.h). A model trained on chats gets their template and
 * end-of-turn ids (hf_chat.h).
 *
 * Adapters are merged: a matrix with one is written as W + s B A (merge.h).
 *
 * F32 is the exact master weight. BF16 is the hi plane, the weights that bf16 training computes with:
 * nearest, with ties away from zero. Other programs round ties to even, so half of the ties, 1 value in
 * 131072, differ in the last bit. With adapters no plane holds the merged weights, and all round to even. F16
 * rounds to nearest even; a value beyond its range is an error. So is one that is not finite.
 *
 * The directory appears whole or not at all: ferry writes it under a temporary name beside its place, fsyncs
 * and renames it. It removes remains of unfinished exports.
 */
#ifndef FERRY_CHECKPOINT_HF_HF_EXPORT_H
#define FERRY_CHECKPOINT_HF_HF_EXPORT_H

#include "checkpoint/file/plane_io.h"
#include "checkpoint/file/safetensors.h"
#include "checkpoint/hf/hf_layout.h"
#include "checkpoint/hf/result_dir.h"
#include "checkpoint/hf/side_files.h"
#include "host/pool.h"
#include "model/model.h"

#include <stdint.h>

struct hf_export {
	const char *dir;
	enum hf_export_existing existing;
	enum safetensors_dtype dtype; /* F32, BF16 or F16 */
	int64_t shard_bytes;          /* 0: one file */
	/* The tensors and names of the files that the model was read from, also those that no stage reads.
	   NULL: the table's alone; of a model that also reads images or sound the result is then a text
	   model. */
	const struct hf_layout *layout;
	const struct side_files *side; /* config.json, the tokenizer and so on; may be NULL */
	int is_in_checkpoint;          /* 1: folders of its files are part of their names (side_files.h) */
	int is_refused_without_room;   /* ERR_FIT before anything is written, if the disk lacks the room */
	int (*may_appear)(void);       /* as in checkpoint/save.h */
	struct pool *pool;             /* its threads merge adapters; NULL: this thread */
};

/* The dtype that is wanted; for -1 (auto) that of the model's config.json, or BF16. */
enum safetensors_dtype hf_export_dtype(int wanted, const struct model *model);

/* Reads HI (and LO, for F32 and F16) of all tensors from the source, in pieces. Peak memory is the ring of
 * checkpoint/block_writer.h. ERR_INPUT (dir exists, a weight does not fit F16), ERR_NONFINITE, ERR_IO,
 * ERR_NOMEM, the source's errors. */
int hf_export_write(
        const struct hf_export *options, const struct model *model, const struct plane_source *source);

#endif
