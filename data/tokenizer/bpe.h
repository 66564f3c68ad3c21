/* Byte-pair encoding of one word: its bytes, merged pair by pair, lowest rank first, leftmost among equals.
 *
 * A word that is in the vocabulary usually *is* the result; whether the merges really lead to it is found out
 * the first time and remembered per id, so most words cost one look-up. Others are merged in a small array
 * (short words) or with a heap (long ones, O(n log n)).
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

struct bpe {
	struct vocab vocab;
	struct bpe_merge *merges; /* hash table by (left, right) */
	int64_t merge_slots, merge_count;
	int32_t byte_ids[256]; /* -1 where the vocabulary lacks the byte */
	int32_t unk_id;        /* stands for a missing byte; -1 = the byte vanishes */
	int fuse_unk;          /* neighbouring missing bytes give one unk_id */
	int ignore_merges;     /* a word in the vocabulary is taken whole */
	uint8_t *whole;        /* [vocab.id_end] enum bpe_whole */
};

enum bpe_whole { BPE_WHOLE_UNKNOWN, BPE_WHOLE_YES, BPE_WHOLE_NO };

/* Working memory of one thread. Zero-initialise; bpe_scratch_free. */
struct bpe_scratch {
	struct bpe_symbol *symbols;
	struct bpe_candidate *heap;
	int64_t symbol_cap; /* the heap has room for three times as many */
};

/* After the vocabulary is complete: a merge with the rank of its place in the file. A repeated pair takes the
 * later rank. ERR_INPUT when left, right or their concatenation is not in the vocabulary (without `where`).
 */
int bpe_begin_merges(struct bpe *b, int64_t merge_count);
int bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t rank);
void bpe_free(struct bpe *b);

/* Appends the ids of one word. ERR_NOMEM, or ERR_INPUT beyond 2^31 - 1 bytes. */
int bpe_encode(const struct bpe *b, struct bpe_scratch *scratch, struct token_list *ids, const char *word,
        size_t len_bytes);
void bpe_scratch_free(struct bpe_scratch *scratch);

#endif
