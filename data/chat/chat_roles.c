/* Roles that a template leaves out, and roles that are misspelt. */
#include "data/chat/chat_roles.h"

#include "base/err.h"
#include "base/name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char blanks[] = " \t\r\n";

/* Roles that chats have in most templates; others are the template's own. */
static const char *const usual_roles[] = {"system", "user", "assistant"};
enum { USUAL_ROLES = sizeof(usual_roles) / sizeof(*usual_roles) };

static int is_usual(const char *role)
{
	for (int i = 0; i < USUAL_ROLES; i++)
		if (!strcmp(usual_roles[i], role))
			return 1;
	return 0;
}

/* 1 if the template names this role. */
static int is_named(const struct chat_template *t, const struct chat *chat, const char *role)
{
	const char *text = chat_template_text_for(t, chat);
	char quoted[68];

	if (!text || strlen(role) > 64)
		return 0;
	snprintf(quoted, sizeof(quoted), "'%s'", role);
	if (strstr(text, quoted))
		return 1;
	snprintf(quoted, sizeof(quoted), "\"%s\"", role);
	return strstr(text, quoted) != NULL;
}

/* The usual role that a misspelt one probably means; NULL if the role is not misspelt. */
static const char *role_meant(const struct chat_template *t, const struct chat *chat, const char *role)
{
	if (is_usual(role) || is_named(t, chat, role))
		return NULL;
	for (int i = 0; i < USUAL_ROLES; i++) {
		int distance = name_distance(role, usual_roles[i]);

		if (!distance || (strlen(role) > 3 && distance < 3))
			return usual_roles[i];
	}
	return NULL;
}

/* 1 if another content of the message gives the same text. Usual roles mostly need no second rendering: their
 * content is in the text as it is. */
static int is_left_out(const struct chat_template *t, const struct chat *chat,
        const struct jinja_output *full, int64_t i, const char *role)
{
	const json_t *message = json_array_get(chat->messages, (size_t)i);
	const char *content = json_string_value(json_object_get(message, "content"));
	struct jinja_output other = {0};
	struct chat changed = {0};
	size_t len;
	int rc, same;

	content = content ? content + strspn(content, blanks) : "";
	len = strlen(content);
	while (len && strchr(blanks, content[len - 1]))
		len--;
	if (!len || (is_usual(role) && memmem(full->text, full->len_bytes, content, len)))
		return 0;
	rc = chat_change(&changed, chat, i, CHAT_CHANGE_CONTENT);
	if (rc == 1)
		rc = chat_template_render(
		        t, &other, &changed, (int64_t)json_array_size(chat->messages), CHAT_PROMPT_OFF);
	same = !rc && other.len_bytes == full->len_bytes && !memcmp(other.text, full->text, full->len_bytes);
	jinja_output_free(&other);
	json_decref(changed.messages);
	return rc == ERR_NOMEM ? rc : same; /* a template that refuses the other content reads it */
}

int chat_roles_check(const struct chat_template *t, const struct chat *chat, const struct jinja_output *full)
{
	int64_t count = (int64_t)json_array_size(chat->messages);

	for (int64_t i = 0; i < count; i++) {
		const json_t *message = json_array_get(chat->messages, (size_t)i);
		const char *role = json_string_value(json_object_get(message, "role"));
		const char *meant = role_meant(t, chat, role);
		int found;

		if (meant)
			return err_set(ERR_INPUT, "messages[%" PRId64 "].role is \"%.40s\"; did you mean %s?",
			        i, role, meant);
		found = is_left_out(t, chat, full, i, role);
		if (found < 0)
			return found;
		if (found)
			return err_set(ERR_INPUT,
			        "the template %s leaves out messages[%" PRId64
			        "] with the role \"%.40s\"; rename the role, or choose another template with "
			        "chat_template",
			        chat_template_name(t), i, role);
	}
	return 0;
}
