/* The output directory of a run: what may be written there, and what stands where.
 * docs/reference/files.md lists all of it.
 *
 * A run owns its directory, from before it reads the first byte there until it has ended: run_dir_own comes
 * first, run_dir_disown last. A directory that holds anything is only written to with resume_from_checkpoint
 * or overwrite_output_dir. Overwriting removes what runs of ours leave, by name, and nothing else.
 */
#ifndef FERRY_TRAIN_RUN_DIR_H
#define FERRY_TRAIN_RUN_DIR_H

#include "config/config.h"
#include "train/run_branch.h"

/* Takes output_dir for this process where the verb writes into one (base/dir_lock.h); rank 0 alone does.
 * ERR_INPUT names the process that has it. */
int run_dir_own(const struct config *c);
void run_dir_disown(void); /* also where nothing was taken */

/* Whether `output_dir` may be used as the configuration says. Writes nothing. ERR_INPUT names both ways out.
 */
int run_dir_check(const struct config *c);

/* Makes the directory (with overwrite, empties it of what runs leave), makes the branch the one in force and
 * writes config.yaml. Call once everything else was checked. */
int run_dir_open(const struct config *c, const struct run_branch *branch);

/* Before something is written: is output_dir still the directory that this process owns? Where it was moved
 * or removed while the run goes on, it is created again, with branch.json and config.yaml, and a warning says
 * so. ERR_IO: another run is there now. Rank 0. */
int run_dir_keep(const struct config *c, const struct run_branch *branch);

/* DIR/config.yaml: the command `ferry train DIR/config.yaml` repeats the run. */
int run_dir_write_config(const struct config *c, const char *dir);

/* Paths, to be freed with mem_free; NULL when out of memory. */
char *run_dir_metrics(const struct config *c);
char *run_dir_model(const struct config *c);

#endif
