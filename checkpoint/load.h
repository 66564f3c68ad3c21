/* Reads a ferry checkpoint. Verifies the checksum of every byte before its use.
 *
 * Opening reads the manifest and the headers of the shards. After that any range of any plane can be read,
 * for any number of ranks that wrote it. Each read goes through a small cache of verified blocks (16 MiB), so
 * reading in the order of the table reads each byte once. A damaged block is an error that names file and
 * offset.
 */
#ifndef FERRY_CHECKPOINT_LOAD_H
#define FERRY_CHECKPOINT_LOAD_H

#include "checkpoint/file/plane_io.h"
#include "checkpoint/manifest.h"
#include "host/pool.h"
#include "model/model.h"

struct checkpoint;

/* Opens a checkpoint directory. ERR_INPUT (no manifest, damaged, a file missing or of another length),
 * ERR_IO, ERR_NOMEM. */
int checkpoint_open(struct checkpoint **checkpoint, const char *path);
void checkpoint_close(struct checkpoint *checkpoint);

/* ERR_INPUT if a renamed checkpoint-N has another step than N, because it would seem newer or older than it
 * is. */
int checkpoint_check_name(const struct checkpoint *checkpoint);

/* Warns that a checkpoint is passed over: incomplete, damaged (err ERR_INPUT), or for this thread's text. */
void checkpoint_warn_skipped(const char *path, int err);

/* Finds the newest valid checkpoint of an output_dir before step `before` (INT64_MAX: any) and returns its
 * path (mem_free). Valid means: it opens, has the step of its name and is on the current branch
 * (checkpoint/branch.h). Skips others with a warning. Returns 0 with *path NULL if there is none, or no
 * directory. */
int checkpoint_find_newest(char **path, const char *output_dir, int64_t before);

/* The manifest, valid until close. Its `training` is the object that was saved. */
const struct manifest *checkpoint_manifest(const struct checkpoint *checkpoint);
const char *checkpoint_path(const struct checkpoint *checkpoint);

/* Directory with config.json and the tokenizer inside the checkpoint (mem_free); may not exist. */
char *checkpoint_model_dir(const struct checkpoint *checkpoint);

/* Adds the adapters that the checkpoint's run trained, if any. Call before checkpoint_match, with the model
 * of checkpoint_model_dir. ERR_INPUT, ERR_NOMEM. */
int checkpoint_adapt(const struct checkpoint *checkpoint, struct model *model);

/* Checks that the table of `model` equals the checkpoint's: names, shapes, order. Unties a model that is
 * tied in config.json if the checkpoint has a separate head, so call it before anything uses the table.
 * ERR_INPUT names the first difference. */
int checkpoint_match(const struct checkpoint *checkpoint, struct model *model);

/* Checks that the saving run trained the same tensors as `model`. ERR_INPUT names the first difference. Sets
 * the storage of frozen tensors to the saved format. Call after checkpoint_match and before units are
 * made. */
int checkpoint_match_trained(const struct checkpoint *checkpoint, struct model *model);

/* 1 if frozen tensors are not in the checkpoint but in the model's files. */
int checkpoint_leaves_frozen(const struct checkpoint *checkpoint);

/* Reads elements of one plane in the manifest's state format. ERR_INPUT "FILE: byte OFFSET: ..." for damage,
 * or if the plane was not saved. One thread per checkpoint. */
int checkpoint_read(
        struct checkpoint *checkpoint, int tensor, enum plane plane, int64_t first, int64_t count, void *dst);

/* The same as a source, e.g. for hf_export_write. */
struct plane_source checkpoint_source(struct checkpoint *checkpoint);

/* Loads all saved planes of these disjoint ranges (NULL: all elements) into the sink. The threads of `pool`
 * (NULL: this thread) take the files' blocks in order, read each directly to its place in the sink, and
 * compare its checksum while it is in their caches. Reports the error that comes first in the files; after
 * an error the planes are undefined. */
int checkpoint_load(struct checkpoint *checkpoint, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count, struct pool *pool);

/* Verifies every byte of every file. Continues after damage: calls `report` (may be NULL) for each damaged
 * file and returns the first error. */
typedef void checkpoint_report(void *context, const char *file, const char *text);
int checkpoint_verify(const char *path, checkpoint_report *report, void *context);

#endif
