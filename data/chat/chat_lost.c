/* Finds what of a chat its template does not write. */
#include "data/chat/chat_lost.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "data/chat/chat_calls.h"

#include <inttypes.h>
#include <string.h>

static const char blanks[] = " \t\r\n";

static int64_t message_count(const struct chat *chat)
{
	return (int64_t)json_array_size(chat->messages);
}

/* 1 if the template writes `bare`, which is the chat without a part, as `full`. A template that refuses it
 * reads that part. */
static int writes_same(
        const struct chat_template *t, const struct chat *bare, const struct jinja_output *full)
{
	struct jinja_output without = {0};
	int rc = chat_template_render(t, &without, bare, message_count(bare), CHAT_PROMPT_OFF);
	int same = !rc && without.len_bytes == full->len_bytes &&
	           !memcmp(without.text, full->text, full->len_bytes);

	jinja_output_free(&without);
	return rc == ERR_NOMEM ? rc : same;
}

/* ---- beside the messages ---- */

const char *chat_function_name(const json_t *tool)
{
	const json_t *function = json_object_get(tool, "function");

	return json_string_value(json_object_get(function ? function : tool, "name"));
}

static int refuse(const struct chat_template *t, const char *part)
{
	return err_set(ERR_INPUT,
	        "the template %s does not write the row's %s; choose another template with chat_template, "
	        "or leave %s out",
	        chat_template_name(t), part, part);
}

int chat_lost_check(const struct chat_template *t, const struct chat *chat, const struct jinja_output *full)
{
	const char *name = chat_function_name(json_array_get(chat->tools, 0));
	struct chat bare = *chat;
	int lost = chat->tools && name && !strstr(full->text, name);

	/* the name may stand in the chat by chance: without tools the text must be another */
	bare.tools = NULL;
	if (chat->tools && !lost)
		lost = writes_same(t, &bare, full);
	if (lost)
		return lost < 0 ? lost : refuse(t, "tools");
	bare = *chat;
	bare.documents = NULL;
	if (chat->documents && json_array_size(chat->documents))
		lost = writes_same(t, &bare, full);
	return lost <= 0 ? lost : refuse(t, "documents");
}

/* ---- fields of messages ---- */

/* Keys whose loss is no loss: checked elsewhere, or links between calls and their results, whose order says
 * the same. */
static int is_plain(const json_t *message, const char *key)
{
	const char *role = json_string_value(json_object_get(message, "role"));

	return !strcmp(key, "role") || !strcmp(key, "content") || !strcmp(key, CHAT_PARTS) ||
	       !strcmp(key, "tool_call_id") || (!strcmp(key, "name") && !strcmp(role, "tool"));
}

static int is_empty(const json_t *value)
{
	const char *text = json_string_value(value);

	return json_is_null(value) || (text && !text[strspn(text, blanks)]) ||
	       (json_is_array(value) && !json_array_size(value)) ||
	       (json_is_object(value) && !json_object_size(value));
}

/* A long text that stands in the whole one as it is. */
static int is_in_text(const json_t *value, const struct jinja_output *full)
{
	enum { BY_CHANCE_BYTES = 16 };
	const char *text = json_string_value(value);
	size_t len;

	if (!text)
		return 0;
	text += strspn(text, blanks);
	len = strlen(text);
	while (len && strchr(blanks, text[len - 1]))
		len--;
	return len >= BY_CHANCE_BYTES && memmem(full->text, full->len_bytes, text, len);
}

/* 1 if the text does not change without this field of message i, and without its other names. */
static int is_lost(const struct chat_template *t, const struct chat *chat, int64_t i, const char *key,
        const struct jinja_output *full)
{
	struct chat bare = *chat;
	json_t *message = json_copy(json_array_get(chat->messages, (size_t)i));
	int rc = message ? json_object_del(message, key) : -1;

	for (int k = 0; chat_is_thought(key) && chat_thought_names[k]; k++)
		(void)json_object_del(message, chat_thought_names[k]);
	bare.messages = json_copy(chat->messages);
	if (rc || !bare.messages || json_array_set(bare.messages, (size_t)i, message))
		rc = err_set(ERR_NOMEM, "out of memory for a chat");
	if (!rc)
		rc = writes_same(t, &bare, full);
	json_decref(bare.messages);
	json_decref(message);
	return rc;
}

