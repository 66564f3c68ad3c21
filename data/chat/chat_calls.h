/* Calls of tools in messages, and JSON in texts.
 *
 * A call is {"type": "function", "function": {"name": ..., "arguments": ...}}. Its arguments are an object,
 * or one as JSON in a text.
 */
#ifndef FERRY_DATA_CHAT_CHAT_CALLS_H
#define FERRY_DATA_CHAT_CHAT_CALLS_H

#include <jansson.h>
#include <stdint.h>

/* The value of a text that holds a JSON object or list; else the text itself. NULL: no memory. Libraries on
 * Arrow have each message, tool or call as JSON in a text, because these differ from row to row. */
json_t *chat_json_of(const json_t *text);
int chat_parse_list(json_t *list); /* the same for each text of a list, in place */

/* Copies a message's calls: a list, or its JSON. ERR_INPUT names message and call. After an error, *out may
 * hold a part. */
int chat_copy_calls(json_t **out, const json_t *calls, const char *where, size_t message);

/* A copy of a message with tool calls, whose arguments are objects. OpenAI's records have them as JSON in a
 * string, but most templates expect an object. NULL: no memory. */
json_t *chat_parsed_calls(const json_t *message);

/* Finds the first call of messages whose arguments are no object, nor one as JSON in a text: 1, or 0. */
int chat_find_broken_call(const json_t *messages, int64_t *message, int64_t *call);

#endif
