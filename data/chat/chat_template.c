/* Finds a model's chat template and its variables, and renders chats. */
#include "data/chat/chat_template_parts.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/str.h"
#include "data/chat/chat_calls.h"
#include "data/tokenizer/tokenizer.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 64 << 20, TEMPLATE_BYTES_MAX = 1 << 20 };

const char *chat_template_name(const struct chat_template *t)
{
	return t->name;
}

int chat_template_is_none(const struct chat_template *t)
{
	return !t->plain && !t->why.code;
}

const char *chat_template_text(const struct chat_template *t)
{
	return t->with_tools ? NULL : t->text;
}

const char *chat_template_text_for(const struct chat_template *t, const struct chat *chat)
{
	return chat->tools && t->with_tools ? t->tools_text : t->text;
}

static int is_word_part(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

static int has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = text; at && (at = strstr(at, word)); at += len)
		if ((at == text || !is_word_part(at[-1])) && !is_word_part(at[len]))
			return 1;
	return 0;
}

int chat_template_lacks(const struct chat_template *t, const char *word)
{
	return t->text && *word && !has_word(t->text, word) && !has_word(t->tools_text, word);
}

void chat_template_texts(struct str *out, const struct chat_template *t)
{
	str_printf(out, "%s\n%s\n%s\n", t->name, t->text ? t->text : "", t->tools_text ? t->tools_text : "");
}

int chat_template_dates(struct str *out, const struct chat_template *t)
{
	int writes = t->plain && jinja_writes_date(out, t->plain, t->moment);

	return (t->with_tools && jinja_writes_date(out, t->with_tools, t->moment)) || writes;
}

/* ---- where templates are ---- */

/* Whether a template tests "content is none". Others print None for a null, or fail. */
static int tests_null(const char *text)
{
	static const char *const tests[] = {"is none", "is not none", "is None", "is not None", "== none",
	        "!= none", "== None", "!= None"};

	const char *begin = text;

	while ((text = strstr(text, "content"))) {
		int is_word = text == begin || !is_word_part(text[-1]);

		text += strlen("content");
		if (!is_word)
			continue;
		text += strspn(text, "'\"] ");
		for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++)
			if (!strncmp(text, tests[i], strlen(tests[i])))
				return 1;
	}
	return 0;
}

static int set(
        struct chat_template *t, struct jinja **slot, const char *name, const char *text, size_t len_bytes)
{
	int rc = jinja_parse(slot, name, text, len_bytes);
	char *copy = rc ? NULL : mem_strndup(text, len_bytes);

	if (rc || !copy)
		return rc ? rc : ERR_NOMEM;
	if (slot != &t->plain) {
		t->tools_text = copy;
		t->tools_test_null = tests_null(copy);
		return 0;
	}
	t->text = copy;
	t->plain_tests_null = tests_null(copy);
	mem_free(t->name);
	t->name = mem_strdup(name);
	return t->name ? 0 : ERR_NOMEM;
}

static int set_file(struct chat_template *t, struct jinja **slot, const char *path)
{
	char *text = NULL;
	size_t len_bytes = 0;
	int rc = file_read_all(path, TEMPLATE_BYTES_MAX, &text, &len_bytes);

	if (!rc)
		rc = set(t, slot, path, text, len_bytes);
	mem_free(text);
	return rc;
}

/* Takes the template DIR/NAME if the file exists. */
static int try_file(struct chat_template *t, struct jinja **slot, const char *dir, const char *name)
{
	char *path = file_join(dir, name);
	int rc = path ? 0 : ERR_NOMEM;

	if (path && !*slot && file_kind_of(path) == FILE_REGULAR)
		rc = set_file(t, slot, path);
	mem_free(path);
	return rc;
}

/* Takes chat_template of a JSON file: a text, or the entry called `name` of a list. */
static int try_config(
        struct chat_template *t, struct jinja **slot, const char *dir, const char *file, const char *name)
{
	char *path = file_join(dir, file), *label = NULL;
	json_t *config = NULL, *value, *item;
	size_t i;
	int rc = path ? 0 : ERR_NOMEM;

	if (!rc && !*slot && file_kind_of(path) == FILE_REGULAR)
		rc = json_read_file(&config, path, CONFIG_BYTES_MAX);
	value = json_object_get(config, "chat_template");
	json_array_foreach(value, i, item)
	{
		const char *own = json_string_value(json_object_get(item, "name"));

		if (own && !strcmp(own, name)) {
			value = json_object_get(item, "template");
			name = "default"; /* the entry matched: pass the test below */
			break;
		}
	}
	if (!rc && json_is_string(value) && !strcmp(name, "default")) {
		label = mem_printf("%s: chat_template", path);
		rc = label ? set(t, slot, label, json_string_value(value), json_string_length(value))
		           : ERR_NOMEM;
	}
	mem_free(label);
	json_decref(config);
	mem_free(path);
	return rc;
}

