/* Byte-pair encoding: merges the symbols of a word pair by pair, lowest rank first, leftmost among equals.
 *
 * A symbol is a byte (byte-level BPE, vocab.in_bytes) or a character. A symbol that the vocabulary lacks
 * becomes byte tokens, unk_token, or nothing (bpe_symbols.h). bpe_encode.h makes ids of words. Three methods
 * keep that fast; all give the result of merging the whole word:
 *
 * - A word is cut between two symbols that no merge ever joins (`joins`). For sentencepiece models a document
 *   is one word, and this splits it into words again.
 * - A piece in the vocabulary is usually the result of its merges. ferry merges it once to find out, and
 *   remembers the answer per id (`whole`).
 * - A long piece is merged window by window (bpe_long.c), in memory that does not grow with it.
 *
 * Once loaded, a bpe is read-only, except for `whole`, which uses relaxed atomics. Any thread may use it.
 */
#ifndef FERRY_DATA_TOKENIZER_BPE_H
#define FERRY_DATA_TOKENIZER_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "data/tokenizer/token_list.h"
#include "data/tokenizer/vocab.h"

struct bpe_merge {
	int32_t left, right; /* left -1 = empty slot */
	int32_t rank;
	int32_t id; /* of the merged symbol */
};

enum { BPE_JOINS_BITS = 20, BPE_SYMBOLS_SMALL = 40, BPE_SYMBOLS_WINDOW = 1024 };

enum bpe_whole { BPE_WHOLE_UNKNOWN, BPE_WHOLE_YES, BPE_WHOLE_NO };

struct bpe {
	const struct vocab *vocab;
	struct bpe_merge *merges; /* hash table by (left, right) */
	int64_t merge_slots;
	uint64_t *joins; /* bit of a hash of (last symbol of left, first symbol of right); NULL: never cut */
	int32_t byte_ids[256];  /* of byte symbols, or of byte tokens; -1 if missing */
	int32_t ascii_ids[128]; /* of characters, if words are text; -1 if missing */
	int byte_fallback;      /* a missing character becomes byte tokens, if all of them exist */
	int32_t unk_id;         /* replaces a missing symbol; -1 = the symbol vanishes */
	int fuse_unk;           /* neighbouring missing symbols give one unk_id */
	int ignore_merges;      /* a word in the vocabulary is one token */
	char *prefix, *suffix;  /* of symbols after the first, and of the last; NULL = none */
	uint8_t *whole;         /* [whole_end] enum bpe_whole */
	int64_t whole_end;
};

static inline uint64_t bpe_hash(int32_t left, int32_t right)
{
	uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;

	return h ^ h >> 32;
}

static inline const struct bpe_merge *bpe_find_merge(const struct bpe *b, int32_t left, int32_t right)
{
	uint64_t mask = (uint64_t)b->merge_slots - 1;

	for (uint64_t i = bpe_hash(left, right) & mask;; i = (i + 1) & mask) {
		const struct bpe_merge *m = &b->merges[i];

		if (m->left == left && m->right == right)
			return m;
		if (m->left < 0)
			return NULL;
	}
}

/* 0 only if no merge ever joins these two neighbouring symbols. */
static inline int bpe_may_join(const struct bpe *b, int32_t left, int32_t right)
{
	uint64_t bit;

	if (!b->joins)
		return 1;
	bit = bpe_hash(left, right) >> (64 - BPE_JOINS_BITS);
	return b->joins[bit / 64] >> bit % 64 & 1;
}

/* Working memory of one thread. Zero-initialise; bpe_scratch_free. */
struct bpe_scratch {
	int64_t window; /* symbols to merge at once, for tests; 0 = BPE_SYMBOLS_WINDOW */
	struct bpe_symbol *symbols;
	struct bpe_candidate *heap;
	int64_t symbol_cap;        /* the heap has room for three times as many */
	struct token_list segment; /* symbols between two cuts */
	struct token_list now[2],
	        next[2]; /* for long pieces: ids of a window, and the number of symbols of each */
};

static inline int64_t bpe_window(const struct bpe_scratch *scratch)
{
	return scratch->window ? scratch->window : BPE_SYMBOLS_WINDOW;
}

/* Merges ids[*count] in place. */
int bpe_merge_symbols(const struct bpe *b, struct bpe_scratch *scratch, int32_t *ids, int64_t *count);

/* Merges symbols[count] into out[0] (ids) and out[1] (the number of symbols of each). */
int bpe_merge_window(const struct bpe *b, struct bpe_scratch *scratch, struct token_list out[2],
        const int32_t *symbols, int64_t count);

void bpe_scratch_free(struct bpe_scratch *scratch);

#endif
