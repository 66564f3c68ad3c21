/* Finds the fewest waits that order any two operations on the same bytes if one writes. */
#include "base/err.h"
#include "base/mem.h"
#include "offload/plan_parts.h"

#include <stdlib.h>
#include <string.h>

/* Each operation has a vector clock: clock[q] is the last operation of queue q that is surely done before it
 * starts. In program order, an operation needs from each other queue the last operation that wrote bytes
 * which it uses, or that used bytes which it writes. A need is left out if the operation's own queue or
 * another need already implies it. This transitive reduction of a DAG is unique, so no wait is redundant.
 *
 * marks: the last operation of each queue that wrote some bytes, and the last that read them since; -1: none.
 */
struct marks {
	int writer[QUEUE_COUNT], reader[QUEUE_COUNT];
};

/* A range of bytes between two neighbouring borders of transient buffers. */
struct segment {
	int64_t begin;
	struct marks marks;
};

struct segment_map {
	struct segment *segments;
	int count;
};

/* While a buffer lives no other uses its bytes, so its marks are kept with it. Segments keep marks only
 * between the life of one buffer and the next. */
struct order {
	struct plan *p;
	struct segment_map maps[SPACE_COUNT];
	struct marks *marks; /* of each buffer */
	int *last_use;       /* of each buffer */
	char *born;          /* of each buffer: 1 once its marks include those of its segments */
	int (*clocks)[QUEUE_COUNT];
	int last[QUEUE_COUNT];
};

static int border_compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static int segments_build(struct segment_map *map, const struct plan *p, enum plan_space space)
{
	int64_t *borders = mem_alloc((size_t)p->buffer_count * 2 + 1, sizeof(*borders));
	int count = 0, unique = 0;

	if (!borders)
		return ERR_NOMEM;
	for (int i = 0; i < p->buffer_count; i++)
		if (p->buffers[i].space == space && p->buffers[i].first_op >= 0 &&
		        !p->buffers[i].persistent) {
			borders[count++] = p->buffers[i].offset;
			borders[count++] = p->buffers[i].offset + p->buffers[i].bytes;
		}
	qsort(borders, (size_t)count, sizeof(*borders), border_compare);
	for (int i = 0; i < count; i++)
		if (!unique || borders[i] != borders[unique - 1])
			borders[unique++] = borders[i];
	map->segments = mem_alloc((size_t)unique + 1, sizeof(*map->segments));
	for (int i = 0; i < unique && map->segments; i++) {
		map->segments[i].begin = borders[i];
		memset(&map->segments[i].marks, -1, sizeof(map->segments[i].marks));
	}
	map->count = unique;
	mem_free(borders);
	return map->segments ? 0 : ERR_NOMEM;
}

