/* The output directory of a run: what may be written there, and what stands where.
 * docs/reference/files.md lists all of it.
 *
 * A run owns its directory (run_owner.h). A directory that holds anything is only written to with
 * resume_from_checkpoint or overwrite_output_dir. Overwriting removes what runs of ours leave, by name, and
 * nothing else.
 */
#ifndef FERRY_TRAIN_RUN_DIR_H
#define FERRY_TRAIN_RUN_DIR_H

#include "config/config.h"
#include "train/run_branch.h"

/* Whether `output_dir` may be used as the configuration says. Writes nothing. ERR_INPUT names both ways out.
 */
int run_dir_check(const struct config *c);

/* Makes the directory (with overwrite, empties it of what runs leave), makes the branch the one in force and
 * writes config.yaml. Call once everything else was checked. */
int run_dir_open(const struct config *c, const struct run_branch *branch);

/* Does a run's configuration or branch stand there? */
int run_dir_is_run(const char *dir);

/* DIR/config.yaml, with this output_dir: the command `ferry train DIR/config.yaml` repeats the run. */
int run_dir_write_config(const struct config *c, const char *dir, const char *output_dir);

/* Paths in a run's directory, to be freed with mem_free; NULL when out of memory. */
char *run_dir_metrics(const char *dir);
char *run_dir_model(const char *dir);

#endif
