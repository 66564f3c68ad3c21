/* How a template and its model end a turn. */
#include "data/chat/chat_template_parts.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/tokenizer.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 64 << 20 };

int chat_template_add_tail(const struct chat_template *t, struct jinja_output *out)
{
	size_t tail_bytes = t->tail ? strlen(t->tail) : 0;
	char *text = tail_bytes ? mem_resize(out->text, out->len_bytes + tail_bytes + 1, 1) : out->text;

	if (tail_bytes && !text)
		return ERR_NOMEM;
	out->text = text;
	if (tail_bytes)
		memcpy(text + out->len_bytes, t->tail, tail_bytes + 1);
	out->len_bytes += tail_bytes;
	return 0;
}

static int is_end(const struct chat_template *t, int32_t id)
{
	for (int i = 0; i < t->end_count; i++)
		if (t->ends[i] == id)
			return 1;
	return 0;
}

static int64_t find_id(int32_t id, const int32_t *ids, int64_t from, int64_t to, enum chat_end which)
{
	for (int64_t i = from; i < to; i++) {
		int64_t at = which == CHAT_END_FIRST ? i : to - 1 - (i - from);

		if (ids[at] == id)
			return at;
	}
	return -1;
}

int64_t chat_template_find_end(
        const struct chat_template *t, const int32_t *ids, int64_t from, int64_t to, enum chat_end which)
{
	int64_t at = -1;

	for (int i = 0; at < 0 && i < t->end_count; i++)
		at = find_id(t->ends[i], ids, from, to, which);
	return at;
}

int64_t chat_template_find_pause(
        const struct chat_template *t, const int32_t *ids, int64_t from, int64_t to, enum chat_end which)
{
	return t->pause < 0 ? -1 : find_id(t->pause, ids, from, to, which);
}

int64_t chat_template_find_call_end(
        const struct chat_template *t, const int32_t *ids, int64_t from, int64_t to)
{
	return t->call_end < 0 ? -1 : find_id(t->call_end, ids, from, to, CHAT_END_LAST);
}

static void add_end(struct chat_template *t, int32_t id)
{
	if (id >= 0 && t->end_count < CHAT_TEMPLATE_ENDS_MAX && !is_end(t, id))
		t->ends[t->end_count++] = id;
}

/* A special token has a text, and decoding without special tokens leaves it out. */
static int is_special(int *yes, const struct tokenizer *tokenizer, int32_t id)
{
	char *text = NULL;
	size_t with = 0, without = 0;
	int rc = tokenizer_decode(tokenizer, &text, &with, &id, 1, SKIP_SPECIAL_OFF);

	mem_free(text);
	text = NULL;
	if (!rc)
		rc = tokenizer_decode(tokenizer, &text, &without, &id, 1, SKIP_SPECIAL_ON);
	mem_free(text);
	*yes = !rc && with && !without;
	return rc;
}

/* Special tokens that follow each other. */
enum { RUN_MAX = 8 };
struct run {
	int32_t ids[RUN_MAX];
	int count;
};

/* The first special tokens of a text. */
static int first_special(
        struct run *run, const struct tokenizer *tokenizer, const char *text, size_t len_bytes)
{
	struct token_list ids = {0};
	int rc = tokenizer_encode(tokenizer, &ids, text, len_bytes, ADD_SPECIAL_NONE), yes = 0;

	run->count = 0;
	for (int64_t i = 0; !rc && (yes || !run->count) && run->count < RUN_MAX && i < ids.count; i++) {
		rc = is_special(&yes, tokenizer, ids.ids[i]);
		if (yes)
			run->ids[run->count++] = ids.ids[i];
	}
	token_list_free(&ids);
	return rc;
}

static int32_t first_of(const struct run *run)
{
	return run->count ? run->ids[0] : -1;
}

/* The last of those that two runs begin with, or -1. */
static int32_t last_shared(const struct run *a, const struct run *b)
{
	int n = 0;

	while (n < a->count && n < b->count && a->ids[n] == b->ids[n])
		n++;
	return n ? a->ids[n - 1] : -1;
}

/* The end tokens in the model's files, at most CHAT_TEMPLATE_ENDS_MAX. */
static int read_ends(int32_t *ends, int *end_count, const struct chat_template_options *o)
{
	static const char *const files[] = {"generation_config.json", "config.json"};
	int rc = 0;

	if (tokenizer_roles(o->tokenizer)->eos >= 0)
		ends[(*end_count)++] = tokenizer_roles(o->tokenizer)->eos;
	for (size_t i = 0; !rc && o->dir && i < 2; i++) {
		char *path = file_join(o->dir, files[i]);
		json_t *config = NULL, *value;

		if (!path)
			return ERR_NOMEM;
		if (file_kind_of(path) == FILE_REGULAR)
			rc = json_read_file(&config, path, CONFIG_BYTES_MAX);
		value = json_object_get(config, "eos_token_id");
		if (json_is_integer(value) && *end_count < CHAT_TEMPLATE_ENDS_MAX)
			ends[(*end_count)++] = (int32_t)json_integer_value(value);
		for (size_t k = 0; k < json_array_size(value) && *end_count < CHAT_TEMPLATE_ENDS_MAX; k++)
			ends[(*end_count)++] = (int32_t)json_integer_value(json_array_get(value, k));
		json_decref(config);
		mem_free(path);
	}
	return rc;
}

