/* The files beside tokenizer.json or tokenizer.model that say more about the tokenizer.
 *
 * tokenizer_config.json, special_tokens_map.json and added_tokens.json add tokens and change flags; the first
 * also changes how spaces are treated. ferry follows transformers 5 where the files differ:
 *
 * - with added_tokens_decoder in tokenizer_config.json, the other two files are not read;
 * - without it, special_tokens_map.json comes before tokenizer_config.json;
 * - flags of added_tokens_decoder come before those of tokenizer.json; a token that one file calls special
 *   stays special;
 * - a token that is in no vocabulary gets the next free id: first those of added_tokens_decoder or
 *   added_tokens.json, by their ids, then bos_token to mask_token, then other special tokens.
 */
#ifndef FERRY_DATA_TOKENIZER_BESIDE_H
#define FERRY_DATA_TOKENIZER_BESIDE_H

#include <jansson.h>
#include <stdint.h>

#include "data/tokenizer/added_list.h"

struct beside {
	struct beside_file {
		char *path;
		json_t *tree; /* an object, or NULL: there is no such file */
	} config, map, added;
	char *model_type; /* of config.json; may be NULL */
};

/* Reads the files in `dir`; NULL: none. beside_free also after failure. */
int beside_read(struct beside *b, const char *dir);
void beside_free(struct beside *b);

/* Appends their tokens to those of tokenizer.json, or changes their flags. ERR_INPUT names file and token. */
int beside_add_tokens(const struct beside *b, struct added_list *list);

/* split_special_tokens: special tokens are not found in texts. 0, 1, or ERR_INPUT. */
int beside_splits_special(const struct beside *b);

/* Rewrites the steps of a tokenizer.json by add_prefix_space, for the classes of transformers that do.
 * is_model: the tree was made of a tokenizer.model, for which transformers makes the steps by the class. */
int beside_set_prefix_space(const struct beside *b, json_t *root, int is_model);

/* A key of a special token, by transformers' rules about these files: NULL if none has it. *where is the
 * file. */
const json_t *beside_special(const struct beside *b, const char *key, const char **where);

#endif
