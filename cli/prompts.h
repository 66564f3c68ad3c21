/* The prompts of generate as ids: from the keys, a file or standard input. */
#ifndef FERRY_CLI_PROMPTS_H
#define FERRY_CLI_PROMPTS_H

#include "data/chat/chat_lost.h"
#include "data/tokenizer/token_list.h"
#include "train/session.h"

struct prompt {
	struct token_list ids;
	int is_chat; /* the answer is a message of its own, not the text's continuation */
	char *where; /* "asked.txt:2" for a prompt from prompt_file; else NULL */
};

struct prompts {
	struct session *session;             /* borrowed */
	struct chat_template *chat_template; /* opened when a chat needs it */
	struct prompt *list;                 /* [count] */
	int64_t count, cap;
	int is_answered_told; /* 1: answered_warn has warned */
	const char *where;    /* of the record being read, for messages; NULL: none */
	struct chat_warned warned;
};

/* Reads all prompts of the keys; standard input if there are none. ERR_INPUT with file and line: a chat for
 * a model without a template, an empty prompt, or an id outside the vocabulary. */
int prompts_read(struct prompts *p);
void prompts_free(struct prompts *p);

/* The system message of the keys, which may be empty; NULL: none. */
const char *prompts_system(const struct config *c);

/* Encodes a chat up to the begin of the answer. */
int prompts_encode_chat(struct prompts *p, struct token_list *ids, const struct chat *chat);

#endif
