/* Sampling options of generate: the keys, and for unset ones generation_config.json, as in transformers'
 * generate. */
#ifndef FERRY_TRAIN_SAMPLE_DEFAULTS_H
#define FERRY_TRAIN_SAMPLE_DEFAULTS_H

#include "train/choose.h"
#include "train/session.h"

/* With do_sample in the file, its temperature applies unless the key is set. Without it, generate is greedy
 * unless temperature is set. ERR_INPUT: the file is invalid. */
int sample_defaults(struct choose_options *choose, const struct session *s);

#endif
