/* links: host_cpu device_meta */
/* also: tsan */
/* The host device: order, events, errors, throttled copies, delays, poison, statistics. */
#include "device_check.h"

#include "base/mem.h"
#include "base/num.h"
#include "host/cpu/cpu_device.h"

#include <math.h>
#include <time.h>

static int setup(void **state)
{
	const struct device_options options = {.threads = 2};
	struct world *w = calloc(1, sizeof(*w));

	*state = w;
	return world_open(w, "host", &options);
}

static int teardown(void **state)
{
	world_close(*state);
	free(*state);
	return 0;
}

/* ---- order ---- */

struct note {
	int *list, *count, value;
};

static int write_note(void *context)
{
	struct note *n = context;

	n->list[(*n->count)++] = n->value;
	return 0;
}

static void test_fifo(void **state)
{
	enum { ITEMS = 3000 };
	static struct note notes[ITEMS];
	static int list[ITEMS], count;
	struct world *w = *state;

	count = 0;
	for (int i = 0; i < ITEMS; i++) {
		notes[i] = (struct note){list, &count, i};
		check_ok(stream_call(w->stream[QUEUE_CPU], write_note, &notes[i], NULL));
	}
	check_ok(stream_sync(w->stream[QUEUE_CPU]));
	assert_int_equal(count, ITEMS);
	for (int i = 0; i < ITEMS; i++)
		assert_int_equal(list[i], i);
}

/* A call that stands until the test opens it. */
struct gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int is_open, passed;
};

static const struct gate shut = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};

static int pass_gate(void *context)
{
	struct gate *g = context;

	pthread_mutex_lock(&g->lock);
	while (!g->is_open)
		pthread_cond_wait(&g->changed, &g->lock);
	g->passed = 1;
	pthread_mutex_unlock(&g->lock);
	return 0;
}

static int read_passed(void *context)
{
	struct gate *g = context;
	int passed;

	pthread_mutex_lock(&g->lock);
	passed = g->passed;
	pthread_mutex_unlock(&g->lock);
	return passed ? 0 : err_set(ERR_INTERNAL, "went before the gate");
}

static void open_gate(struct gate *g)
{
	pthread_mutex_lock(&g->lock);
	g->is_open = 1;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
}

static void test_events(void **state)
{
	struct world *w = *state;
	struct stream *a = w->stream[QUEUE_COMPUTE], *b = w->stream[QUEUE_H2D], *c = w->stream[QUEUE_D2H];
	struct event *e = w->event[0];
	struct op fill = fill_op(w->arena, 64, 7);
	struct gate gate = shut;

	check_ok(stream_wait(b, e)); /* never recorded */
	check_ok(event_sync(e));
	check_ok(stream_op(a, &fill));
	check_ok(event_record(e, a));
	check_ok(stream_wait(b, e));
	check_ok(stream_call(a, pass_gate, &gate, NULL));
	check_ok(event_record(e, a)); /* moves it, but not what b waits for */
	check_ok(stream_copy_out(b, w->slab, w->arena, 64));
	check_ok(stream_sync(b)); /* would hang behind the gate */
	assert_int_equal(w->slab[63], 7);

	check_ok(stream_wait(c, e));
	check_ok(stream_call(c, read_passed, &gate, NULL));
	open_gate(&gate);
	check_ok(event_sync(e));
	assert_int_equal(gate.passed, 1);
	check_ok(stream_sync(c));
	check_ok(device_sync(w->device));
}

static void test_event_outlives_stream(void **state)
{
	struct world *w = *state;
	struct op fill = fill_op(w->arena, 64, 7);
	struct stream *s;

	for (int round = 0; round < 3; round++) {
		check_ok(stream_open(&s, w->device, QUEUE_COMM));
		check_ok(stream_op(s, &fill));
		check_ok(event_record(w->event[0], s));
		stream_close(s);
		check_ok(stream_wait(w->stream[QUEUE_COMPUTE], w->event[0]));
		check_ok(event_sync(w->event[0]));
		check_ok(stream_op(w->stream[QUEUE_COMPUTE], &fill));
		check_ok(stream_sync(w->stream[QUEUE_COMPUTE]));
	}
}

