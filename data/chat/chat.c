/* Converts records to chats. */
#include "data/chat/chat.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/chat/chat_calls.h"
#include "data/chat/chat_nulls.h"

#include <inttypes.h>
#include <string.h>

static int append(struct chat *chat, json_t *message, enum chat_train train)
{
	int64_t count = chat->messages ? (int64_t)json_array_size(chat->messages) : 0;

	if (!chat->messages)
		chat->messages = json_array();
	if (count == chat->train_cap) {
		int64_t cap = count * 2 + 8;
		enum chat_train *grown = mem_resize(chat->train, (size_t)cap, sizeof(*grown));

		if (!grown) {
			json_decref(message);
			return ERR_NOMEM;
		}
		chat->train = grown;
		chat->train_cap = cap;
	}
	chat->train[count] = train;
	if (!chat->messages || json_array_append_new(chat->messages, message))
		return err_set(ERR_NOMEM, "out of memory for a chat");
	return 0;
}

/* ---- names ---- */

static const struct row_names *names_of(const struct chat *chat)
{
	static const struct row_names usual;

	return chat->names ? chat->names : &usual;
}

static const json_t *field_of(
        const struct chat *chat, const json_t *message, enum row_field field, const char **key)
{
	const json_t *value = row_field(names_of(chat), message, field, key);

	if (value && chat->seen)
		*chat->seen |= 1u << field;
	return value;
}

static int no_field(const struct chat *chat, const json_t *message, enum row_field field, const char *where,
        const char *list, size_t i)
{
	const char *names = row_field_names(names_of(chat), field);
	char columns[ROW_COLUMNS_BYTES];

	row_columns(columns, message);
	return err_set(ERR_INPUT,
	        "%s: %s[%zu] has no text under \"%.*s\"; it has %s; set %s to the key that holds it", where,
	        list, i, (int)strcspn(names, ","), names, columns, row_field_key(field));
}

/* ---- content ---- */

/* The text of one content part; NULL if it has none. */
static const json_t *part_text(const json_t *part)
{
	const char *type = json_string_value(json_object_get(part, "type"));
	const json_t *text = json_object_get(part, "text");

	if (json_is_string(part))
		return part;
	if (type && strcmp(type, "text") && strcmp(type, "input_text") && strcmp(type, "output_text"))
		return NULL;
	if (!json_is_string(text))
		text = json_object_get(part, "value");
	return json_is_string(text) ? text : NULL;
}

/* Joins content parts into one text. */
static int join_parts(json_t **out, const json_t *parts, const char *where, size_t message)
{
	struct str joined = {0};
	const json_t *part, *text;
	size_t i;
	int rc;

	json_array_foreach(parts, i, part)
	{
		text = part_text(part);
		if (!text) {
			const char *type = json_string_value(json_object_get(part, "type"));

			str_free(&joined);
			return err_set(ERR_UNSUPPORTED,
			        "%s: messages[%zu].content[%zu] is %s%s; only text is supported", where,
			        message, i, type ? "of type " : "no text", type ? type : "");
		}
		str_add_bytes(&joined, json_string_value(text), json_string_length(text));
	}
	rc = str_check(&joined);
	*out = rc ? NULL : json_stringn(joined.data ? joined.data : "", joined.len_bytes);
	str_free(&joined);
	return *out ? 0 : err_set(ERR_NOMEM, "out of memory for a chat");
}

/* Keeps the parts themselves, if templates can read them: objects of the usual form. */
static int keep_parts(json_t *message, const json_t *parts)
{
	const json_t *part;
	size_t i;

	json_array_foreach(parts, i, part)
	{
		const char *type = json_string_value(json_object_get(part, "type"));

		if (!type || strcmp(type, "text") || !json_is_string(json_object_get(part, "text")))
			return 0;
	}
	return json_object_set_new(message, CHAT_PARTS, json_deep_copy(parts))
	               ? err_set(ERR_NOMEM, "out of memory for a chat")
	               : 0;
}

/* ---- messages ---- */

/* Reads a training flag: 0 or 1, as a number or a boolean. */
static int read_flag(
        enum chat_train *train, const char *key, const json_t *value, const char *where, size_t message)
{
	double number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);

	if (json_is_null(value))
		return 0;
	if ((!json_is_number(value) && !json_is_boolean(value)) || (number != 0 && number != 1))
		return err_set(ERR_UNSUPPORTED,
		        "%s: messages[%zu].%s must be 0 or 1; fractional weights are not supported", where,
		        message, key);
	*train = number != 0 ? CHAT_TRAIN_YES : CHAT_TRAIN_NO;
	return 0;
}

