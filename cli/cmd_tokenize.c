/* ferry tokenize: writes one line for each input at once, so that it works in a pipe. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/chat/chat_lost.h"
#include "train/inputs/data_config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
	const struct config *c;
	struct tokenizer *tokenizer;
	struct chat_template *chat_template; /* only with chat */
	const char *name;                    /* name of the input, for messages */
	FILE *in;
	int64_t line;
	struct str out;
	struct token_list ids;
	struct chat_warned warned;
};

static int flush(struct job *j)
{
	int err = str_check(&j->out);

	if (!err && fwrite(j->out.data, 1, j->out.len_bytes, stdout) != j->out.len_bytes)
		err = err_set(ERR_IO, "cannot write to stdout");
	j->out.len_bytes = 0;
	return err;
}

/* ---- text to ids ---- */

enum { FLUSH_BYTES = 1 << 16, ID_BYTES = 16 };

/* Writes the digits of an id to the end of `number` and returns their begin. snprintf would take longer than
 * tokenizing. */
static size_t write_id(char number[ID_BYTES], int32_t id)
{
	size_t at = ID_BYTES;

	do {
		number[--at] = (char)('0' + id % 10);
		id /= 10;
	} while (id > 0);
	return at;
}

static int print_ids(struct job *j)
{
	char number[ID_BYTES];
	int err;

	for (int64_t i = 0; i < j->ids.count; i++) {
		size_t at = write_id(number, j->ids.ids[i]);

		str_add(&j->out, i ? ", " : "");
		str_add_bytes(&j->out, number + at, sizeof(number) - at);
		if (j->out.len_bytes >= FLUSH_BYTES) {
			err = flush(j);
			if (err)
				return err;
		}
	}
	str_add(&j->out, j->c->json ? "]}\n" : "]\n");
	return flush(j);
}

static int encode(struct job *j, const char *text, size_t len_bytes)
{
	int err;

	j->ids.count = 0;
	err = tokenizer_encode(j->tokenizer, &j->ids, text, len_bytes,
	        j->c->add_special_tokens ? ADD_SPECIAL_ALL : ADD_SPECIAL_NONE);
	if (err)
		return err;
	str_add(&j->out, j->c->json ? "{\"ids\": [" : "[");
	return print_ids(j);
}

/* Encodes a chat's rendered text without special tokens around it, because the template writes its own. */
static int encode_rendered(struct job *j, const struct jinja_output *rendered)
{
	json_t *text;
	char *dump = NULL;
	int err;

	j->ids.count = 0;
	err = tokenizer_encode(j->tokenizer, &j->ids, rendered->text, rendered->len_bytes, ADD_SPECIAL_NONE);
	if (err)
		return err;
	if (!j->c->json) {
		str_add(&j->out, "[");
		return print_ids(j);
	}
	text = json_stringn(rendered->text, rendered->len_bytes);
	err = json_write(&dump, text, JSON_ENSURE_ASCII);
	json_decref(text);
	if (err)
		return err;
	str_printf(&j->out, "{\"text\": %s, \"ids\": [", dump);
	mem_free(dump);
	return print_ids(j);
}

/* Encodes a line with a record of messages, or with their list alone. */
static int encode_chat(struct job *j, const char *line, size_t len_bytes)
{
	struct jinja_output rendered = {0};
	struct chat chat = {0};
	json_t *record = NULL;
	const json_t *messages;
	char where[512];
	int err = json_parse_exact(&record, "JSON", line, len_bytes, 1);

	messages = json_is_array(record) ? record : json_object_get(record, "messages");
	if (!err && json_object_get(record, "conversations"))
		err = chat_add_turns(&chat, json_object_get(record, "conversations"), "the chat");
	else if (!err && !messages)
		err = err_set(ERR_INPUT,
		        "expected a chat: {\"messages\": [{\"role\": ..., \"content\": ...}, ...]}");
	else if (!err)
		err = chat_add_messages(&chat, messages, "the chat");
	if (!err)
		err = chat_add_extras(&chat, record, "the chat");
	if (!err)
		err = chat_template_render(j->chat_template, &rendered, &chat,
		        (int64_t)json_array_size(chat.messages),
		        j->c->add_generation_prompt ? CHAT_PROMPT_ON : CHAT_PROMPT_OFF);
	if (!err) {
		snprintf(where, sizeof(where), "%.400s:%" PRId64, j->name, j->line);
		err = chat_lost_warn(&j->warned, j->chat_template, &chat, INT64_MAX, where);
	}
	if (!err)
		err = encode_rendered(j, &rendered);
	jinja_output_free(&rendered);
	chat_free(&chat);
	json_decref(record);
	return err;
}

static int encode_json(struct job *j, const char *text, size_t len_bytes)
{
	json_t *value = NULL;
	int err = json_parse(&value, "JSON", text, len_bytes);

	if (!err && !json_is_string(value))
		err = err_set(ERR_INPUT, "expected a JSON string, found %s", json_kind_name(value));
	if (!err)
		err = encode(j, json_string_value(value), json_string_length(value));
	json_decref(value);
	return err;
}

