/* Opens the tokenizer, chat template and rows of a configuration. */
#ifndef FERRY_TRAIN_INPUTS_DATA_CONFIG_H
#define FERRY_TRAIN_INPUTS_DATA_CONFIG_H

#include "config/config.h"
#include "data/chat/chat_template.h"
#include "data/mix.h"
#include "data/packing.h"
#include "data/permutation.h"
#include "data/rows/dataset.h"
#include "data/tokenizer/tokenizer.h"

/* Opens the tokenizer of `tokenizer`, else of `model`. If it is optional and there is no tokenizer.json,
 * returns 0 with *t NULL: rows of ids need no tokenizer. */
enum data_config_need { TOKENIZER_REQUIRED, TOKENIZER_OPTIONAL };
int data_config_tokenizer(struct tokenizer **t, const struct config *c, enum data_config_need need);

/* Sets the key eos_token. ERR_INPUT names the key. */
int data_config_eos(struct tokenizer *t, const struct config *c);

/* Opens the chat template of the keys, or the model's own. `dir`: the model's directory; NULL = from the
 * key. Works without a tokenizer, but then finds no end-of-turn tokens. */
int data_config_chat_template(
        struct chat_template **t, const struct config *c, const char *dir, const struct tokenizer *tokenizer);

/* Warns if chat_template_date was set and this template writes no date, and of variables of
 * chat_template_kwargs that it does not use. */
void data_config_template_report(const struct config *c, const struct chat_template *t);

/* The form of alpaca rows by the keys. */
enum dataset_alpaca data_config_alpaca(const struct config *c);

/* The columns and roles that the keys name. */
struct row_names data_config_names(const struct config *c);

/* The options for a file from the data keys. vocab_count: bound of ids; 0 = the tokenizer's. */
struct dataset_options data_config_options(const struct config *c, const char *path,
        const struct tokenizer *tokenizer, const struct chat_template *chat_template, int64_t vocab_count);

/* Takes the rows of eval_split from `all`. The eval command evaluates them alone, so there `all` is closed.
 */
int data_config_split(struct dataset **held_back, struct dataset *all, const struct config *c);

/* Says what became of rows. Warns about keys that were set and that only chats know, if no row is one. Lists
 * columns that no reader used, unless the command does. */
void data_config_report(const struct config *c, const struct dataset *d);

/* Packs rows into bins if `packing` is on, pairs into bins of two rows, and mixes sets with weights. Else
 * *packing is NULL, and mix->set_count 0. `mix` NULL: ignores weights. */
int data_config_pack(
        struct packing **packing, struct mix *mix, const struct config *c, const struct dataset *d);

/* What a sampler draws: "rows", "bins" or "pairs". */
const char *data_config_drawn(const struct dataset *d, const struct packing *packing);

/* Reads vocab_size of MODEL/config.json (or of the file itself); 0 if it is absent. */
int data_config_vocab_count(int64_t *vocab_count, const char *model_path);

#endif
