/* The decoder of tokenizer.json: from the texts of tokens to a text.
 *
 * A list of steps, each of which rewrites the list of texts that the one before left; at the end they are put
 * together. A kind of step is a row of one table. Without a decoder, texts are put together with spaces
 * between them.
 */
#ifndef FERRY_DATA_TOKENIZER_DECODER_H
#define FERRY_DATA_TOKENIZER_DECODER_H

#include <jansson.h>
#include <stddef.h>

#include "base/str.h"
#include "data/tokenizer/pattern.h"

enum { DECODER_STEPS_MAX = 32 };

/* Texts one behind the other; text i ends at ends[i]. Zero-initialise; texts_free. */
struct texts {
	struct str bytes;
	size_t *ends;
	int64_t count, cap;
};

/* Ends a text: all bytes behind the last end belong to it. */
int texts_end(struct texts *t);
void texts_free(struct texts *t);

struct decoder_kind;

struct decoder {
	int present; /* there is a decoder */
	struct decoder_step {
		const struct decoder_kind *kind;
		struct pattern *pattern;
		char *content, *other; /* of the kind */
		size_t content_bytes;
		int64_t start, stop; /* of Strip */
		int flag;            /* of the kind */
	} steps[DECODER_STEPS_MAX];
	int step_count;
};

/* From the value of "decoder", which may be null or absent. ERR_UNSUPPORTED names what is not done. */
int decoder_load(struct decoder *d, const json_t *spec, const char *where);
void decoder_free(struct decoder *d);

/* Appends the text that the texts of tokens (valid UTF-8 each) make; `texts` is used up. The result is valid
 * UTF-8. */
int decoder_run(const struct decoder *d, struct str *out, struct texts *texts);

#endif
