/* One chat of a data set, in the one form that templates know: messages with role and content.
 *
 * Records come as OpenAI messages, as ShareGPT turns, or as lists of prompt and completion. All become a list
 * of {"role", "content", "tool_calls" ...}; roles are system, user, assistant, tool, or what the record says.
 * Content parts are joined where all are text. `weight`, `train`, `training` and `loss_weight` of a message
 * say whether it is trained on and do not reach the template; keys with null are dropped.
 */
#ifndef FERRY_DATA_CHAT_H
#define FERRY_DATA_CHAT_H

#include <jansson.h>
#include <stdint.h>

enum chat_train { CHAT_TRAIN_UNSAID, CHAT_TRAIN_NO, CHAT_TRAIN_YES };

struct chat {
	json_t *messages;       /* owned */
	json_t *tools;          /* owned; NULL = none */
	json_t *documents;      /* owned; NULL = none */
	json_t *kwargs;         /* owned; more variables of the template; NULL = none */
	enum chat_train *train; /* [message count] what the record says of each */
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

/* Zero-initialise to start. */
void chat_free(struct chat *chat);

#endif
