/* The model of tokenizer.json: makes ids of one word.
 *
 * A kind (BPE, Unigram, WordPiece, WordLevel) is one struct model_kind. To add one: write the functions, and
 * put the struct into the list in model.c.
 */
#ifndef FERRY_DATA_TOKENIZER_MODEL_H
#define FERRY_DATA_TOKENIZER_MODEL_H

#include <jansson.h>
#include <stddef.h>

#include "data/tokenizer/json_reader.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/vocab.h"

struct token_model {
	const struct model_kind *kind;
	struct vocab vocab; /* added tokens follow later */
	void *state;        /* of the kind */
};

/* The value of "model". `spec` has null for the two large parts; they are read in place. A part that the file
 * lacks has a NULL `begin`. */
struct model_source {
	const json_t *spec;
	const char *where;
	struct json_reader vocab, merges;
};

struct model_kind {
	const char *name; /* "type" in the file */
	const char *keys; /* allowed keys of "model" */

	/* Fills vocab and state. If vocab.in_bytes is set, words come as bytes; only kinds with
	 * takes_bytes get that. */
	int (*load)(struct token_model *m, struct model_source *source);
	int (*takes_bytes)(const json_t *spec);
	void (*free)(void *state);

	/* Appends the ids of a word (not empty). Thread-safe; each thread has its own scratch of
	 * scratch_bytes zeroed bytes. */
	int (*encode)(const struct token_model *m, void *scratch, struct token_list *ids, const char *word,
	        size_t len_bytes);

	/* Takes the next part of a long word (whole characters); `encode` takes the last part. NULL: words
	 * come whole. */
	int (*encode_part)(const struct token_model *m, void *scratch, struct token_list *ids,
	        const char *part, size_t len_bytes);
	size_t scratch_bytes;
	void (*scratch_free)(void *scratch);
};

/* Chooses the kind by "type", or by the keys in files without one. ERR_UNSUPPORTED for other kinds. */
int model_choose(struct token_model *m, struct model_source *source);
void model_free(struct token_model *m);

/* For kinds: adds the words of "vocab", an object with ids as values. */
int model_load_words(struct token_model *m, struct model_source *source);

/* For kinds: the id of the token under `key`, or -1 if the key or the vocabulary entry is missing. *name
 * (may be NULL) is its content. */
int model_load_token(const struct token_model *m, const struct model_source *source, const char *key,
        int32_t *id, const char **name);

extern const struct model_kind model_bpe, model_unigram, model_wordpiece, model_wordlevel;

#endif
