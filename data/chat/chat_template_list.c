/* Finds which messages of a template may have a list of parts as their content. */
#include "data/chat/chat_template_parts.h"

#include <string.h>

static const char *const roles[] = {"system", "user", "assistant", "tool"};
static const char *const parts[] = {"zqpartoneqz", "zqparttwoqz"};

unsigned chat_template_role_bit(const char *role)
{
	for (unsigned i = 0; i < sizeof(roles) / sizeof(*roles); i++)
		if (!strcmp(role, roles[i]))
			return 1u << i;
	return 0;
}

/* A chat up to a message with parts, and what must follow a system message. */
static json_t *chat_with(const char *role)
{
	json_t *messages = json_array();
	int is_tool = !strcmp(role, "tool"), is_system = !strcmp(role, "system");

	if (!is_system)
		json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", "a"));
	if (is_tool)
		json_array_append_new(
		        messages, json_pack("{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:{s:s}}}]}", "role", "assistant",
		                          "content", "", "tool_calls", "type", "function", "id", "zqcallqzz",
		                          "function", "name", "f", "arguments", "a", "b"));
	if (!strcmp(role, "user"))
		json_array_clear(messages);
	json_array_append_new(
	        messages, json_pack("{s:s,s:s,s:s,s:[{s:s,s:s},{s:s,s:s}]}", "role", role, "content", "c",
	                          "tool_call_id", "zqcallqzz", CHAT_PARTS, "type", "text", "text", parts[0],
	                          "type", "text", "text", parts[1]));
	if (is_system)
		json_array_append_new(messages, json_pack("{s:s,s:s}", "role", "user", "content", "a"));
	return messages;
}

/* The word stands in the text, and not in quotes as of a list that is printed. */
static int is_written(const char *text, const char *word)
{
	const char *at = strstr(text, word);

	return at && (at == text || !strchr("'\"", at[-1]));
}

static int find(unsigned *found, const struct chat_template *t, json_t *tools)
{
	unsigned bits = *found;

	for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++) {
		struct chat chat = {.messages = chat_with(roles[i]), .tools = tools};
		struct jinja_output out = {0};
		int rc = chat_template_render(
		        t, &out, &chat, (int64_t)json_array_size(chat.messages), CHAT_PROMPT_OFF);

		if (rc || !is_written(out.text, parts[0]) || !is_written(out.text, parts[1]))
			bits &= ~(1u << i);
		jinja_output_free(&out);
		json_decref(chat.messages);
		if (rc && rc != ERR_INPUT)
			return rc;
	}
	*found = bits;
	return 0;
}

int chat_template_find_parts(struct chat_template *t)
{
	json_t *tools = json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{}}}}]", "type", "function", "function", "name",
	        "f", "description", "d", "parameters", "type", "object", "properties");
	int rc = tools ? 0 : err_set(ERR_NOMEM, "out of memory for a chat template");

	t->plain_parts = t->tools_parts = ~0u;
	if (!rc)
		rc = find(&t->plain_parts, t, NULL);
	if (!rc && t->with_tools)
		rc = find(&t->tools_parts, t, tools);
	json_decref(tools);
	return rc;
}
