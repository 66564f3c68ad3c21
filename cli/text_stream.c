/* Turns ids into text as they come. */
#include "cli/text_stream.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

int text_stream_stops(json_t **stops, const char *stop)
{
	const json_t *item;
	size_t i;
	int rc = 0;

	*stops = NULL;
	if (!stop)
		return 0;
	if (*stop == '[' && json_parse(stops, "stop", stop, strlen(stop))) {
		*stops = NULL; /* not a list: a text that begins with [ */
		if (stop[strlen(stop) - 1] == ']')
			log_warn("stop=%s is not a JSON list, so ferry stops at this text; for several texts "
			         "write [\"a\", \"b\"]",
			        stop);
	}
	if (strchr(stop, '\\') && !*stops)
		log_warn("stop=%s contains a backslash, which ferry takes literally; for a line break write "
		         "stop='[\"\\n\"]'",
		        stop);
	if (!json_is_array(*stops)) {
		json_decref(*stops);
		*stops = json_pack("[s]", stop);
	}
	if (!*stops)
		return err_set(ERR_INPUT, "stop=%s is not UTF-8", stop);
	json_array_foreach(*stops, i, item) if (!rc && !json_string_length(item)) rc =
	        err_set(ERR_INPUT, "stop must be a text or a list of texts, none of them empty");
	return rc;
}

/* Whether the text ends with U+FFFD, the sign for a character that is not complete yet. */
static int ends_open(const char *text, size_t len_bytes)
{
	return len_bytes >= 3 && !memcmp(text + len_bytes - 3, "\xef\xbf\xbd", 3);
}

/* Ends the text at the first stop string. `from`: no stop string begins before it. */
static void look_for_stops(struct text_stream *s, size_t from)
{
	size_t first = s->text.len_bytes, i;
	const json_t *stop;

	json_array_foreach(s->stops, i, stop)
	{
		const char *at = memmem(s->text.data + from, s->text.len_bytes - from,
		        json_string_value(stop), json_string_length(stop));

		if (at && (size_t)(at - s->text.data) < first)
			first = (size_t)(at - s->text.data);
		s->is_stopped |= at != NULL;
	}
	if (s->is_stopped)
		s->text.len_bytes = first;
}

static size_t longest_stop(const struct text_stream *s)
{
	size_t longest = 0, i;
	const json_t *stop;

	json_array_foreach(s->stops, i, stop) if (json_string_length(stop) > longest) longest =
	        json_string_length(stop);
	return longest;
}

static int append(struct text_stream *s, const char *text, size_t len_bytes)
{
	size_t before = s->text.len_bytes, longest = longest_stop(s);
	int rc;

	str_add_bytes(&s->text, text, len_bytes);
	rc = str_check(&s->text);
	if (!rc && longest)
		look_for_stops(s, before > longest ? before - longest : 0);
	return rc;
}

/* Decodes new ids together with those just before them, because a token's text may depend on its
 * neighbours. */
static int add(struct text_stream *s, const int32_t *ids, int64_t count, int is_end)
{
	char *before = NULL, *now = NULL;
	size_t before_bytes = 0, now_bytes = 0;
	int rc = tokenizer_decode(
	        s->tokenizer, &before, &before_bytes, ids + s->from, s->known - s->from, SKIP_SPECIAL_ON);

	if (!rc)
		rc = tokenizer_decode(
		        s->tokenizer, &now, &now_bytes, ids + s->from, count - s->from, SKIP_SPECIAL_ON);
	if (!rc && now_bytes > before_bytes && (is_end || !ends_open(now, now_bytes))) {
		rc = append(s, now + before_bytes, now_bytes - before_bytes);
		s->from = s->known;
		s->known = count;
	}
	mem_free(before);
	mem_free(now);
	return rc;
}

int text_stream_add(struct text_stream *s, const int32_t *ids, int64_t count)
{
	return s->is_stopped ? 0 : add(s, ids, count, 0);
}

int text_stream_end(struct text_stream *s, const int32_t *ids, int64_t count)
{
	int rc = s->is_stopped || s->known == count ? 0 : add(s, ids, count, 1);

	s->stops = NULL; /* hold nothing back any more */
	return rc;
}

/* Length of the longest end of the text that may be the begin of a stop string. */
static size_t held_bytes(const struct text_stream *s)
{
	size_t most = 0, i;
	const json_t *stop;

	if (s->is_stopped)
		return 0;
	json_array_foreach(s->stops, i, stop)
	{
		size_t len = json_string_length(stop) - 1, room = s->text.len_bytes - s->given_bytes;

		for (len = len < room ? len : room; len > most; len--)
			if (!memcmp(s->text.data + s->text.len_bytes - len, json_string_value(stop), len))
				most = len;
	}
	return most;
}

const char *text_stream_piece(struct text_stream *s, size_t *len_bytes)
{
	const char *piece = s->text.data ? s->text.data + s->given_bytes : "";
	size_t end = s->text.len_bytes - held_bytes(s);

	*len_bytes = end > s->given_bytes ? end - s->given_bytes : 0;
	s->given_bytes += *len_bytes;
	return piece;
}

void text_stream_free(struct text_stream *s)
{
	str_free(&s->text);
	*s = (struct text_stream){0};
}
