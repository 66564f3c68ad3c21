/* Writes the answers of a model. */
#include "cli/answer.h"

#include "base/err.h"
#include "base/mem.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A special token has no text, so it is not found in the answer's text. */
static int stop_ids_find(struct answers *a, const struct tokenizer *tokenizer)
{
	const json_t *stop;
	size_t i, len_bytes;
	int32_t id;
	int rc = 0;

	json_array_foreach(a->stops, i, stop)
	{
		char *text = NULL;

		if (rc || !tokenizer_find(tokenizer, &id, json_string_value(stop)))
			continue;
		rc = tokenizer_decode(tokenizer, &text, &len_bytes, &id, 1, SKIP_SPECIAL_ON);
		if (!rc && !len_bytes)
			rc = token_list_add(&a->stop_ids, id);
		mem_free(text);
	}
	return rc;
}

int answers_open(struct answers *a, const struct config *c, const struct tokenizer *tokenizer, int64_t count)
{
	int rc = text_stream_stops(&a->stops, c->stop);

	a->config = c;
	a->count = count;
	a->shows = !c->json && count == 1 && tokenizer;
	if (!rc && a->stops && !tokenizer)
		rc = err_set(ERR_INPUT,
		        "stop needs a tokenizer: set tokenizer to a directory with a tokenizer.json");
	a->streams = rc ? NULL : mem_alloc((size_t)count, sizeof(*a->streams));
	a->titles = rc ? NULL : mem_alloc((size_t)count, sizeof(*a->titles));
	if (!rc && (!a->streams || !a->titles))
		rc = ERR_NOMEM;
	for (int64_t i = 0; i < count && !rc; i++)
		a->streams[i].tokenizer = tokenizer;
	answers_reset(a);
	return rc ? rc : stop_ids_find(a, tokenizer);
}

void answers_reset(struct answers *a)
{
	for (int64_t i = 0; i < a->count && a->streams; i++) {
		const struct tokenizer *tokenizer = a->streams[i].tokenizer;

		text_stream_free(&a->streams[i]);
		a->streams[i].tokenizer = tokenizer;
		a->streams[i].stops = a->stops;
	}
}

void answers_close(struct answers *a)
{
	answers_reset(a);
	mem_free(a->streams);
	mem_free(a->titles);
	json_decref(a->stops);
	token_list_free(&a->stop_ids);
	*a = (struct answers){0};
}

void answers_title(struct answers *a, int64_t text, const char *title)
{
	a->titles[text] = title;
}

static void say_title(struct answers *a, int64_t text)
{
	if (a->titles[text])
		cli_say(a->config, "%s==> %s <==\n", a->has_said ? "\n" : "", a->titles[text]);
	a->titles[text] = NULL;
	a->has_said = 1;
}

static int show(struct answers *a, int64_t text)
{
	size_t len_bytes;
	const char *piece = text_stream_piece(&a->streams[text], &len_bytes);

	if (!a->shows || !len_bytes)
		return 0;
	say_title(a, text);
	if (fwrite(piece, 1, len_bytes, stdout) < len_bytes || fflush(stdout))
		return err_set(ERR_IO, "cannot write to standard output: %s", strerror(errno));
	return 0;
}

void answers_continue(struct answers *a, int64_t text)
{
	a->streams[text].is_continued = 1;
}

/* The ids that the stream takes. */
static const int32_t *stream_ids(struct text_stream *s, const struct generation_text *t, int64_t *count)
{
	int64_t first = s->is_continued ? 0 : t->begin;

	if (s->is_continued && !s->known) {
		s->known = t->begin;
		s->from = tokenizer_context(s->tokenizer, t->ids.ids, t->begin);
	}
	*count = t->ids.count - first;
	return t->ids.ids + first;
}

int answers_heard(void *context, int64_t text, const struct generation_text *t)
{
	struct answers *a = context;
	struct text_stream *s = &a->streams[text];
	const int32_t *ids;
	int64_t count;
	int rc = 0;

	if (s->tokenizer) {
		ids = stream_ids(s, t, &count);
		rc = text_stream_add(s, ids, count);
	}
	for (int64_t i = 0; i < a->stop_ids.count; i++)
		s->is_stopped |= t->ids.ids[t->ids.count - 1] == a->stop_ids.ids[i];
	if (!rc)
		rc = show(a, text);
	return rc ? rc : s->is_stopped;
}

const struct str *answers_text(const struct answers *a, int64_t text)
{
	return &a->streams[text].text;
}

static json_t *id_array(const int32_t *ids, int64_t count)
{
	json_t *list = json_array();

	for (int64_t i = 0; i < count; i++)
		json_array_append_new(list, json_integer(ids[i]));
	return list;
}

static int print_json(const struct answers *a, int64_t text, const struct generation_text *t)
{
	const struct text_stream *s = &a->streams[text];
	json_t *object = json_object();
	int rc;

	json_object_set_new(object, "prompt_ids", id_array(t->ids.ids, t->begin));
	json_object_set_new(object, "ids", id_array(t->ids.ids + t->begin, t->ids.count - t->begin));
	json_object_set_new(object, "text",
	        s->tokenizer ? json_stringn(s->text.data ? s->text.data : "", s->text.len_bytes)
	                     : json_null());
	json_object_set_new(object, "finish", json_string(t->finish == GENERATION_STOP ? "stop" : "length"));
	rc = cli_print_json(object);
	json_decref(object);
	return rc;
}

int answers_finish(struct answers *a, int64_t text, const struct generation_text *t)
{
	struct text_stream *s = &a->streams[text];
	int64_t count = t->ids.count - t->begin, all;
	const int32_t *ids = s->tokenizer ? stream_ids(s, t, &all) : NULL;
	int rc = ids ? text_stream_end(s, ids, all) : 0;

	if (rc || a->config->json)
		return rc ? rc : print_json(a, text, t);
	if (a->shows)
		rc = show(a, text);
	say_title(a, text);
	if (a->shows) {
		cli_say(a->config, "\n");
		return rc;
	}
	if (s->tokenizer) {
		cli_say(a->config, "%.*s\n", (int)s->text.len_bytes, s->text.data ? s->text.data : "");
		return 0;
	}
	for (int64_t i = 0; i < count; i++)
		cli_say(a->config, "%d%s", t->ids.ids[t->begin + i], i + 1 < count ? " " : "\n");
	return 0;
}