static int is_flag(const char *key)
{
	static const char *const flags[] = {"weight", "train", "training", "loss_weight"};

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (!strcmp(flags[i], key))
			return 1;
	return 0;
}

const char *const chat_thought_names[] = {"reasoning_content", "thinking", "reasoning", NULL};

int chat_is_thought(const char *key)
{
	for (int i = 0; chat_thought_names[i]; i++)
		if (!strcmp(key, chat_thought_names[i]))
			return 1;
	return 0;
}

/* Data sets have three keys for reasoning, and templates read two of them. Sets these two to the first
 * that the message has; an existing "thinking" stays. */
static int alias_reasoning(json_t *message)
{
	json_t *found = NULL;
	int rc = 0;

	for (int i = 0; !found && chat_thought_names[i]; i++)
		found = json_object_get(message, chat_thought_names[i]);
	if (!found)
		return 0;
	if (!json_object_get(message, "thinking"))
		rc = json_object_set(message, "thinking", found);
	if (!rc)
		rc = json_object_set(message, "reasoning_content", found);
	return rc ? err_set(ERR_NOMEM, "out of memory for a chat") : 0;
}

/* Copies one key of a message into `out`. */
static int copy_key(json_t *out, enum chat_train *train, const char *key, const json_t *value,
        const char *where, size_t message)
{
	json_t *copy = NULL;
	int rc = 0;

	if (is_flag(key))
		return read_flag(train, key, value, where, message);
	if (json_is_null(value) && strcmp(key, "content"))
		return 0;
	if (!strcmp(key, "content") && json_is_array(value))
		rc = join_parts(&copy, value, where, message);
	else if (!strcmp(key, "tool_calls"))
		rc = chat_copy_calls(&copy, value, where, message);
	else
		copy = json_deep_copy(value);
	if (!rc && json_object_set_new(out, key, copy))
		return err_set(ERR_NOMEM, "out of memory for a chat");
	if (!rc && !strcmp(key, "content") && json_is_array(value))
		return keep_parts(out, value);
	if (rc)
		json_decref(copy);
	return rc;
}

/* Roles that the templates of some models know, although they are in no list of usual names. */
static int is_rare_role(const char *role)
{
	static const char *const known[] = {"developer", "environment", "context", "documents", "tools"};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(role, known[i]))
			return 1;
	return 0;
}

/* The role as templates know it. Names of the user and the assistant are mapped. Other roles stay as they
 * are, because some templates have parts for them (developer, ipython), unless the user maps them. */
static const char *message_role(const struct chat *chat, const char *role)
{
	enum row_role found = row_role_of(names_of(chat), role);

	if (found == ROW_ROLE_USER || found == ROW_ROLE_ASSISTANT || row_role_is_set(names_of(chat), role))
		return row_role_name(found);
	return role;
}

static int add_message(struct chat *chat, const json_t *message, const char *where, size_t i)
{
	enum chat_train train = CHAT_TRAIN_UNSAID;
	const char *key, *role_key = NULL, *content_key = "content";
	const json_t *value, *content, *role = field_of(chat, message, ROW_FIELD_ROLE, &role_key);
	json_t *out, *object;
	int rc = 0;

	if (!json_is_map(message))
		return err_set(ERR_INPUT,
		        "%s: messages[%zu] is %s; expected an object with \"role\" and \"content\"", where, i,
		        json_kind_name(message));
	if (!json_is_string(role))
		return no_field(chat, message, ROW_FIELD_ROLE, where, "messages", i);
	(void)field_of(chat, message, ROW_FIELD_CONTENT, &content_key);
	out = json_object();
	if (!out)
		return err_set(ERR_NOMEM, "out of memory for a chat");
	memcpy(&object, &message, sizeof(object));
	json_object_foreach(object, key, value)
	{
		if (strcmp(key, role_key) != 0)
			rc = copy_key(
			        out, &train, strcmp(key, content_key) ? key : "content", value, where, i);
		if (rc)
			break;
	}
	if (!rc && json_object_set_new(out, "role", json_string(message_role(chat, json_string_value(role)))))
		rc = err_set(ERR_NOMEM, "out of memory for a chat");
	content = json_object_get(out, "content");
	if (!rc && !json_object_get(out, "tool_calls") && !content)
		rc = no_field(chat, message, ROW_FIELD_CONTENT, where, "messages", i);
	if (!rc && !json_object_get(out, "tool_calls") && !json_is_string(content) && !json_is_map(content))
		rc = err_set(ERR_INPUT,
		        "%s: messages[%zu].%s is %s; expected a text, or a list of text parts", where, i,
		        content_key, json_kind_name(content));
	role = json_object_get(out, "role");
	if (!rc && row_role_of(names_of(chat), json_string_value(role)) == ROW_ROLE_COUNT &&
	        !is_rare_role(json_string_value(role)))
		chat->other_role = json_string_value(role);
	if (!rc)
		rc = alias_reasoning(out);
	if (!rc)
		return append(chat, out, train);
	json_decref(out);
	return rc;
}

