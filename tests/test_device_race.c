/* links: device_meta */
/* The race checker: what it reports, what it allows, and that it stays small and fast. */
#include "check.h"

#include "base/mem.h"
#include "base/num.h"
#include "device/backend.h"

enum { STREAMS = 3, CELL = 256 };

struct world {
	struct device *device;
	struct stream *s[STREAMS];
	struct event *e[2];
	dev_addr arena;
	char *slab;
};

static int setup(void **state)
{
	const enum queue_kind queues[STREAMS] = {QUEUE_COMPUTE, QUEUE_H2D, QUEUE_D2H};
	const struct device_options options = {.check_races = 1};
	struct world *w = calloc(1, sizeof(*w));
	void *slab;

	*state = w;
	device_register(&backend_meta);
	check_ok(device_open(&w->device, "meta", &options));
	check_ok(device_arena_open(w->device, &w->arena, 1 << 22));
	check_ok(device_slab_open(w->device, &slab, 1 << 20, SLAB_PINNED));
	w->slab = slab;
	for (int i = 0; i < STREAMS; i++)
		check_ok(stream_open(&w->s[i], w->device, queues[i]));
	for (int i = 0; i < 2; i++)
		check_ok(event_open(&w->e[i], w->device));
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 2; i++)
		event_close(w->e[i]);
	for (int i = 0; i < STREAMS; i++)
		stream_close(w->s[i]);
	device_close(w->device);
	free(w);
	return 0;
}

static int fill(struct world *w, int stream, int64_t offset, int64_t bytes)
{
	struct op op = {.kind = OP_FILL, .fill = {dev_at(w->arena, offset), bytes, 0}};

	return stream_op(w->s[stream], &op);
}

static int copy(struct world *w, int stream, int64_t to, int64_t from, int64_t bytes)
{
	struct op op = {.kind = OP_COPY, .copy = {dev_at(w->arena, to), dev_at(w->arena, from), bytes}};

	return stream_op(w->s[stream], &op);
}

static void order(struct world *w, int before, int after)
{
	check_ok(event_record(w->e[0], w->s[before]));
	check_ok(stream_wait(w->s[after], w->e[0]));
}

static void test_write_write(void **state)
{
	struct world *w = *state;

	check_ok(fill(w, 0, 1000, 100));
	check_fails(fill(w, 1, 1099, 10), ERR_DEVICE,
	        "fill (work 1 of the h2d stream) writes 1 bytes at offset 1099 of the arena, which fill "
	        "(work 1 of "
	        "the compute stream) writes");
	check_ok(fill(w, 1, 1100, 10)); /* beside it */
	check_ok(fill(w, 0, 1050, 10)); /* own stream */
	order(w, 0, 1);
	check_ok(fill(w, 1, 1099, 10));
}

static void test_read_write(void **state)
{
	struct world *w = *state;

	check_ok(copy(w, 0, 0, 512, 64));
	check_ok(copy(w, 1, 64, 512, 64)); /* two readers */
	check_fails(fill(w, 2, 512 + 63, 1), ERR_DEVICE, "fill (work 1 of the d2h stream) writes 1 bytes");
	order(w, 0, 2);
	check_fails(fill(w, 2, 512 + 63, 1), ERR_DEVICE,
	        "which copy (work 1 of the h2d stream) reads, and nothing orders");
	order(w, 1, 2);
	check_ok(fill(w, 2, 512 + 63, 1));
	check_fails(
	        copy(w, 0, 4096, 512, 64), ERR_DEVICE, "copy (work 2 of the compute stream) reads 1 bytes");
}

static void test_order_is_transitive(void **state)
{
	struct world *w = *state;

	check_ok(fill(w, 0, 0, 64));
	order(w, 0, 1);
	order(w, 1, 2);
	check_ok(fill(w, 2, 0, 64));
}

/* An event means the work queued at its latest record; a wait means the event's work at that moment. */
static void test_record_and_wait_are_moments(void **state)
{
	struct world *w = *state;

	check_ok(event_record(w->e[0], w->s[0]));
	check_ok(fill(w, 0, 0, 64));
	check_ok(stream_wait(w->s[1], w->e[0]));
	check_fails(fill(w, 1, 0, 64), ERR_DEVICE, "race");
	check_ok(event_record(w->e[0], w->s[0]));
	check_fails(fill(w, 1, 0, 64), ERR_DEVICE, "race");
	check_ok(stream_wait(w->s[1], w->e[0]));
	check_ok(fill(w, 1, 0, 64));
	check_ok(stream_wait(w->s[2], w->e[1])); /* never recorded */
	check_fails(fill(w, 2, 0, 64), ERR_DEVICE, "race");
}

