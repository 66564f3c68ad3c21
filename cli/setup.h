/* From a configuration to the objects that commands share. */
#ifndef FERRY_CLI_SETUP_H
#define FERRY_CLI_SETUP_H

#include "cli/config.h"
#include "data/dataset.h"
#include "data/tokenizer/tokenizer.h"

/* The tokenizer of `tokenizer`, or else of `model`. Where it is optional and there is no tokenizer.json, *t
 * is NULL and 0 comes back: rows of ids need none. */
enum setup_need { SETUP_REQUIRED, SETUP_OPTIONAL };
int setup_tokenizer(struct tokenizer **t, const struct config *c, enum setup_need need);

/* What the data keys say about a file. vocab_count: ids must be below; 0 = the tokenizer's. */
struct dataset_options setup_dataset_options(
        const struct config *c, const char *path, const struct tokenizer *tokenizer, int64_t vocab_count);

/* vocab_size of MODEL/config.json (or of the file itself), 0 where there is none. */
int setup_vocab_count(int64_t *vocab_count, const char *model_path);

#endif
