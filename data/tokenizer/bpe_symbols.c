/* Splits a word into the first symbols of byte-pair encoding. */
#include "data/tokenizer/bpe_symbols.h"

#include <string.h>

#include "data/tokenizer/unicode.h"

enum { AFFIXED_BYTES = 256 };

/* The id of the character at [start, end), with the prefix or suffix for its place. */
static int32_t char_id(const struct bpe_symbols *s, size_t start, size_t end)
{
	const struct bpe *b = s->b;
	const char *prefix = b->prefix && start > 0 ? b->prefix : "";
	const char *suffix = b->suffix && end == s->len_bytes ? b->suffix : "";
	size_t prefix_bytes = strlen(prefix), suffix_bytes = strlen(suffix), len = end - start;
	char text[AFFIXED_BYTES];

	if (prefix_bytes + suffix_bytes == 0)
		return vocab_find(b->vocab, s->word + start, len);
	memcpy(text, prefix, prefix_bytes);
	memcpy(text + prefix_bytes, s->word + start, len);
	memcpy(text + prefix_bytes + len, suffix, suffix_bytes);
	return vocab_find(b->vocab, text, prefix_bytes + len + suffix_bytes);
}

/* Queues the byte tokens of a character; 0 if one is missing. Byte tokens get no prefix or suffix. */
static int queue_bytes(struct bpe_symbols *s, size_t start, size_t end)
{
	const struct bpe *b = s->b;

	for (size_t i = start; i < end; i++)
		if (b->byte_ids[(unsigned char)s->word[i]] < 0)
			return 0;
	s->queue_at = s->queue_count = 0;
	s->queue_plain = 0;
	for (size_t i = start; i < end; i++)
		s->queue[s->queue_count++] = b->byte_ids[(unsigned char)s->word[i]];
	return 1;
}

static void put(struct bpe_symbols *s, int32_t id, size_t start, size_t end, int plain)
{
	s->id = id;
	s->start = start;
	s->end = end;
	s->plain = plain;
}

/* Makes a known symbol the current one; a waiting unk comes first. */
static void put_known(struct bpe_symbols *s, int32_t id, size_t start, size_t end)
{
	if (!s->unk_waits) {
		put(s, id, start, end, 1);
		return;
	}
	s->unk_waits = 0;
	s->queue[0] = id;
	s->queue_count = 1;
	s->queue_at = 0;
	s->queue_plain = 1;
	s->queue_start = start;
	put(s, s->b->unk_id, start, start, 0);
}

void bpe_symbols_next(struct bpe_symbols *s)
{
	const struct bpe *b = s->b;

	if (s->queue_at < s->queue_count) {
		put(s, s->queue[s->queue_at++], s->queue_start, s->at, s->queue_plain);
		return;
	}
	while (s->at < s->len_bytes) {
		unsigned char byte = (unsigned char)s->word[s->at];
		size_t start = s->at, len = 1;
		int32_t id;
		uint32_t c;

		if (b->vocab->in_bytes) {
			id = b->byte_ids[byte];
		} else if (byte < 0x80 && !b->prefix && !b->suffix) {
			id = b->ascii_ids[byte];
		} else {
			len = (size_t)utf8_get(s->word + start, &c);
			id = char_id(s, start, start + len);
		}
		s->at = start + len;
		if (id >= 0) {
			put_known(s, id, start, s->at);
			return;
		}
		if (b->byte_fallback && queue_bytes(s, start, s->at)) {
			bpe_symbols_next(s); /* recurses once: the queue is not empty */
			return;
		}
		if (b->unk_id < 0 || (s->unk_waits && b->fuse_unk))
			continue;
		if (s->unk_waits) {
			put(s, b->unk_id, start, start, 0);
			return;
		}
		s->unk_waits = 1;
	}
	put(s, s->unk_waits ? b->unk_id : BPE_END, s->len_bytes, s->len_bytes, 0);
	s->unk_waits = 0;
}

void bpe_symbols_begin(struct bpe_symbols *s, const struct bpe *b, const char *word, size_t len_bytes)
{
	*s = (struct bpe_symbols){.b = b, .word = word, .len_bytes = len_bytes};
	bpe_symbols_next(s);
}
