/* Ownership of a run's directory: one process writes there, from before its first read until it ends.
 *
 * Mental model. run_owner_take locks the directory (base/dir_lock.h); run_owner_release unlocks it at the
 * end of the run. Meanwhile users may move or remove things. Code that is about to write calls
 * run_owner_is_there, which looks at one name. If the answer is no, run_owner_keep finds the reason:
 *
 *     the directory was moved      the run follows it
 *     the lock's file was removed  the run puts it back, unless another run took the directory
 *     the directory was removed    the run makes it again
 *     another run took it          this run goes on in a new directory
 *
 * Only rank 0 calls these functions.
 */
#ifndef FERRY_TRAIN_RUN_DIR_RUN_OWNER_H
#define FERRY_TRAIN_RUN_DIR_RUN_OWNER_H

#include "config/config.h"
#include "train/run_dir/run_branch.h"

/* Takes output_dir for this process if the verb writes into one. ERR_INPUT names the process that owns it. */
int run_owner_take(const struct config *c);
void run_owner_release(void); /* also allowed if nothing was taken */

/* 1 if the owned directory is still in its place. */
int run_owner_is_there(void);

/* The same check; returns 0, or ERR_IO with a text. If another run takes the directory later, this process
 * can no longer commit its earlier temporary files there (checkpoint/file/temp_dir.h). */
int run_owner_check(void);

enum run_place {
	RUN_PLACE_SAME,
	RUN_PLACE_MOVED, /* another name, with all files that were written */
	RUN_PLACE_ANEW,  /* a directory without the files that were written */
};

/* Call before writing: finds the run's directory and replaces *dir (mem_free). Warns of any change. ERR_IO:
 * no directory for now; ERR_NOMEM. */
int run_owner_keep(
        enum run_place *place, char **dir, const struct config *c, const struct run_branch *branch);

/* Makes a directory for this run alone, with its config.yaml: save_fallback_dir/NAME.N (mem_free). NAME is
 * that of output_dir, N the first free number. The process owns it like output_dir. */
int run_owner_spare(char **path, const struct config *c);

#endif
