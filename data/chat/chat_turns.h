/* Private to data/chat/: where the turns of the assistant are in the text of a chat.
 *
 * Any template: ferry renders the chat again with another content of one message. The text changes where that
 * message stands, its *place*. So the places of all messages are known without a word about how the template
 * writes them, also in chats that begin with the assistant or have several answers in a row.
 *
 * A turn begins behind its header, which the model does not write: the text that add_generation_prompt
 * appends (chat_template_prompt) or at least the header in it, between the place of the message before and
 * its own. A thought before the content belongs to the turn. The turn ends where the next place begins.
 */
#ifndef FERRY_DATA_CHAT_CHAT_TURNS_H
#define FERRY_DATA_CHAT_CHAT_TURNS_H

#include "data/chat/chat_template.h"

/* Bytes of the text: the turn is [start, end), and its words end at body_end. body_end is `start` if they may
 * end anywhere, as calls of tools do. */
struct chat_turn {
	int64_t message;
	size_t start, body_end, end;
};

/* Finds the turns whose `message` is set, in order. full: the rendered chat; text behind rendered_bytes of it
 * was appended. ERR_INPUT: a turn cannot be found; the text has the remedy. */
int chat_turns_find(struct chat_turn *turns, int64_t turn_count, const struct chat_template *t,
        const struct chat *chat, const struct jinja_output *full, size_t rendered_bytes);

#endif
