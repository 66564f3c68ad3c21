/* Reading a ferry checkpoint: nothing of it is believed before its checksum was compared.
 *
 * Opening reads the manifest and the headers of the shards. After that any range of any plane can be read,
 * whatever world wrote it: each read goes through a small cache of verified blocks (16 MiB), so reading in
 * the order of the table touches each byte once. A block that differs from what was saved is an error that
 * names file and offset.
 */
#ifndef FERRY_CHECKPOINT_LOAD_H
#define FERRY_CHECKPOINT_LOAD_H

#include "checkpoint/manifest.h"
#include "checkpoint/plane_io.h"
#include "host/pool.h"
#include "model/model.h"

struct checkpoint;

/* A checkpoint directory. ERR_INPUT (no manifest, damaged, a file missing or of another length), ERR_IO,
 * ERR_NOMEM. */
int checkpoint_open(struct checkpoint **checkpoint, const char *path);
void checkpoint_close(struct checkpoint *checkpoint);

/* A checkpoint-N that holds another step, because somebody renamed it, is ERR_INPUT: it would pass for newer
 * or older than it is. */
int checkpoint_check_name(const struct checkpoint *checkpoint);

/* Path (mem_free) of the newest checkpoint of an output_dir that opens, holds the step of its name and is on
 * its branch (checkpoint/branch.h); others are passed over with a warning. Of those before step `before`:
 * INT64_MAX, all. *path is NULL, with 0, when there is none (or no directory). */
int checkpoint_find_newest(char **path, const char *output_dir, int64_t before);

/* What it holds; valid until close. training is the object that was saved. */
const struct manifest *checkpoint_manifest(const struct checkpoint *checkpoint);
const char *checkpoint_path(const struct checkpoint *checkpoint);

/* Directory with config.json and the tokenizer, inside of the checkpoint (mem_free); may not exist. */
char *checkpoint_model_dir(const struct checkpoint *checkpoint);

/* The table of `model` is the checkpoint's: names, shapes, order. A model that is tied by its config.json
 * although the checkpoint has a head of its own is untied here, so call it before anything is derived from
 * the table. ERR_INPUT names the first difference. */
int checkpoint_match(const struct checkpoint *checkpoint, struct model *model);

/* Does the run that saved it train what `model` trains? ERR_INPUT names the first tensor that differs. Sets
 * storage of frozen tensors from what was saved; after checkpoint_match, and before units are made. */
int checkpoint_match_trained(const struct checkpoint *checkpoint, struct model *model);

/* Elements of one plane, from wherever they lie, in the manifest's state. ERR_INPUT "FILE: byte OFFSET: ..."
 * for damage, or when the plane was not saved. One thread per checkpoint. */
int checkpoint_read(
        struct checkpoint *checkpoint, int tensor, enum plane plane, int64_t first, int64_t count, void *dst);

/* The same as a source, e.g. for hf_export_write. */
struct plane_source checkpoint_source(struct checkpoint *checkpoint);

/* All saved planes of these disjoint ranges (NULL: all of everything) into the sink. The threads of `pool`
 * (NULL: this one) take the files' blocks in order, read each straight to where the sink wants it, and
 * compare its checksum while it is in their caches. Of several errors the one that comes first in the files
 * is reported; after one the planes hold anything. */
int checkpoint_load(struct checkpoint *checkpoint, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count, struct pool *pool);

/* Every byte of every file. Goes on after damage: `report` is called for each damaged file (it may be NULL)
 * and the first error is returned. */
typedef void checkpoint_report(void *context, const char *file, const char *text);
int checkpoint_verify(const char *path, checkpoint_report *report, void *context);

#endif
