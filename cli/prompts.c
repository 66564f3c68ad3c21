/* Reads the prompts of generate. */
#include "cli/prompts.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/chat/chat_roles.h"
#include "data/source/bytes.h"
#include "data/source/records.h"
#include "data/source/window.h"
#include "train/inputs/data_config.h"
#include "train/sample.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int add(struct prompts *p, struct token_list *ids)
{
	int64_t vocab = p->session->model->config.V;

	if (!ids->count)
		return err_set(ERR_INPUT, "the prompt is empty: nothing to continue");
	for (int64_t i = 0; i < ids->count; i++)
		if (ids->ids[i] >= vocab)
			return tokenizer_refuse_id(p->session->tokenizer, ids->ids[i], vocab);
	if (p->count == p->cap) {
		int64_t cap = p->cap * 2 + 4;
		struct prompt *grown = mem_resize(p->list, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		p->list = grown;
		p->cap = cap;
	}
	p->list[p->count++] = (struct prompt){.ids = *ids};
	*ids = (struct token_list){0};
	return 0;
}

/* ---- ids ---- */

/* "1,2,3", "[1, 2, 3]" or "1 2 3". */
static int ids_parse(struct token_list *ids, const char *text, int64_t vocab)
{
	const char *p = text;

	while (*p) {
		char *end;
		long id;

		p += strspn(p, " ,[]\t\n");
		if (!*p)
			break;
		errno = 0;
		id = strtol(p, &end, 10);
		if (end == p)
			return err_set(ERR_INPUT, "prompt_ids: \"%.20s\" is not a list of ids like 1,2,3", p);
		if (errno || id < 0 || id >= vocab)
			return err_set(ERR_INPUT, "prompt_ids: id %.*s is outside the vocabulary of %" PRId64,
			        (int)(end - p), p, vocab);
		if (token_list_add(ids, (int32_t)id))
			return ERR_NOMEM;
		p = end;
	}
	return 0;
}

static int add_ids(struct prompts *p, const json_t *list)
{
	struct token_list ids = {0};
	const json_t *item;
	size_t i;
	int rc = 0;

	json_array_foreach(list, i, item)
	{
		json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;

		if (id < 0 || id >= p->session->model->config.V)
			rc = err_set(ERR_INPUT, "input_ids[%zu] is not in the model's vocabulary", i);
		if (!rc)
			rc = token_list_add(&ids, (int32_t)id);
		if (rc)
			break;
	}
	if (!rc)
		rc = add(p, &ids);
	token_list_free(&ids);
	return rc;
}

/* ---- chats ---- */

int prompts_encode_chat(struct prompts *p, struct token_list *ids, const struct chat *chat)
{
	struct session *s = p->session;
	struct jinja_output out = {0};
	int rc = session_need_tokenizer(s);

	if (!rc && !p->chat_template) {
		rc = data_config_chat_template(&p->chat_template, s->config, s->model_dir, s->tokenizer);
		if (!rc)
			data_config_template_report(s->config, p->chat_template);
	}
	if (!rc)
		rc = chat_template_render(p->chat_template, &out, chat,
		        (int64_t)json_array_size(chat->messages), CHAT_PROMPT_ON);
	if (!rc)
		rc = chat_roles_check(p->chat_template, chat, &out);
	if (!rc)
		rc = chat_lost_check(p->chat_template, chat, &out);
	if (!rc)
		rc = chat_lost_warn(
		        &p->warned, p->chat_template, chat, INT64_MAX, p->where ? p->where : "prompt");
	if (!rc) /* the template writes BOS */
		rc = tokenizer_encode(s->tokenizer, ids, out.text, out.len_bytes, ADD_SPECIAL_NONE);
	jinja_output_free(&out);
	return rc;
}

static int add_chat(struct prompts *p, const struct chat *chat)
{
	struct token_list ids = {0};
	int rc = prompts_encode_chat(p, &ids, chat);

	if (!rc)
		rc = add(p, &ids);
	if (!rc)
		p->list[p->count - 1].is_chat = 1;
	token_list_free(&ids);
	return rc;
}

/* Warns of a prompt that ends with an answer, as rows of training data do: the user may want to generate that
 * answer. */
static void answered_warn(struct prompts *p, const struct chat *chat)
{
	size_t count = json_array_size(chat->messages);
	const char *role =
	        count ? json_string_value(json_object_get(json_array_get(chat->messages, count - 1), "role"))
	              : NULL;

	if (!role || strcmp(role, "assistant") || p->is_answered_told)
		return;
	log_warn("a prompt ends with an assistant message, so a second answer follows; to generate that "
	         "message instead, remove it");
	p->is_answered_told = 1;
}

const char *prompts_system(const struct config *c)
{
	return c->system || !config_was_set(c, "system") ? c->system : "";
}

/* Adds messages, with the system message of the keys in front if they have none. */
static int add_messages(struct prompts *p, const json_t *messages, const json_t *record)
{
	const char *role = json_string_value(json_object_get(json_array_get(messages, 0), "role"));
	const char *system = prompts_system(p->session->config);
	json_t *text = system && !(role && !strcmp(role, "system")) ? json_string(system) : NULL;
	struct chat chat = {0};
	int rc = text ? chat_add_text(&chat, "system", text, "system") : 0;

	if (!rc)
		rc = chat_add_messages(&chat, messages, "messages");
	if (!rc && record)
		rc = chat_add_extras(&chat, record, "the row");
	if (!rc) {
		answered_warn(p, &chat);
		rc = add_chat(p, &chat);
	}
	chat_free(&chat);
	json_decref(text);
	return rc;
}

/* ---- texts ---- */

static int add_text(struct prompts *p, const char *text, size_t len_bytes)
{
	struct token_list ids = {0};
	int rc;

	if (p->session->config->chat) {
		json_t *messages = json_pack("[{s:s,s:s%}]", "role", "user", "content", text, len_bytes);

		rc = messages ? add_messages(p, messages, NULL)
		              : err_set(ERR_INPUT, "the prompt is not valid UTF-8");
		json_decref(messages);
		return rc;
	}
	rc = sample_prompt_ids(p->session, &ids, text, len_bytes);
	if (!rc)
		rc = add(p, &ids);
	token_list_free(&ids);
	return rc;
}

static int read_whole(FILE *in, struct str *text)
{
	char piece[65536];
	size_t len;

	while ((len = fread(piece, 1, sizeof(piece), in)) > 0)
		str_add_bytes(text, piece, len);
	if (ferror(in))
		return err_set(ERR_IO, "standard input cannot be read");
	return str_check(text);
}

/* Drops one newline at the end, which comes from the shell. */
static int add_stdin(struct prompts *p)
{
	struct str text = {0};
	int rc = read_whole(stdin, &text);

	if (!rc && text.len_bytes && text.data[text.len_bytes - 1] == '\n')
		text.data[--text.len_bytes] = 0;
	if (!rc && !text.len_bytes)
		rc = err_set(ERR_INPUT, "no prompt; set prompt, prompt_ids, prompt_file or chat=on, or pipe "
		                        "one to standard input");
	if (!rc)
		rc = add_text(p, text.data, text.len_bytes);
	str_free(&text);
	return rc;
}

/* ---- a file of prompts ---- */

/* Accepts "text", {"prompt": "text"}, {"prompt": [messages]}, {"messages": [...]} and {"input_ids":
 * [...]}. */
static int add_record(struct prompts *p, const json_t *record)
{
	const json_t *prompt = json_is_string(record) ? record : json_object_get(record, "prompt");

	if (!prompt)
		prompt = json_object_get(record, "messages");
	if (json_is_array(json_object_get(record, "input_ids")))
		return add_ids(p, json_object_get(record, "input_ids"));
	if (json_is_array(prompt))
		return add_messages(p, prompt, record);
	if (!json_is_string(prompt))
		return err_set(ERR_INPUT, "expected a text, or an object with \"prompt\", \"messages\" "
		                          "or \"input_ids\"");
	return add_text(p, json_string_value(prompt), json_string_length(prompt));
}

/* Notes the place of the prompt that was just added. */
static int note_where(struct prompts *p, int rc, const char *where)
{
	if (rc)
		return err_note(rc, "%s", where);
	p->list[p->count - 1].where = mem_strdup(where);
	return p->list[p->count - 1].where ? 0 : ERR_NOMEM;
}

static int add_records(struct prompts *p, const char *path)
{
	struct records *records = NULL;
	json_t *record = NULL;
	int rc = records_open(&records, path);

	if (rc)
		return rc;
	while ((rc = records_next(records, &record)) > 0) {
		p->where = records_where(records);
		rc = note_where(p, add_record(p, record), p->where);
		json_decref(record);
		if (rc)
			break;
	}
	p->where = NULL;
	records_close(records);
	return rc;
}

static int add_lines(struct prompts *p, const char *path)
{
	char where[RECORDS_WHERE_BYTES];
	struct bytes *bytes = NULL;
	struct window w = {0};
	int rc = bytes_open(&bytes, path);

	if (!rc)
		rc = window_open(&w, bytes, path);
	while (!rc && (w.start < w.end || (rc = window_fill(&w)) > 0)) {
		size_t len, whole;

		rc = window_line(&w, &len);
		whole = len + (w.start + len < w.end);
		while (len && w.data[w.start + len - 1] == '\r')
			len--;
		snprintf(where, sizeof(where), "%.400s:%" PRId64, path, w.line);
		if (!rc && memchr(w.data + w.start, 0, len))
			rc = err_set(ERR_INPUT,
			        "%s: this is not text; prompt_file takes text with one prompt per line, or a "
			        "data file with the column prompt, messages or input_ids",
			        where);
		else if (!rc && len)
			rc = note_where(p, add_text(p, w.data + w.start, len), where);
		window_consume(&w, whole);
	}
	window_close(&w);
	return rc;
}

/* Reads records if the file's ending is that of a data file, else lines. */
static int add_file(struct prompts *p, const char *path)
{
	char suffix[RECORD_SUFFIX_BYTES];
	int rc;

	record_suffix_find(suffix, path);
	rc = records_suffix_known(suffix) ? add_records(p, path) : add_lines(p, path);
	if (!rc && !p->count)
		rc = err_set(ERR_INPUT, "%s: the file has no prompt", path);
	return rc;
}

int prompts_read(struct prompts *p)
{
	const struct config *c = p->session->config;
	struct token_list ids = {0};
	int rc;

	if (c->prompt_file)
		return add_file(p, c->prompt_file);
	if (c->prompt && strcmp(c->prompt, "-"))
		return add_text(p, c->prompt, strlen(c->prompt));
	if (!c->prompt && config_was_set(c, "prompt"))
		return add_text(p, "", 0);
	if (!c->prompt_ids) {
		if (!c->prompt && isatty(STDIN_FILENO))
			return err_set(
			        ERR_INPUT, "no prompt; set prompt, prompt_ids, prompt_file or chat=on");
		return add_stdin(p);
	}
	rc = ids_parse(&ids, c->prompt_ids, p->session->model->config.V);
	if (!rc)
		rc = add(p, &ids);
	token_list_free(&ids);
	return rc;
}

void prompts_free(struct prompts *p)
{
	for (int64_t i = 0; i < p->count; i++) {
		token_list_free(&p->list[i].ids);
		mem_free(p->list[i].where);
	}
	mem_free(p->list);
	chat_template_close(p->chat_template);
	chat_warned_free(&p->warned);
	*p = (struct prompts){0};
}
