/* Gives every buffer an offset in its space, so that the peak is known before anything is allocated. */
#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "offload/plan_parts.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Persistent buffers come first, in the order of adding, so they lie at the same place in every plan of a
 * policy. The others are placed greedily, large before small ("greedy by size", Pisarchyk and Lee 2020). Each
 * gets the lowest offset that no buffer alive at the same time uses. Placing by class before size keeps
 * buffers of copies and of work apart, which saves waits and mostly costs no memory. If it costs memory, a
 * coarser order is taken. These are the orders, finest first. */
enum place_order { ORDER_ALL_CLASSES, ORDER_WORK_FIRST, ORDER_SIZE_ONLY, ORDER_COUNT };
static const int classes[ORDER_COUNT][LAYOUT_WEIGHT + 1] = {
        [ORDER_ALL_CLASSES] = {0, 1, 2, 3},
        [ORDER_WORK_FIRST] = {0, 1, 2, 2},
        [ORDER_SIZE_ONLY] = {0, 1, 1, 1},
};

static int size_compare(const void *a, const void *b)
{
	const struct plan_buffer *x = *(const struct plan_buffer *const *)a;
	const struct plan_buffer *y = *(const struct plan_buffer *const *)b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x < y ? -1 : x > y; /* in the order of adding */
}

/* A transient buffer with its place, in lists sorted by offset. */
struct placed {
	int64_t offset, end; /* end is rounded up */
	int first_op, last_op;
};

/* Neighbours of a list, with what bounds them all. A search passes blocks that cannot be in its way, and
 * those that are in its way as a whole: micro-batches make rows of buffers that touch each other. */
enum { BLOCK_ITEMS = 64 };
struct placed_block {
	struct placed items[BLOCK_ITEMS];
	int count;
	int64_t end;           /* the highest */
	int first_op, last_op; /* the earliest and the latest */
	int begun_op, left_op; /* the latest first_op and the earliest last_op */
	int is_whole;          /* 1: no byte between its begin and its end is free; -1: not known */
};

struct placed_list {
	struct placed_block **blocks; /* `count` in use, then spare ones */
	int count, spare, cap;
	int64_t most_bytes; /* of any buffer in it */
	int block, item;    /* where the current search goes on */
};

/* Most buffers live for a few operations and overlap few others in time. So the operations are divided into
 * slices. Each slice has a list of the buffers alive in it; one list has the buffers that live long, one has
 * those alive at the peak, and one of each size class has all.
 *
 * Many micro-batches make stacks of long-lived buffers: block inputs, kept activations. A search need not
 * pass them all again. While buffers of one size are placed, a place that was taken at some time stays taken.
 * So each slice, and the peak, remember a floor: below it nothing of this size has room at their time. */
enum { SIZE_CLASSES = 40 };
enum {
	LIST_LONG,
	LIST_PEAK,
	LIST_ALL, /* the first of them */
	LIST_SLICES = LIST_ALL + SIZE_CLASSES,
};
enum { SLICES = 128, SLICES_SHORT = 8 };

/* No gap of `bytes` lies below `at`. */
struct floor {
	int64_t at, bytes;
};

struct place {
	struct plan *p;
	/* Buffers of a space: in the present order, and by size. */
	struct plan_buffer **sorted, **by_size;
	int count, persistent_count; /* persistent ones come first, as they were added */
	struct placed_list *lists;
	struct floor *floors; /* of each slice, and of the peak */
	int peak;             /* operation with the most bytes alive */
};

static int slice_of(const struct place *s, int op)
{
	return (int)((int64_t)op * SLICES / s->p->op_count);
}

static int lives_long(const struct place *s, const struct plan_buffer *b)
{
	return slice_of(s, b->last_op) - slice_of(s, b->first_op) >= SLICES_SHORT;
}

