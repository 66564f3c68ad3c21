/* Converts text to token ids and back from a model's tokenizer.json, exactly like HF tokenizers.
 *
 * Encoding first splits added tokens off the raw text (added_tokens.h) and normalizes the rest
 * (normalizer.h). It then splits off added tokens that match normalized text, splits the rest into words
 * (pretokenizer.h), and converts each word to ids (model.h: BPE, Unigram, WordPiece or WordLevel). On
 * request it adds special tokens around the text (template.h). Decoding joins the texts of the ids
 * (decoder.h). Time is linear in the text.
 *
 * ferry supports or refuses by name everything in tokenizer.json, except that it ignores truncation and
 * padding, which are settings of the file's author. An open tokenizer is read-only: any number of threads
 * may use it.
 */
#ifndef FERRY_DATA_TOKENIZER_TOKENIZER_H
#define FERRY_DATA_TOKENIZER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "data/tokenizer/token_list.h"

struct tokenizer;

/* The files beside it may add tokens (beside.h). path: a tokenizer.json or a tokenizer.model
 * (sentencepiece.h), or a directory with one. The ids of tokenizer_roles come from tokenizer_config.json,
 * special_tokens_map.json, generation_config.json and config.json beside it. ERR_INPUT names file and key,
 * ERR_UNSUPPORTED the unsupported feature. */
int tokenizer_open(struct tokenizer **t, const char *path);

/* 1 if a directory has such a file, 0, or ERR_NOMEM. */
int tokenizer_exists(const char *dir);
void tokenizer_close(struct tokenizer *t);

enum add_special {
	ADD_SPECIAL_NONE,
	ADD_SPECIAL_ALL,    /* the template's tokens before and after a text */
	ADD_SPECIAL_BEFORE, /* only those before: for a prompt to continue */
};

/* Appends the ids of a text. ERR_INPUT names the byte offset of invalid UTF-8. */
int tokenizer_encode(const struct tokenizer *t, struct token_list *ids, const char *text, size_t len_bytes,
        enum add_special add);

/* As tokenizer_encode; `begins`, as long as `ids`, gets 1 for each token that begins a word, and 0 for each
 * that goes on with one. A word is what stands between spaces: transformers' offsets have a gap there. Where
 * tokens have the space before them in their text, a token with a space begins a word, also of tokenizers
 * whose offsets have no gaps. A character that the normalizer removes, as a lone accent, is no gap here.
 * ERR_UNSUPPORTED: tokens reach over white space. */
int tokenizer_encode_words(const struct tokenizer *t, struct token_list *ids, struct token_list *begins,
        const char *text, size_t len_bytes, enum add_special add);

/* Appends the ids of a text that goes on after another one, which was encoded before. No special tokens come
 * around it, and no space before it: the ids of both decode to the two texts. Tokenizers that put no space
 * before a text give the same ids as tokenizer_encode. */
int tokenizer_encode_more(
        const struct tokenizer *t, struct token_list *ids, const char *text, size_t len_bytes);

/* As tokenizer_encode for two texts, with the template's tokens before, between and after them.
 * ADD_SPECIAL_BEFORE: only those before the first. */
int tokenizer_encode_pair(const struct tokenizer *t, struct token_list *ids, const char *first,
        size_t first_bytes, const char *second, size_t second_bytes, enum add_special add);

/* The place at which a text (valid UTF-8) may be cut: `at`, or the start of an added token around it. */
size_t tokenizer_border(const struct tokenizer *t, const char *text, size_t len_bytes, size_t at);

enum skip_special { SKIP_SPECIAL_OFF, SKIP_SPECIAL_ON };

/* The text of ids[count], NUL-terminated valid UTF-8 (mem_free); len_bytes may be NULL. Unknown ids give no
 * text (models' vocabularies are often padded). */
int tokenizer_decode(const struct tokenizer *t, char **text, size_t *len_bytes, const int32_t *ids,
        int64_t count, enum skip_special skip);

/* The text of ids[begin, count) behind ids[0, begin): with the space that a decoder takes from the front of a
 * text. Where they begin inside a character, they are decoded alone. */
int tokenizer_decode_more(const struct tokenizer *t, char **text, size_t *len_bytes, const int32_t *ids,
        int64_t begin, int64_t count, enum skip_special skip);

/* The first of ids[0, begin) that tokenizer_decode needs to give ids behind them their text. */
int64_t tokenizer_context(const struct tokenizer *t, const int32_t *ids, int64_t begin);

/* One past the highest id, added tokens included. A model's embedding may have more rows. */
int64_t tokenizer_vocab_count(const struct tokenizer *t);

/* ERR_INPUT, for an id that a model of vocab_count rows does not have: names the token and what to do. */
int tokenizer_refuse_id(const struct tokenizer *t, int32_t id, int64_t vocab_count);

/* The id of an entry of the vocabulary or an added token, spelled as in tokenizer.json: 1 and *id, or 0. */
int tokenizer_find(const struct tokenizer *t, int32_t *id, const char *content);

/* 1: the token is special, such as those around a text. */
int tokenizer_is_special(const struct tokenizer *t, int32_t id);

/* Ids with a role, -1 if the model's files name none. */
struct tokenizer_roles {
	int32_t bos, eos, pad, mask;
};
const struct tokenizer_roles *tokenizer_roles(const struct tokenizer *t);

/* Makes an entry of the vocabulary the token that ends a text. Call before other threads use the tokenizer.
 * ERR_INPUT: there is no such entry. */
int tokenizer_set_eos(struct tokenizer *t, const char *content);

#endif
