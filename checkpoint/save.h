/* Saving a ferry checkpoint: OUTPUT_DIR/checkpoint-000500, whole or not at all.
 *
 * Every rank writes its ranges into one file, with a checksum for each block, and fsyncs it. All ranks agree
 * that all succeeded. Rank 0 then adds the model's small files and the manifest, fsyncs, renames the
 * directory from step-N.<id>.tmp to its name and fsyncs the parent. So a directory with that name is
 * complete, even after a crash. After a failure rank 0 discards the temporary directory. ferry never repeats
 * a failed fsync on the same file; the caller repeats the whole save.
 *
 * Older checkpoints beyond total_limit are removed only after every byte of the new one was read back and
 * compared. A damaged new one is removed, and the save fails. Temporary files of earlier processes are
 * removed first, so the caller must own output_dir (base/dir_lock.h).
 */
#ifndef FERRY_CHECKPOINT_SAVE_H
#define FERRY_CHECKPOINT_SAVE_H

#include "base/json.h"
#include "checkpoint/file/plane_io.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/manifest.h"
#include "model/model.h"

#include <stdint.h>

/* Communication between ranks; NULL callbacks for one rank. Both are collective. */
struct checkpoint_world {
	int rank, size;
	void *context;
	/* Returns 0 if every rank passes 0, else the same negative code on all. Ranks that passed 0 get a
	 * text that names the failed rank. */
	int (*agree)(void *context, int code);
	/* Copies rank 0's value to all ranks. */
	int (*share)(void *context, uint64_t *value);
};

struct checkpoint_save {
	const char *output_dir;
	int64_t step;
	const struct model *model;
	const struct plane_source *source;
	unsigned planes;        /* planes to write, bit 1 << enum plane */
	enum adamw_state state; /* of m and v */
	/* The ranges of this rank, in the order of reading and writing, with those of one tensor together.
	 * NULL: everything, in order of tensors (one rank). The ranges of all ranks cover each tensor
	 * once. */
	const struct plane_range *ranges;
	int64_t range_count;
	int leaves_frozen; /* frozen tensors but adapters are in the model's files, which resuming reads */
	json_t *training;  /* an object with all that resuming needs besides planes; rank 0's is written */
	const struct side_files *side;   /* rank 0: config.json, tokenizer and so on, for hf/; may be NULL */
	const struct hf_export *weights; /* dtype and shard_bytes of weights in hf/; NULL: no weights there */
	const struct plane_source *weights_source; /* their source; NULL: `source` */
	int64_t best_step; /* its checkpoint stays, as one of total_limit; below 1: none */
	int total_limit; /* number of newest checkpoints to keep, besides those that ferry may not remove; 0:
	                    all */
	/* Rank 0 calls it before the checkpoint gets its name. Returns 0, or an error that ends the save
	 * because output_dir no longer belongs to the caller. May be NULL. */
	int (*may_appear)(void);
	struct checkpoint_world world;
};

/* Collective; all ranks return the same code. *path (mem_free) is the new checkpoint; path may be NULL. A
 * checkpoint of the same step is replaced. ERR_IO, ERR_NOMEM, ERR_INPUT (output_dir cannot be used). After an
 * error all earlier checkpoints still exist. */
int checkpoint_save(const struct checkpoint_save *save, char **path);

/* Bytes on the disk, without names and headers. */
int64_t checkpoint_save_bytes(const struct checkpoint_save *save);

/* The same in parts, so that the slow parts can run beside other work. The two slow parts are the rank's own,
 * and any one thread may call them. The others are collective and short; only they call callbacks of the
 * world, on the calling thread. Call each once, in this order:
 *
 *     open     collective   checks, makes the temporary directory
 *     write    own          reads the source, writes and fsyncs this rank's file
 *     commit   collective   fails on all ranks if one failed; manifest, rename: the checkpoint is complete
 *     verify   own          if older ones must be removed, reads this rank's file back and compares it
 *     rotate   collective   removes older ones
 *     close
 *
 * Errors of write and verify are kept, and the next call returns them on all ranks, so callers may ignore the
 * results of write and verify. After an error only close works. Nothing is repeated, because the planes may
 * have changed; the caller must start again. The objects that `save` points to are borrowed until close.
 */
struct checkpoint_saving;
int checkpoint_saving_open(struct checkpoint_saving **saving, const struct checkpoint_save *save);
int checkpoint_saving_write(struct checkpoint_saving *saving);
int checkpoint_saving_commit(struct checkpoint_saving *saving);
int checkpoint_saving_verify(struct checkpoint_saving *saving);
int checkpoint_saving_rotate(struct checkpoint_saving *saving, char **path); /* path as in checkpoint_save */
void checkpoint_saving_close(struct checkpoint_saving *saving);              /* NULL is allowed */

/* Removes older checkpoints beyond total_limit (0: none), as a successful save does. For a run that ended
 * before it could. `step` is a verified checkpoint, and stays, as best_step does. */
int checkpoint_rotate(const char *output_dir, int64_t step, int64_t best_step, int total_limit);

/* 0 if ferry may remove the checkpoint. ERR_INPUT if it is write-protected or contains something that no
 * save wrote; the text names it. Hidden names do not count: file managers and network file systems leave
 * them. */
int checkpoint_check_own(const char *path);

/* "checkpoint-000500" -> 500; -1 for any other name. */
int64_t checkpoint_step_of(const char *name);

#endif