static void test_host_side(void **state)
{
	struct world *w = *state;

	check_ok(stream_copy_in(w->s[1], w->arena, w->slab + 100, CELL));
	check_fails(stream_copy_out(w->s[2], w->slab + 100 + CELL - 1, dev_at(w->arena, 4096), CELL),
	        ERR_DEVICE,
	        "copy_out (work 1 of the d2h stream) writes 1 bytes at offset 355 of a slab, which copy_in");
	check_ok(stream_copy_in(
	        w->s[2], dev_at(w->arena, 4096), w->slab + 100, CELL)); /* both read the slab */
	check_ok(stream_sync(w->s[1]));
	check_ok(stream_copy_out(w->s[2], w->slab + 100, dev_at(w->arena, 4096), CELL));
}

static void test_sync(void **state)
{
	struct world *w = *state;

	check_ok(fill(w, 0, 0, 64));
	check_ok(event_record(w->e[0], w->s[0]));
	check_ok(fill(w, 0, 64, 64));
	check_ok(event_sync(w->e[0]));
	check_ok(fill(w, 1, 0, 64));
	check_fails(fill(w, 1, 64, 64), ERR_DEVICE, "race");
	check_ok(stream_sync(w->s[0]));
	check_ok(fill(w, 1, 64, 64));
	check_ok(device_sync(w->device));
	check_ok(fill(w, 2, 0, 128));
}

static void test_discard_and_collectives(void **state)
{
	struct world *w = *state;
	struct comm *comm;

	check_ok(comm_open(&comm, w->device, 0, 2));
	check_ok(fill(w, 0, 0, 64));
	check_fails(stream_discard(w->s[1], w->arena, 64), ERR_DEVICE, "discard");
	check_fails(comm_all_gather(comm, w->s[1], w->arena, 4, DTYPE_F32), ERR_DEVICE, "all_gather");
	order(w, 0, 1);
	check_ok(comm_all_gather(comm, w->s[1], w->arena, 4, DTYPE_F32));
	check_ok(stream_discard(w->s[1], w->arena, 64));
	check_fails(copy(w, 0, 64, 0, 8), ERR_DEVICE, "discard (work 2 of the h2d stream)");
	comm_close(comm); /* waits */
	check_ok(copy(w, 0, 64, 0, 8));
}

static void test_memory_given_back(void **state)
{
	struct world *w = *state;
	struct stream *s;

	check_ok(fill(w, 0, 0, 64));
	device_arena_close(w->device);
	check_ok(device_arena_open(w->device, &w->arena, 4096));
	check_ok(fill(w, 1, 0, 64));

	/* a closed stream's work is done; its place may be taken */
	check_ok(stream_open(&s, w->device, QUEUE_CPU));
	check_ok(stream_copy_in(s, dev_at(w->arena, 128), w->slab, 64));
	stream_close(s);
	check_ok(stream_open(&s, w->device, QUEUE_COMM));
	check_fails(fill(w, 2, 0, 64), ERR_DEVICE, "race");
	check_ok(fill(w, 2, 128, 64));
	stream_close(s);
}

static void test_too_many_streams(void **state)
{
	struct stream *more[RACE_STREAMS_MAX];
	struct world *w = *state;
	int n = 0;

	while (n < RACE_STREAMS_MAX - STREAMS)
		check_ok(stream_open(&more[n++], w->device, QUEUE_CPU));
	check_fails(stream_open(&more[n], w->device, QUEUE_CPU), ERR_UNSUPPORTED, "16");
	stream_close(more[--n]);
	check_ok(stream_open(&more[n++], w->device, QUEUE_CPU));
	while (n)
		stream_close(more[--n]);
}

/* ---- against a model that keeps a history per byte and knows order by reachability ---- */

enum { BYTES = 24, WORKS = 300 };

struct model {
	int works, stream_of[WORKS];
	unsigned char before[WORKS][WORKS]; /* [b][a]: a is ordered before b */
	unsigned char known[STREAMS][WORKS],
	        event[STREAMS][WORKS]; /* what comes before the next; at record */
	unsigned char reads[WORKS][BYTES], writes[WORKS][BYTES];
};

