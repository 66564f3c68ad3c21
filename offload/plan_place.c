/* Placing: every buffer gets an offset in its space from its lifetime, so that the peak is known before
 * anything is allocated and nothing fragments. Persistent buffers come first, in the order in which they were
 * added, and so lie at the same place in every plan of one policy. The others are placed greedily, large
 * before small, each at the lowest offset where no buffer alive at the same time lies (Pisarchyk and Lee
 * 2020, "greedy by size"). Ranks before sizes keep what copies touch apart from what work touches, which
 * spares waits, and mostly cost nothing; where they cost memory, a coarser order is taken. */
#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "offload/plan_parts.h"

#include <stdlib.h>
#include <string.h>

enum { PLACE_ALIGN = 256 };

/* Which ranks go before which, finest first. PERSISTENT is before all in each. */
enum place_order { ORDER_ALL_RANKS, ORDER_WORK_FIRST, ORDER_SIZE_ONLY, ORDER_COUNT };
typedef int place_fn(const void *a, const void *b);

static int place_compare(const void *a, const void *b, enum place_order order)
{
	static const int ranks[ORDER_COUNT][PLACE_WEIGHT + 1] = {
	        [ORDER_ALL_RANKS] = {0, 1, 2, 3},
	        [ORDER_WORK_FIRST] = {0, 1, 2, 2},
	        [ORDER_SIZE_ONLY] = {0, 1, 1, 1},
	};
	const struct plan_buffer *x = *(const struct plan_buffer *const *)a;
	const struct plan_buffer *y = *(const struct plan_buffer *const *)b;
	int x_rank = ranks[order][x->place_rank], y_rank = ranks[order][y->place_rank];

	if (x_rank != y_rank)
		return x_rank < y_rank ? -1 : 1;
	if (x->place_rank != PLACE_PERSISTENT && x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x < y ? -1 : x > y; /* order of adding */
}

static int compare_all_ranks(const void *a, const void *b)
{
	return place_compare(a, b, ORDER_ALL_RANKS);
}

static int compare_work_first(const void *a, const void *b)
{
	return place_compare(a, b, ORDER_WORK_FIRST);
}

static int compare_size_only(const void *a, const void *b)
{
	return place_compare(a, b, ORDER_SIZE_ONLY);
}

/* A transient buffer that has its place, in a list by offset. */
struct placed {
	int64_t offset, end; /* the end rounded up */
	int first_op, last_op;
};

/* Lowest offset >= base where `b` fits between the placed buffers that live at the same time. */
static int64_t place_find(
        const struct plan_buffer *b, const struct placed *placed, int placed_count, int64_t base)
{
	int64_t at = base;

	for (int i = 0; i < placed_count && at + b->bytes > placed[i].offset; i++)
		if (placed[i].end > at && placed[i].first_op <= b->last_op &&
		        b->first_op <= placed[i].last_op)
			at = placed[i].end;
	return at;
}

static void placed_insert(struct placed *placed, int placed_count, const struct plan_buffer *b)
{
	int low = 0, high = placed_count;

	while (low < high) {
		int middle = low + (high - low) / 2;

		if (placed[middle].offset <= b->offset)
			low = middle + 1;
		else
			high = middle;
	}
	memmove(placed + low + 1, placed + low, (size_t)(placed_count - low) * sizeof(*placed));
	placed[low] = (struct placed){
	        b->offset, round_up(b->offset + b->bytes, PLACE_ALIGN), b->first_op, b->last_op};
}

/* Returns the end of the space; INT64_MAX where that is not below `limit`: then not all are placed.
 * *is_whole: its last bytes are of a buffer that is touched to its end (work areas are as large as the
 * longest micro-batch may need). */
static int64_t place_space(struct plan *p, enum plan_space space, enum place_order order, int64_t limit,
        struct plan_buffer **sorted, struct placed *placed, int *is_whole)
{
	static place_fn *const compares[ORDER_COUNT] = {
	        compare_all_ranks, compare_work_first, compare_size_only};
	int count = 0, placed_count = 0;
	int64_t base = 0, most = 0;

	for (int i = 0; i < p->buffer_count; i++)
		if (p->buffers[i].space == space && (p->buffers[i].persistent || p->buffers[i].first_op >= 0))
			sorted[count++] = &p->buffers[i];
	qsort(sorted, (size_t)count, sizeof(*sorted), compares[order]);
	*is_whole = 1;
	for (int i = 0; i < count && most < limit; i++) {
		struct plan_buffer *b = sorted[i];
		int64_t end;

		if (b->persistent) {
			b->offset = base;
			base = round_up(base + b->bytes, PLACE_ALIGN);
		} else {
			b->offset = place_find(b, placed, placed_count, base);
			placed_insert(placed, placed_count++, b);
		}
		end = b->offset + b->bytes;
		if (end > most || (end == most && b->place_rank != PLACE_WORK))
			*is_whole = b->place_rank != PLACE_WORK;
		most = end > most ? end : most;
		if (b->persistent && end > p->persistent_bytes[space])
			p->persistent_bytes[space] = end;
	}
	return most < limit ? most : INT64_MAX;
}

int plan_place(struct plan *p)
{
	struct plan_buffer **sorted = mem_alloc((size_t)p->buffer_count + 1, sizeof(*sorted));
	struct placed *placed = mem_alloc((size_t)p->buffer_count + 1, sizeof(*placed));
	int64_t *offsets = mem_alloc((size_t)p->buffer_count + 1, sizeof(*offsets));
	int rc = sorted && placed && offsets ? 0 : ERR_NOMEM;

	for (int space = 0; space < SPACE_COUNT && !rc; space++) {
		int64_t least = INT64_MAX;
		int is_whole;

		for (int order = 0; order < (space == SPACE_DEVICE ? ORDER_COUNT : 1); order++) {
			int64_t bytes = place_space(p, (enum plan_space)space, (enum place_order)order, least,
			        sorted, placed, &is_whole);

			if (bytes >= least || (!is_whole && order))
				continue;
			least = bytes;
			for (int i = 0; i < p->buffer_count; i++)
				offsets[i] = p->buffers[i].offset;
		}
		for (int i = 0; i < p->buffer_count; i++)
			p->buffers[i].offset = offsets[i];
		p->space_bytes[space] = least;
	}
	mem_free(offsets);
	mem_free(sorted);
	mem_free(placed);
	return rc;
}

/* After the last use of each transient device buffer, on the queue of that use. Operations are numbered anew.
 */
int plan_insert_discards(struct plan *p)
{
	int old_count = p->op_count, buffer_count = p->buffer_count;
	struct plan_op *old = p->ops;
	int *moved = mem_alloc((size_t)old_count + 1, sizeof(*moved));
	int rc = moved ? 0 : ERR_NOMEM;

	if (rc)
		return rc;
	p->ops = NULL;
	p->op_count = p->op_cap = 0;
	for (int i = 0; i < old_count; i++) {
		int n = plan_add_op(p, old[i].kind, old[i].queue, old[i].unit, old[i].stage, old[i].micro);

		if (n < 0)
			break;
		p->ops[n] = old[i];
		moved[i] = n;
		for (int j = 0; j < buffer_count; j++) {
			struct plan_buffer *b = &p->buffers[j];

			if (b->space != SPACE_DEVICE || b->persistent || b->first_op < 0 || b->last_op != i)
				continue;
			plan_add_op(p, PLAN_DISCARD, old[i].queue, b->unit, -1, b->micro);
			plan_add_arg(p, ARG_DST, j, ACCESS_WRITE);
			b->last_op = i; /* in old numbers until all are moved */
		}
	}
	rc = plan_parts_check(p);
	for (int j = 0; j < buffer_count && !rc; j++) {
		struct plan_buffer *b = &p->buffers[j];
		int discards = b->space == SPACE_DEVICE && !b->persistent;

		if (b->first_op < 0)
			continue;
		b->first_op = moved[b->first_op];
		b->last_op = moved[b->last_op];
		for (int n = b->last_op + 1; discards && n < p->op_count && p->ops[n].kind == PLAN_DISCARD;
		        n++)
			if (p->args[p->ops[n].first_arg].buffer == j)
				b->last_op = n;
	}
	mem_free(old);
	mem_free(moved);
	return rc;
}
