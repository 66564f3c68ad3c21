/* The memory limit of tokenized rows, and the directory for rows beyond it. */
#ifndef FERRY_TRAIN_INPUTS_DATA_CACHE_H
#define FERRY_TRAIN_INPUTS_DATA_CACHE_H

#include "config/config.h"
#include "data/rows/dataset.h"

/* Texts that the options of a dataset point to. Zero-initialise; data_cache_free. */
struct data_cache {
	char *dir, *recipe;
};

/* Sets memory_bytes, cache_dir and recipe of *o. Set its tokenizer and template before. `dir`: the model's
 * directory, for its tokenizer; NULL = from the keys. parameter_count: of the model trained with these rows;
 * 0 = none. ERR_INPUT, ERR_IO: the tokenizer's files cannot be read. */
int data_cache_set(struct data_cache *cache, struct dataset_options *o, const struct config *c,
        const char *dir, int64_t parameter_count);
void data_cache_free(struct data_cache *cache);

#endif
