/* Text to token ids and back, as the tokenizer.json of a model says, exactly as HF tokenizers.
 *
 * Encoding: added tokens are cut out of the raw text (added_tokens.h); what is left is normalized
 * (normalizer.h), searched for the added tokens that want normalized text, cut into words (pretokenizer.h),
 * and each word becomes ids (model.h: BPE, Unigram, WordPiece or WordLevel). Special tokens are put around
 * the whole on request (template.h). Decoding: the texts of the ids, put together by the decoder (decoder.h).
 * Time is linear in the text.
 *
 * Everything in tokenizer.json is either done or refused by name. truncation and padding in the file are
 * those of whoever wrote it and are not applied. Once open, a tokenizer is read-only: any number of threads
 * may use it.
 */
#ifndef FERRY_DATA_TOKENIZER_TOKENIZER_H
#define FERRY_DATA_TOKENIZER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "data/tokenizer/token_list.h"

struct tokenizer;

/* path: a tokenizer.json or a tokenizer.model (sentencepiece.h), or a directory that has one (and maybe
 * tokenizer_config.json, special_tokens_map.json, generation_config.json and config.json beside it, from
 * which the ids below come). ERR_INPUT names file and key, ERR_UNSUPPORTED the thing that is not done. */
int tokenizer_open(struct tokenizer **t, const char *path);

/* Whether a directory has such a file: 1, 0 or ERR_NOMEM. */
int tokenizer_exists(const char *dir);
void tokenizer_close(struct tokenizer *t);

enum add_special {
	ADD_SPECIAL_NONE,
	ADD_SPECIAL_ALL,    /* what the template puts before and after a text */
	ADD_SPECIAL_BEFORE, /* only what it puts before: for a prompt that goes on */
};

/* Appends the ids of a text. ERR_INPUT names the byte offset where the text is not valid UTF-8. */
int tokenizer_encode(const struct tokenizer *t, struct token_list *ids, const char *text, size_t len_bytes,
        enum add_special add);

/* The same of two texts: what the template for two puts before, between and after them. ADD_SPECIAL_BEFORE:
 * only what stands before the first. */
int tokenizer_encode_pair(const struct tokenizer *t, struct token_list *ids, const char *first,
        size_t first_bytes, const char *second, size_t second_bytes, enum add_special add);

enum skip_special { SKIP_SPECIAL_OFF, SKIP_SPECIAL_ON };

/* The text of ids[count], NUL-terminated valid UTF-8 (mem_free); len_bytes may be NULL. Ids that the
 * tokenizer does not have say nothing (models' vocabularies are often padded). */
int tokenizer_decode(const struct tokenizer *t, char **text, size_t *len_bytes, const int32_t *ids,
        int64_t count, enum skip_special skip);

/* One past the highest id, added tokens included. A model may have more rows than that. */
int64_t tokenizer_vocab_count(const struct tokenizer *t);

/* The id of an entry of the vocabulary or an added token, spelled as in tokenizer.json: 1 and *id, or 0. */
int tokenizer_find(const struct tokenizer *t, int32_t *id, const char *content);

/* Ids with a role, -1 where the model's files name none. */
struct tokenizer_roles {
	int32_t bos, eos, pad;
};
const struct tokenizer_roles *tokenizer_roles(const struct tokenizer *t);

#endif
