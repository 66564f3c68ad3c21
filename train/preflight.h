/* Whether the files that a configuration names are there, before anything is opened or written. */
#ifndef FERRY_TRAIN_PREFLIGHT_H
#define FERRY_TRAIN_PREFLIGHT_H

#include "config/config.h"

/* After config_check. ERR_INPUT names the key, where it was set and what to do; a name that looks like one of
 * the HuggingFace hub gets the commands that fetch it. For `train`, output_dir is checked too
 * (run_dir_check). */
int preflight_check(const struct config *c);

#endif
