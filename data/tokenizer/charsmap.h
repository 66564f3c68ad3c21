/* The precompiled_charsmap of a sentencepiece model: replacements for characters and short graphemes.
 *
 * It is a double-array trie (Darts) with offsets of NUL-terminated texts as values. As in HF tokenizers, an
 * entry that is a prefix of a grapheme cluster replaces the whole cluster, if that has at most 5 bytes. The
 * shortest such entry counts. If there is none, or the cluster is longer, the same applies to each character.
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
	uint8_t ascii_same[128]; /* the character stays as it is */
};

/* Loads the map from its base64 form. Messages of ERR_INPUT lack the place. */
int charsmap_load(struct charsmap *m, const char *base64, size_t len_bytes);
void charsmap_free(struct charsmap *m);

/* Appends text (valid UTF-8) with its replacements. */
int charsmap_append(const struct charsmap *m, struct str *out, const char *text, size_t len_bytes);

#endif
