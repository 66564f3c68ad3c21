/* Checks that a template writes every message of a chat.
 *
 * Templates know roles by name, and many leave out messages with an unknown role. Then a prompt with "System"
 * instead of "system" is lost silently. A template may know any role, so the check uses the text: it must
 * change with the content of each message.
 */
#ifndef FERRY_DATA_CHAT_CHAT_ROLES_H
#define FERRY_DATA_CHAT_CHAT_ROLES_H

#include "data/chat/chat_template.h"

/* `full` is the text of the whole chat. ERR_INPUT names the first message with a misspelt role, or without
 * text in `full`. */
int chat_roles_check(const struct chat_template *t, const struct chat *chat, const struct jinja_output *full);

#endif
