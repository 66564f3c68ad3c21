/* The last resort: save_fallback_dir.
 *
 * After a signal or at the end of a run, a checkpoint must be written now. ferry tries several times in
 * output_dir, then in a directory for this run alone in save_fallback_dir (run_owner_spare).
 */
#ifndef FERRY_TRAIN_FALLBACK_H
#define FERRY_TRAIN_FALLBACK_H

#include "train/train.h"

/* Writes into output_dir if `fallback` is NULL. Collective. */
typedef int fallback_work(struct trainer *t, const char *fallback);

/* Calls `work` until it succeeds. If nothing helps, returns the error of the last try in output_dir.
 * Collective. */
int fallback_try(struct trainer *t, enum train_patience patience, fallback_work *work);

#endif