static const char named_dir[] = "additional_chat_templates", named_end[] = ".jinja";

/* Appends the names of templates in files of their own: " (rag, tool_use)". */
static void list_named(struct str *out, const char *dir)
{
	char *path = dir ? file_join(dir, named_dir) : NULL, **names = NULL;
	size_t count = 0, listed = 0;

	if (path && file_kind_of(path) == FILE_DIR && file_list_dir(path, &names, &count) == 0)
		for (size_t i = 0; i < count; i++)
			if (str_ends_with(names[i], named_end))
				str_printf(out, "%s%.*s", listed++ ? ", " : " (",
				        (int)(strlen(names[i]) - strlen(named_end)), names[i]);
	str_add(out, listed ? ")" : "");
	file_list_free(names, count);
	mem_free(path);
}

/* Takes the model's template called `name`; "default" is the one without a name. *slot stays NULL if the
 * model has none. */
static int try_model(struct chat_template *t, struct jinja **slot, const char *dir, const char *name)
{
	char *file = mem_printf("%s/%s%s", named_dir, name, named_end);
	int rc = file ? 0 : ERR_NOMEM;

	if (!rc && !strcmp(name, "default"))
		rc = try_file(t, slot, dir, "chat_template.jinja");
	if (!rc && !strchr(name, '/'))
		rc = try_file(t, slot, dir, file);
	if (!rc)
		rc = try_config(t, slot, dir, "tokenizer_config.json", name);
	if (!rc)
		rc = try_config(t, slot, dir, "chat_template.json", name);
	mem_free(file);
	return rc;
}

/* "; did you mean chatml?" where one name is near. */
static void add_nearest(struct str *out, const char *choice)
{
	for (int i = 0; jinja_builtin_name(i); i++)
		if (name_distance(choice, jinja_builtin_name(i)) <= name_near(choice)) {
			str_printf(out, "; did you mean %s?", jinja_builtin_name(i));
			return;
		}
}

static void list_names(struct str *out)
{
	for (int i = 0; jinja_builtin_name(i); i++) {
		str_add(out, i ? ", " : "");
		str_add(out, jinja_builtin_name(i));
	}
}

static int find_chosen(struct chat_template *t, const struct chat_template_options *o)
{
	const char *builtin = jinja_builtin(o->choice);
	struct str names = {0}, own = {0}, near = {0};
	int rc = o->dir ? try_model(t, &t->plain, o->dir, o->choice) : 0;

	if (rc || t->plain)
		return rc;
	if (file_kind_of(o->choice) == FILE_REGULAR)
		return set_file(t, &t->plain, o->choice);
	if (builtin)
		return set(t, &t->plain, o->choice, builtin, strlen(builtin));
	list_names(&names);
	list_named(&own, o->dir);
	add_nearest(&near, o->choice);
	rc = err_set(ERR_INPUT, "%s=%s is not a file, not a template of the model%s, and not one of %s%s",
	        o->where ? o->where : "chat_template", o->choice, own.data ? own.data : "",
	        names.data ? names.data : "",
	        near.data ? near.data : "; without the key, ferry uses the model's own template");
	str_free(&names);
	str_free(&near);
	str_free(&own);
	return rc;
}

static int find_own(struct chat_template *t, const struct chat_template_options *o)
{
	struct chat_template_options other = *o;
	int rc = o->dir ? try_model(t, &t->plain, o->dir, "default") : 0;

	if (!rc && o->dir)
		rc = try_model(t, &t->with_tools, o->dir, "tool_use");
	other.choice = o->fallback;
	return rc || t->plain || !o->fallback ? rc : find_chosen(t, &other);
}

/* ---- variables of the template ---- */

