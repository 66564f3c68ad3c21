/* The output of generate: text as it is generated, or JSON at the end. */
#ifndef FERRY_CLI_ANSWER_H
#define FERRY_CLI_ANSWER_H

#include "cli/text_stream.h"
#include "train/generation.h"

/* Answers to several texts; one is written as it comes. */
struct answers {
	const struct config *config;
	struct text_stream *streams; /* [count] */
	json_t *stops;
	int64_t count;
	const char **titles; /* [count] not yet written; NULL: none */
	int shows;           /* text goes out as it comes */
	int has_said;        /* an answer was written */
};

/* tokenizer NULL: ids only. */
int answers_open(struct answers *a, const struct config *c, const struct tokenizer *tokenizer, int64_t count);
void answers_close(struct answers *a);

/* Puts "==> TITLE <==" in front of a text's answer, as head(1) does; NULL: nothing. Borrowed until the answer
 * is finished. JSON has none. */
void answers_title(struct answers *a, int64_t text, const char *title);

/* For generation.heard, with the answers as context. */
int answers_heard(void *context, int64_t text, const struct generation_text *t);

/* The end of text number `text`: what was held back, or all of it. */
int answers_finish(struct answers *a, int64_t text, const struct generation_text *t);

/* The answer without the stop string; valid until close or reset. */
const struct str *answers_text(const struct answers *a, int64_t text);

/* For the next texts. */
void answers_reset(struct answers *a);

#endif