/* Calls `add` for each message of a list. */
static int add_list(struct chat *chat, const json_t *list, const char *name, const char *where,
        int (*add)(struct chat *chat, const json_t *message, const char *where, size_t i))
{
	const json_t *message;
	size_t i;
	int rc = 0;

	if (!json_is_array(list))
		return err_set(ERR_INPUT, "%s: %s is %s; expected a list", where, name, json_kind_name(list));
	json_array_foreach(list, i, message)
	{
		rc = add(chat, message, where, i);
		if (rc)
			return rc;
	}
	return 0;
}

int chat_add_messages(struct chat *chat, const json_t *messages, const char *where)
{
	return add_list(chat, messages, "messages", where, add_message);
}

/* ---- ShareGPT ---- */

/* Turns a call, or a list of calls, as JSON in a text, into an assistant message with tool_calls. */
static int call_message(json_t **out, const json_t *value, const char *where, size_t turn)
{
	json_t *calls = NULL, *list, *call;
	size_t i;
	int rc = json_parse_exact(&calls, "value", json_string_value(value), json_string_length(value), 1);

	if (rc || (!json_is_map(calls) && !json_is_array(calls))) {
		json_decref(calls);
		return err_set(ERR_INPUT,
		        "%s: conversations[%zu].value of a function_call must be JSON with name and "
		        "arguments",
		        where, turn);
	}
	list = json_array();
	if (json_is_object(calls)) {
		json_array_append_new(list, json_pack("{s:s, s:O}", "type", "function", "function", calls));
	} else {
		json_array_foreach(calls, i, call) json_array_append_new(
		        list, json_pack("{s:s, s:O}", "type", "function", "function", call));
	}
	json_decref(calls);
	*out = json_pack("{s:s, s:s, s:o}", "role", "assistant", "content", "", "tool_calls", list);
	return *out ? 0 : err_set(ERR_NOMEM, "out of memory for a chat");
}

static int no_role(const char *key, const char *from, const char *where, size_t i)
{
	return err_set(ERR_INPUT,
	        "%s: conversations[%zu].%s is '%.40s', an unknown role; map it with role_user=, "
	        "role_assistant=, role_system=, role_tool= or role_tool_call=, as in role_user=%.40s",
	        where, i, key, from, from);
}

static int add_turn(struct chat *chat, const json_t *turn, const char *where, size_t i)
{
	const char *from_key = NULL, *value_key = NULL, *key;
	const json_t *from = field_of(chat, turn, ROW_FIELD_ROLE, &from_key), *other;
	const json_t *value = field_of(chat, turn, ROW_FIELD_CONTENT, &value_key);
	enum chat_train train = CHAT_TRAIN_UNSAID;
	enum row_role role;
	json_t *message = NULL, *object;
	int rc = 0;

	if (from_key && !strcmp(from_key, "role"))
		return add_message(chat, turn, where, i);
	if (!json_is_string(from))
		return no_field(chat, turn, ROW_FIELD_ROLE, where, "conversations", i);
	if (!json_is_string(value))
		return no_field(chat, turn, ROW_FIELD_CONTENT, where, "conversations", i);
	role = row_role_of(names_of(chat), json_string_value(from));
	if (role == ROW_ROLE_COUNT)
		return no_role(from_key, json_string_value(from), where, i);
	if (role == ROW_ROLE_TOOL_CALL)
		rc = call_message(&message, value, where, i);
	else
		message = json_pack("{s:s, s:O}", "role", row_role_name(role), "content", value);
	if (!rc && !message)
		rc = err_set(ERR_NOMEM, "out of memory for a chat");
	memcpy(&object, &turn, sizeof(object));
	json_object_foreach(object, key, other) if (!rc && strcmp(key, from_key) && strcmp(key, value_key))
	        rc = copy_key(message, &train, key, other, where, i);
	if (!rc)
		rc = alias_reasoning(message);
	if (!rc)
		return append(chat, message, train);
	json_decref(message);
	return rc;
}

