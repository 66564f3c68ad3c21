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
	struct vocab vocab; /* later also the added tokens */
	void *state;        /* of the kind */
};

/* The value of "model". The two large parts are left out of `spec` (null stands there) and read in place;
 * `begin` of a part that the file lacks is NULL. */
struct model_source {
	const json_t *spec;
	const char *where;
	struct json_reader vocab, merges;
};

struct model_kind {
	const char *name; /* "type" in the file */
	const char *keys; /* that "model" may have */

	/* Fills vocab and state. vocab.in_bytes is set where words come as bytes; only a kind with
	 * takes_bytes gets that. */
	int (*load)(struct token_model *m, struct model_source *source);
	int (*takes_bytes)(const json_t *spec);
	void (*free)(void *state);

	/* Appends the ids of a word (not empty). Any number of threads at once, each with a scratch of its
	 * own: scratch_bytes of zeroed memory. */
	int (*encode)(const struct token_model *m, void *scratch, struct token_list *ids, const char *word,
	        size_t len_bytes);

	/* NULL, or takes a part of a long word (whole characters), of which more comes: by this or, the last
	 * part, by encode. */
	int (*encode_part)(const struct token_model *m, void *scratch, struct token_list *ids,
	        const char *part, size_t len_bytes);
	size_t scratch_bytes;
	void (*scratch_free)(void *scratch);
};

/* Chooses the kind by "type" or, in files without one, by the keys. ERR_UNSUPPORTED for others. */
int model_choose(struct token_model *m, struct model_source *source);
void model_free(struct token_model *m);

/* For kinds: adds the words of "vocab", an object of ids. */
int model_load_words(struct token_model *m, struct model_source *source);

/* For kinds: the id of the token under `key`, or -1 where there is none or the vocabulary lacks it; *name
 * (may be NULL) is its content then. */
int model_load_token(const struct token_model *m, const struct model_source *source, const char *key,
        int32_t *id, const char **name);

extern const struct model_kind model_bpe, model_unigram, model_wordpiece, model_wordlevel;

#endif
