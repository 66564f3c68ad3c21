/* What a chat has and its text does not.
 *
 * A template writes the parts of a chat that it knows and passes over others silently: tools, a thought, the
 * name of a speaker. Such a part is *lost*: without it the template writes the same text.
 */
#ifndef FERRY_DATA_CHAT_CHAT_LOST_H
#define FERRY_DATA_CHAT_CHAT_LOST_H

#include "data/chat/chat_template.h"

/* The name of a tool or of a call, with or without OpenAI's frame; NULL: none. */
const char *chat_function_name(const json_t *tool);

/* ERR_INPUT: the tools or the documents of the chat are lost. `full` is the text of the whole chat. */
int chat_lost_check(const struct chat_template *t, const struct chat *chat, const struct jinja_output *full);

/* What was warned about already. Zero-initialise; kept from chat to chat. */
struct chat_warned {
	json_t *names; /* owned; an object with them */
	int is_call_told;
};

/* Warns of fields of messages and of chat_template_kwargs that are lost, of each name once, and of the first
 * call whose arguments are no JSON object. Many templates leave out the thoughts of earlier turns. So those
 * that the template knows count only in answers from message `trained` on. ERR_NOMEM. */
int chat_lost_warn(struct chat_warned *warned, const struct chat_template *t, const struct chat *chat,
        int64_t trained, const char *where);
void chat_warned_free(struct chat_warned *warned);

#endif
