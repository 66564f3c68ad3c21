/* What a call reads must not be where its result goes. */
#ifndef FERRY_TRAIN_RUN_DIR_RUN_INPUTS_H
#define FERRY_TRAIN_RUN_DIR_RUN_INPUTS_H

#include "config/config.h"

/* Refuses a result that takes the place of the directory `dir`, if that is, or holds, what a path key names:
 * by another name, or by links of a directory that is read. A hard link in `dir` is no danger, since results
 * are new files. `key`=`value`: where the user said `dir`. ERR_INPUT names both keys. */
int run_inputs_check(const struct config *c, const char *dir, const char *key, const char *value);

/* Refuses an output_dir that is itself a directory that a path key names. */
int run_inputs_check_apart(const struct config *c);

#endif
