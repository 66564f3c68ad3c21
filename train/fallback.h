/* The last resort: save_fallback_dir.
 *
 * What must be written now, because a signal asks for it or the run is over, is tried several times in
 * output_dir, then in a directory of this run alone in save_fallback_dir (run_owner_spare).
 */
#ifndef FERRY_TRAIN_FALLBACK_H
#define FERRY_TRAIN_FALLBACK_H

#include "train/train.h"

/* Writes into output_dir where `fallback` is NULL. Collective. */
typedef int fallback_work(struct trainer *t, const char *fallback);

/* Calls `work` until it succeeds. The error of the last try in output_dir, where nothing helped. Collective.
 */
int fallback_try(struct trainer *t, enum train_patience patience, fallback_work *work);

#endif
