/* Sampling options of generate: the keys, and for unset ones generation_config.json, as in transformers'
 * generate. */
#ifndef FERRY_TRAIN_GENERATION_SAMPLE_DEFAULTS_H
#define FERRY_TRAIN_GENERATION_SAMPLE_DEFAULTS_H

#include "config/config.h"
#include "train/generation/choose.h"

/* The sampling options from the keys. */
struct choose_options sample_choose_options(const struct config *c);

/* model_dir: where the file is; NULL: nowhere. With do_sample in the file or set, the file's temperature
 * applies unless the key is set. Without it, generate is greedy unless temperature is set. Warns of keys that
 * ferry does not read. ERR_INPUT: the file is invalid. */
int sample_defaults(struct choose_options *choose, int64_t *max_new_tokens, const struct config *c,
        const char *model_dir);

#endif
