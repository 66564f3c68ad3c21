/* The branch that a run continues in its output directory (checkpoint/branch.h).
 *
 * A new run begins a line. Resuming the newest checkpoint continues the current line. Resuming an older one
 * begins a branch. It first writes branch.json; then it moves everything outside the past of the resumed
 * checkpoint to OUTPUT_DIR/abandoned-N and logs that once. If the run is killed in between, the next run
 * reads branch.json and moves the rest. So the checkpoint-* in an output directory always belong to one line,
 * and rotation and `auto` need no second rule.
 */
#ifndef FERRY_TRAIN_RUN_DIR_RUN_BRANCH_H
#define FERRY_TRAIN_RUN_DIR_RUN_BRANCH_H

#include "config/config.h"

#include "base/json.h"

#include <stdint.h>

#define ABANDONED "abandoned-" /* followed by a number */

struct run_branch {
	json_t *line;          /* the line that the run continues; stored in its checkpoints */
	uint64_t process;      /* an id of this process, to recognise its own branch.json */
	int64_t metrics_steps; /* rows of metrics.jsonl up to this step belong to its past */
	char *metrics_from;    /* of an abandoned checkpoint: the metrics of its past; else NULL */
	int is_fork;           /* the run begins this branch */
	char **abandoned;      /* names in output_dir */
	int abandoned_count;
};

/* Finds the branch and writes nothing. checkpoint: the path to resume with its training state, or NULL.
 * ERR_INPUT: output_dir contains another run than the checkpoint's. */
int run_branch_open(
        struct run_branch *b, const struct config *c, const char *checkpoint, const json_t *training);

/* Writes branch.json and moves abandoned files. The directory must exist and be owned. */
int run_branch_begin(const struct run_branch *b, const struct config *c);

void run_branch_close(struct run_branch *b);

#endif
