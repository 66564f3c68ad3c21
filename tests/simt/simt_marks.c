/* Marks of bytes, in a hash of pages. */
#include "tests/simt/simt_marks.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_SHIFT = 12, PAGE_MARKS = 1 << (PAGE_SHIFT - 1), BUCKETS = 1 << 16, RECENT = 256 };

/* Marks of a page of global memory. */
struct page {
	struct page *next;
	uintptr_t number;
	struct mark marks[PAGE_MARKS];
};

static struct page *buckets[BUCKETS], *recent[RECENT];
struct mark shared_marks[SHARED_REGION_BYTES / 2];

static struct page *page_find(uintptr_t number)
{
	struct page **bucket = &buckets[(number * 0x9e3779b97f4a7c15u) >> 48], *p = *bucket;

	while (p && p->number != number)
		p = p->next;
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return NULL;
		p->number = number;
		p->next = *bucket;
		*bucket = p;
	}
	recent[number % RECENT] = p;
	return p;
}

struct mark *mark_of_global(uintptr_t address)
{
	uintptr_t number = address >> PAGE_SHIFT;
	struct page *p = recent[number % RECENT];

	if (!p || p->number != number)
		p = page_find(number);
	return p ? &p->marks[address / 2 % PAGE_MARKS] : NULL;
}

void marks_forget(void)
{
	memset(shared_marks, 0, sizeof(shared_marks));
	memset(recent, 0, sizeof(recent));
	for (int i = 0; i < BUCKETS; i++) {
		while (buckets[i]) {
			struct page *p = buckets[i];

			buckets[i] = p->next;
			free(p);
		}
	}
}

/* What was done at `time` is over for the running thread. */
static inline __attribute__((always_inline)) int is_over(uint32_t time, uint32_t by, uint32_t origin)
{
	const struct thread *self = machine.self;
	uint32_t who = by & MARK_THREAD;

	if (time < origin)
		return 1;
	if (time < machine.block_time || (by & MARK_GRID_MANY))
		return 0;
	if (time < machine.barrier_time)
		return 1;
	if (by & MARK_BLOCK_MANY)
		return 0;
	if (who / SIMT_WARP == (uint32_t)self->number / SIMT_WARP && time < self->warp->time)
		return 1;
	return !(by & MARK_WARP_MANY) && who == (uint32_t)self->number;
}

/* What an access leaves that is added to another one, which is not over. */
static uint32_t add_to(uint32_t time, uint32_t by, uint32_t bytes)
{
	const struct thread *self = machine.self;
	uint32_t many = by & MARK_MANY;

	if (time < machine.block_time)
		many |= MARK_GRID_MANY;
	else if ((by & MARK_THREAD) / SIMT_WARP != (uint32_t)self->number / SIMT_WARP)
		many |= MARK_BLOCK_MANY;
	else if ((by & MARK_THREAD) != (uint32_t)self->number)
		many |= MARK_WARP_MANY;
	return (uint32_t)self->number | (by & MARK_BYTES) | bytes << MARK_BYTES_SHIFT | many;
}

static void note_read(struct mark *mark, uint32_t bytes, uint32_t origin)
{
	const struct thread *self = machine.self;

	if (is_over(mark->read_time, mark->read_by, origin) || !(mark->read_by >> MARK_BYTES_SHIFT & bytes))
		mark->read_by = (uint32_t)self->number | bytes << MARK_BYTES_SHIFT;
	else
		mark->read_by = add_to(mark->read_time, mark->read_by, bytes);
	mark->read_time = self->warp->time;
}

static void note_write(
        struct mark *mark, uint32_t bytes, enum access_kind kind, uint32_t since, int is_over_now)
{
	uint32_t written = mark->write_time >= since ? mark->write_by & MARK_WRITTEN : 0;
	uint32_t by = (uint32_t)machine.self->number | bytes << MARK_BYTES_SHIFT;

	if (kind == ACCESS_ATOMIC && !is_over_now)
		by = add_to(mark->write_time, mark->write_by, bytes);
	if (kind == ACCESS_ATOMIC)
		by |= MARK_ATOMIC;
	if (kind == ACCESS_ASYNC)
		by |= MARK_PENDING;
	mark->write_by = by | written | bytes << MARK_WRITTEN_SHIFT;
	mark->write_time = machine.self->warp->time;
}

enum trouble mark_access(struct mark *mark, uint32_t bytes, enum access_kind kind, uint32_t origin,
        uint32_t since, int must_be_written)
{
	int write_is_over = is_over(mark->write_time, mark->write_by, origin);
	int same_bytes = (mark->write_by >> MARK_BYTES_SHIFT & bytes) != 0;

	if (must_be_written && (kind == ACCESS_READ || kind == ACCESS_ATOMIC) &&
	        (mark->write_time < since || (mark->write_by >> MARK_WRITTEN_SHIFT & bytes) != bytes))
		return TROUBLE_UNWRITTEN;
	if ((mark->write_by & MARK_PENDING) && mark->write_time >= origin && same_bytes)
		return TROUBLE_PENDING;
	if (!write_is_over && same_bytes && !(kind == ACCESS_ATOMIC && (mark->write_by & MARK_ATOMIC)))
		return TROUBLE_AFTER_WRITE;
	if (kind == ACCESS_READ) {
		note_read(mark, bytes, origin);
		return TROUBLE_NONE;
	}
	if ((mark->read_by >> MARK_BYTES_SHIFT & bytes) && !is_over(mark->read_time, mark->read_by, origin))
		return TROUBLE_AFTER_READ;
	note_write(mark, bytes, kind, since, write_is_over);
	return TROUBLE_NONE;
}
