/* Branches of a run: which checkpoint continues which.
 *
 * Mental model. A run is a line of steps. Resuming a checkpoint other than the newest begins a branch at its
 * step; later steps of the old line are abandoned. A line is a list of branches, each with the step where it
 * begins:
 *
 *     [["9c1f0d2e6b7a8354", 0], ["51be77a0c2d94f16", 20]]
 *
 * means steps 1 to 20 of the first branch and steps from 21 on of the second.
 *
 * Every checkpoint contains the line that it was saved on ("branch" of its training state).
 * OUTPUT_DIR/branch.json contains the current line. Older checkpoints without a line, and directories
 * without the file, are on the line [["0000000000000000", 0]].
 */
#ifndef FERRY_CHECKPOINT_BRANCH_H
#define FERRY_CHECKPOINT_BRANCH_H

#include "base/json.h"

#include <stdint.h>

extern const char branch_file_name[]; /* "branch.json" */

/* A line; json_decref. NULL: out of memory. */
json_t *branch_new(void);
json_t *branch_fork(const json_t *line, int64_t step); /* a new branch of it, after this step */

/* Reads the line of a checkpoint's training state into *line, a new reference. ERR_INPUT: malformed. */
int branch_of_training(json_t **line, const json_t *training, const char *where);

/* Reads the current line of a directory. Returns 0 with *line NULL if it has none. */
int branch_read(json_t **line, const char *output_dir);

/* Writes the file atomically, with an id of the process that runs there. */
int branch_write(const json_t *line, uint64_t process, const char *output_dir);

/* Reads the id; 0 if the directory has none. */
int branch_read_process(uint64_t *process, const char *output_dir);

/* 1 for the line of older checkpoints without branches. */
int branch_is_old(const json_t *line);

/* The last step that two lines share: INT64_MAX if they are equal, -1 if they share none. So a checkpoint of
 * `step` on line a belongs to the past of b if branch_common(a, b) >= step. */
int64_t branch_common(const json_t *a, const json_t *b);

int64_t branch_begin(const json_t *line); /* the step after which its last branch begins */

#endif