/* ---- errors ---- */

static int fail_one(void *context)
{
	(void)context;
	return err_set(ERR_NONFINITE, "the first trouble");
}

static int fail_two(void *context)
{
	(void)context;
	return err_set(ERR_IO, "the second trouble");
}

static int answer_one(void *context)
{
	(void)context;
	return 1;
}

static void test_error(void **state)
{
	struct world *w = *state;
	struct stream *a = w->stream[QUEUE_COMPUTE], *b = w->stream[QUEUE_D2H];
	struct op fill = fill_op(w->arena, 64, 7);
	int64_t at_ns = -1;

	memset(w->slab, 0, 64);
	check_ok(stream_call(a, answer_one, NULL, NULL)); /* no error */
	check_ok(stream_sync(a));
	check_ok(stream_call(a, fail_one, NULL, NULL));
	check_ok(stream_op(a, &fill));
	check_ok(event_record(w->event[0], a));
	check_ok(stream_wait(b, w->event[0]));
	check_ok(stream_call(b, fail_two, NULL, NULL));
	check_ok(stream_copy_out(b, w->slab, w->arena, 64));
	check_ok(stream_stamp(b, &at_ns));
	check_fails(stream_sync(b), ERR_NONFINITE, "the first trouble");
	check_fails(stream_sync(a), ERR_NONFINITE, "compute stream");
	check_fails(event_sync(w->event[0]), ERR_NONFINITE, "the first trouble");
	check_fails(device_sync(w->device), ERR_NONFINITE, "the first trouble");
	assert_int_equal(w->slab[0], 0); /* neither the fill nor the copy were done */
	assert_true(at_ns >= 0);
	assert_int_equal(stats_of(w).copied_out_bytes, 0);
}

static void test_op_error(void **state)
{
	struct world *w = *state;
	struct op fill = fill_op(w->arena, 4096, 99);
	struct op gather = {.kind = OP_GATHER,
	        .gather = {.out = dev_at(w->arena, 64),
	                .table = dev_at(w->arena, 128),
	                .index = w->arena,
	                .rows = 1,
	                .cols = 4,
	                .table_rows = 1}};

	check_ok(stream_op(w->stream[QUEUE_COMPUTE], &fill));
	check_ok(stream_op(w->stream[QUEUE_COMPUTE], &gather));
	assert_true(stream_sync(w->stream[QUEUE_COMPUTE]) < 0);
	assert_non_null(strstr(err_text(), "compute stream"));
	assert_non_null(strstr(err_text(), "gather"));
}

/* ---- copies ---- */

