/* The parts of a tokenizer. Not for use outside data/. */
#ifndef FERRY_DATA_TOKENIZER_INSIDE_H
#define FERRY_DATA_TOKENIZER_INSIDE_H

#include <jansson.h>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pretokenizer.h"
#include "data/tokenizer/tokenizer.h"

enum tokenizer_added {
	TOKENIZER_ADDED_NO,
	TOKENIZER_ADDED_PLAIN,
	TOKENIZER_ADDED_SPECIAL, /* left out by SKIP_SPECIAL_ON */
	TOKENIZER_ADDED_RENAMED, /* normalization changes its content: see `renamed` */
	TOKENIZER_ADDED_RENAMED_SPECIAL,
};

struct tokenizer {
	int normalize_nfc;
	struct pretokenizer pretokenizer;
	struct bpe bpe;                   /* its vocabulary holds the added tokens, too */
	struct added_set raw, normalized; /* searched before and after normalization */
	uint8_t *added;                   /* [vocab.id_end] enum tokenizer_added */
	struct piece_list renamed;        /* what such tokens decode to, in renamed_bytes */
	struct str renamed_bytes;
	struct token_list before, after; /* what the template puts around a text */
	int has_template;
	struct tokenizer_roles roles;
};

/* From a parsed tokenizer.json; `where` is its path. */
int tokenizer_load(struct tokenizer *t, const json_t *root, const char *where, enum pattern_engine engine);

/* Parts of it, in the order in which they are called. */
int tokenizer_check_model(const json_t *model, const char *where);
int tokenizer_load_vocab(struct tokenizer *t, const json_t *model, const char *where);
int tokenizer_load_merges(struct tokenizer *t, const json_t *model, const char *where);
int tokenizer_load_added(struct tokenizer *t, const json_t *list, const char *where);
int tokenizer_load_template(struct tokenizer *t, const json_t *spec, const char *where);

/* Fills t->roles from the files beside tokenizer.json in `dir`. */
int tokenizer_load_roles(struct tokenizer *t, const char *dir);

/* tokenizer_open with a choice of how patterns are matched, for tests. */
int tokenizer_open_with(struct tokenizer **t, const char *path, enum pattern_engine engine);

#endif
