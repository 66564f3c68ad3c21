/* How generate chooses tokens: the keys, and for those that nobody set generation_config.json, as
 * transformers' generate takes them. */
#ifndef FERRY_TRAIN_SAMPLE_DEFAULTS_H
#define FERRY_TRAIN_SAMPLE_DEFAULTS_H

#include "train/choose.h"
#include "train/session.h"

/* A file with do_sample samples unless temperature is set; one without does so only if it is. ERR_INPUT: the
 * file is wrong. */
int sample_defaults(struct choose_options *choose, const struct session *s);

#endif
