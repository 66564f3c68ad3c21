/* Who writes into a run's directory: one process, from before it reads the first byte there until it has
 * ended.
 *
 * Mental model. run_owner_take locks the directory (base/dir_lock.h) and run_owner_release, the last thing of
 * a run, lets it go. Between them people move and remove things. Whoever is about to write asks
 * run_owner_is_there, which costs a look at one name. Where the answer is no, run_owner_keep finds out why:
 *
 *     the directory was moved      the run goes with it
 *     the lock's file was removed  it is put back, unless another run came
 *     the directory was removed    it is made again
 *     another run came             it has the directory; this run goes on in one of its own
 *
 * All of it is rank 0's.
 */
#ifndef FERRY_TRAIN_RUN_OWNER_H
#define FERRY_TRAIN_RUN_OWNER_H

#include "config/config.h"
#include "train/run_branch.h"

/* Takes output_dir for this process where the verb writes into one. ERR_INPUT names the process that has it.
 */
int run_owner_take(const struct config *c);
void run_owner_release(void); /* also where nothing was taken */

/* Is what this process owns still where it was? */
int run_owner_is_there(void);

/* The same as 0, or as ERR_IO with a text; where another run takes the directory after it, nothing that this
 * one wrote under a temporary name before can be put in its place (checkpoint/temp_dir.h). */
int run_owner_check(void);

enum run_place {
	RUN_PLACE_SAME,
	RUN_PLACE_MOVED, /* another name, and all that was written is there */
	RUN_PLACE_ANEW,  /* nothing of what was written is there */
};

/* Before something is written: where does the run write? *dir (mem_free) is where it did so far and is
 * replaced. Warns of all but the usual. ERR_IO: nowhere for now; ERR_NOMEM. */
int run_owner_keep(
        enum run_place *place, char **dir, const struct config *c, const struct run_branch *branch);

/* A directory of this run alone, with its config.yaml: save_fallback_dir/NAME.N (mem_free), where NAME is
 * output_dir's and N the first number that is free. It is owned as output_dir is. */
int run_owner_spare(char **path, const struct config *c);

#endif