static int model_work(struct model *m, int stream, const struct op_access *list, int count)
{
	int n = m->works;

	memset(m->reads[n], 0, BYTES);
	memset(m->writes[n], 0, BYTES);
	for (int i = 0; i < count; i++)
		memset((list[i].writes ? m->writes[n] : m->reads[n]) + list[i].base.value, 1,
		        (size_t)list[i].bytes);
	for (int a = 0; a < n; a++)
		for (int b = 0; b < BYTES && !m->known[stream][a]; b++)
			if ((m->writes[n][b] && (m->reads[a][b] || m->writes[a][b])) ||
			        (m->reads[n][b] && m->writes[a][b]))
				return 1;
	memcpy(m->before[n], m->known[stream], WORKS);
	m->known[stream][n] = 1;
	m->works++;
	return 0;
}

static void test_against_model(void **state)
{
	static struct model m;
	int races = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 30; seed++) {
		struct race *race = race_open();
		struct race_clock event[STREAMS] = {0};

		memset(&m, 0, sizeof(m));
		for (int s = 0; s < STREAMS; s++)
			assert_int_equal(race_stream_open(race), s);
		for (uint64_t i = 0; i < WORKS; i++) {
			struct op_access list[2];
			struct race_conflict conflict;
			int s = (int)rng_below(seed, 0, i, STREAMS), e = (int)rng_below(seed, 1, i, STREAMS),
			    rc;

			switch (rng_below(seed, 2, i, 5)) {
			case 0:
				race_record(race, &event[e], s);
				memcpy(m.event[e], m.known[s], WORKS);
				continue;
			case 1:
				race_wait(race, s, &event[e]);
				for (int a = 0; a < WORKS; a++)
					m.known[s][a] |= m.event[e][a];
				continue;
			}
			for (int k = 0; k < 2; k++) {
				uint64_t at = rng_below(seed, 3 + (uint64_t)k, i, BYTES);

				list[k].base.value = at;
				list[k].bytes =
				        1 + (int64_t)rng_below(seed, 5 + (uint64_t)k, i, BYTES - at) / 3;
				list[k].writes = rng_below(seed, 7 + (uint64_t)k, i, 3) == 0;
			}
			rc = race_work(race, &conflict, s, "work", list, 2);
			assert_int_equal(rc, model_work(&m, s, list, 2));
			races += rc;
		}
		race_close(race);
	}
	assert_true(races > 500 && races < 30 * WORKS / 2);
}

/* A pipeline as a step has it, many times: the map forgets what all are ordered after. */
static void test_many(void **state)
{
	struct race *race = race_open();
	struct race_conflict conflict;
	struct race_clock event;
	int most = 0;

	(void)state;
	for (int s = 0; s < 5; s++)
		assert_int_equal(race_stream_open(race), s);
	for (uint64_t i = 0; i < 20000; i++) {
		uint64_t at = rng_below(1, 0, i, 1000000);
		int s = (int)(i % 5);
		const struct op_access list[3] = {
		        {{at * 64}, 4096, 1}, {{at * 64 + 4096}, 8192, 0}, {{1ull << 40 | i << 12}, 64, 0}};

		race_record(race, &event, (s + 4) % 5);
		race_wait(race, s, &event);
		assert_int_equal(race_work(race, &conflict, s, "work", list, 3), 0);
		most = most < race_interval_count(race) ? race_interval_count(race) : most;
	}
	assert_true(most < 1100);
	race_close(race);
}

static void test_out_of_memory(void **state)
{
	int rc = -1, n;

	(void)state;
	for (n = 1; rc && n < 200; n++) {
		struct race_conflict conflict;
		struct race *race;

		mem_fault_arm(n, MEM_FAULT_ONCE);
		race = race_open();
		rc = race ? 0 : ERR_NOMEM;
		if (race)
			race_stream_open(race);
		for (uint64_t i = 0; i < 40 && !rc; i++) {
			const struct op_access list[2] = {{{i * 128}, 100, 1}, {{i * 64}, 64, 0}};

			rc = race_work(race, &conflict, 0, "work", list, 2);
		}
		assert_true(!rc || rc == ERR_NOMEM);
		race_close(race);
	}
	mem_fault_arm(0, MEM_FAULT_ONCE);
	assert_true(n > 10 && n < 200);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	        TEST(test_write_write),
	        TEST(test_read_write),
	        TEST(test_order_is_transitive),
	        TEST(test_record_and_wait_are_moments),
	        TEST(test_host_side),
	        TEST(test_sync),
	        TEST(test_discard_and_collectives),
	        TEST(test_memory_given_back),
	        TEST(test_too_many_streams),
	        cmocka_unit_test(test_against_model),
	        cmocka_unit_test(test_many),
	        cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
