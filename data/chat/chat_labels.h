/* Finds the trained tokens of a chat.
 *
 * ferry renders and tokenizes the chat as a whole. Then it finds each trained turn of the assistant in it, in
 * one of two ways:
 *
 * marked   the template has {% generation %}: its spans are the turns
 * proven   any other template: ferry compares renderings
 *
 * data/chat/chat_turns.h says how turns are proven.
 *
 * In both cases, labels go from the first token of the turn to its end-of-turn token. A turn without one is
 * an error: a model that never sees the end of a turn does not learn to stop.
 */
#ifndef FERRY_DATA_CHAT_CHAT_LABELS_H
#define FERRY_DATA_CHAT_CHAT_LABELS_H

#include "data/chat/chat_template.h"
#include "data/tokenizer/token_list.h"

enum chat_turns {
	CHAT_TURNS_ASSISTANT, /* all turns of the assistant without a flag that excludes them */
	CHAT_TURNS_LAST,      /* only the last of them */
	CHAT_TURNS_ALL,       /* every token but those of messages whose flag excludes them */
};

/* Zero-initialise; kept from row to row. */
struct chat_labels {
	struct token_list ids, labels; /* labels: -100 or the id */
	struct token_list scratch;
	int64_t *ends; /* [end_count] places of the trained end-of-turn tokens */
	int64_t end_count, end_cap;
};

/* ERR_INPUT: the template refuses the chat, the texts do not agree, a turn has no end-of-turn token, or a
 * flag cannot be applied. The text has the remedy; the caller adds the row. */
int chat_labels_make(struct chat_labels *l, const struct chat_template *t, const struct tokenizer *tokenizer,
        const struct chat *chat, enum chat_turns turns);
void chat_labels_free(struct chat_labels *l);

/* 1 if chats of a built-in template end their turns with a token of this tokenizer. */
int chat_labels_template_fits(const char *name, const struct tokenizer *tokenizer);

#endif
