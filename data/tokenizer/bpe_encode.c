/* Encodes words: cuts them where no merge joins, looks pieces up, and merges the others. */
#include "data/tokenizer/bpe_encode.h"

#include "data/tokenizer/bpe_long.h"
#include "data/tokenizer/bpe_symbols.h"

/* For a piece with entry `id` in the vocabulary: appends id if its merges are known to give it. */
static int take_whole(const struct bpe *b, struct token_list *ids, int32_t id, enum bpe_whole *whole)
{
	*whole = id >= 0 ? __atomic_load_n(&b->whole[id], __ATOMIC_RELAXED) : BPE_WHOLE_NO;
	return *whole == BPE_WHOLE_YES ? token_list_add(ids, id) : 0;
}

static void note_whole(
        const struct bpe *b, const struct token_list *ids, int64_t before, int32_t id, enum bpe_whole was)
{
	if (was == BPE_WHOLE_UNKNOWN)
		__atomic_store_n(&b->whole[id],
		        ids->count == before + 1 && ids->ids[before] == id ? BPE_WHOLE_YES : BPE_WHOLE_NO,
		        __ATOMIC_RELAXED);
}

/* Appends the merged ids of scratch->segment; `text` is its text, or NULL. */
static int encode_segment(const struct bpe *b, struct bpe_scratch *scratch, struct token_list *ids,
        const char *text, size_t len_bytes)
{
	int64_t before = ids->count, count = scratch->segment.count;
	enum bpe_whole whole = BPE_WHOLE_NO;
	int32_t id = -1;
	int rc = 0;

	if (count == 1)
		return token_list_add(ids, scratch->segment.ids[0]);
	if (text && len_bytes <= b->vocab->longest_bytes) {
		id = vocab_find(b->vocab, text, len_bytes);
		rc = take_whole(b, ids, id, &whole);
		if (rc < 0 || whole == BPE_WHOLE_YES)
			return rc;
	}
	rc = token_list_append(ids, &scratch->segment);
	if (rc == 0)
		rc = bpe_merge_symbols(b, scratch, ids->ids + before, &count);
	if (rc < 0)
		return rc;
	ids->count = before + count;
	note_whole(b, ids, before, id, whole);
	return 0;
}

/* Appends the ids of a word, cut where no merge joins. */
static int encode_symbols(const struct bpe *b, struct bpe_scratch *scratch, struct token_list *ids,
        const char *word, size_t len_bytes)
{
	struct token_list *segment = &scratch->segment;
	struct bpe_symbols s;
	int64_t window = bpe_window(scratch);
	int rc = token_list_reserve(segment, window - segment->count);

	bpe_symbols_begin(&s, b, word, len_bytes);
	while (rc == 0 && s.id != BPE_END && !token_list_is_enough(ids)) {
		size_t start = s.start, end = s.end;
		int plain = !b->prefix && !b->suffix;
		int32_t last;

		segment->count = 0;
		do {
			segment->ids[segment->count++] = last = s.id;
			plain &= s.plain;
			end = s.end;
			bpe_symbols_next(&s);
		} while (s.id != BPE_END && segment->count < window && bpe_may_join(b, last, s.id));
		if (segment->count == window && s.id != BPE_END)
			rc = bpe_encode_long(&s, scratch, ids);
		else
			rc = encode_segment(b, scratch, ids, plain ? word + start : NULL, end - start);
	}
	return rc;
}

int bpe_encode(const struct bpe *b, struct bpe_scratch *scratch, struct token_list *ids, const char *word,
        size_t len_bytes)
{
	int64_t before = ids->count;
	int32_t id = len_bytes <= b->vocab->longest_bytes ? vocab_find(b->vocab, word, len_bytes) : -1;
	enum bpe_whole whole;
	int rc;

	if (id >= 0 && b->ignore_merges)
		return token_list_add(ids, id);
	rc = take_whole(b, ids, id, &whole);
	if (rc < 0 || whole == BPE_WHOLE_YES)
		return rc;
	rc = encode_symbols(b, scratch, ids, word, len_bytes);
	if (rc == 0 && !token_list_is_enough(ids))
		note_whole(b, ids, before, id, whole);
	return rc;
}