/* Returns whether copies in and out ran at the same time. */
static int throttle_once(void)
{
	const struct device_options options = {.threads = 1, .host_copy_gbps = 0.1};
	enum { BYTES = 4 << 20, LEAST_NS = 41943040 };
	int64_t at_ns[QUEUE_COUNT][2];
	int beside;
	struct world w;

	check_ok(world_open(&w, "host", &options));
	memset(w.slab, 5, SLAB_BYTES);
	for (int q = QUEUE_H2D; q <= QUEUE_COMM; q++) { /* in, out, and in again on a third stream */
		struct stream *s = w.stream[q];
		dev_addr at = dev_at(w.arena, q == QUEUE_D2H ? BYTES : 0);

		check_ok(stream_stamp(s, &at_ns[q][0]));
		if (q == QUEUE_D2H)
			check_ok(stream_copy_out(s, w.slab + BYTES, at, BYTES));
		else if (q == QUEUE_H2D)
			check_ok(stream_copy_in(s, at, w.slab, BYTES));
		else
			check_ok(stream_copy_in(s, dev_at(at, 2 * BYTES), w.slab, BYTES / 2));
		check_ok(stream_stamp(s, &at_ns[q][1]));
	}
	check_ok(event_record(w.event[0], w.stream[QUEUE_H2D]));
	check_ok(stream_wait(w.stream[QUEUE_COMPUTE], w.event[0]));
	check_ok(device_sync(w.device));

	assert_true(at_ns[QUEUE_H2D][1] - at_ns[QUEUE_H2D][0] >= LEAST_NS);
	assert_true(at_ns[QUEUE_D2H][1] - at_ns[QUEUE_D2H][0] >= LEAST_NS);
	beside = at_ns[QUEUE_D2H][0] < at_ns[QUEUE_H2D][1] && at_ns[QUEUE_H2D][0] < at_ns[QUEUE_D2H][1];
	/* one direction is one link: the two that go in take turns */
	assert_true(fmax((double)at_ns[QUEUE_H2D][1], (double)at_ns[QUEUE_COMM][1]) -
	                    fmin((double)at_ns[QUEUE_H2D][0], (double)at_ns[QUEUE_COMM][0]) >=
	            1.5 * LEAST_NS);
	assert_true(stats_of(&w).busy_ns[QUEUE_H2D] >= LEAST_NS);
	assert_true(stats_of(&w).wait_ns[QUEUE_H2D] >= LEAST_NS / 4);
	assert_int_equal(stats_of(&w).wait_ns[QUEUE_D2H], 0);
	assert_int_equal(stats_of(&w).copied_in_bytes, BYTES + BYTES / 2);
	assert_int_equal(stats_of(&w).copied_out_bytes, BYTES);
	assert_int_equal(((unsigned char *)cpu_ptr(w.arena))[BYTES - 1], 5);
	assert_int_equal(w.slab[2 * BYTES - 1], 0);
	world_close(&w);
	return beside;
}

/* On a busy machine one stream's thread may begin after the other's copy: then again. */
static void test_throttle(void **state)
{
	int tries = 20;

	(void)state;
	while (!throttle_once())
		assert_true(--tries > 0);
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* In some tenth of a second the process does next to nothing; not in the first, where a library's threads may
 * still be settling. */
static void test_idle_streams_sleep(void **state)
{
	struct timespec pause = {.tv_nsec = 100000000};
	struct world *w = *state;
	double least = 1;

	check_ok(device_sync(w->device));
	for (int i = 0; i < 10 && least > 0.01; i++) {
		double before = cpu_seconds(), used;

		nanosleep(&pause, NULL);
		used = cpu_seconds() - before;
		least = used < least ? used : least;
	}
	assert_true(least < 0.02);
}

/* ---- delays and poison ---- */

static void test_delays_are_pure(void **state)
{
	int64_t longest = 0, sum = 0;
	int differ = 0, zeros = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		int64_t ns = cpu_delay_ns(42, QUEUE_H2D, i);

		assert_int_equal(ns, cpu_delay_ns(42, QUEUE_H2D, i));
		assert_true(ns >= 0 && ns <= 200000);
		differ += ns != cpu_delay_ns(43, QUEUE_H2D, i) || ns != cpu_delay_ns(42, QUEUE_D2H, i);
		zeros += !ns;
		sum += ns;
		longest = longest < ns ? ns : longest;
	}
	assert_true(differ > 300 && zeros > 600 && zeros < 900 && longest > 150000 && sum < 40000000);
}

static void test_poison(void **state)
{
	const struct device_options options = {.threads = 1, .poison = 1};
	unsigned char *bytes;
	struct world w;
	float f;
	double d;

	(void)state;
	check_ok(world_open(&w, "host", &options));
	bytes = cpu_ptr(w.arena);
	for (int i = 0; i < ARENA_BYTES; i += 4093)
		assert_int_equal(bytes[i], i % 2 ? 0x7f : 0xf9);
	memcpy(&f, bytes, 4);
	memcpy(&d, bytes, 8);
	assert_true(isnan(f) && isnan(d) && isnan(bf16_to_f32(0x7ff9)) && isnan(f16_to_f32(0x7ff9)));

	memset(w.slab, 1, 64);
	check_ok(stream_copy_in(w.stream[0], w.arena, w.slab, 64));
	check_ok(stream_discard(w.stream[0], dev_at(w.arena, 3), 30));
	check_ok(stream_sync(w.stream[0]));
	for (int i = 0; i < 64; i++)
		assert_int_equal(bytes[i], i < 3 || i >= 33 ? 1 : i % 2 ? 0x7f : 0xf9);
	world_close(&w);
}

