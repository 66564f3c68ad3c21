/* The decoder of tokenizer.json: converts the texts of tokens to one text.
 *
 * It is a list of steps. Each step rewrites the list of texts from the step before; at the end the texts are
 * joined. Each kind of step is one row of a table. Without a decoder, spaces join the texts.
 */
#ifndef FERRY_DATA_TOKENIZER_DECODER_H
#define FERRY_DATA_TOKENIZER_DECODER_H

#include <jansson.h>
#include <stddef.h>

#include "base/str.h"
#include "data/tokenizer/pattern.h"

enum { DECODER_STEPS_MAX = 32 };

/* Texts one after another; text i ends at ends[i]. Zero-initialise; texts_free. */
struct texts {
	struct str bytes;
	size_t *ends;
	int64_t count, cap;
};

/* Ends a text: it has all bytes after the last end. */
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

/* Loads the value of "decoder", which may be null or absent. ERR_UNSUPPORTED names the unsupported part. */
int decoder_load(struct decoder *d, const json_t *spec, const char *where);
void decoder_free(struct decoder *d);

/* Appends the text of tokens. Each text in `texts` is valid UTF-8, and so is the result. `texts` is not valid
 * afterwards. */
int decoder_run(const struct decoder *d, struct str *out, struct texts *texts);

#endif
