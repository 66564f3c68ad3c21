/* The normalizer of tokenizer.json: a list of steps. Each step rewrites the text from the step before.
 *
 * Each kind of step is one row of a table: its name and keys in the file, and functions to load and run it.
 */
#ifndef FERRY_DATA_TOKENIZER_NORMALIZER_H
#define FERRY_DATA_TOKENIZER_NORMALIZER_H

#include <jansson.h>
#include <stddef.h>

#include "base/str.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/pattern.h"

enum {
	NORMALIZER_STEPS_MAX = 32,
	NORMALIZER_GROWTH = 32, /* NFKC: 18 */
	NORMALIZER_BYTES = 16 << 20,
	NORMALIZER_BYTES_MAX = 1 << 30
};

struct normalizer_kind;

struct normalizer {
	struct normalizer_step {
		const struct normalizer_kind *kind;
		unsigned flags; /* of the kind */
		struct pattern *pattern;
		char *content; /* [content_bytes] the text to insert */
		size_t content_bytes;
		struct charsmap map;
	} steps[NORMALIZER_STEPS_MAX];
	int step_count;
};

/* Loads the value of "normalizer", which may be null or absent. ERR_UNSUPPORTED names the unsupported
 * part. */
int normalizer_load(struct normalizer *n, const json_t *spec, const char *where);
void normalizer_free(struct normalizer *n);

/* A text that goes on after another one gets no space in front that is not in it. If its own first space is
 * lost on the way, as in models that remove spaces at the ends, the one in front stands for it. */
enum normal_front {
	NORMAL_FRONT_START,  /* the text begins here */
	NORMAL_FRONT_JOINED, /* it goes on, and begins with no space */
	NORMAL_FRONT_SPACE,  /* it goes on, and begins with a space */
};

/* A normalized text, and the working memory of one thread. Zero-initialise; normal_text_free. */
struct normal_text {
	const char *text; /* the caller's text, or in one of the buffers */
	size_t len_bytes;
	enum normal_front front;
	size_t most_bytes; /* a longer result is an error */
	size_t head_bytes; /* bytes that come from the first character of the caller's text */
	struct str buffers[2];
};

/* Normalizes text (valid UTF-8). ERR_UNSUPPORTED if the text grows beyond measure: NORMALIZER_GROWTH times,
 * if that is more than NORMALIZER_BYTES, or beyond NORMALIZER_BYTES_MAX. */
int normalizer_run(const struct normalizer *n, struct normal_text *out, const char *text, size_t len_bytes,
        enum normal_front front);
void normal_text_free(struct normal_text *t);

#endif