/* ---- the rest ---- */

static void test_touched(void **state)
{
	struct world *w = *state;
	struct op fill = fill_op(dev_at(w->arena, 1000), 24, 1);
	struct comm *comm;
	dev_addr arena;

	assert_int_equal(stats_of(w).arena_touched_bytes, 0);
	check_ok(stream_op(w->stream[0], &fill));
	check_ok(stream_copy_in(w->stream[1], dev_at(w->arena, 512), w->slab, 8));
	check_ok(stream_discard(w->stream[0], w->arena, ARENA_BYTES));
	check_ok(device_sync(w->device));
	assert_int_equal(stats_of(w).arena_touched_bytes, 1024);
	check_ok(comm_open(&comm, w->device, 0, 1));
	check_ok(comm_all_gather(comm, w->stream[QUEUE_COMM], dev_at(w->arena, 1024), 256, DTYPE_BF16));
	check_ok(comm_reduce_scatter(comm, w->stream[QUEUE_COMM], w->arena, 16, DTYPE_F32));
	check_ok(comm_all_reduce(comm, w->stream[QUEUE_COMM], w->arena, 16, DTYPE_F32));
	check_ok(comm_broadcast(comm, w->stream[QUEUE_COMM], w->arena, 16, DTYPE_F32, 0));
	check_ok(device_sync(w->device));
	assert_int_equal(stats_of(w).arena_touched_bytes, 1536);
	comm_close(comm);
	check_fails(comm_open(&comm, w->device, 0, 2), ERR_UNSUPPORTED, "set ranks=2");

	device_arena_close(w->device);
	assert_int_equal(stats_of(w).arena_bytes, 0);
	check_fails(stream_op(w->stream[0], &fill), ERR_RANGE, "no arena");
	check_ok(device_arena_open(w->device, &arena, 1000003));
	assert_int_equal(arena.value % 256, 0);
	assert_int_equal(stats_of(w).arena_touched_bytes, 0);
	assert_int_equal(stats_of(w).arena_bytes, 1000003);
}

static void test_sum_host(void **state)
{
	struct world *w = *state;
	double values[2] = {1.5, -2};
	struct comm *comm;

	check_ok(comm_open(&comm, w->device, 0, 1));
	check_ok(comm_sum_host(comm, values, 2));
	assert_true(values[0] == 1.5 && values[1] == -2);
	comm_close(comm);
}

/* Opening and a little work, with the n-th request for memory refused, until none is. */
static void test_out_of_memory(void **state)
{
	int rc = -1, n;

	(void)state;
	for (n = 1; rc && n < 1000; n++) {
		const struct device_options options = {.threads = 2};
		int64_t at_ns[2];
		struct world w;

		mem_fault_arm(n, MEM_FAULT_ONCE);
		rc = world_open(&w, "host", &options);
		for (int i = 0; i < 600 && !rc; i++)
			rc = stream_stamp(w.stream[i % 2], &at_ns[i % 2]);
		if (rc)
			assert_int_equal(rc, ERR_NOMEM);
		world_close(&w);
	}
	mem_fault_arm(0, MEM_FAULT_ONCE);
	assert_true(n > 10 && n < 1000);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	        TEST(test_fifo),
	        TEST(test_events),
	        TEST(test_event_outlives_stream),
	        TEST(test_error),
	        TEST(test_op_error),
	        cmocka_unit_test(test_throttle),
	        TEST(test_idle_streams_sleep),
	        cmocka_unit_test(test_delays_are_pure),
	        cmocka_unit_test(test_poison),
	        TEST(test_touched),
	        TEST(test_sum_host),
	        cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, world_register, NULL);
}
