/* The text of ids that come one by one, as far as it is certain.
 *
 * Several ids may form one character or one stop string. Text that may still change, or may be the begin of a
 * stop string, is held back. The returned pieces together are the text of all ids, up to the first stop
 * string.
 */
#ifndef FERRY_CLI_TEXT_STREAM_H
#define FERRY_CLI_TEXT_STREAM_H

#include "base/json.h"
#include "base/str.h"
#include "data/tokenizer/tokenizer.h"

/* Zero-initialise, then set tokenizer and stops. */
struct text_stream {
	const struct tokenizer *tokenizer; /* borrowed */
	const json_t *stops;               /* list of texts, or NULL; borrowed */
	struct str text;                   /* text of the ids so far, without incomplete characters */
	int64_t from, known;               /* ids before `known` are in the text; decoding starts at `from` */
	int is_continued;                  /* 1: text_stream_add gets the prompt in front of the ids */
	size_t given_bytes;                /* bytes of the text that were returned */
	int is_stopped;                    /* 1: the text ends before a stop string */
};

/* Parses `stop` as the user writes it: a text or a JSON list of texts. NULL stays NULL. ERR_INPUT. */
int text_stream_stops(json_t **stops, const char *stop);

/* Takes all ids so far, with new ones at the end. */
int text_stream_add(struct text_stream *s, const int32_t *ids, int64_t count);

/* Ends the text; no more ids will come. */
int text_stream_end(struct text_stream *s, const int32_t *ids, int64_t count);

/* Returns the text that is certain now, without a NUL. Valid until the next call. */
const char *text_stream_piece(struct text_stream *s, size_t *len_bytes);

void text_stream_free(struct text_stream *s);

#endif
