/* Calls of tools in messages, and JSON in texts. */
#include "data/chat/chat_calls.h"

#include "base/err.h"
#include "base/json.h"

#include <inttypes.h>
#include <string.h>

/* ---- JSON in texts ---- */

json_t *chat_json_of(const json_t *text)
{
	const char *data = json_string_value(text);
	json_t *value = NULL;

	if (!data || !strchr("[{", data[strspn(data, " \t\r\n")]) ||
	        json_parse_exact(&value, "JSON", data, json_string_length(text), 1) == ERR_INPUT)
		return json_incref((json_t *)(uintptr_t)text);
	return value;
}

int chat_parse_list(json_t *list)
{
	json_t *item;
	size_t i;

	json_array_foreach(
	        list, i, item) if (json_is_string(item) &&
	                           json_array_set_new(list, i, chat_json_of(item))) return err_set(ERR_NOMEM,
	        "out of memory for a chat");
	return 0;
}

/* ---- tool calls ---- */

/* Parses a call's arguments. */
static int call_arguments(json_t *call)
{
	json_t *function = json_object_get(call, "function"), *object = NULL;
	const json_t *arguments = json_object_get(json_is_object(function) ? function : call, "arguments");

	if (!json_is_string(arguments))
		return 0;
	if (json_parse_exact(
	            &object, "arguments", json_string_value(arguments), json_string_length(arguments), 1) ||
	        !json_is_map(object)) {
		json_decref(object); /* not an object: the template gets the text */
		return 0;
	}
	if (json_object_set_new(json_is_object(function) ? function : call, "arguments", object))
		return err_set(ERR_NOMEM, "out of memory for a chat");
	return 0;
}

int chat_copy_calls(json_t **out, const json_t *calls, const char *where, size_t message)
{
	size_t i;
	json_t *call;
	int rc = 0;

	*out = json_is_string(calls) ? chat_json_of(calls) : json_deep_copy(calls);
	if (!*out)
		return err_set(ERR_NOMEM, "out of memory for a chat");
	if (!json_is_array(*out))
		return err_set(ERR_INPUT, "%s: messages[%zu].tool_calls is %s; expected a list", where,
		        message, json_kind_name(*out));
	rc = chat_parse_list(*out);
	if (rc)
		return rc;
	json_array_foreach(*out, i, call)
	{
		if (!json_is_map(call))
			rc = err_set(ERR_INPUT, "%s: messages[%zu].tool_calls[%zu] is %s; expected an object",
			        where, message, i, json_kind_name(call));
		if (rc)
			break;
	}
	return rc;
}

json_t *chat_parsed_calls(const json_t *message)
{
	json_t *calls = json_deep_copy(json_object_get(message, "tool_calls")), *copy, *call;
	size_t i;
	int rc = 0;

	json_array_foreach(calls, i, call) rc |= call_arguments(call);
	copy = json_copy((json_t *)(uintptr_t)message);
	if (!calls || !copy || rc || json_object_set(copy, "tool_calls", calls)) {
		json_decref(copy);
		copy = NULL;
	}
	json_decref(calls);
	return copy;
}

/* Neither an object nor one as JSON in a text: the template gets it as it is. */
static int is_broken(const json_t *call)
{
	const json_t *function = json_object_get(call, "function");
	const json_t *arguments = json_object_get(json_is_object(function) ? function : call, "arguments");
	json_t *value = NULL;
	int is_map;

	if (!arguments || !json_is_string(arguments))
		return arguments && !json_is_map(arguments);
	value = chat_json_of(arguments);
	is_map = json_is_map(value);
	json_decref(value);
	return !is_map;
}

int chat_find_broken_call(const json_t *messages, int64_t *message, int64_t *call)
{
	const json_t *entry, *item;
	size_t i, k;

	json_array_foreach(messages, i, entry)
	{
		json_array_foreach(json_object_get(entry, "tool_calls"), k, item)
		{
			*message = (int64_t)i;
			*call = (int64_t)k;
			if (is_broken(item))
				return 1;
		}
	}
	return 0;
}