int chat_add_turns(struct chat *chat, const json_t *turns, const char *where)
{
	return add_list(chat, turns, "conversations", where, add_turn);
}

int chat_add_text(struct chat *chat, const char *role, const json_t *text, const char *where)
{
	json_t *message;

	if (!json_is_string(text))
		return err_set(ERR_INPUT, "%s: the text of the %s is %s", where, role, json_kind_name(text));
	message = json_pack("{s:s, s:O}", "role", role, "content", text);
	return message ? append(chat, message, CHAT_TRAIN_UNSAID)
	               : err_set(ERR_NOMEM, "out of memory for a chat");
}

/* ---- beside the messages ---- */

/* Takes a value, or parses it if it is JSON in a text. Absent, null and "" give NULL. */
static int value_or_json(json_t **out, json_t *value, const char *key, const char *where)
{
	if (!value || json_is_null(value) || (json_is_string(value) && !json_string_length(value)))
		return 0;
	if (!json_is_string(value)) {
		*out = json_incref(value);
		return 0;
	}
	if (json_parse_exact(out, key, json_string_value(value), json_string_length(value), 1))
		return err_set(ERR_INPUT, "%s: \"%s\" is not valid JSON", where, key);
	return 0;
}

/* Puts OpenAI's frame around bare functions. */
static int wrap_tools(json_t **tools, const char *where)
{
	json_t *out = json_array(), *tool;
	size_t i;
	int rc = 0;

	if (!out)
		return err_set(ERR_NOMEM, "out of memory for a chat");
	json_array_foreach(*tools, i, tool)
	{
		if (!json_is_map(tool)) {
			rc = err_set(ERR_INPUT, "%s: tools[%zu] is %s; expected an object", where, i,
			        json_kind_name(tool));
			break;
		}
		if (json_object_get(tool, "function") || json_object_get(tool, "type"))
			json_array_append(out, tool);
		else
			json_array_append_new(
			        out, json_pack("{s:s, s:O}", "type", "function", "function", tool));
	}
	json_decref(*tools);
	*tools = out;
	return rc;
}

int chat_add_extras(struct chat *chat, const json_t *record, const char *where)
{
	const char *key = "tools";
	const json_t *found = field_of(chat, record, ROW_FIELD_TOOLS, &key);
	json_t *tools;
	int rc;

	memcpy(&tools, &found, sizeof(tools)); /* a reference is taken */
	rc = value_or_json(&chat->tools, tools, key, where);

	if (!rc && chat->tools && !json_is_array(chat->tools))
		rc = err_set(ERR_INPUT, "%s: \"tools\" is %s; expected a list", where,
		        json_kind_name(chat->tools));
	if (!rc && chat->tools)
		rc = wrap_tools(&chat->tools, where);
	if (!rc && chat->tools && json_array_size(chat->tools) == 0) {
		json_decref(chat->tools);
		chat->tools = NULL;
	}
	if (!rc)
		rc = value_or_json(
		        &chat->documents, json_object_get(record, "documents"), "documents", where);
	if (!rc)
		rc = value_or_json(&chat->kwargs, json_object_get(record, "chat_template_kwargs"),
		        "chat_template_kwargs", where);
	if (!rc && chat->kwargs && !json_is_map(chat->kwargs))
		rc = err_set(ERR_INPUT, "%s: \"chat_template_kwargs\" is %s; expected an object", where,
		        json_kind_name(chat->kwargs));
	if (!rc)
		rc = chat->has_dropped_nulls = chat_drop_nulls(chat->messages, &chat->tools);
	return rc < 0 ? rc : 0;
}

int chat_is_assistant(const json_t *message)
{
	const char *role = json_string_value(json_object_get(message, "role"));

	return role && (!strcmp(role, "assistant") || !strcmp(role, "model"));
}

void chat_free(struct chat *chat)
{
	json_decref(chat->messages);
	json_decref(chat->tools);
	json_decref(chat->documents);
	json_decref(chat->kwargs);
	mem_free(chat->train);
	*chat = (struct chat){0};
}
