/* The branch that a run goes on with in its output directory (checkpoint/branch.h).
 *
 * A fresh run begins a line. Resuming the newest checkpoint goes on with the line in force. Resuming an older
 * one begins a branch: branch.json says so first, then everything that is not in the past of the resumed
 * checkpoint is moved to OUTPUT_DIR/abandoned-N, whole, and named once. A run that is killed in between
 * leaves a directory in which branch.json decides; the next run moves the rest. So checkpoint-* in an output
 * directory are those of one line, and rotation, `auto` and names need no second rule.
 */
#ifndef FERRY_TRAIN_RUN_BRANCH_H
#define FERRY_TRAIN_RUN_BRANCH_H

#include "config/config.h"

#include "base/json.h"

#include <stdint.h>

#define ABANDONED "abandoned-" /* and a number */

struct run_branch {
	json_t *line;          /* that the run goes on with; goes into its checkpoints */
	uint64_t process;      /* an id of this process, by which it knows its own branch.json again */
	int64_t metrics_steps; /* of the rows in metrics.jsonl, those up to this step are in its past */
	int is_fork;           /* it begins here */
	char **abandoned;      /* names in output_dir */
	int abandoned_count;
};

/* Finds out, and writes nothing. checkpoint: the path that is resumed, NULL: none, with its training state.
 * ERR_INPUT: output_dir holds another run than the checkpoint's. */
int run_branch_open(
        struct run_branch *b, const struct config *c, const char *checkpoint, const json_t *training);

/* Makes it so: branch.json, and moves what is abandoned. The directory exists and is owned. */
int run_branch_begin(const struct run_branch *b, const struct config *c);

void run_branch_close(struct run_branch *b);

#endif