static int block_is_whole(struct placed_block *block)
{
	int64_t end = block->items[0].end;

	if (block->is_whole >= 0)
		return block->is_whole;
	block->is_whole = 1;
	for (int i = 1; i < block->count && block->is_whole; i++) {
		block->is_whole = block->items[i].offset <= end;
		end = max_i64(end, block->items[i].end);
	}
	return block->is_whole;
}

/* Raises *at above the buffers of the list that are in the way. Returns whether it did. */
static int placed_pass(struct placed_list *l, int64_t *at, const struct plan_buffer *b)
{
	int64_t from = *at;

	for (; l->block < l->count; l->block++, l->item = 0) {
		struct placed_block *block = l->blocks[l->block];

		if (block->items[0].offset >= *at + b->bytes)
			break;
		if (block->end <= *at || block->first_op > b->last_op || b->first_op > block->last_op)
			continue;
		if (!l->item && block->begun_op <= b->last_op && b->first_op <= block->left_op &&
		        block_is_whole(block)) {
			*at = block->end;
			continue;
		}
		for (; l->item < block->count; l->item++) {
			const struct placed *x = &block->items[l->item];

			if (x->offset >= *at + b->bytes)
				return *at > from;
			if (x->end > *at && x->first_op <= b->last_op && b->first_op <= x->last_op)
				*at = x->end;
		}
	}
	return *at > from;
}

static int lives_at_peak(const struct place *s, const struct plan_buffer *b)
{
	return b->first_op <= s->peak && s->peak <= b->last_op;
}

/* Begins the search of a list at the first block that may reach above `at`. */
static void placed_begin(struct placed_list *l, int64_t at)
{
	int low = 0, high = l->count;

	while (low < high) {
		int middle = low + (high - low) / 2;
		const struct placed_block *block = l->blocks[middle];

		if (block->items[block->count - 1].offset + l->most_bytes <= at)
			low = middle + 1;
		else
			high = middle;
	}
	l->block = low;
	l->item = 0;
}

/* Raises a floor over the buffers of the list that are in the way of `b`, a buffer alive at the floor's time.
 * A smaller buffer than the last may find a lower gap. */
static int64_t floor_raise(struct floor *f, struct placed_list *l, const struct plan_buffer *b, int64_t base)
{
	if (b->bytes < f->bytes)
		f->at = base;
	f->bytes = b->bytes;
	placed_begin(l, f->at);
	placed_pass(l, &f->at, b);
	return f->at;
}

/* The floor of a slice counts buffers that live all through it. */
static int64_t slice_floor(struct place *s, const struct plan_buffer *b, int slice, int64_t base)
{
	int64_t ops = s->p->op_count;
	struct plan_buffer all = {.bytes = b->bytes,
	        .first_op = (int)(((slice + 1) * ops + SLICES - 1) / SLICES) - 1, /* alive at the end */
	        .last_op = (int)((slice * ops + SLICES - 1) / SLICES)};           /* and at the begin */

	return floor_raise(&s->floors[slice], &s->lists[LIST_LONG], &all, base);
}

/* The lowest offset >= base where `b` fits between the placed buffers alive at the same time. Raises it until
 * no list has a buffer in the way. */
static int64_t place_find(struct place *s, const struct plan_buffer *b, int64_t base)
{
	int first = LIST_ALL, last = LIST_SLICES - 1, raised = 1;
	int begin = slice_of(s, b->first_op), end = slice_of(s, b->last_op);
	int64_t at = max_i64(slice_floor(s, b, begin, base), slice_floor(s, b, end, base));

	if (lives_at_peak(s, b))
		at = max_i64(at, floor_raise(&s->floors[SLICES], &s->lists[LIST_PEAK], b, base));
	if (!lives_long(s, b)) {
		first = LIST_SLICES + begin;
		last = LIST_SLICES + end;
		placed_begin(&s->lists[LIST_LONG], at);
	}
	for (int i = first; i <= last; i++)
		placed_begin(&s->lists[i], at);
	while (raised) {
		raised = first != LIST_ALL && placed_pass(&s->lists[LIST_LONG], &at, b);
		for (int i = first; i <= last; i++)
			raised |= placed_pass(&s->lists[i], &at, b);
	}
	return at;
}

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

