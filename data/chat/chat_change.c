/* Changes a message of a chat, to see where a template writes it. */
#include "data/chat/chat.h"
#include "data/chat/chat_calls.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

static const char blanks[] = " \t\r\n";

/* Three letters that are neither the first nor the last of a text without blanks around it. */
static const char *other_text(const char *text, size_t len_bytes)
{
	static const char *const others[] = {"ZZZ", "QQQ", "JJJ"};
	size_t i = 0;

	while (len_bytes && (text[0] == *others[i] || text[len_bytes - 1] == *others[i]))
		i++;
	return others[i];
}

/* The text with letters in its middle. */
static json_t *text_inside(const char *text, size_t len_bytes)
{
	size_t half = len_bytes / 2;
	char *longer;
	json_t *made;

	while (half && ((unsigned char)text[half] & 0xc0) == 0x80)
		half--;
	longer = mem_printf("%.*sZZZ%s", (int)half, text, text + half);
	made = longer ? json_string(longer) : NULL;
	mem_free(longer);
	return made;
}

/* The same in the longest part. */
static int change_part(json_t *message)
{
	json_t *parts = json_deep_copy(json_object_get(message, CHAT_PARTS)), *longest = NULL, *text;
	int rc;

	for (size_t i = 0; i < json_array_size(parts); i++) {
		text = json_object_get(json_array_get(parts, i), "text");
		if (!longest ||
		        json_string_length(text) > json_string_length(json_object_get(longest, "text")))
			longest = json_array_get(parts, i);
	}
	text = json_object_get(longest, "text");
	rc = !text ||
	     json_object_set_new(
	             longest, "text", text_inside(json_string_value(text), json_string_length(text))) ||
	     json_object_set(message, CHAT_PARTS, parts);
	json_decref(parts);
	return rc;
}

/* Adds an argument to each call that has an object of them. */
static int add_arguments(json_t *message)
{
	json_t *parsed = chat_parsed_calls(message), *calls, *call;
	size_t i;
	int rc = parsed ? 1 : ERR_NOMEM;

	calls = json_object_get(parsed, "tool_calls");
	json_array_foreach(calls, i, call)
	{
		json_t *function = json_object_get(call, "function"), *arguments;

		arguments = json_object_get(json_is_object(function) ? function : call, "arguments");
		if (json_is_object(arguments) && json_object_set_new(arguments, "zzz", json_string("ZZZ")))
			rc = ERR_NOMEM;
	}
	if (parsed && json_object_set(message, "tool_calls", calls))
		rc = ERR_NOMEM;
	json_decref(parsed);
	return rc;
}

/* Applies the change to a copy of a message: 1, 0 if there is nothing to change, or ERR_NOMEM. */
static int change_message(json_t *message, enum chat_change change)
{
	const char *all = json_string_value(json_object_get(message, "content"));
	const char *words = all ? all + strspn(all, blanks) : "";
	size_t len = strlen(words);
	int has_calls = json_object_get(message, "tool_calls") != NULL, count = 0;

	while (len && strchr(blanks, words[len - 1]))
		len--;
	switch (change) {
	case CHAT_CHANGE_NO_THOUGHT:
		for (int i = 0; chat_thought_names[i]; i++)
			count += !json_object_del(message, chat_thought_names[i]);
		return count > 0;
	case CHAT_CHANGE_CALLS:
		return has_calls ? add_arguments(message) : 0;
	case CHAT_CHANGE_INSIDE:
		if (!len)
			return 0;
		if (json_object_get(message, CHAT_PARTS) && change_part(message))
			return ERR_NOMEM;
		return json_object_set_new(message, "content", text_inside(all, strlen(all))) ? ERR_NOMEM : 1;
	case CHAT_CHANGE_WORDS:
		if (len || !has_calls)
			return 0;
		break;
	case CHAT_CHANGE_CONTENT:
		if (!len && has_calls)
			json_object_del(message, "tool_calls");
		break;
	}
	(void)json_object_del(message, CHAT_PARTS);
	return json_object_set_new(message, "content", json_string(other_text(words, len))) ? ERR_NOMEM : 1;
}

int chat_change(struct chat *out, const struct chat *chat, int64_t i, enum chat_change change)
{
	json_t *changed = json_copy(json_array_get(chat->messages, (size_t)i));
	int rc = changed ? change_message(changed, change) : ERR_NOMEM;

	*out = *chat;
	out->messages = rc == 1 ? json_copy(chat->messages) : NULL;
	if (rc == 1 && (!out->messages || json_array_set(out->messages, (size_t)i, changed)))
		rc = ERR_NOMEM;
	json_decref(changed);
	return rc == ERR_NOMEM ? err_set(rc, "out of memory for a chat") : rc;
}
