/* One chat of a data set in the form for templates: messages with role and content.
 *
 * Records are OpenAI messages, ShareGPT turns, or lists of prompt and completion. All become a list of
 * {"role", "content", "tool_calls" ...}. row_fields.h has the names of roles and columns; an unknown role of
 * a message reaches the template unchanged. Content parts, which must be texts, are joined, and stay as they
 * are under CHAT_PARTS for templates that read them. `weight`, `train`, `training` and `loss_weight` of a
 * message say whether to train on it, and do not reach the template. Keys with null are dropped.
 */
#ifndef FERRY_DATA_CHAT_CHAT_H
#define FERRY_DATA_CHAT_CHAT_H

#include <jansson.h>
#include <stdint.h>

#include "data/chat/row_fields.h"

/* The key of a message with its content as it was: a list of {"type": "text", "text"}. No column has this
 * name, and no template sees it. */
#define CHAT_PARTS "content\tparts"

enum chat_train { CHAT_TRAIN_UNSAID, CHAT_TRAIN_NO, CHAT_TRAIN_YES };

struct chat {
	const char *other_role; /* an unknown role of a message, valid as long as messages; NULL = none */
	const struct row_names *names; /* NULL = the usual ones */
	unsigned *seen;                /* NULL, or bits of enum row_field that any message had */
	json_t *messages;              /* owned */
	json_t *tools;                 /* owned; NULL = none */
	json_t *documents;             /* owned; NULL = none */
	json_t *kwargs;                /* owned; more variables of the template; NULL = none */
	enum chat_train *train;        /* [message count] the record's flag of each message */
	int64_t train_cap;
	int has_dropped_nulls; /* from calls of tools and schemas: data/chat/chat_nulls.h */
	int64_t prompt_count;  /* the first prompt_count messages are the prompt, regardless of roles */
};

/* Appends a list of messages. ERR_INPUT and ERR_UNSUPPORTED name message and key. */
int chat_add_messages(struct chat *chat, const json_t *messages, const char *where);

/* Appends ShareGPT turns ({"from", "value"}), with all common names of roles. */
int chat_add_turns(struct chat *chat, const json_t *turns, const char *where);

/* Appends one message with this role and text. */
int chat_add_text(struct chat *chat, const char *role, const json_t *text, const char *where);

/* Adds the other keys of a record: tools (a list, or its JSON as a string), documents, chat_template_kwargs.
 * Call it after the messages were added. */
int chat_add_extras(struct chat *chat, const json_t *record, const char *where);

/* 1 if the assistant speaks in the message. */
int chat_is_assistant(const json_t *message);

/* The keys of a thought, up to a NULL. A message that has one also has those that templates read. */
extern const char *const chat_thought_names[];
int chat_is_thought(const char *key);

/* Changes of a message that show where a template writes it. */
enum chat_change {
	CHAT_CHANGE_CONTENT, /* another content with other first and last characters; without its calls of
	                        tools, if they were all that it had */
	CHAT_CHANGE_WORDS,   /* the same beside the calls, where they were all */
	CHAT_CHANGE_INSIDE,  /* a few letters more in the middle of its content */
	CHAT_CHANGE_LAST_OF_CONTENT = CHAT_CHANGE_INSIDE,
	CHAT_CHANGE_NO_THOUGHT, /* no thought before its content */
	CHAT_CHANGE_CALLS,      /* one more argument in its calls of tools */
};

/* Copies a chat into *out with this change of message `i`: 1, 0 if the message has nothing to change, or
 * ERR_NOMEM. *out borrows all but its list of messages; free that with json_decref(out->messages). */
int chat_change(struct chat *out, const struct chat *chat, int64_t i, enum chat_change change);

/* Zero-initialise to start. */
void chat_free(struct chat *chat);

#endif
