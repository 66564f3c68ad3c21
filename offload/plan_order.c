/* Ordering: the fewest waits that make any two operations on the same bytes, one of them writing, run one
 * after the other.
 *
 * Operations are taken in program order with a vector clock each: clock[q] is the last operation of queue q
 * known to be done before it starts. An operation needs, per other queue, the last operation there that
 * touches bytes it writes or writes bytes it touches; what its own queue's history or another needed wait
 * already implies is left out. In a DAG that reduction is unique, so no wait is redundant. */
#include "base/err.h"
#include "base/mem.h"
#include "offload/plan_parts.h"

#include <stdlib.h>
#include <string.h>

/* A run of bytes between two neighbouring buffer borders: who wrote it last, who read it since, per queue. */
struct segment {
	int64_t begin;
	int writer;
	int reader[QUEUE_COUNT];
};

struct segment_map {
	struct segment *segments;
	int count;
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
		if (p->buffers[i].space == space && p->buffers[i].first_op >= 0) {
			borders[count++] = p->buffers[i].offset;
			borders[count++] = p->buffers[i].offset + p->buffers[i].bytes;
		}
	qsort(borders, (size_t)count, sizeof(*borders), border_compare);
	map->segments = mem_alloc((size_t)count + 1, sizeof(*map->segments));
	if (!map->segments) {
		mem_free(borders);
		return ERR_NOMEM;
	}
	for (int i = 0; i < count; i++)
		if (!unique || borders[i] != map->segments[unique - 1].begin) {
			struct segment *s = &map->segments[unique++];

			s->begin = borders[i];
			s->writer = -1;
			memset(s->reader, -1, sizeof(s->reader));
		}
	map->count = unique;
	mem_free(borders);
	return 0;
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

static void need_raise(int *need, const struct plan *p, int op)
{
	if (op >= 0 && need[p->ops[op].queue] < op)
		need[p->ops[op].queue] = op;
}

/* What operation `i` must wait for, by queue, and its own marks on the segments. */
static void op_touch(struct plan *p, struct segment_map *maps, int i, int *need)
{
	const struct plan_op *op = &p->ops[i];

	for (int mark = 0; mark < 2; mark++)
		for (int a = 0; a < op->arg_count; a++) {
			const struct plan_arg *arg = &p->args[op->first_arg + a];
			const struct plan_buffer *b = &p->buffers[arg->buffer];
			struct segment_map *map = &maps[b->space];

			for (int s = segment_at(map, b->offset);
			        s < map->count && map->segments[s].begin < b->offset + b->bytes; s++) {
				struct segment *seg = &map->segments[s];

				if (!mark) {
					need_raise(need, p, seg->writer);
					for (int q = 0; arg->writes && q < QUEUE_COUNT; q++)
						need_raise(need, p, seg->reader[q]);
				} else if (arg->writes) {
					seg->writer = i;
					memset(seg->reader, -1, sizeof(seg->reader));
				} else {
					seg->reader[op->queue] = i;
				}
			}
		}
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

/* A needed wait is left out when another needed operation already comes after it. */
static int wait_is_implied(int (*clocks)[QUEUE_COUNT], const int *need, int queue)
{
	for (int other = 0; other < QUEUE_COUNT; other++)
		if (other != queue && need[other] >= 0 && clocks[need[other]][queue] >= need[queue])
			return 1;
	return 0;
}

static int op_order(struct plan *p, struct segment_map *maps, int (*clocks)[QUEUE_COUNT], int *last, int i)
{
	struct plan_op *op = &p->ops[i];
	int need[QUEUE_COUNT];
	int *clock = clocks[i];
	int rc = 0;

	memset(need, -1, sizeof(need));
	op_touch(p, maps, i, need);
	if (last[op->queue] >= 0)
		memcpy(clock, clocks[last[op->queue]], sizeof(need));
	else
		memset(clock, -1, sizeof(need));
	for (int q = 0; q < QUEUE_COUNT; q++)
		if (q == (int)op->queue || need[q] <= clock[q])
			need[q] = -1;
	op->first_wait = p->wait_count;
	for (int q = 0; q < QUEUE_COUNT && !rc; q++)
		if (need[q] >= 0 && !wait_is_implied(clocks, need, q))
			rc = wait_add(p, i, need[q]);
	for (int w = 0; w < op->wait_count; w++) {
		const int *waited = clocks[p->waits[op->first_wait + w]];

		for (int q = 0; q < QUEUE_COUNT; q++)
			if (waited[q] > clock[q])
				clock[q] = waited[q];
	}
	clock[op->queue] = i;
	last[op->queue] = i;
	return rc;
}

int plan_order(struct plan *p)
{
	struct segment_map maps[SPACE_COUNT] = {{0}};
	int(*clocks)[QUEUE_COUNT] = mem_alloc((size_t)p->op_count + 1, sizeof(*clocks));
	int last[QUEUE_COUNT], rc = clocks ? 0 : ERR_NOMEM;

	memset(last, -1, sizeof(last));
	for (int space = 0; space < SPACE_COUNT && !rc; space++)
		rc = segments_build(&maps[space], p, (enum plan_space)space);
	for (int i = 0; i < p->op_count && !rc; i++)
		rc = op_order(p, maps, clocks, last, i);
	for (int space = 0; space < SPACE_COUNT; space++)
		mem_free(maps[space].segments);
	mem_free(clocks);
	return rc;
}
