/* A model's planes written as a HuggingFace directory that transformers loads as it is.
 *
 * The tensors of the table in its order, under their names, in shards of at most shard_bytes (a larger tensor
 * gets one of its own); model.safetensors alone, or shards with model.safetensors.index.json. A tied head is
 * no tensor of the table and so is not written. config.json, generation_config.json and the tokenizer's files
 * are those of the model that was trained (checkpoint/side_files.h), byte for byte. Only the dtype that
 * config.json states becomes that of the tensors (checkpoint/hf_dtype.h), and a model that was trained on
 * chats gets their template and ends of turns in addition (checkpoint/hf_chat.h).
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
#include "checkpoint/result_dir.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/side_files.h"
#include "model/model.h"

#include <stdint.h>

struct hf_export {
	const char *dir;
	enum hf_export_existing existing;
	enum safetensors_dtype dtype;  /* F32, BF16 or F16 */
	int64_t shard_bytes;           /* 0: one file */
	const struct side_files *side; /* config.json, the tokenizer and so on; may be NULL */
	int is_refused_without_room;   /* ERR_FIT before anything is written, where the disk lacks the room */
	int (*may_appear)(void);       /* as in checkpoint/save.h */
};

/* Reads HI (and LO, for F32 and F16) of all tensors from the source, in pieces. Peak memory: the ring of
 * checkpoint/block_writer.h.
 * ERR_INPUT (dir is there, a weight does not fit F16), ERR_IO, ERR_NOMEM, the source's errors. */
int hf_export_write(
        const struct hf_export *options, const struct model *model, const struct plane_source *source);

#endif
