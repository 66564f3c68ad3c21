/* Checks that the files of a configuration exist, before anything is opened or written. */
#ifndef FERRY_TRAIN_PREFLIGHT_H
#define FERRY_TRAIN_PREFLIGHT_H

#include "config/config.h"

/* Call after config_check. ERR_INPUT names the key, where it was set and the remedy; for a name in the form
 * of a HuggingFace hub id, the commands that download it. For `train` it also checks output_dir
 * (run_dir_check). For `config` it checks nothing. */
int preflight_check(const struct config *c);

#endif
