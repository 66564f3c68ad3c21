/* The directory of sentence-transformers: what follows a model to make embeddings.
 *
 * modules.json lists the modules: the model at the top, then a pooling, and maybe more, in folders such as
 * 1_Pooling. Both forms of their settings are read, those before version 6 and those from then on. */
#ifndef FERRY_CHECKPOINT_HF_SENTENCE_DIR_H
#define FERRY_CHECKPOINT_HF_SENTENCE_DIR_H

#include "base/json.h"
#include "checkpoint/hf/side_files.h"
#include "model/pooling.h"

struct sentence_dir {
	int is_there;           /* 0: a directory without modules.json */
	struct pooling pooling; /* with the modules behind it */
	int64_t width;          /* numbers of a vector */
	int leaves_prompt_out;  /* of the pooling */
	int64_t max_tokens;     /* of a text; 0: not said */
	json_t *prompts;        /* name: text; NULL: none */
};

/* width: of a token's state. ERR_UNSUPPORTED names a module that ferry lacks; ERR_INPUT, ERR_NOMEM. */
int sentence_dir_read(struct sentence_dir *s, const char *dir, int64_t width);
void sentence_dir_free(struct sentence_dir *s);

/* The prompt of this name; NULL: none. */
const char *sentence_dir_prompt(const struct sentence_dir *s, const char *name);

/* Adds to a model's files what makes an embedder of it, unless they have it. */
int sentence_dir_complete(struct side_files *side, const struct sentence_dir *s, int64_t width);

/* "lasttoken", ... */
const char *pool_mode_name(enum pool_mode mode);

#endif