static int max_int(int a, int b)
{
	return a > b ? a : b;
}

static void block_bound(struct placed_block *block, const struct placed *x)
{
	block->end = max_i64(block->end, x->end);
	block->first_op = min_int(block->first_op, x->first_op);
	block->last_op = max_int(block->last_op, x->last_op);
	block->begun_op = max_int(block->begun_op, x->first_op);
	block->left_op = min_int(block->left_op, x->last_op);
	block->is_whole = -1;
}

static void block_clear(struct placed_block *block)
{
	block->end = 0;
	block->first_op = block->left_op = INT_MAX;
	block->last_op = block->begun_op = -1;
	block->is_whole = -1;
}

/* Puts an empty block at `index`, a spare one if there is one. */
static int block_add(struct placed_list *l, int index)
{
	struct placed_block *block;

	if (l->count == l->cap) {
		int cap = l->cap ? 2 * l->cap : 8;
		struct placed_block **grown = mem_resize(l->blocks, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		l->blocks = grown;
		l->cap = cap;
	}
	if (l->count == l->spare) {
		l->blocks[l->count] = mem_alloc(1, sizeof(**l->blocks));
		if (!l->blocks[l->count])
			return ERR_NOMEM;
		l->spare++;
	}
	block = l->blocks[l->count];
	memmove(l->blocks + index + 1, l->blocks + index, (size_t)(l->count++ - index) * sizeof(*l->blocks));
	block->count = 0;
	block_clear(block);
	l->blocks[index] = block;
	return 0;
}

/* Moves the upper half of a full block into one of its own. */
static int block_split(struct placed_list *l, int index)
{
	struct placed_block *from, *to;
	int rc = block_add(l, index + 1);

	if (rc)
		return rc;
	from = l->blocks[index];
	to = l->blocks[index + 1];
	to->count = from->count = BLOCK_ITEMS / 2;
	memcpy(to->items, from->items + from->count, sizeof(from->items) / 2);
	block_clear(from);
	for (int i = 0; i < from->count; i++) {
		block_bound(from, &from->items[i]);
		block_bound(to, &to->items[i]);
	}
	return 0;
}

/* The last block that begins at `offset` or below, else the first. */
static int block_of(const struct placed_list *l, int64_t offset)
{
	int low = 0, high = l->count - 1;

	while (low < high) {
		int middle = (low + high + 1) / 2;

		if (l->blocks[middle]->items[0].offset <= offset)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

static int placed_insert(struct placed_list *l, const struct placed *x)
{
	struct placed_block *block;
	int index = block_of(l, x->offset), at, rc = l->count ? 0 : block_add(l, 0);

	if (!rc && l->blocks[index]->count == BLOCK_ITEMS) {
		rc = block_split(l, index);
		index += !rc && l->blocks[index + 1]->items[0].offset <= x->offset;
	}
	if (rc)
		return rc;
	block = l->blocks[index];
	for (at = block->count; at && block->items[at - 1].offset > x->offset; at--)
		block->items[at] = block->items[at - 1];
	block->items[at] = *x;
	block->count++;
	block_bound(block, x);
	l->most_bytes = max_i64(l->most_bytes, x->end - x->offset);
	return 0;
}

static void placed_free(struct placed_list *l)
{
	for (int i = 0; i < l->spare; i++)
		mem_free(l->blocks[i]);
	mem_free(l->blocks);
}

/* A search goes back by the size of the largest buffer of a list, so those of like size have one of all. */
static int size_class(int64_t bytes)
{
	int class = 0;

	while (class < SIZE_CLASSES - 1 && bytes > (int64_t)PLACE_ALIGN << class)
		class ++;
	return class;
}

static int place_insert(struct place *s, const struct plan_buffer *b)
{
	struct placed x = {b->offset, round_up(b->offset + b->bytes, PLACE_ALIGN), b->first_op, b->last_op};
	int rc = placed_insert(&s->lists[LIST_ALL + size_class(b->bytes)], &x);

	if (!rc && lives_at_peak(s, b))
		rc = placed_insert(&s->lists[LIST_PEAK], &x);
	if (lives_long(s, b))
		return rc ? rc : placed_insert(&s->lists[LIST_LONG], &x);
	for (int i = slice_of(s, b->first_op); i <= slice_of(s, b->last_op) && !rc; i++)
		rc = placed_insert(&s->lists[LIST_SLICES + i], &x);
	return rc;
}

static void space_sort(struct place *s, enum plan_space space)
{
	struct plan *p = s->p;

	s->count = 0;
	for (int i = 0; i < p->buffer_count; i++)
		if (p->buffers[i].space == space && p->buffers[i].persistent)
			s->by_size[s->count++] = &p->buffers[i];
	s->persistent_count = s->count;
	for (int i = 0; i < p->buffer_count; i++)
		if (p->buffers[i].space == space && !p->buffers[i].persistent && p->buffers[i].first_op >= 0)
			s->by_size[s->count++] = &p->buffers[i];
	qsort(s->by_size + s->persistent_count, (size_t)(s->count - s->persistent_count), sizeof(*s->by_size),
	        size_compare);
}

static void order_take(struct place *s, enum place_order order)
{
	int count = 0;

	for (int class = 0; class <= LAYOUT_WEIGHT; class ++)
		for (int i = 0; i < s->count; i++)
			if (classes[order][s->by_size[i]->layout_class] == class)
				s->sorted[count++] = s->by_size[i];
}

/* Places the buffers of a space. *bytes is the end of the space; INT64_MAX if that is not below `limit`, and
 * then some buffers have no place. *is_whole: the last bytes belong to a buffer that is used to its end. Work
 * areas are not, because they are as large as the longest micro-batch may need. */
static int place_space(struct place *s, int64_t *bytes, int *is_whole, enum plan_space space,
        enum place_order order, int64_t limit)
{
	struct plan *p = s->p;
	int rc = 0;
	int64_t base = 0, most = 0;

	for (int i = 0; i < LIST_SLICES + SLICES; i++)
		s->lists[i].count = 0, s->lists[i].most_bytes = 0;
	for (int i = 0; i <= SLICES; i++)
		s->floors[i].bytes = INT64_MAX;
	order_take(s, order);
	*is_whole = 1;
	for (int i = 0; i < s->count && most < limit && !rc; i++) {
		struct plan_buffer *b = s->sorted[i];
		int64_t end;

		if (b->persistent) {
			b->offset = base;
			base = round_up(base + b->bytes, PLACE_ALIGN);
		} else {
			b->offset = place_find(s, b, base);
			rc = place_insert(s, b);
		}
		end = b->offset + b->bytes;
		if (end > most || (end == most && b->layout_class != LAYOUT_WORK))
			*is_whole = b->layout_class != LAYOUT_WORK;
		most = end > most ? end : most;
		if (b->persistent && end > p->persistent_bytes[space])
			p->persistent_bytes[space] = end;
	}
	*bytes = most < limit ? most : INT64_MAX;
	return rc;
}

/* Finds the peak and a lower bound of the end in any order: the most bytes alive at one
 * time, less the rounding of the last buffer. */
static int least_find(int64_t *least, struct place *s, enum plan_space space)
{
	const struct plan *p = s->p;
	int64_t *change = mem_alloc((size_t)p->op_count + 2, sizeof(*change));
	int64_t alive = 0, base = 0, gap = 0;

	*least = 0;
	s->peak = 0;
	if (!change)
		return ERR_NOMEM;
	for (int i = 0; i < p->buffer_count; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		int64_t bytes = round_up(b->bytes, PLACE_ALIGN);

		if (b->space != space || (!b->persistent && b->first_op < 0))
			continue;
		gap = bytes - b->bytes > gap ? bytes - b->bytes : gap;
		base += b->persistent ? bytes : 0;
		if (b->persistent)
			continue;
		change[b->first_op] += bytes;
		change[b->last_op + 1] -= bytes;
	}
	for (int i = 0; i < p->op_count; i++) {
		alive += change[i];
		if (base + alive - gap <= *least)
			continue;
		*least = base + alive - gap;
		s->peak = i;
	}
	mem_free(change);
	return 0;
}

static int space_place(struct place *s, int64_t *offsets, enum plan_space space)
{
	struct plan *p = s->p;
	int64_t least = INT64_MAX, bytes, limit;
	int orders = space == SPACE_DEVICE ? ORDER_COUNT : 1, is_whole;
	int rc = least_find(&limit, s, space);

	space_sort(s, space);
	for (int order = 0; order < orders && least > limit && !rc; order++) {
		rc = place_space(s, &bytes, &is_whole, space, (enum place_order)order, least);
		if (bytes >= least || (!is_whole && order))
			continue;
		least = bytes;
		for (int i = 0; i < p->buffer_count; i++)
			offsets[i] = p->buffers[i].offset;
	}
	for (int i = 0; i < p->buffer_count; i++)
		p->buffers[i].offset = offsets[i];
	p->space_bytes[space] = least;
	return rc;
}

int plan_least(struct plan *p)
{
	struct place s = {.p = p};
	int rc = 0;

	for (int space = 0; space < SPACE_COUNT && !rc; space++)
		rc = least_find(&p->space_bytes[space], &s, (enum plan_space)space);
	return rc;
}

int plan_place(struct plan *p)
{
	struct place s = {.p = p};
	int64_t *offsets = mem_alloc((size_t)p->buffer_count + 1, sizeof(*offsets));
	int rc = offsets ? 0 : ERR_NOMEM;

	if (p->is_placed) {
		mem_free(offsets);
		return 0;
	}
	s.sorted = mem_alloc((size_t)p->buffer_count + 1, sizeof(*s.sorted));
	s.by_size = mem_alloc((size_t)p->buffer_count + 1, sizeof(*s.by_size));
	s.lists = mem_alloc((size_t)SLICES + LIST_SLICES, sizeof(*s.lists));
	s.floors = mem_alloc((size_t)SLICES + 1, sizeof(*s.floors));
	rc = s.sorted && s.by_size && s.lists && s.floors ? rc : ERR_NOMEM;
	for (int space = 0; space < SPACE_COUNT && !rc; space++)
		rc = space_place(&s, offsets, (enum plan_space)space);
	for (int i = 0; i < LIST_SLICES + SLICES && s.lists; i++)
		placed_free(&s.lists[i]);
	mem_free(s.lists);
	mem_free(s.floors);
	mem_free(offsets);
	mem_free(s.sorted);
	mem_free(s.by_size);
	p->is_placed = !rc;
	return rc;
}

/* Inserts a DISCARD after the last use of each transient device buffer, on the queue of that use. Renumbers
 * the operations. */
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
			plan_add_op(p, PLAN_OP_DISCARD, old[i].queue, b->unit, -1, b->micro);
			plan_add_arg(p, ARG_DST, j, ACCESS_WRITE);
			b->last_op = i; /* an old number until all are moved */
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
		for (int n = b->last_op + 1; discards && n < p->op_count && p->ops[n].kind == PLAN_OP_DISCARD;
		        n++)
			if (p->args[p->ops[n].first_arg].buffer == j)
				b->last_op = n;
	}
	mem_free(old);
	mem_free(moved);
	return rc;
}
