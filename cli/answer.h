/* The output of generate: text as it is generated, or JSON at the end. */
#ifndef FERRY_CLI_ANSWER_H
#define FERRY_CLI_ANSWER_H

#include "cli/text_stream.h"
#include "train/generation/generation.h"

/* Answers to several texts. A single one is written as it is generated. */
struct answers {
	const struct config *config;
	struct text_stream *streams; /* [count] */
	json_t *stops;
	struct token_list stop_ids; /* of stops that are a special token */
	int64_t count;
	const char **titles; /* [count] not yet written; NULL: none */
	int shows;           /* 1: text is written as it is generated */
	int has_said;        /* 1: an answer was written */
};

/* tokenizer NULL: ids only. */
int answers_open(struct answers *a, const struct config *c, const struct tokenizer *tokenizer, int64_t count);
void answers_close(struct answers *a);

/* Writes "==> TITLE <==" before a text's answer, like head(1); NULL: no title. Borrows `title` until the
 * answer is finished. JSON has no titles. */
void answers_title(struct answers *a, int64_t text, const char *title);

/* The text's answer continues its prompt: a space in front of it counts. */
void answers_continue(struct answers *a, int64_t text);

/* The callback for generation.heard; context is the answers. */
int answers_heard(void *context, int64_t text, const struct generation_text *t);

/* Ends text number `text`: writes the rest of its answer, or all of it. */
int answers_finish(struct answers *a, int64_t text, const struct generation_text *t);

/* The answer without the stop string; valid until close or reset. */
const struct str *answers_text(const struct answers *a, int64_t text);

/* Prepares for the next texts. */
void answers_reset(struct answers *a);

#endif