/* Adds the special tokens that a file beside the tokenizer names. */
static int read_special(json_t *variables, const char *dir, const char *file)
{
	static const char *const names[] = {
	        "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
	char *path = file_join(dir, file);
	json_t *config = NULL, *value;
	int rc = path ? 0 : ERR_NOMEM;

	if (!rc && file_kind_of(path) == FILE_REGULAR)
		rc = json_read_file(&config, path, CONFIG_BYTES_MAX);
	for (size_t i = 0; !rc && i < sizeof(names) / sizeof(names[0]); i++) {
		value = json_object_get(config, names[i]);
		if (json_is_object(value))
			value = json_object_get(value, "content");
		if (json_is_string(value) && !json_object_get(variables, names[i]))
			json_object_set(variables, names[i], value);
	}
	json_decref(config);
	mem_free(path);
	return rc;
}

/* For tokens that the files give only as an id: adds the token's text. */
static int name_role(json_t *variables, const struct tokenizer *tokenizer, const char *name, int32_t id)
{
	char *text = NULL;
	size_t len_bytes = 0;
	int rc = 0;

	if (id < 0 || json_object_get(variables, name))
		return 0;
	rc = tokenizer_decode(tokenizer, &text, &len_bytes, &id, 1, SKIP_SPECIAL_OFF);
	if (!rc && len_bytes)
		json_object_set_new(variables, name, json_stringn(text, len_bytes));
	mem_free(text);
	return rc;
}

static int set_variables(struct chat_template *t, const struct chat_template_options *o)
{
	int rc = 0;

	t->variables = json_object();
	if (!t->variables)
		return err_set(ERR_NOMEM, "out of memory for a chat template");
	if (o->dir)
		rc = read_special(t->variables, o->dir, "tokenizer_config.json");
	if (!rc && o->dir)
		rc = read_special(t->variables, o->dir, "special_tokens_map.json");
	if (!rc && o->tokenizer)
		rc = name_role(t->variables, o->tokenizer, "bos_token", tokenizer_roles(o->tokenizer)->bos);
	if (!rc && o->tokenizer)
		rc = name_role(t->variables, o->tokenizer, "eos_token", tokenizer_roles(o->tokenizer)->eos);
	if (!rc && o->kwargs && json_object_update(t->variables, (json_t *)(uintptr_t)o->kwargs))
		rc = err_set(ERR_NOMEM, "out of memory for a chat template");
	return rc;
}

static const struct jinja *template_for(const struct chat_template *t, const struct chat *chat)
{
	return chat->tools && t->with_tools ? t->with_tools : t->plain;
}

int chat_template_marks(const struct chat_template *t, const struct chat *chat)
{
	return t->plain && jinja_has_generation(template_for(t, chat));
}

static json_t *or_null(json_t *value)
{
	return value ? json_incref(value) : json_null();
}

enum calls { CALLS_PARSED, CALLS_AS_WRITTEN };

enum null_content { NULL_CONTENT_STAYS, NULL_CONTENT_OUT, NULL_CONTENT_EMPTY };

static int has_null_content(const json_t *message)
{
	return json_object_get(message, "tool_calls") && json_is_null(json_object_get(message, "content"));
}

/* Appends a message with its content in the form that the template takes: a null beside calls of tools
 * (OpenAI's form), and lists of parts. */
static int add_message(
        json_t *messages, json_t *message, enum null_content null, enum calls calls, unsigned roles)
{
	const char *role = json_string_value(json_object_get(message, "role"));
	json_t *copy, *parts = json_object_get(message, CHAT_PARTS);
	int rc = 0, has_calls = json_object_get(message, "tool_calls") != NULL;

	if (!has_calls && !parts)
		return json_array_append(messages, message);
	copy = has_calls && calls == CALLS_PARSED ? chat_parsed_calls(message) : json_copy(message);
	if (copy && parts && (roles & chat_template_role_bit(role)))
		rc = json_object_set(copy, "content", parts);
	if (copy && parts)
		rc |= json_object_del(copy, CHAT_PARTS);
	if (copy && null == NULL_CONTENT_OUT && has_null_content(copy))
		rc = json_object_del(copy, "content");
	if (copy && null == NULL_CONTENT_EMPTY && has_null_content(copy))
		rc = json_object_set_new(copy, "content", json_string(""));
	return json_array_append_new(messages, copy) | rc;
}

static int has_calls(const struct chat *chat, int64_t message_count)
{
	for (int64_t i = 0; i < message_count; i++)
		if (json_object_get(json_array_get(chat->messages, (size_t)i), "tool_calls"))
			return 1;
	return 0;
}

/* A template that does not test for a null content gets none, as in transformers. */
static enum null_content null_content_for(const struct chat_template *t, const struct chat *chat)
{
	int tests_null = template_for(t, chat) == t->plain ? t->plain_tests_null : t->tools_test_null;

	return tests_null ? NULL_CONTENT_STAYS : NULL_CONTENT_OUT;
}

static int render(const struct chat_template *t, struct jinja_output *out, const struct chat *chat,
        int64_t message_count, enum chat_prompt prompt, enum calls calls, enum null_content null)
{
	const struct jinja *template = template_for(t, chat);
	unsigned roles = template == t->plain ? t->plain_parts : t->tools_parts;
	int rc = 0;
	json_t *variables = json_copy(t->variables), *messages = json_array();

	for (int64_t i = 0; i < message_count; i++)
		rc |= add_message(messages, json_array_get(chat->messages, (size_t)i), null, calls, roles);
	if (chat->kwargs)
		rc |= json_object_update(variables, chat->kwargs);
	rc |= json_object_set_new(variables, "messages", messages);
	rc |= json_object_set_new(variables, "tools", or_null(chat->tools));
	rc |= json_object_set_new(variables, "documents", or_null(chat->documents));
	rc |= json_object_set_new(variables, "add_generation_prompt", json_boolean(prompt == CHAT_PROMPT_ON));
	rc = rc ? err_set(ERR_NOMEM, "out of memory for a chat template")
	        : jinja_render(template, out, variables, t->moment);
	json_decref(variables);
	return rc;
}

/* Names a null content if the template fails on it alone. `why` is the failure. */
static int explain_null(const struct chat_template *t, const struct chat *chat, int64_t message_count,
        enum chat_prompt prompt, struct err *why)
{
	struct jinja_output out = {0};
	int64_t i = 0;
	int rc;

	while (i < message_count && !has_null_content(json_array_get(chat->messages, (size_t)i)))
		i++;
	rc = i < message_count
	             ? render(t, &out, chat, message_count, prompt, CALLS_PARSED, NULL_CONTENT_EMPTY)
	             : ERR_INPUT;
	jinja_output_free(&out);
	if (rc)
		return err_give(why);
	return err_set(ERR_INPUT,
	        "messages[%" PRId64
	        "].content is null, which the chat template does not take (%s); write \"\" there",
	        i, why->text);
}

int chat_template_render(const struct chat_template *t, struct jinja_output *out, const struct chat *chat,
        int64_t message_count, enum chat_prompt prompt)
{
	enum null_content null = null_content_for(t, chat);
	struct str names = {0};
	struct err why = {0};
	int rc;

	*out = (struct jinja_output){0};
	if (t->why.code)
		return err_give(&t->why);
	if (!t->plain) {
		list_names(&names);
		rc = err_set(ERR_INPUT,
		        "the model has no chat template; set chat_template to one of %s, or a file",
		        names.data ? names.data : "");
		str_free(&names);
		return rc;
	}
	rc = render(t, out, chat, message_count, prompt, CALLS_PARSED, null);
	if (rc != ERR_INPUT || !has_calls(chat, message_count))
		return rc;
	err_take(&why, rc);
	rc = render(t, out, chat, message_count, prompt, CALLS_AS_WRITTEN,
	        null); /* as DeepSeek's template takes them */
	return rc == ERR_INPUT ? explain_null(t, chat, message_count, prompt, &why) : rc;
}

/* ---- open and close ---- */

int chat_template_open(struct chat_template **out, const struct chat_template_options *o)
{
	struct chat_template *t = mem_alloc(1, sizeof(*t));
	int rc;

	*out = NULL;
	if (!t)
		return ERR_NOMEM;
	t->moment = o->moment;
	t->pause = -1;
	t->name = mem_strdup("no template");
	rc = t->name ? 0 : ERR_NOMEM;
	if (!rc)
		rc = o->choice ? find_chosen(t, o) : find_own(t, o);
	if (!rc)
		rc = set_variables(t, o);
	if (!rc && t->plain)
		rc = chat_template_find_parts(t);
	if (!rc && t->plain && o->tokenizer)
		rc = chat_template_find_ends(t, o);
	if (rc == ERR_INPUT && !o->choice) { /* only chats need a template: report it when one is rendered */
		err_take(&t->why, rc);
		rc = 0;
	}
	if (rc) {
		chat_template_close(t);
		return rc;
	}
	*out = t;
	return 0;
}

void chat_template_close(struct chat_template *t)
{
	if (!t)
		return;
	jinja_free(t->plain);
	jinja_free(t->with_tools);
	json_decref(t->variables);
	mem_free(t->name);
	mem_free(t->text);
	mem_free(t->tools_text);
	mem_free(t->tail);
	mem_free(t->prompt);
	mem_free(t);
}
