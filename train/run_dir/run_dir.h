/* The output directory of a run: checks, layout and overwriting. docs/reference/files.md lists its files.
 *
 * A run owns its directory (run_owner.h). It writes into a directory that is not empty only with
 * resume_from_checkpoint or overwrite_output_dir. Overwriting removes the files of ferry's runs by name, and
 * nothing else.
 */
#ifndef FERRY_TRAIN_RUN_DIR_RUN_DIR_H
#define FERRY_TRAIN_RUN_DIR_RUN_DIR_H

#include "config/config.h"
#include "train/run_dir/run_branch.h"

/* Files in it whose writers stand above: train/reference.h, train/events.h. */
#define REFERENCE_NAME "reference.safetensors"
#define EVENTS_NAME "events.out.tfevents.ferry"

/* Checks that the run may use `output_dir`. Writes nothing. ERR_INPUT names both remedies. */
int run_dir_check(const struct config *c);

/* Makes the directory (with overwrite, removes the files of earlier runs), begins the branch and writes
 * config.yaml. Call after all other checks. */
int run_dir_open(const struct config *c, const struct run_branch *branch);

/* 1 if the directory has a run's configuration or branch. */
int run_dir_is_run(const char *dir);

/* DIR/config.yaml, with this output_dir: the command `ferry train DIR/config.yaml` repeats the run. */
int run_dir_write_config(const struct config *c, const char *dir, const char *output_dir);

/* Removes the parts of a run's files that a killed run left. Call with the directory's lock. */
void run_dir_clean(const char *dir);

/* Paths in a run's directory (mem_free); NULL if out of memory. */
char *run_dir_metrics(const char *dir);
char *run_dir_model(const char *dir);

/* The directories with the result: the model, the adapter. Ended by NULL. */
extern const char *const run_dir_results[];

#endif