#define ANSWER "zqanswerqz"
#define QUESTION "zqquestionqz"
#define FIRST "zqhelloqz"
#define NAME "zqnameqz"

/* The text from `at` up to the special token `id`. NULL: not there, or no memory. */
static char *text_to_special(const char *at, const struct tokenizer *tokenizer, int32_t id)
{
	char *special = NULL, *text = NULL;
	const char *found;
	size_t len_bytes;

	if (id < 0 || tokenizer_decode(tokenizer, &special, &len_bytes, &id, 1, SKIP_SPECIAL_OFF))
		return NULL;
	found = strstr(at, special);
	if (found)
		text = mem_strndup(at, (size_t)(found - at) + len_bytes);
	mem_free(special);
	return text;
}

/* The length of the longest beginning of the prompt in text[0 .. len_bytes). */
static size_t header_in(const char *prompt, const char *text, size_t len_bytes)
{
	size_t longest = 0;

	for (size_t at = 0; at < len_bytes; at++) {
		size_t len = 0;

		while (prompt[len] && at + len < len_bytes && text[at + len] == prompt[len])
			len++;
		longest = len > longest ? len : longest;
	}
	return longest;
}

/* The header of answers in a prompt: its beginning up to the end of the line or the marker that tells an
 * answer from a question. What follows in the prompt, such as the begin of a thought, not every answer has.
 * All of it if there is no such place, or if the answers of the text have another header. */
static size_t header_of(const char *prompt, const char *text)
{
	const char *ask[] = {strstr(text, FIRST), strstr(text, QUESTION)}, *answer = strstr(text, ANSWER);
	size_t all = strlen(prompt), least = all, shared, header;

	if (!ask[0] || !ask[1] || !answer || answer > ask[1])
		return all;
	for (int i = 0; i < 2; i++) {
		const char *to = strstr(ask[i], ANSWER);
		size_t len = to ? header_in(prompt, ask[i], (size_t)(to - ask[i])) : all;

		least = len < least ? len : least;
	}
	shared = header_in(prompt, answer, (size_t)(ask[1] - answer));
	header = shared + strcspn(prompt + shared, "\n>]");
	header += header < all;
	return header <= least ? header : all;
}

/* Renders a question alone, with and without a prompt for its answer. *prompt: what that appends, "" if the
 * template refuses such a chat. like: its tools and variables; NULL: none. */
static int find_prompt(char **prompt, const struct chat_template *t, const struct chat *like)
{
	struct jinja_output with = {0}, without = {0};
	struct chat chat = like ? *like : (struct chat){0};
	size_t same = 0;
	int rc;

	*prompt = NULL;
	chat.messages = json_pack("[{s:s,s:s}]", "role", "user", "content", FIRST);
	rc = chat.messages ? chat_template_render(t, &without, &chat, 1, CHAT_PROMPT_OFF) : ERR_NOMEM;
	if (!rc)
		rc = chat_template_render(t, &with, &chat, 1, CHAT_PROMPT_ON);
	json_decref(chat.messages);
	while (!rc && same < without.len_bytes && with.text[same] == without.text[same])
		same++;
	if (!rc || rc == ERR_INPUT) {
		*prompt = mem_strdup(rc ? "" : with.text + same);
		rc = *prompt ? 0 : ERR_NOMEM;
	}
	jinja_output_free(&with);
	jinja_output_free(&without);
	return rc;
}

int chat_template_prompt(
        const struct chat_template *t, const struct chat *chat, char **prompt, size_t *header_bytes)
{
	const char *usual = t->prompt ? t->prompt : "";
	int rc = 0;

	*prompt = NULL;
	if (chat->kwargs || chat->tools)
		rc = find_prompt(prompt, t, chat);
	else
		*prompt = mem_strdup(usual);
	if (!rc && !*prompt)
		rc = ERR_NOMEM;
	*header_bytes = t->header_bytes;
	if (!rc && strncmp(*prompt, usual, t->header_bytes) != 0) /* these variables give another header */
		*header_bytes = strlen(*prompt);
	return rc;
}

