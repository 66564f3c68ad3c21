/* Iterates over the symbols of a word. Private to BPE. */
#ifndef FERRY_DATA_TOKENIZER_BPE_SYMBOLS_H
#define FERRY_DATA_TOKENIZER_BPE_SYMBOLS_H

#include "data/tokenizer/bpe.h"

enum { BPE_END = -1 };

struct bpe_symbols {
	const struct bpe *b;
	const char *word;
	size_t len_bytes, at; /* at: the next character to read */

	int32_t id;        /* the current symbol, or BPE_END */
	size_t start, end; /* its place in the word, if `plain` */
	int plain;         /* it is that part of the word, not a replacement (byte token, unk_id) */

	/* An unk_id not returned yet. It waits for the next symbol, and byte tokens overtake it, as in HF
	 * tokenizers. */
	int unk_waits;
	int32_t queue[4]; /* symbols to return next */
	int queue_count, queue_at;
	size_t queue_start; /* place of the queued symbol, if queue_plain */
	int queue_plain;
};

/* Begins a word; the first symbol becomes the current one. */
void bpe_symbols_begin(struct bpe_symbols *s, const struct bpe *b, const char *word, size_t len_bytes);
void bpe_symbols_next(struct bpe_symbols *s);

#endif