/* ---- ids to text ---- */

static int read_ids(struct job *j, const json_t *array)
{
	j->ids.count = 0;
	for (size_t i = 0; i < json_array_size(array); i++) {
		const json_t *item = json_array_get(array, i);
		json_int_t id = json_integer_value(item);
		int err;

		if (!json_is_integer(item) || id < 0 || id > INT32_MAX)
			return err_set(ERR_INPUT, "element %zu is not an id", i);
		if (id >= tokenizer_vocab_count(j->tokenizer))
			return err_set(ERR_INPUT, "element %zu is %lld; the tokenizer has ids 0 to %lld", i,
			        (long long)id, (long long)tokenizer_vocab_count(j->tokenizer) - 1);
		err = token_list_add(&j->ids, (int32_t)id);
		if (err)
			return err;
	}
	return 0;
}

static int print_text(struct job *j, const char *text, size_t len_bytes)
{
	json_t *object;
	char *dump;
	int rc;

	if (!j->c->json) {
		str_add_bytes(&j->out, text, len_bytes);
		str_add_char(&j->out, '\n');
		return flush(j);
	}
	object = json_pack("{s:o}", "text", json_stringn(text, len_bytes));
	rc = json_write(&dump, object, JSON_ENSURE_ASCII); /* some programs split lines at U+2028 */
	json_decref(object);
	if (rc)
		return rc;
	str_add(&j->out, dump);
	str_add_char(&j->out, '\n');
	mem_free(dump);
	return flush(j);
}

static int decode(struct job *j, const char *line, size_t len_bytes)
{
	json_t *value = NULL;
	const json_t *array;
	char *text = NULL;
	size_t text_bytes = 0;
	int err = json_parse(&value, "JSON", line, len_bytes);

	array = json_is_object(value) ? json_object_get(value, "ids") : value;
	if (!err && !json_is_array(array))
		err = err_set(ERR_INPUT, "expected a JSON array of ids");
	if (!err)
		err = read_ids(j, array);
	if (!err)
		err = tokenizer_decode(j->tokenizer, &text, &text_bytes, j->ids.ids, j->ids.count,
		        j->c->skip_special_tokens ? SKIP_SPECIAL_ON : SKIP_SPECIAL_OFF);
	if (!err)
		err = print_text(j, text, text_bytes);
	mem_free(text);
	json_decref(value);
	return err;
}

/* ---- inputs ---- */

static int one(struct job *j, const char *text, size_t len_bytes)
{
	if (j->c->decode)
		return decode(j, text, len_bytes);
	if (j->c->chat)
		return encode_chat(j, text, len_bytes);
	if (j->c->input_format == CONFIG_INPUT_FORMAT_JSON)
		return encode_json(j, text, len_bytes);
	return encode(j, text, len_bytes);
}

static int each_line(struct job *j)
{
	char *line = NULL;
	size_t cap = 0;
	ssize_t len;
	int err = 0;

	while (!err && (len = getline(&line, &cap, j->in)) >= 0) {
		j->line++;
		if (len && line[len - 1] == '\n')
			len--;
		err = one(j, line, (size_t)len);
		if (err)
			err_note(err, "%s:%" PRId64, j->name, j->line);
	}
	free(line);
	return err;
}

static int whole(struct job *j)
{
	struct str text = {0};
	char piece[65536];
	size_t len;
	int err;

	while ((len = fread(piece, 1, sizeof(piece), j->in)) > 0)
		str_add_bytes(&text, piece, len);
	err = str_check(&text);
	if (!err && !ferror(j->in))
		err = one(j, text.data ? text.data : "", text.len_bytes);
	if (err)
		err_note(err, "%s", j->name);
	str_free(&text);
	return err;
}

int cli_tokenize(const struct config *c)
{
	struct job j = {.c = c, .name = "stdin", .in = stdin};
	int err = data_config_tokenizer(&j.tokenizer, c, TOKENIZER_REQUIRED);

	if (!err && c->chat)
		err = data_config_chat_template(&j.chat_template, c, NULL, j.tokenizer);
	if (!err && c->chat)
		data_config_template_report(c, j.chat_template);
	if (!err && c->path && strcmp(c->path, "-")) {
		j.name = c->path;
		j.in = fopen(c->path, "rb");
		if (!j.in)
			err = err_set(ERR_INPUT, "%s: cannot be opened: %s", c->path, strerror(errno));
	}
	if (!err)
		err = c->input_format == CONFIG_INPUT_FORMAT_WHOLE ? whole(&j) : each_line(&j);
	if (!err && ferror(j.in))
		err = err_set(ERR_IO, "%s: cannot be read", j.name);
	if (j.in && j.in != stdin)
		fclose(j.in);
	token_list_free(&j.ids);
	str_free(&j.out);
	chat_warned_free(&j.warned);
	chat_template_close(j.chat_template);
	tokenizer_close(j.tokenizer);
	return err;
}