static int segment_at(const struct segment_map *map, int64_t offset)
{
	int low = 0, high = map->count - 1;

	while (low < high) {
		int middle = (low + high + 1) / 2;

		if (map->segments[middle].begin <= offset)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

static void marks_raise(int *marks, const int *by)
{
	for (int q = 0; q < QUEUE_COUNT; q++)
		marks[q] = by[q] > marks[q] ? by[q] : marks[q];
}

static void buffer_begin(struct order *o, int buffer)
{
	const struct plan_buffer *b = &o->p->buffers[buffer];
	const struct segment_map *map = &o->maps[b->space];
	struct marks *marks = &o->marks[buffer];

	memset(marks, -1, sizeof(*marks));
	o->born[buffer] = 1;
	if (b->persistent)
		return;
	for (int s = segment_at(map, b->offset);
	        s < map->count && map->segments[s].begin < b->offset + b->bytes; s++) {
		marks_raise(marks->writer, map->segments[s].marks.writer);
		marks_raise(marks->reader, map->segments[s].marks.reader);
	}
}

static void buffer_end(struct order *o, int buffer)
{
	const struct plan_buffer *b = &o->p->buffers[buffer];
	struct segment_map *map = &o->maps[b->space];

	if (b->persistent)
		return;
	for (int s = segment_at(map, b->offset);
	        s < map->count && map->segments[s].begin < b->offset + b->bytes; s++)
		map->segments[s].marks = o->marks[buffer];
}

/* Finds the operations that `i` must come after, by queue, and sets the marks of `i`. */
static void op_touch(struct order *o, int i, int *need)
{
	const struct plan_op *op = &o->p->ops[i];
	const struct plan_arg *args = &o->p->args[op->first_arg];

	for (int a = 0; a < op->arg_count; a++) {
		const struct marks *marks = &o->marks[args[a].buffer];

		if (!o->born[args[a].buffer])
			buffer_begin(o, args[a].buffer);
		marks_raise(need, marks->writer);
		if (args[a].writes)
			marks_raise(need, marks->reader);
	}
	for (int a = 0; a < op->arg_count; a++) {
		struct marks *marks = &o->marks[args[a].buffer];

		if (args[a].writes) {
			memset(marks, -1, sizeof(*marks));
			marks->writer[op->queue] = i;
		} else {
			marks->reader[op->queue] = i;
		}
	}
	for (int a = 0; a < op->arg_count; a++)
		if (o->last_use[args[a].buffer] == i)
			buffer_end(o, args[a].buffer);
}

static int wait_add(struct plan *p, int op, int on)
{
	if (p->wait_count == p->wait_cap) {
		int cap = p->wait_cap ? 2 * p->wait_cap : 256;
		int *grown = mem_resize(p->waits, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		p->waits = grown;
		p->wait_cap = cap;
	}
	p->waits[p->wait_count++] = on;
	p->ops[op].wait_count++;
	p->ops[on].signals = 1;
	return 0;
}

/* A wait is redundant if another needed operation comes after its target. */
static int wait_is_implied(int (*clocks)[QUEUE_COUNT], const int *need, int queue)
{
	for (int other = 0; other < QUEUE_COUNT; other++)
		if (other != queue && need[other] >= 0 && clocks[need[other]][queue] >= need[queue])
			return 1;
	return 0;
}

static int op_order(struct order *o, int i)
{
	struct plan *p = o->p;
	struct plan_op *op = &p->ops[i];
	int need[QUEUE_COUNT];
	int *clock = o->clocks[i];
	int rc = 0;

	memset(need, -1, sizeof(need));
	op_touch(o, i, need);
	if (o->last[op->queue] >= 0)
		memcpy(clock, o->clocks[o->last[op->queue]], sizeof(need));
	else
		memset(clock, -1, sizeof(need));
	for (int q = 0; q < QUEUE_COUNT; q++)
		if (q == (int)op->queue || need[q] <= clock[q])
			need[q] = -1;
	op->first_wait = p->wait_count;
	for (int q = 0; q < QUEUE_COUNT && !rc; q++)
		if (need[q] >= 0 && !wait_is_implied(o->clocks, need, q))
			rc = wait_add(p, i, need[q]);
	for (int w = 0; w < op->wait_count; w++)
		marks_raise(clock, o->clocks[p->waits[op->first_wait + w]]);
	clock[op->queue] = i;
	o->last[op->queue] = i;
	return rc;
}

int plan_order(struct plan *p)
{
	struct order o = {.p = p};
	size_t buffers = (size_t)p->buffer_count + 1;
	int rc = 0;

	if (p->is_ordered)
		return 0;
	o.clocks = mem_alloc((size_t)p->op_count + 1, sizeof(*o.clocks));
	o.marks = mem_alloc(buffers, sizeof(*o.marks));
	o.last_use = mem_alloc(buffers, sizeof(*o.last_use));
	o.born = mem_alloc(buffers, 1);
	if (!o.clocks || !o.marks || !o.last_use || !o.born)
		rc = ERR_NOMEM;
	memset(o.last, -1, sizeof(o.last));
	for (int space = 0; space < SPACE_COUNT && !rc; space++)
		rc = segments_build(&o.maps[space], p, (enum plan_space)space);
	for (int i = 0; i < p->op_count && !rc; i++)
		for (int a = 0; a < p->ops[i].arg_count; a++)
			o.last_use[p->args[p->ops[i].first_arg + a].buffer] = i;
	for (int i = 0; i < p->op_count && !rc; i++)
		rc = op_order(&o, i);
	p->is_ordered = !rc;
	for (int space = 0; space < SPACE_COUNT; space++)
		mem_free(o.maps[space].segments);
	mem_free(o.clocks);
	mem_free(o.marks);
	mem_free(o.last_use);
	mem_free(o.born);
	return rc;
}
