/* How much memory tokenized rows may take, and where they go beyond it. */
#ifndef FERRY_TRAIN_DATA_CACHE_H
#define FERRY_TRAIN_DATA_CACHE_H

#include "config/config.h"
#include "data/dataset.h"

/* Texts that the options of a dataset point to. Zero-initialise; data_cache_free. */
struct data_cache {
	char *dir, *recipe;
};

/* Sets memory_bytes, cache_dir and recipe of *o, whose tokenizer and template are set. `dir`: the model's
 * directory, for its tokenizer; NULL = as the keys say. parameter_count: of the model that is to be trained
 * beside the rows; 0 = none. ERR_INPUT, ERR_IO: the tokenizer's files cannot be read. */
int data_cache_set(struct data_cache *cache, struct dataset_options *o, const struct config *c,
        const char *dir, int64_t parameter_count);
void data_cache_free(struct data_cache *cache);

#endif
