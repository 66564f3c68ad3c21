/* Byte-pair encoding: the symbols of a word, merged pair by pair, lowest rank first, leftmost among equals.
 *
 * A symbol is a byte (byte-level BPE, vocab.in_bytes) or a character; what the vocabulary lacks becomes byte
 * tokens, unk_token, or nothing (bpe_symbols.h). bpe_encode.h makes ids of words. Three things keep that
 * fast, and all give what merging the whole word gives:
 *
 * - Between two symbols that no merge ever joins, a word is cut (`joins`): sentencepiece models see a
 * document as one word, and this makes words of it again.
 * - A piece that is in the vocabulary usually *is* the result; whether the merges really lead to it is found
 * out the first time and remembered per id.
 * - A long piece is merged window by window (bpe_long.c), in memory that does not grow with it.
 *
 * Once loaded, a bpe is read-only but for that memory, which is kept by relaxed atomics: any thread.
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
	int32_t id; /* of the two together */
};

enum { BPE_JOINS_BITS = 20, BPE_SYMBOLS_SMALL = 40, BPE_SYMBOLS_WINDOW = 1024 };

enum bpe_whole { BPE_WHOLE_UNKNOWN, BPE_WHOLE_YES, BPE_WHOLE_NO };

struct bpe {
	const struct vocab *vocab;
	struct bpe_merge *merges; /* hash table by (left, right) */
	int64_t merge_slots;
	uint64_t *joins; /* bit of a hash of (last symbol of left, first symbol of right); NULL: never cut */
	int32_t byte_ids[256];  /* of byte symbols, or of byte tokens; -1 where the vocabulary lacks it */
	int32_t ascii_ids[128]; /* of characters, where words are text; -1 as above */
	int byte_fallback;      /* a missing character becomes byte tokens, if all of them exist */
	int32_t unk_id;         /* stands for a missing symbol; -1 = the symbol vanishes */
	int fuse_unk;           /* neighbouring missing symbols give one unk_id */
	int ignore_merges;      /* a word in the vocabulary is taken whole */
	char *prefix, *suffix;  /* of symbols behind the first, and of the last; NULL = none */
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

/* Whether a merge can ever join two neighbouring symbols; never 0 wrongly. */
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
	int64_t window; /* symbols that are merged at once, in tests; 0 = BPE_SYMBOLS_WINDOW */
	struct bpe_symbol *symbols;
	struct bpe_candidate *heap;
	int64_t symbol_cap;        /* the heap has room for three times as many */
	struct token_list segment; /* symbols that are not cut */
	struct token_list now[2],
	        next[2]; /* of long pieces: ids of a window, and of how many symbols each is */
};

static inline int64_t bpe_window(const struct bpe_scratch *scratch)
{
	return scratch->window ? scratch->window : BPE_SYMBOLS_WINDOW;
}

/* Merges ids[*count] in place. */
int bpe_merge_symbols(const struct bpe *b, struct bpe_scratch *scratch, int32_t *ids, int64_t *count);

/* Merges symbols[count] into out[0] (ids) and out[1] (how many symbols each is made of). */
int bpe_merge_window(const struct bpe *b, struct bpe_scratch *scratch, struct token_list out[2],
        const int32_t *symbols, int64_t count);

void bpe_scratch_free(struct bpe_scratch *scratch);

#endif
