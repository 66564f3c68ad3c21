/* The parts of a tokenizer. Private to data/tokenizer/. */
#ifndef FERRY_DATA_TOKENIZER_INSIDE_H
#define FERRY_DATA_TOKENIZER_INSIDE_H

#include <jansson.h>

#include "data/tokenizer/added_list.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/beside.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/model.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/post_processor.h"
#include "data/tokenizer/pretokenizer.h"
#include "data/tokenizer/tokenizer.h"

enum tokenizer_added {
	TOKENIZER_ADDED = 1 << 0,
	TOKENIZER_ADDED_SPECIAL = 1 << 1, /* SKIP_SPECIAL_ON leaves it out */
	TOKENIZER_ADDED_RENAMED = 1 << 2, /* normalization changes its content: see `renamed` */
};

struct tokenizer {
	struct normalizer normalizer;
	struct pretokenizer pretokenizer;
	struct token_model model;         /* its vocabulary includes the added tokens */
	struct added_set raw, normalized; /* searched before and after normalization */
	struct added_set contents;        /* of all, as files spell them: only for tokenizer_border */
	uint8_t *added;                   /* [vocab.id_end] bits of tokenizer_added */
	struct piece_list renamed;        /* changed contents of TOKENIZER_ADDED_RENAMED, in renamed_bytes */
	struct str renamed_bytes;
	struct decoder decoder;
	struct template template;
	struct tokenizer_roles roles;
};

/* Loads the text of a tokenizer.json, and what the files beside it say; `where` is its path. is_model: it was
 * made of a tokenizer.model. */
int tokenizer_load(struct tokenizer *t, const char *text, size_t len_bytes, const char *where,
        const struct beside *beside, int is_model, enum pattern_engine engine);

/* The part of tokenizer_load for added tokens; call it after loading vocabulary and normalizer.
 * splits_special: texts are not searched for special ones. */
int tokenizer_load_added(struct tokenizer *t, const struct added_list *list, int splits_special);

/* Fills t->roles from the files beside tokenizer.json in `dir`; without them, keeps those of a
 * tokenizer.model. */
int tokenizer_load_roles(struct tokenizer *t, const struct beside *beside, const char *dir);

/* tokenizer_open with a choice of the pattern engine, for tests. */
int tokenizer_open_with(struct tokenizer **t, const char *path, enum pattern_engine engine);

#endif
