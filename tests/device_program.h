/* Random programs over all streams of a device, and the same programs in sequential C.
 *
 * The arena has *cells*, and the slab has a piece for each cell. Random streams write, copy and read them, in
 * an order that events enforce.
 */
#ifndef FERRY_TESTS_DEVICE_PROGRAM_H
#define FERRY_TESTS_DEVICE_PROGRAM_H

#include "device_check.h"

#include "base/num.h"

enum { CELLS = 12, CELL_BYTES = 512, STEPS = 400 };

struct cell_order {
	struct event *written;
	struct event *read[QUEUE_COUNT];
};

/* A program numbers its waits, and omits number skip_wait. */
struct program {
	struct world *w;
	struct cell_order order[CELLS];
	int wait_count, skip_wait;
	unsigned char *cells, *slab; /* the result of the same program in sequential C */
};

static int wait_for_event(struct program *p, struct stream *s, struct event *e)
{
	return p->wait_count++ == p->skip_wait ? 0 : stream_wait(s, e);
}

/* Waits for all earlier steps that conflict with a step on s that uses the cell. */
static int order_after(struct program *p, struct stream *s, struct cell_order *c, int writes)
{
	int rc = wait_for_event(p, s, c->written);

	for (int q = 0; writes && q < QUEUE_COUNT && !rc; q++)
		rc = wait_for_event(p, s, c->read[q]);
	return rc;
}

/* One step on stream s, by `choice`: fills the cell `to`, copies it to its piece of the slab, copies the
 * piece to it, or copies the cell `from` to it. The piece has the same order as its cell. */
static inline int step(struct program *p, struct stream *s, int to, int from, uint64_t choice, int value)
{
	dev_addr dst = dev_at(p->w->arena, to * CELL_BYTES), src = dev_at(p->w->arena, from * CELL_BYTES);
	unsigned char *cell = p->cells + to * CELL_BYTES, *piece = p->slab + to * CELL_BYTES;
	int rc = order_after(p, s, &p->order[to], 1);
	struct op op = fill_op(dst, CELL_BYTES, (uint8_t)value);

	if (rc)
		return rc;
	if (choice == 0) {
		memset(cell, value & 255, CELL_BYTES);
		rc = stream_op(s, &op);
	} else if (choice == 1) {
		memcpy(piece, cell, CELL_BYTES);
		rc = stream_copy_out(s, p->w->slab + to * CELL_BYTES, dst, CELL_BYTES);
	} else if (choice == 2) {
		memcpy(cell, piece, CELL_BYTES);
		rc = stream_copy_in(s, dst, p->w->slab + to * CELL_BYTES, CELL_BYTES);
	} else {
		memcpy(cell, p->cells + from * CELL_BYTES, CELL_BYTES);
		op = copy_op(dst, src, CELL_BYTES);
		rc = order_after(p, s, &p->order[from], 0);
		if (!rc)
			rc = stream_op(s, &op);
		if (!rc)
			rc = event_record(p->order[from].read[s->queue], s);
	}
	return rc ? rc : event_record(p->order[to].written, s);
}

/* Returns the first error, or else the number of waits. */
static inline int run_program(struct world *w, uint64_t seed, int skip_wait)
{
	static unsigned char cells[CELLS * CELL_BYTES], slab[sizeof(cells)], on_device[sizeof(cells)];
	struct program p = {.w = w, .skip_wait = skip_wait, .cells = cells, .slab = slab};
	struct op fill;
	int rc = 0;

	fill = fill_op(w->arena, sizeof(cells), 0); /* fresh memory may hold anything */
	check_ok(stream_op(w->stream[QUEUE_COMPUTE], &fill));
	check_ok(device_sync(w->device));
	memset(cells, 0, sizeof(cells));
	memset(slab, 0, sizeof(slab));
	for (int c = 0; c < CELLS; c++) {
		check_ok(event_open(&p.order[c].written, w->device));
		for (int q = 0; q < QUEUE_COUNT; q++)
			check_ok(event_open(&p.order[c].read[q], w->device));
	}
	for (uint64_t i = 0; i < STEPS && !rc; i++) {
		int q = (int)rng_below(seed, 0, i, QUEUE_COUNT), to = (int)rng_below(seed, 1, i, CELLS);
		int from = (to + 1 + (int)rng_below(seed, 2, i, CELLS - 1)) % CELLS;

		rc = step(&p, w->stream[q], to, from, rng_below(seed, 3, i, 4), (int)i);
	}
	check_ok(device_sync(w->device));
	check_ok(stream_copy_out(w->stream[QUEUE_D2H], on_device, w->arena, sizeof(on_device)));
	check_ok(device_sync(w->device));
	if (device_has_bytes(w->device) && !rc) {
		assert_memory_equal(on_device, cells, sizeof(cells));
		assert_memory_equal(w->slab, slab, sizeof(slab));
	}
	for (int c = 0; c < CELLS; c++) {
		event_close(p.order[c].written);
		for (int q = 0; q < QUEUE_COUNT; q++)
			event_close(p.order[c].read[q]);
	}
	return rc ? rc : p.wait_count;
}

#endif
