/* One chat of a data set, in the one form that templates know: messages with role and content.
 *
 * Records come as OpenAI messages, as ShareGPT turns, or as lists of prompt and completion. All become a list
 * of {"role", "content", "tool_calls" ...}. Names of roles and columns are those of data/row_fields.h; a role
 * of messages that is none of its names reaches the template as it is. Content parts are joined where all are
 * text. `weight`, `train`, `training` and `loss_weight` of a message say whether it is trained on and do not
 * reach the template; keys with null are dropped.
 */
#ifndef FERRY_DATA_CHAT_H
#define FERRY_DATA_CHAT_H

#include <jansson.h>
#include <stdint.h>

#include "data/row_fields.h"

enum chat_train { CHAT_TRAIN_UNSAID, CHAT_TRAIN_NO, CHAT_TRAIN_YES };

struct chat {
	const char *other_role; /* of a message: no role that ferry knows. NULL = none; as long as messages */
	const struct row_names *names; /* NULL = the usual ones */
	unsigned *seen;                /* NULL, or bits of enum row_field: what any message had */
	json_t *messages;              /* owned */
	json_t *tools;                 /* owned; NULL = none */
	json_t *documents;             /* owned; NULL = none */
	json_t *kwargs;                /* owned; more variables of the template; NULL = none */
	enum chat_train *train;        /* [message count] what the record says of each */
	int64_t train_cap;
	int64_t prompt_count; /* so many messages are the prompt, whatever their roles */
};

/* Appends a list of messages. ERR_INPUT and ERR_UNSUPPORTED name message and key. */
int chat_add_messages(struct chat *chat, const json_t *messages, const char *where);

/* Appends ShareGPT turns ({"from", "value"}), with all names of roles that are in use. */
int chat_add_turns(struct chat *chat, const json_t *turns, const char *where);

/* Appends one message of a text. */
int chat_add_text(struct chat *chat, const char *role, const json_t *text, const char *where);

/* What stands beside the messages of a record: tools (a list, or its JSON as a string), documents,
 * chat_template_kwargs. */
int chat_add_extras(struct chat *chat, const json_t *record, const char *where);

/* *out is the same chat, but message `i` has another content, which begins with another character. It borrows
 * all but its list of messages: json_decref(out->messages) frees it. */
int chat_change_content(struct chat *out, const struct chat *chat, int64_t i);

/* Zero-initialise to start. */
void chat_free(struct chat *chat);

#endif
