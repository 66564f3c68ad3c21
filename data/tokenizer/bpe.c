#include "data/tokenizer/bpe.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

enum { SMALL_SYMBOLS = 40 };

struct bpe_symbol {
	int32_t id; /* -1 = merged into the symbol before it */
	int32_t previous, next;
};

/* A pair that could be merged when it was seen; stale once either symbol has changed. */
struct bpe_candidate {
	int32_t rank, position;
	int32_t left, right, id;
};

static uint64_t merge_hash(int32_t left, int32_t right)
{
	uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;

	return h ^ h >> 32;
}

static const struct bpe_merge *find_merge(const struct bpe *b, int32_t left, int32_t right)
{
	uint64_t mask = (uint64_t)b->merge_slots - 1;

	for (uint64_t i = merge_hash(left, right) & mask;; i = (i + 1) & mask) {
		const struct bpe_merge *m = &b->merges[i];

		if (m->left == left && m->right == right)
			return m;
		if (m->left < 0)
			return NULL;
	}
}

int bpe_begin_merges(struct bpe *b, int64_t merge_count)
{
	for (b->merge_slots = 16; b->merge_slots < merge_count * 2;)
		b->merge_slots *= 2;
	b->merges = mem_alloc((size_t)b->merge_slots, sizeof(*b->merges));
	b->whole = mem_alloc((size_t)b->vocab.id_end, 1);
	if (!b->merges || !b->whole)
		return ERR_NOMEM;
	for (int64_t i = 0; i < b->merge_slots; i++)
		b->merges[i].left = -1;
	for (int byte = 0; byte < 256; byte++) {
		unsigned char bytes[1] = {(unsigned char)byte};

		b->byte_ids[byte] = vocab_find(&b->vocab, bytes, 1);
	}
	return 0;
}

/* The id of the bytes of left and right together, or -1. */
static int concatenation(const struct bpe *b, int32_t *id, int32_t left, int32_t right)
{
	struct str both = {0};
	size_t len_bytes;
	const char *bytes = vocab_bytes(&b->vocab, left, &len_bytes);
	int rc;

	str_add_bytes(&both, bytes, len_bytes);
	bytes = vocab_bytes(&b->vocab, right, &len_bytes);
	str_add_bytes(&both, bytes, len_bytes);
	rc = str_check(&both);
	if (rc == 0)
		*id = vocab_find(&b->vocab, both.data, both.len_bytes);
	str_free(&both);
	return rc;
}

int bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t rank)
{
	uint64_t mask = (uint64_t)b->merge_slots - 1, i = merge_hash(left, right) & mask;
	int32_t id = -1;

	if (b->vocab.entries[left].kind || b->vocab.entries[right].kind)
		return err_set(ERR_INPUT, "a part is not spelled in the byte alphabet");
	if (concatenation(b, &id, left, right) < 0)
		return ERR_NOMEM;
	if (id < 0)
		return err_set(ERR_INPUT, "the vocabulary lacks the two together");
	while (b->merges[i].left >= 0 && (b->merges[i].left != left || b->merges[i].right != right))
		i = (i + 1) & mask;
	b->merge_count += b->merges[i].left < 0;
	b->merges[i] = (struct bpe_merge){.left = left, .right = right, .rank = rank, .id = id};
	return 0;
}

void bpe_free(struct bpe *b)
{
	vocab_free(&b->vocab);
	mem_free(b->merges);
	mem_free(b->whole);
	*b = (struct bpe){0};
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
	mem_free(scratch->symbols);
	mem_free(scratch->heap);
	*scratch = (struct bpe_scratch){0};
}

/* The ids of the single bytes into out[len_bytes]; missing ones become unk_id or nothing. Returns how many.
 */
static int64_t byte_symbols(const struct bpe *b, int32_t *out, const char *word, size_t len_bytes)
{
	int64_t count = 0;
	int fusing = 0;

	for (size_t i = 0; i < len_bytes; i++) {
		int32_t id = b->byte_ids[(unsigned char)word[i]];

		if (id >= 0) {
			out[count++] = id;
		} else if (b->unk_id >= 0 && !(fusing && b->fuse_unk)) {
			out[count++] = b->unk_id;
		}
		fusing = id < 0;
	}
	return count;
}

/* Merges ids[count], count <= SMALL_SYMBOLS, in place; returns how many are left. */
static int64_t merge_small(const struct bpe *b, int32_t *ids, int64_t count)
{
	const struct bpe_merge *pairs[SMALL_SYMBOLS]; /* what symbol i and the next would become */

	for (int64_t i = 0; i + 1 < count; i++)
		pairs[i] = find_merge(b, ids[i], ids[i + 1]);
	for (;;) {
		int64_t best = -1;

		for (int64_t i = 0; i + 1 < count; i++)
			if (pairs[i] && (best < 0 || pairs[i]->rank < pairs[best]->rank))
				best = i;
		if (best < 0)
			return count;
		ids[best] = pairs[best]->id;
		count--;
		memmove(ids + best + 1, ids + best + 2, (size_t)(count - best - 1) * sizeof(*ids));
		memmove(pairs + best, pairs + best + 1, (size_t)(count - best - 1) * sizeof(pairs[0]));
		if (best + 1 < count)
			pairs[best] = find_merge(b, ids[best], ids[best + 1]);
		if (best > 0)
			pairs[best - 1] = find_merge(b, ids[best - 1], ids[best]);
	}
}

