/* The text of ids that come one by one, as far as it is sure.
 *
 * A character may be spread over several ids, and a stop string too: what may still change, or may be the
 * beginning of a stop string, is held back until it is known. The pieces that are given out follow each other
 * to the text of all ids, up to the first stop string.
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
	struct str text;                   /* of the ids so far, without what is not whole yet */
	int64_t from, known; /* ids before `known` are in the text; before `from` not looked at */
	size_t given_bytes;  /* of the text that were given out */
	int is_stopped;      /* the text ends before a stop string */
};

/* `stop` as a user writes it: a text, or a JSON list of texts; NULL stays NULL. ERR_INPUT. */
int text_stream_stops(json_t **stops, const char *stop);

/* The ids so far, all of them, with new ones at the end. */
int text_stream_add(struct text_stream *s, const int32_t *ids, int64_t count);

/* No more ids will come: the text is whole. */
int text_stream_end(struct text_stream *s, const int32_t *ids, int64_t count);

/* What can be given out now: bytes that are not NUL-terminated, valid until the next call. */
const char *text_stream_piece(struct text_stream *s, size_t *len_bytes);

void text_stream_free(struct text_stream *s);

#endif