static int knows_thoughts(const struct chat_template *t)
{
	for (int k = 0; chat_thought_names[k]; k++)
		if (!chat_template_lacks(t, chat_thought_names[k]))
			return 1;
	return 0;
}

/* Whether a name is new to the warnings; it is not from now on. ERR_NOMEM. */
static int is_new(struct chat_warned *warned, const char *name)
{
	enum { NAMES_MAX = 16 }; /* columns of others may differ from row to row */

	if (json_object_get(warned->names, name) || json_object_size(warned->names) == NAMES_MAX)
		return 0;
	if (!warned->names)
		warned->names = json_object();
	if (!warned->names || json_object_set_new(warned->names, name, json_true()))
		return err_set(ERR_NOMEM, "out of memory for a chat");
	return 1;
}

static int warn_field(struct chat_warned *warned, const struct chat_template *t, const char *field,
        const char *where, int64_t message)
{
	int rc = is_new(warned, field);

	if (rc == 1)
		log_warn("%s: messages[%" PRId64
		         "].%s is lost: the template %s does not write it; choose another template with "
		         "chat_template, or remove the field",
		        where, message, field, chat_template_name(t));
	return rc < 0 ? rc : 0;
}

struct lost_search {
	struct chat_warned *warned;
	const struct chat_template *t;
	const struct chat *chat;
	const char *where;
	struct jinja_output full;
	int64_t trained;
	int knows_thoughts;
};

static int warn_message(struct lost_search *s, int64_t i)
{
	json_t *message = json_array_get(s->chat->messages, (size_t)i);
	int is_trained = i >= s->trained && chat_is_assistant(message) && s->chat->train[i] != CHAT_TRAIN_NO;
	int is_thought_seen = 0;
	const char *key;
	const json_t *value;

	json_object_foreach(message, key, value)
	{
		int rc = 0;

		if (chat_is_thought(key) && is_thought_seen++)
			continue; /* the first is the user's word, others are copies */
		if (is_plain(message, key) || is_empty(value) || json_object_get(s->warned->names, key) ||
		        (chat_is_thought(key) && s->knows_thoughts && !is_trained))
			continue;
		if (!s->full.text)
			rc = chat_template_render(
			        s->t, &s->full, s->chat, message_count(s->chat), CHAT_PROMPT_OFF);
		if (!rc && !is_in_text(value, &s->full))
			rc = is_lost(s->t, s->chat, i, key, &s->full);
		if (rc == 1)
			rc = warn_field(s->warned, s->t, key, s->where, i);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- all of it ---- */

static void warn_broken_call(struct chat_warned *warned, const struct chat *chat, const char *where)
{
	int64_t message, call;

	if (warned->is_call_told || !chat_find_broken_call(chat->messages, &message, &call))
		return;
	warned->is_call_told = 1;
	log_warn("%s: messages[%" PRId64 "].tool_calls[%" PRId64
	         "].arguments is not a JSON object; the chat template gets it as it is, and may write it in "
	         "quotes; write {} for a call without arguments",
	        where, message, call);
}

static int warn_variables(
        struct chat_warned *warned, const struct chat_template *t, const struct chat *chat, const char *where)
{
	const char *name;
	const json_t *value;
	int rc = 0;

	json_object_foreach(chat->kwargs, name, value)
	{
		if (json_is_null(value) || !chat_template_lacks(t, name))
			continue;
		rc = is_new(warned, name);
		if (rc == 1)
			log_warn("%s: chat_template_kwargs: %s has no effect: the template %s does not use "
			         "it",
			        where, name, chat_template_name(t));
		if (rc < 0)
			return rc;
	}
	return 0;
}

int chat_lost_warn(struct chat_warned *warned, const struct chat_template *t, const struct chat *chat,
        int64_t trained, const char *where)
{
	struct lost_search s = {.warned = warned,
	        .t = t,
	        .chat = chat,
	        .where = where,
	        .trained = trained,
	        .knows_thoughts = knows_thoughts(t)};
	int rc = warn_variables(warned, t, chat, where);

	warn_broken_call(warned, chat, where);
	for (int64_t i = 0; !rc && i < message_count(chat); i++)
		rc = warn_message(&s, i);
	jinja_output_free(&s.full);
	return rc;
}

void chat_warned_free(struct chat_warned *warned)
{
	json_decref(warned->names);
	*warned = (struct chat_warned){0};
}
