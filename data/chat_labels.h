/* Which tokens of a chat are trained.
 *
 * The chat is rendered and tokenized as a whole; then each assistant's turn that is trained is found in it:
 *
 *   marked   the template has {% generation %}: its spans are the turns
 *   proven   the others
 *
 * A proven turn begins where the text of the messages before it (add_generation_prompt on) ends; that text
 * must be how the whole chat begins. It ends before the next message, which is where the text begins to
 * differ when that message has another content.
 *
 * In both, labels go from the first token of the turn to its end-of-turn token. A turn without one is an
 * error: a model that never sees the end of a turn does not learn to stop.
 */
#ifndef FERRY_DATA_CHAT_LABELS_H
#define FERRY_DATA_CHAT_LABELS_H

#include "data/chat_template.h"
#include "data/tokenizer/token_list.h"

enum chat_turns {
	CHAT_TURNS_ASSISTANT, /* all turns of the assistant that no flag leaves out */
	CHAT_TURNS_LAST,      /* only the last of them */
	CHAT_TURNS_ALL,       /* every token */
};

/* Zero-initialise; kept from row to row. */
struct chat_labels {
	struct token_list ids, labels; /* labels: -100 or the id */
	struct token_list scratch;
	int64_t *ends; /* [end_count] places of the end-of-turn tokens that are trained */
	int64_t end_count, end_cap;
};

/* ERR_INPUT: the template refuses the chat, the texts do not agree, a turn has no end, no turn is trained by
 * a flag that cannot be obeyed. The message says what to do; the caller puts the row in front. */
int chat_labels_make(struct chat_labels *l, const struct chat_template *t, const struct tokenizer *tokenizer,
        const struct chat *chat, enum chat_turns turns);
void chat_labels_free(struct chat_labels *l);

#endif
