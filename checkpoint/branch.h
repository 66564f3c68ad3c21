/* Branches of a run: which checkpoints follow each other.
 *
 * Mental model. A run is a line of steps. Resuming an older checkpoint than the newest begins another line at
 * its step, a branch; what came after that step on the old line is abandoned. A line is a list of branches,
 * each with the step at which it begins:
 *
 *     [["9c1f0d2e6b7a8354", 0], ["51be77a0c2d94f16", 20]]
 *
 * are steps 1 to 20 of the first and from 21 on of the second.
 *
 * Every checkpoint holds the line that it was saved on ("branch" of its training state), and
 * OUTPUT_DIR/branch.json the one in force. Checkpoints of before that, and directories without the file, are
 * on the line [["0000000000000000", 0]].
 */
#ifndef FERRY_CHECKPOINT_BRANCH_H
#define FERRY_CHECKPOINT_BRANCH_H

#include "base/json.h"

#include <stdint.h>

extern const char branch_file_name[]; /* "branch.json" */

/* A line; json_decref. NULL: out of memory. */
json_t *branch_new(void);
json_t *branch_fork(const json_t *line, int64_t step); /* a new branch of it, after this step */

/* That of a checkpoint's training state, a new reference in *line. ERR_INPUT: it is malformed. */
int branch_of_training(json_t **line, const json_t *training, const char *where);

/* That in force in a directory; *line is NULL, with 0, where it says nothing. */
int branch_read(json_t **line, const char *output_dir);

/* Whole or not at all; with it goes an id of the process that runs there. */
int branch_write(const json_t *line, uint64_t process, const char *output_dir);

/* The id; 0 where the directory says nothing. */
int branch_read_process(uint64_t *process, const char *output_dir);

/* Is the line of before there were any? */
int branch_is_old(const json_t *line);

/* The last step that two lines share: INT64_MAX where they are the same, -1 where they share none. So a
 * checkpoint of `step` on line a belongs to the past of b if branch_common(a, b) >= step. */
int64_t branch_common(const json_t *a, const json_t *b);

int64_t branch_begin(const json_t *line); /* the step after which its last branch begins */

#endif
