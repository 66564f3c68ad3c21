/* The symbols of a word, one after the other. Not for use outside of BPE. */
#ifndef FERRY_DATA_TOKENIZER_BPE_SYMBOLS_H
#define FERRY_DATA_TOKENIZER_BPE_SYMBOLS_H

#include "data/tokenizer/bpe.h"

enum { BPE_END = -1 };

struct bpe_symbols {
	const struct bpe *b;
	const char *word;
	size_t len_bytes, at; /* at: of the next character to look at */

	int32_t id;        /* the symbol that is in front, or BPE_END */
	size_t start, end; /* where it stands in the word, if */
	int plain;         /* it is that part of the word, and not something that stands for it */

	/* An unk_id that is not given out yet: it waits for what comes behind, and byte tokens overtake it,
	 * as they do in HF tokenizers. */
	int unk_waits;
	int32_t queue[4]; /* symbols that come next, before anything else */
	int queue_count, queue_at;
	size_t queue_start; /* where the queued one stands, if queue_plain */
	int queue_plain;
};

/* Begins a word, with its first symbol in front. */
void bpe_symbols_begin(struct bpe_symbols *s, const struct bpe *b, const char *word, size_t len_bytes);
void bpe_symbols_next(struct bpe_symbols *s);

#endif