static int is_before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->position < b->position;
}

static void heap_push(struct bpe_candidate *heap, int64_t *count, struct bpe_candidate c)
{
	int64_t i = (*count)++;

	for (; i > 0 && is_before(&c, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = c;
}

static struct bpe_candidate heap_pop(struct bpe_candidate *heap, int64_t *count)
{
	struct bpe_candidate top = heap[0], last = heap[--*count];
	int64_t i = 0, child;

	while ((child = 2 * i + 1) < *count) {
		if (child + 1 < *count && is_before(&heap[child + 1], &heap[child]))
			child++;
		if (!is_before(&heap[child], &last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return top;
}

/* Puts the pair that begins at `position` on the heap, if it can be merged. */
static void consider(const struct bpe *b, struct bpe_scratch *scratch, int64_t *heap_count, int32_t position)
{
	const struct bpe_symbol *symbols = scratch->symbols;
	int32_t next = position >= 0 ? symbols[position].next : -1;
	const struct bpe_merge *m = next >= 0 ? find_merge(b, symbols[position].id, symbols[next].id) : NULL;

	if (m)
		heap_push(scratch->heap, heap_count,
		        (struct bpe_candidate){.rank = m->rank,
		                .position = position,
		                .left = m->left,
		                .right = m->right,
		                .id = m->id});
}

static int reserve(struct bpe_scratch *scratch, int64_t count)
{
	struct bpe_symbol *symbols;
	struct bpe_candidate *heap;

	if (count <= scratch->symbol_cap)
		return 0;
	symbols = mem_resize(scratch->symbols, (size_t)count, sizeof(*symbols));
	if (!symbols)
		return ERR_NOMEM;
	scratch->symbols = symbols;
	/* one candidate per pair at first, and at most two for each of the count - 1 merges */
	heap = mem_resize(scratch->heap, (size_t)count * 3, sizeof(*heap));
	if (!heap)
		return ERR_NOMEM;
	scratch->heap = heap;
	scratch->symbol_cap = count;
	return 0;
}

/* Merges ids[*count] in place with the heap. */
static int merge_large(const struct bpe *b, struct bpe_scratch *scratch, int32_t *ids, int64_t *count)
{
	int64_t heap_count = 0, kept = 0;
	struct bpe_symbol *symbols;
	int rc = reserve(scratch, *count);

	if (rc < 0)
		return rc;
	symbols = scratch->symbols;
	for (int32_t i = 0; i < *count; i++)
		symbols[i] = (struct bpe_symbol){
		        .id = ids[i], .previous = i - 1, .next = i + 1 < *count ? i + 1 : -1};
	for (int32_t i = 0; i + 1 < *count; i++)
		consider(b, scratch, &heap_count, i);
	while (heap_count > 0) {
		struct bpe_candidate c = heap_pop(scratch->heap, &heap_count);
		struct bpe_symbol *left = &symbols[c.position];

		if (left->id != c.left || left->next < 0 || symbols[left->next].id != c.right)
			continue;
		struct bpe_symbol *right = &symbols[left->next];

		left->id = c.id;
		left->next = right->next;
		right->id = -1;
		if (left->next >= 0)
			symbols[left->next].previous = c.position;
		consider(b, scratch, &heap_count, left->previous);
		consider(b, scratch, &heap_count, c.position);
	}
	for (int32_t i = 0; i >= 0 && kept < *count; i = symbols[i].next)
		ids[kept++] = symbols[i].id;
	*count = kept;
	return 0;
}

/* Appends what the merges make of a word. */
static int merge_word(const struct bpe *b, struct bpe_scratch *scratch, struct token_list *ids,
        const char *word, size_t len_bytes)
{
	int64_t count;
	int rc = token_list_reserve(ids, (int64_t)len_bytes);

	if (rc < 0)
		return rc;
	count = byte_symbols(b, ids->ids + ids->count, word, len_bytes);
	if (count <= SMALL_SYMBOLS)
		count = merge_small(b, ids->ids + ids->count, count);
	else
		rc = merge_large(b, scratch, ids->ids + ids->count, &count);
	if (rc == 0)
		ids->count += count;
	return rc;
}

int bpe_encode(const struct bpe *b, struct bpe_scratch *scratch, struct token_list *ids, const char *word,
        size_t len_bytes)
{
	int32_t id = vocab_find(&b->vocab, word, len_bytes);
	int64_t before = ids->count;
	uint8_t whole;
	int rc;

	if (len_bytes > INT32_MAX)
		return err_set(ERR_INPUT, "a single piece of %zu bytes; 2^31 - 1 is the limit", len_bytes);
	if (id >= 0 && b->ignore_merges)
		return token_list_add(ids, id);
	whole = id >= 0 ? __atomic_load_n(&b->whole[id], __ATOMIC_RELAXED) : BPE_WHOLE_NO;
	if (whole == BPE_WHOLE_YES)
		return token_list_add(ids, id);
	rc = merge_word(b, scratch, ids, word, len_bytes);
	if (rc == 0 && whole == BPE_WHOLE_UNKNOWN) {
		whole = ids->count == before + 1 && ids->ids[before] == id ? BPE_WHOLE_YES : BPE_WHOLE_NO;
		__atomic_store_n(&b->whole[id], whole, __ATOMIC_RELAXED);
	}
	return rc;
}