/* Blanks at the end of a text. */
static size_t blanks_behind(const char *text)
{
	size_t len = strlen(text), n = 0;

	while (n < len && strchr(" \t\r\n", text[len - 1 - n]))
		n++;
	return n;
}

/* The special tokens after each of the two answers of a chat and after its first question. *tail: the text up
 * to the first of them if the second answer ends the text. */
static int probe(
        struct run behind[3], char **tail, struct chat_template *t, const struct tokenizer *tokenizer)
{
	struct jinja_output out;
	struct chat chat = {0};
	const char *at, *next;
	int rc, is_last = 0;

	chat.messages = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role", "user", "content",
	        FIRST, "role", "assistant", "content", ANSWER, "role", "user", "content", QUESTION, "role",
	        "assistant", "content", ANSWER);
	behind[0].count = behind[1].count = behind[2].count = 0;
	rc = chat.messages ? chat_template_render(t, &out, &chat, 4, CHAT_PROMPT_OFF) : ERR_NOMEM;
	json_decref(chat.messages);
	if (rc == ERR_INPUT)
		return 0; /* it refuses this chat: only the end tokens of the model's files are left */
	if (rc)
		return rc;
	t->header_bytes = header_of(t->prompt, out.text);
	next = strstr(out.text, FIRST);
	at = strstr(out.text, ANSWER);
	if (next && at > next)
		rc = first_special(&behind[2], tokenizer, next, (size_t)(at - next));
	for (int i = 0; !rc && at && i < 2; i++) {
		at += strlen(ANSWER);
		next = i ? out.text + out.len_bytes : strstr(at, QUESTION);
		if (!next)
			break;
		rc = first_special(&behind[i], tokenizer, at, (size_t)(next - at));
		if (!rc && !i)
			*tail = text_to_special(at, tokenizer, first_of(&behind[0]));
		is_last = i && at == next;
		at = strstr(at, ANSWER);
	}
	if (!is_last) {
		mem_free(*tail);
		*tail = NULL;
	}
	jinja_output_free(&out);
	return rc;
}

/* The last special token of a chat that ends with a call, if only blanks follow it. */
static int probe_call(struct chat_template *t, const struct tokenizer *tokenizer)
{
	struct jinja_output out;
	struct token_list ids = {0};
	struct chat chat = {0};
	const char *at;
	int rc, yes = 0;

	t->call_end = -1;
	chat.messages = json_pack("[{s:s,s:s},{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:{s:s}}}]}]", "role", "user",
	        "content", FIRST, "role", "assistant", "content", "", "tool_calls", "type", "function", "id",
	        "zqcallqzz", "function", "name", NAME, "arguments", "a", ANSWER);
	rc = chat.messages ? chat_template_render(t, &out, &chat, 2, CHAT_PROMPT_OFF) : ERR_NOMEM;
	json_decref(chat.messages);
	if (rc == ERR_INPUT)
		return 0; /* it knows no tools, or wants more of them */
	if (rc)
		return rc;
	at = strstr(out.text, NAME);
	if (at)
		rc = tokenizer_encode(tokenizer, &ids, at, strlen(at) - blanks_behind(at), ADD_SPECIAL_NONE);
	if (!rc && ids.count)
		rc = is_special(&yes, tokenizer, ids.ids[ids.count - 1]);
	if (!rc && yes)
		t->call_end = ids.ids[ids.count - 1];
	token_list_free(&ids);
	jinja_output_free(&out);
	return rc;
}

int chat_template_find_ends(struct chat_template *t, const struct chat_template_options *o)
{
	int32_t own[CHAT_TEMPLATE_ENDS_MAX], first;
	struct run behind[3]; /* the answers and the question */
	int own_count = 0, rc = read_ends(own, &own_count, o);

	if (!rc)
		rc = find_prompt(&t->prompt, t, NULL);
	if (!rc) {
		t->header_bytes = strlen(t->prompt);
		rc = probe(behind, &t->tail, t, o->tokenizer);
	}
	if (!rc)
		rc = probe_call(t, o->tokenizer);
	if (rc)
		return rc;
	first = first_of(&behind[0]);
	add_end(t, last_shared(&behind[0], &behind[1]));
	/* a template may leave the last answer open; then questions must end with it too, as it may begin
	 * them */
	if (!behind[1].count && first == first_of(&behind[2]))
		add_end(t, first);
	for (int i = 0; i < own_count; i++)
		add_end(t, own[i]);
	if (first >= 0 && first == first_of(&behind[2]) && !is_end(t, first) &&
	        is_end(t, first_of(&behind[1])))
		t->pause = first;
	if (!is_end(t, first)) { /* it begins a turn, as of a user, and ends none */
		mem_free(t->tail);
		t->tail = NULL;
	}
	return 0;
}
