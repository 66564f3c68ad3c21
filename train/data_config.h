/* From a configuration to the objects that commands share. */
#ifndef FERRY_TRAIN_DATA_CONFIG_H
#define FERRY_TRAIN_DATA_CONFIG_H

#include "config/config.h"
#include "data/chat_template.h"
#include "data/dataset.h"
#include "data/mix.h"
#include "data/packing.h"
#include "data/tokenizer/tokenizer.h"

/* The tokenizer of `tokenizer`, or else of `model`. Where it is optional and there is no tokenizer.json, *t
 * is NULL and 0 comes back: rows of ids need none. */
enum data_config_need { TOKENIZER_REQUIRED, TOKENIZER_OPTIONAL };
int data_config_tokenizer(struct tokenizer **t, const struct config *c, enum data_config_need need);

/* The chat template that the keys name, or the model's own. `dir`: the model's directory; NULL = as the key
 * says. Needs no tokenizer, but finds no ends of turns without one. */
int data_config_chat_template(
        struct chat_template **t, const struct config *c, const char *dir, const struct tokenizer *tokenizer);

/* What the data keys say about a file. vocab_count: ids must be below; 0 = the tokenizer's. */
struct dataset_options data_config_options(const struct config *c, const char *path,
        const struct tokenizer *tokenizer, const struct chat_template *chat_template, int64_t vocab_count);

/* How rows are drawn: packed into bins where `packing` says so, sets with weights mixed. *packing stays NULL
 * and mix->set_count 0 where they are not. `mix` NULL: weights do not count. */
int data_config_pack(
        struct packing **packing, struct mix *mix, const struct config *c, const struct dataset *d);

/* vocab_size of MODEL/config.json (or of the file itself), 0 where there is none. */
int data_config_vocab_count(int64_t *vocab_count, const char *model_path);

#endif
