/* links: host_cpu host_meta */
/* also: tsan */
/* Random programs over all streams: the host device under delays against sequential C and against meta, and
 * what becomes of them when a wait is missing. */
#include "device_check.h"

#include "base/num.h"

enum { CELLS = 12, CELL_BYTES = 512, STEPS = 400 };

struct cell_order {
	struct event *written;
	struct event *read[QUEUE_COUNT];
};

/* Waits are numbered; the one of number skip_wait is left out. */
struct program {
	struct world *w;
	struct cell_order order[CELLS];
	int wait_count, skip_wait;
	unsigned char *cells, *slab; /* what the same program in sequential C gives */
};

static int wait_for_event(struct program *p, struct stream *s, struct event *e)
{
	return p->wait_count++ == p->skip_wait ? 0 : stream_wait(s, e);
}

/* Waits for what a step on s that uses the cell must follow. */
static int order_after(struct program *p, struct stream *s, struct cell_order *c, int writes)
{
	int rc = wait_for_event(p, s, c->written);

	for (int q = 0; writes && q < QUEUE_COUNT && !rc; q++)
		rc = wait_for_event(p, s, c->read[q]);
	return rc;
}

/* One step on stream s: the cell `to` becomes a fill, a copy of the cell `from`, or its piece of the slab; or
 * the other way round. The slab's piece follows its cell's order. */
static int step(struct program *p, struct stream *s, int to, int from, uint64_t choice, int value)
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

/* Returns the first error; the number of waits where there was none. */
static int run_program(struct world *w, uint64_t seed, int skip_wait)
{
	static unsigned char cells[CELLS * CELL_BYTES], slab[CELLS * CELL_BYTES];
	struct program p = {.w = w, .skip_wait = skip_wait, .cells = cells, .slab = slab};
	int rc = 0;

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
	if (device_has_bytes(w->device) && !rc) {
		assert_memory_equal(cpu_ptr(w->arena), cells, sizeof(cells));
		assert_memory_equal(w->slab, slab, sizeof(slab));
	}
	for (int c = 0; c < CELLS; c++) {
		event_close(p.order[c].written);
		for (int q = 0; q < QUEUE_COUNT; q++)
			event_close(p.order[c].read[q]);
	}
	return rc ? rc : p.wait_count;
}

static void test_random_programs(void **state)
{
	struct device_options options = {.threads = 2, .check_races = 1};

	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct device_stats host, meta;
		struct world w;

		options.stream_delay_seed = seed / 2 * 77;
		check_ok(world_open(&w, "host", &options));
		assert_true(run_program(&w, seed, -1) > 0);
		host = stats_of(&w);
		world_close(&w);

		check_ok(world_open(&w, "meta", &options));
		assert_true(run_program(&w, seed, -1) > 0);
		meta = stats_of(&w);
		world_close(&w);
		assert_int_equal(host.arena_touched_bytes, meta.arena_touched_bytes);
		assert_int_equal(host.arena_touched_bytes, CELLS * CELL_BYTES);
		assert_int_equal(host.copied_in_bytes, meta.copied_in_bytes);
		assert_int_equal(host.copied_out_bytes, meta.copied_out_bytes);
		assert_int_equal(host.slab_bytes, meta.slab_bytes);
	}
}

/* A wait left out is either found when the work is queued, whatever the threads do, or was implied by
 * others; then the bytes are right. */
static void test_missing_waits(void **state)
{
	const struct device_options options = {.threads = 1, .check_races = 1, .stream_delay_seed = 9};
	int wait_count, found = 0;
	struct world w;

	(void)state;
	check_ok(world_open(&w, "meta", &options));
	wait_count = run_program(&w, 1, -1);
	world_close(&w);
	for (int skip = 0; skip < wait_count; skip += 29) {
		int on_meta, on_host;

		check_ok(world_open(&w, "meta", &options));
		on_meta = run_program(&w, 1, skip);
		world_close(&w);
		check_ok(world_open(&w, "host", &options));
		on_host = run_program(&w, 1, skip);
		world_close(&w);
		assert_int_equal(on_meta, on_host);
		assert_true(on_meta == wait_count || on_meta == ERR_DEVICE);
		found += on_meta == ERR_DEVICE;
	}
	assert_in_range(found, 5, wait_count / 29 - 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_random_programs),
	        cmocka_unit_test(test_missing_waits),
	};

	return cmocka_run_group_tests(tests, world_register, NULL);
}
