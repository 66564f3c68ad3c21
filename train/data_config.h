/* From a configuration to the objects that commands share. */
#ifndef FERRY_TRAIN_DATA_CONFIG_H
#define FERRY_TRAIN_DATA_CONFIG_H

#include "config/config.h"
#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"

/* The tokenizer of `tokenizer`, or else of `model`. Where it is optional and there is no tokenizer.json, *t
 * is NULL and 0 comes back: rows of ids need none. */
enum data_config_need { TOKENIZER_REQUIRED, TOKENIZER_OPTIONAL };
int data_config_tokenizer(struct tokenizer **t, const struct config *c, enum data_config_need need);

/* What the data keys say about a file. vocab_count: ids must be below; 0 = the tokenizer's. */
struct dataset_options data_config_options(
        const struct config *c, const char *path, const struct tokenizer *tokenizer, int64_t vocab_count);

/* vocab_size of MODEL/config.json (or of the file itself), 0 where there is none. */
int data_config_vocab_count(int64_t *vocab_count, const char *model_path);

#endif
