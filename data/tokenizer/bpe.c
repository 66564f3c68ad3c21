/* Merges pairs of symbols. */
#include "data/tokenizer/bpe.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct bpe_symbol {
	int32_t id; /* -1 = merged into the symbol before it */
	int32_t previous, next;
};

/* A possible merge when it was found; outdated once either symbol has changed. */
struct bpe_candidate {
	int32_t rank, position;
	int32_t left, right, id;
};

void bpe_scratch_free(struct bpe_scratch *scratch)
{
	mem_free(scratch->symbols);
	mem_free(scratch->heap);
	token_list_free(&scratch->segment);
	for (int i = 0; i < 2; i++) {
		token_list_free(&scratch->now[i]);
		token_list_free(&scratch->next[i]);
	}
	*scratch = (struct bpe_scratch){0};
}

/* Merges ids[count], count <= BPE_SYMBOLS_SMALL, in place; returns the new count. */
static int64_t merge_small(const struct bpe *b, int32_t *ids, int64_t count)
{
	const struct bpe_merge *pairs[BPE_SYMBOLS_SMALL]; /* the merge of symbol i and the next, or NULL */

	for (int64_t i = 0; i + 1 < count; i++)
		pairs[i] = bpe_find_merge(b, ids[i], ids[i + 1]);
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
			pairs[best] = bpe_find_merge(b, ids[best], ids[best + 1]);
		if (best > 0)
			pairs[best - 1] = bpe_find_merge(b, ids[best - 1], ids[best]);
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

/* Puts the pair at `position` on the heap, if a merge joins it. */
static void consider(const struct bpe *b, struct bpe_scratch *scratch, int64_t *heap_count, int32_t position)
{
	const struct bpe_symbol *symbols = scratch->symbols;
	int32_t next = position >= 0 ? symbols[position].next : -1;
	const struct bpe_merge *m =
	        next >= 0 ? bpe_find_merge(b, symbols[position].id, symbols[next].id) : NULL;

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
	if (count > INT32_MAX)
		return err_set(
		        ERR_INPUT, "a single piece of %lld symbols; the limit is 2^31 - 1", (long long)count);
	symbols = mem_resize(scratch->symbols, (size_t)count, sizeof(*symbols));
	if (!symbols)
		return ERR_NOMEM;
	scratch->symbols = symbols;
	/* one candidate per pair at first, then at most two for each of the count - 1 merges */
	heap = mem_resize(scratch->heap, (size_t)count * 3, sizeof(*heap));
	if (!heap)
		return ERR_NOMEM;
	scratch->heap = heap;
	scratch->symbol_cap = count;
	return 0;
}

/* Merges with a heap. The result is a linked list in scratch->symbols that begins with the first. */
static int merge_by_heap(const struct bpe *b, struct bpe_scratch *scratch, const int32_t *ids, int64_t count)
{
	int64_t heap_count = 0;
	struct bpe_symbol *symbols;
	int rc = reserve(scratch, count);

	if (rc < 0)
		return rc;
	symbols = scratch->symbols;
	for (int32_t i = 0; i < count; i++)
		symbols[i] = (struct bpe_symbol){
		        .id = ids[i], .previous = i - 1, .next = i + 1 < count ? i + 1 : -1};
	for (int32_t i = 0; i + 1 < count; i++)
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
	return 0;
}

int bpe_merge_symbols(const struct bpe *b, struct bpe_scratch *scratch, int32_t *ids, int64_t *count)
{
	int64_t kept = 0;
	int rc;

	if (*count <= BPE_SYMBOLS_SMALL) {
		*count = merge_small(b, ids, *count);
		return 0;
	}
	rc = merge_by_heap(b, scratch, ids, *count);
	for (int32_t i = 0; rc == 0 && i >= 0; i = scratch->symbols[i].next)
		ids[kept++] = scratch->symbols[i].id;
	*count = kept;
	return rc;
}

int bpe_merge_window(const struct bpe *b, struct bpe_scratch *scratch, struct token_list out[2],
        const int32_t *symbols, int64_t count)
{
	int rc = merge_by_heap(b, scratch, symbols, count);

	out[0].count = out[1].count = 0;
	for (int32_t i = 0, next; rc == 0 && i >= 0 && count > 0; i = next) {
		next = scratch->symbols[i].next;
		rc = token_list_add(&out[0], scratch->symbols[i].id);
		if (rc == 0)
			rc = token_list_add(&out[1], (next >= 0 ? next : (int32_t)count) - i);
	}
	return rc;
}
