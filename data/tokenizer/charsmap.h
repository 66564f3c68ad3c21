/* The precompiled_charsmap of a sentencepiece model: what becomes of a character or of a short grapheme.
 *
 * A double-array trie (Darts) whose values are offsets of NUL-terminated texts. As HF tokenizers uses it: a
 * grapheme cluster of at most 5 bytes is replaced whole by the text of the shortest entry that begins it;
 * where no entry begins it, and in longer clusters, the same holds for each character.
 */
#ifndef FERRY_DATA_TOKENIZER_CHARSMAP_H
#define FERRY_DATA_TOKENIZER_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

struct charsmap {
	uint32_t *units;
	size_t unit_count;
	char *texts; /* NUL at the end */
	size_t texts_bytes;
	uint8_t ascii_same[128]; /* the character stands for itself */
};

/* From its base64 form. ERR_INPUT says what is wrong, without a place. */
int charsmap_load(struct charsmap *m, const char *base64, size_t len_bytes);
void charsmap_free(struct charsmap *m);

/* Appends what becomes of text (valid UTF-8). */
int charsmap_append(const struct charsmap *m, struct str *out, const char *text, size_t len_bytes);

#endif
