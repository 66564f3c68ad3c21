/* Finds and drops the nulls that Arrow puts into tool calls and schemas. */
#include "data/chat/chat_nulls.h"

#include "base/err.h"

#include <string.h>

static json_t *mutable(const json_t *value)
{
	json_t *out;

	memcpy(&out, &value, sizeof(out));
	return out;
}

static int has_null(const json_t *object)
{
	const char *key;
	json_t *value;

	json_object_foreach(mutable(object), key, value) if (json_is_null(value)) return 1;
	return 0;
}

/* Whether an object called "properties" at any depth has a null member. */
static int has_null_property(const json_t *schema)
{
	const char *key;
	json_t *value;
	size_t i;

	json_array_foreach(schema, i, value) if (has_null_property(value)) return 1;
	json_object_foreach(mutable(schema), key, value)
	{
		if (!strcmp(key, "properties") && has_null(value))
			return 1;
		if (has_null_property(value))
			return 1;
	}
	return 0;
}

/* The function of a call or a tool: {"function": {"name": ...}}, or the object itself. */
static const json_t *function_of(const json_t *object)
{
	const json_t *function = json_object_get(object, "function");

	return json_is_object(function) ? function : object;
}

static const char *name_of(const json_t *function)
{
	const char *name = json_string_value(json_object_get(function, "name"));

	return name ? name : "";
}

/* The properties of a function's schema; NULL if the tools do not say. */
static const json_t *properties_of(const json_t *tools, const char *name)
{
	const json_t *tool;
	size_t i;

	json_array_foreach(
	        tools, i, tool) if (!strcmp(name_of(function_of(tool)),
	                                    name)) return json_object_get(json_object_get(function_of(tool),
	                                                                          "parameters"),
	        "properties");
	return NULL;
}

static int has_unknown_null(const json_t *tools, const json_t *function)
{
	const json_t *properties = properties_of(tools, name_of(function));
	const char *key;
	json_t *value;

	json_object_foreach(mutable(json_object_get(function, "arguments")), key,
	        value) if (json_is_null(value) && json_is_object(properties) &&
	                   !json_object_get(properties, key)) return 1;
	return 0;
}

static int same_keys(const json_t *a, const json_t *b)
{
	const char *key;
	json_t *value;

	if (json_object_size(a) != json_object_size(b))
		return 0;
	json_object_foreach(mutable(a), key, value) if (!json_object_get(b, key)) return 0;
	return 1;
}

/* Whether one of the calls shows Arrow's work. *first: the first call with a null. */
static int calls_show(const json_t *calls, const json_t *tools, const json_t **first)
{
	const json_t *call;
	size_t i;

	json_array_foreach(calls, i, call)
	{
		const json_t *function = function_of(call),
		             *arguments = json_object_get(function, "arguments");

		if (has_unknown_null(tools, function))
			return 1;
		if (tools || !has_null(arguments))
			continue;
		if (!*first)
			*first = function;
		else if (strcmp(name_of(*first), name_of(function)) &&
		         same_keys(json_object_get(*first, "arguments"), arguments))
			return 1;
	}
	return 0;
}

static int shows_arrow(const json_t *messages, const json_t *tools)
{
	const json_t *message, *first = NULL;
	size_t i;

	if (has_null_property(tools))
		return 1;
	json_array_foreach(messages, i,
	        message) if (calls_show(json_object_get(message, "tool_calls"), tools, &first)) return 1;
	return 0;
}

static void drop(json_t *value)
{
	const char *key;
	json_t *member;
	void *next;
	size_t i;

	json_array_foreach(value, i, member) drop(member);
	json_object_foreach_safe(value, next, key, member)
	{
		if (json_is_null(member))
			json_object_del(value, key);
		else
			drop(member);
	}
}

int chat_drop_nulls(const json_t *messages, json_t **tools)
{
	const json_t *message;
	json_t *copy;
	size_t i;

	if (!shows_arrow(messages, *tools))
		return 0;
	json_array_foreach(messages, i, message) drop(json_object_get(message, "tool_calls"));
	if (!*tools)
		return 1;
	copy = json_deep_copy(*tools);
	if (!copy)
		return err_set(ERR_NOMEM, "out of memory for a chat");
	drop(copy);
	json_decref(*tools);
	*tools = copy;
	return 1;
}
