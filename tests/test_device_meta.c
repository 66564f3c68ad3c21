/* links: device_meta */
/* The meta device: a clock checked by hand, and the checks that every backend shares. */
#include "check.h"

#include "device/backend.h"

#include <math.h>

/* One flop, byte, ... per nanosecond or a simple part of it. */
static const struct device_options hand = {
        .speed = {.matmul_flops_bf16 = 4e9,
                .matmul_flops_f32 = 2e9,
                .memory_bytes = 1e9,
                .h2d_bytes = 1e9,
                .d2h_bytes = 0.5e9,
                .host_memory_bytes = 1e10,
                .comm_bytes = 1e9},
};

struct world {
	struct device *device;
	struct stream *stream[QUEUE_COUNT];
	struct event *event[2];
	dev_addr arena;
	void *slab;
};

enum { ARENA_BYTES = 1 << 20, SLAB_BYTES = 1 << 16 };

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	device_register(&backend_meta);
	*state = w;
	if (device_open(&w->device, "meta", &hand) || device_arena_open(w->device, &w->arena, ARENA_BYTES) ||
	        device_slab_open(w->device, &w->slab, SLAB_BYTES, SLAB_PINNED))
		return -1;
	for (int q = 0; q < QUEUE_COUNT; q++)
		if (stream_open(&w->stream[q], w->device, (enum queue_kind)q))
			return -1;
	return event_open(&w->event[0], w->device) || event_open(&w->event[1], w->device);
}

static int teardown(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 2; i++)
		event_close(w->event[i]);
	for (int q = 0; q < QUEUE_COUNT; q++)
		stream_close(w->stream[q]);
	device_close(w->device);
	free(w);
	return 0;
}

static struct device_stats stats_of(struct world *w)
{
	struct device_stats s;

	check_ok(device_sync(w->device));
	device_get_stats(w->device, &s);
	return s;
}

/* n x n x n in fp32, everything at the arena's start. */
static struct op square(struct world *w, int64_t n, enum dtype dtype)
{
	return (struct op){.kind = OP_MATMUL,
	        .matmul = {.c = w->arena,
	                .a = dev_at(w->arena, 4 * n * n),
	                .b = dev_at(w->arena, 8 * n * n),
	                .m = n,
	                .n = n,
	                .k = n,
	                .a_stride = n,
	                .b_stride = n,
	                .c_stride = n,
	                .ab_dtype = dtype,
	                .c_dtype = DTYPE_F32}};
}

static int never_called(void *context)
{
	(void)context;
	return -1;
}

/* However much there is to do, the clock does not wrap. */
static void test_time_stays_in_range(void **state)
{
	struct world *w = *state;
	const struct op_cost cost = {.host_bytes = 1e30};
	struct stream_work work;
	int64_t before_ns = 0;

	for (int i = 0; i < 100000; i++) {
		check_ok(stream_call(w->stream[QUEUE_CPU], never_called, NULL, &cost));
		check_ok(stream_call(w->stream[QUEUE_COMPUTE], never_called, NULL, &cost));
		if (i % 10000 == 0) {
			int64_t now_ns = stats_of(w).now_ns;

			assert_true(now_ns > before_ns);
			before_ns = now_ns;
		}
	}
	stream_get_work(w->stream[QUEUE_CPU], &work);
	assert_true(work.alone_ns > 0 && work.bus_ns > 0);
}

static void test_copy_then_op(void **state)
{
	struct world *w = *state;
	struct op op = square(w, 64, DTYPE_F32);
	int64_t at_ns = -1;

	/* 1000 ns of copy; the product waits for it: 2 * 64^3 / 2 = 262144 ns, its 49152 bytes take less */
	check_ok(stream_copy_in(w->stream[QUEUE_H2D], w->arena, w->slab, 1000));
	check_ok(event_record(w->event[0], w->stream[QUEUE_H2D]));
	check_ok(stream_wait(w->stream[QUEUE_COMPUTE], w->event[0]));
	check_ok(stream_op(w->stream[QUEUE_COMPUTE], &op));
	check_ok(stream_stamp(w->stream[QUEUE_COMPUTE], &at_ns));
	assert_int_equal(stats_of(w).wait_ns[QUEUE_H2D], 1000);
	assert_int_equal(at_ns, 1000 + 262144);
	assert_int_equal(stats_of(w).busy_ns[QUEUE_H2D], 1000);
	assert_int_equal(stats_of(w).busy_ns[QUEUE_COMPUTE], 262144);
	assert_int_equal(stats_of(w).now_ns, 263144);
	assert_int_equal(stats_of(w).copied_in_bytes, 1000);
	assert_true(stats_of(w).flops == 2.0 * 64 * 64 * 64);
	assert_int_equal(stats_of(w).arena_touched_bytes, 3 * 64 * 64 * 4);

	/* an event recorded before the copy's end does not hold the stream up again */
	check_ok(stream_wait(w->stream[QUEUE_COMPUTE], w->event[0]));
	assert_int_equal(stats_of(w).wait_ns[QUEUE_H2D], 1000);

	/* bf16 at 4 flop/ns, twice as fast */
	op = square(w, 64, DTYPE_BF16);
	check_ok(stream_op(w->stream[QUEUE_COMPUTE], &op));
	assert_int_equal(stats_of(w).now_ns, 263144 + 131072);
}

static void test_streams_run_beside_each_other(void **state)
{
	struct world *w = *state;
	const struct op_cost cost = {.host_bytes = 700};

	check_ok(stream_copy_in(w->stream[QUEUE_H2D], w->arena, w->slab, 1000));
	check_ok(stream_copy_out(w->stream[QUEUE_D2H], w->slab, dev_at(w->arena, 4096), 1000));
	assert_int_equal(stats_of(w).now_ns, 2000);

	/* a wait of another stream than compute counts for nobody */
	check_ok(event_record(w->event[0], w->stream[QUEUE_D2H]));
	check_ok(stream_wait(w->stream[QUEUE_CPU], w->event[0]));
	check_ok(stream_call(w->stream[QUEUE_CPU], (stream_fn *)abort, NULL, &cost)); /* is not called */
	assert_int_equal(stats_of(w).now_ns, 2070);
	assert_int_equal(stats_of(w).busy_ns[QUEUE_CPU], 70);
	for (int q = 0; q < QUEUE_COUNT; q++)
		assert_int_equal(stats_of(w).wait_ns[q], 0);
}

/* What a kernel and a host function take beside what they do, and what copies both ways carry together. */
static void test_overheads(void **state)
{
	static const struct device_speed speed = {.matmul_flops_bf16 = 1e12,
	        .memory_bytes = 1e12,
	        .h2d_bytes = 10e9,
	        .d2h_bytes = 10e9,
	        .host_memory_bytes = 1e12,
	        .copies_bytes = 12e9,
	        .launch_s = 5e-6,
	        .call_s = 20e-6};
	const struct device_options o = {.speed = speed};
	const struct op_cost cost = {0};
	struct device_stats before, after;
	struct stream *compute, *in, *out;
	struct device *device;
	dev_addr arena;
	void *slab;

	(void)state;
	check_ok(device_open(&device, "meta", &o));
	check_ok(device_arena_open(device, &arena, 24000000));
	check_ok(device_slab_open(device, &slab, 24000000, SLAB_PINNED));
	check_ok(stream_open(&compute, device, QUEUE_COMPUTE));
	check_ok(stream_open(&in, device, QUEUE_H2D));
	check_ok(stream_open(&out, device, QUEUE_D2H));
	device_get_stats(device, &before);
	for (int i = 0; i < 100; i++) {
		const struct op add = {.kind = OP_ADD,
		        .add = {.dst = arena, .a = arena, .b = arena, .count = 64, .dtype = DTYPE_F32}};

		check_ok(stream_op(compute, &add));
		check_ok(stream_call(compute, never_called, NULL, &cost));
	}
	check_ok(device_sync(device));
	device_get_stats(device, &after);
	assert_in_range(after.now_ns - before.now_ns, 2500000, 2501000);
	/* alone 1.2 ms each; 24 MB at 12 GB/s together */
	check_ok(stream_copy_in(in, arena, slab, 12000000));
	check_ok(stream_copy_out(out, (char *)slab + 12000000, dev_at(arena, 12000000), 12000000));
	check_ok(device_sync(device));
	device_get_stats(device, &before);
	assert_in_range(before.now_ns - after.now_ns, 2000000, 2000002);
	check_ok(stream_copy_in(in, arena, slab, 12000000));
	check_ok(device_sync(device));
	device_get_stats(device, &after);
	assert_in_range(after.now_ns - before.now_ns, 1200000, 1200001);
	stream_close(compute);
	stream_close(in);
	stream_close(out);
	device_slab_close(device, slab);
	device_arena_close(device);
	device_close(device);
}

/* A copy keeps a quarter of its rate while AdamW runs, though the bus has room, and all of it afterwards. */
static void test_copies_beside_an_update(void **state)
{
	static const struct device_speed speed = {.h2d_bytes = 1e9,
	        .host_memory_bytes = 100e9,
	        .host_update_bytes = 1e9,
	        .copies_beside = 0.25};
	const struct op_cost cost = {.host_bytes = 2000}, none = {0};
	struct world w = **(struct world **)state;
	int64_t copied_ns, updated_ns, again_ns;

	check_ok(device_open(&w.device, "meta", &(struct device_options){.speed = speed}));
	check_ok(device_arena_open(w.device, &w.arena, ARENA_BYTES));
	check_ok(device_slab_open(w.device, &w.slab, SLAB_BYTES, SLAB_PINNED));
	for (int q = 0; q < QUEUE_COUNT; q++)
		check_ok(stream_open(&w.stream[q], w.device, (enum queue_kind)q));
	check_ok(stream_call(w.stream[QUEUE_CPU], never_called, NULL, &cost));
	check_ok(stream_stamp(w.stream[QUEUE_CPU], &updated_ns));
	check_ok(stream_call(w.stream[QUEUE_CPU], never_called, NULL, &none));
	check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, w.slab, 1000));
	check_ok(stream_stamp(w.stream[QUEUE_H2D], &copied_ns));
	check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, w.slab, 1000));
	check_ok(stream_stamp(w.stream[QUEUE_H2D], &again_ns));
	check_ok(device_sync(w.device));
	assert_int_equal(updated_ns, 2000);
	assert_int_equal(copied_ns, 2500);
	assert_int_equal(again_ns, 3500);
	for (int q = 0; q < QUEUE_COUNT; q++)
		stream_close(w.stream[q]);
	device_close(w.device);
}

/* Three operations need 1, 0.5 and 1 byte per nanosecond of the memory bus: 2.5 times its speed. All run
 * at 0.4 of their speed until one ends. Compute does not use the bus, and runs at full speed. */
static void test_the_bus_is_shared(void **state)
{
	static const struct device_speed speed = {.matmul_flops_bf16 = 4e9,
	        .matmul_flops_f32 = 2e9,
	        .memory_bytes = 1e9,
	        .h2d_bytes = 1e9,
	        .d2h_bytes = 0.5e9,
	        .host_memory_bytes = 1e9,
	        .comm_bytes = 1e9};
	const struct op_cost cost = {.host_bytes = 700};
	struct world w = **(struct world **)state;
	int64_t copied_ns, updated_ns, computed_ns;
	struct stream_work work;
	struct op op;

	check_ok(device_open(&w.device, "meta", &(struct device_options){.speed = speed}));
	check_ok(device_arena_open(w.device, &w.arena, ARENA_BYTES));
	check_ok(device_slab_open(w.device, &w.slab, SLAB_BYTES, SLAB_PINNED));
	for (int q = 0; q < QUEUE_COUNT; q++)
		check_ok(stream_open(&w.stream[q], w.device, (enum queue_kind)q));
	op = square(&w, 16, DTYPE_F32); /* 2 * 16^3 / 2 = 4096 ns */
	check_ok(stream_op(w.stream[QUEUE_COMPUTE], &op));
	check_ok(stream_stamp(w.stream[QUEUE_COMPUTE], &computed_ns));
	check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, w.slab, 1000));
	check_ok(stream_stamp(w.stream[QUEUE_H2D], &copied_ns));
	check_ok(stream_copy_out(w.stream[QUEUE_D2H], w.slab, dev_at(w.arena, 4096), 1000));
	check_ok(stream_call(w.stream[QUEUE_CPU], (stream_fn *)abort, NULL, &cost));
	check_ok(stream_stamp(w.stream[QUEUE_CPU], &updated_ns));
	check_ok(stream_sync(w.stream[QUEUE_D2H]));
	/* 700 / 0.4; then 300 of one and 1300 of the other are left, at 1 / 1.5; then 1000 of the last */
	assert_int_equal(updated_ns, 1750);
	assert_int_equal(copied_ns, 1750 + 450);
	assert_int_equal(stats_of(&w).busy_ns[QUEUE_D2H], 1750 + 450 + 1000);
	assert_int_equal(computed_ns, 4096);
	stream_get_work(w.stream[QUEUE_D2H], &work);
	assert_int_equal(work.alone_ns, 2000);
	assert_int_equal(work.bus_ns, 1000);
	for (int q = 0; q < QUEUE_COUNT; q++)
		stream_close(w.stream[q]);
	device_close(w.device);
}

/* Pieces that take the bus for a fraction of a nanosecond do not add up to more of it than they take. */
static void test_bus_fractions(void **state)
{
	static const struct device_speed speed = {.matmul_flops_bf16 = 1e9,
	        .matmul_flops_f32 = 1e9,
	        .memory_bytes = 1e9,
	        .h2d_bytes = 1e9,
	        .d2h_bytes = 1e9,
	        .host_memory_bytes = 1.5e9,
	        .comm_bytes = 1e9};
	struct world w = **(struct world **)state;
	struct stream_work work;

	check_ok(device_open(&w.device, "meta", &(struct device_options){.speed = speed}));
	check_ok(device_arena_open(w.device, &w.arena, ARENA_BYTES));
	check_ok(device_slab_open(w.device, &w.slab, SLAB_BYTES, SLAB_PINNED));
	check_ok(stream_open(&w.stream[QUEUE_H2D], w.device, QUEUE_H2D));
	for (int i = 0; i < 300; i++)
		check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, w.slab, 1));
	stream_get_work(w.stream[QUEUE_H2D], &work);
	assert_int_equal(work.alone_ns, 300);
	assert_in_range(work.bus_ns, 0, 200);
	stream_close(w.stream[QUEUE_H2D]);
	device_close(w.device);
}

/* If the host computes, a product and an update share its cores and its memory. */
static void test_the_host_computes(void **state)
{
	static const struct device_speed speed = {.matmul_flops_bf16 = 1e9,
	        .matmul_flops_f32 = 1e9,
	        .memory_bytes = 1e9,
	        .h2d_bytes = 1e9,
	        .d2h_bytes = 1e9,
	        .host_memory_bytes = 1e9,
	        .comm_bytes = 1e9,
	        .host_computes = 1};
	const struct op_cost cost = {.host_bytes = 1000};
	struct world w = **(struct world **)state;
	struct op op;

	check_ok(device_open(&w.device, "meta", &(struct device_options){.speed = speed}));
	check_ok(device_arena_open(w.device, &w.arena, ARENA_BYTES));
	for (int q = 0; q < QUEUE_COUNT; q++)
		check_ok(stream_open(&w.stream[q], w.device, (enum queue_kind)q));
	op = square(&w, 16, DTYPE_F32); /* 8192 ns, 3072 bytes */
	check_ok(stream_op(w.stream[QUEUE_COMPUTE], &op));
	check_ok(stream_call(w.stream[QUEUE_CPU], (stream_fn *)abort, NULL, &cost));
	check_ok(stream_sync(w.stream[QUEUE_CPU]));
	assert_in_range(stats_of(&w).busy_ns[QUEUE_CPU], 2000, 2001);
	assert_in_range(stats_of(&w).now_ns, 9192, 9193);
	for (int q = 0; q < QUEUE_COUNT; q++)
		stream_close(w.stream[q]);
	device_close(w.device);
}

static void test_sync_moves_the_host(void **state)
{
	struct world *w = *state;
	int64_t at_ns = -1;

	check_ok(stream_copy_in(w->stream[QUEUE_H2D], w->arena, w->slab, 500));
	check_ok(stream_stamp(w->stream[QUEUE_COMPUTE], &at_ns));
	check_ok(stream_sync(w->stream[QUEUE_H2D]));
	assert_int_equal(at_ns, 0);
	check_ok(stream_stamp(w->stream[QUEUE_COMPUTE], &at_ns));
	check_ok(stream_sync(w->stream[QUEUE_COMPUTE]));
	assert_int_equal(at_ns, 500); /* queued after the host had waited */
}

static void test_collectives_of_four_ranks(void **state)
{
	struct world *w = *state;
	double values[2] = {3, 0};
	struct comm *comm;

	check_ok(comm_open(&comm, w->device, 1, 4));
	check_ok(
	        comm_all_gather(comm, w->stream[QUEUE_COMM], w->arena, 100, DTYPE_F32)); /* 1600 bytes, 3/4 */
	assert_int_equal(stats_of(w).now_ns, 1200);
	check_ok(comm_reduce_scatter(comm, w->stream[QUEUE_COMM], w->arena, 100, DTYPE_F32));
	assert_int_equal(stats_of(w).now_ns, 2400);
	check_ok(comm_all_reduce(comm, w->stream[QUEUE_COMM], w->arena, 400, DTYPE_F32));
	assert_int_equal(stats_of(w).now_ns, 4800);
	check_ok(comm_broadcast(comm, w->stream[QUEUE_COMM], w->arena, 400, DTYPE_F32, 3));
	assert_int_equal(stats_of(w).now_ns, 6400);
	assert_int_equal(stats_of(w).busy_ns[QUEUE_COMM], 6400);
	assert_int_equal(stats_of(w).arena_touched_bytes, 1600);
	check_ok(comm_sum_host(comm, values, 2));
	assert_true(values[0] == 12 && values[1] == 0);
	comm_close(comm);
}

/* 70B parameters: terabytes of address space, none of it backed. */
static void test_large(void **state)
{
	struct world *w = *state;
	struct op add = {.kind = OP_ADD};
	const int64_t arena_bytes = 1ll << 43, slab_bytes = 140ll << 30;
	dev_addr arena;
	void *slab;

	device_arena_close(w->device);
	check_ok(device_arena_open(w->device, &arena, arena_bytes));
	check_ok(device_slab_open(w->device, &slab, slab_bytes, SLAB_PAGEABLE));
	check_ok(stream_copy_in(
	        w->stream[QUEUE_H2D], dev_at(arena, arena_bytes - slab_bytes), slab, slab_bytes));
	assert_int_equal(stats_of(w).now_ns, slab_bytes);
	assert_int_equal(stats_of(w).arena_touched_bytes, arena_bytes);
	assert_int_equal(stats_of(w).slab_bytes, slab_bytes + SLAB_BYTES);
	assert_int_equal(stats_of(w).slab_pinned_bytes, SLAB_BYTES);
	add.add.dst = add.add.a = add.add.b = arena;
	add.add.count = 1;
	for (int i = 0; i < 100000; i++) {
		check_ok(stream_op(w->stream[i % QUEUE_COUNT], &add));
		check_ok(event_record(w->event[i % 2], w->stream[i % QUEUE_COUNT]));
		check_ok(stream_wait(w->stream[(i + 1) % QUEUE_COUNT], w->event[i % 2]));
	}
	device_slab_close(w->device, slab);
	assert_int_equal(stats_of(w).slab_bytes, SLAB_BYTES);
	assert_int_equal(stats_of(w).slab_peak_bytes, slab_bytes + SLAB_BYTES);
}

static void test_bounds(void **state)
{
	struct world *w = *state;
	struct stream *s = w->stream[QUEUE_COMPUTE];
	struct op fill = {.kind = OP_FILL, .fill = {.dst = dev_at(w->arena, ARENA_BYTES - 8), .bytes = 8}};
	struct op op = square(w, 64, DTYPE_F32);

	check_ok(stream_op(s, &fill));
	fill.fill.bytes = 9;
	check_fails(stream_op(s, &fill), ERR_RANGE, "fill: 9 bytes at arena offset 1048568");
	fill.fill.bytes = 0;
	check_fails(stream_op(s, &fill), ERR_RANGE, "bytes is 0");
	fill.fill.bytes = INT64_MAX;
	check_fails(stream_op(s, &fill), ERR_RANGE, "arena");
	fill.fill.bytes = 8;
	fill.fill.dst.value = w->arena.value - 8;
	check_fails(stream_op(s, &fill), ERR_RANGE, "arena");
	op.matmul.b_stride = INT64_MAX / 2;
	check_fails(stream_op(s, &op), ERR_RANGE, "matmul");
	check_fails(stream_copy_in(s, w->arena, w->slab, 0), ERR_RANGE, "copy_in: 0 bytes");
	check_fails(stream_copy_in(s, w->arena, w->slab, -5), ERR_RANGE, "copy_in");
	check_fails(stream_copy_in(s, w->arena, NULL, 5), ERR_RANGE, "no host address");
	check_fails(stream_copy_in(s, dev_at(w->arena, ARENA_BYTES), w->slab, 1), ERR_RANGE, "arena");
	check_fails(stream_copy_in(s, w->arena, (char *)w->slab + 10, SLAB_BYTES - 9), ERR_RANGE, "slab");
	check_ok(stream_copy_in(s, w->arena, (char *)w->slab + 10, SLAB_BYTES - 10));
	check_fails(stream_copy_out(s, w->slab, w->arena, SLAB_BYTES + 1), ERR_RANGE, "copy_out");
	check_fails(stream_discard(s, w->arena, ARENA_BYTES + 1), ERR_RANGE, "discard");
	check_fails(stream_call(s, NULL, NULL, NULL), ERR_RANGE, "function");
	check_fails(stream_stamp(s, NULL), ERR_RANGE, "stamp");
	check_ok(stream_sync(s)); /* none of it broke the device */
}

static void test_open(void **state)
{
	struct world *w = *state;
	struct device_options bad = {.threads = -1};
	struct device *device;
	struct stream *stream;
	struct comm *comm;
	dev_addr arena;
	void *slab;

	check_fails(device_open(&device, "abacus", NULL), ERR_INPUT, "\"abacus\"; available: meta, auto");
	assert_null(device);
	check_fails(device_open(&device, "meta", &bad), ERR_INPUT, "threads");
	bad = (struct device_options){.host_copy_gbps = -1};
	check_fails(device_open(&device, "meta", &bad), ERR_INPUT, "host_copy_gbps");
	bad = (struct device_options){.speed.h2d_bytes = NAN};
	check_fails(device_open(&device, "meta", &bad), ERR_INPUT, "speed");
	check_ok(device_open(&device, "auto", NULL));
	assert_string_equal(device_name(device), "meta");
	assert_int_equal(device_has_bytes(device), 0);
	device_close(device);
	device_close(NULL);

	check_fails(device_arena_open(w->device, &arena, 64), ERR_RANGE, "one already");
	check_fails(device_slab_open(w->device, &slab, 0, SLAB_PINNED), ERR_RANGE, "slab");
	check_fails(stream_open(&stream, w->device, QUEUE_COUNT), ERR_RANGE, "queue");
	check_fails(comm_open(&comm, w->device, 2, 2), ERR_RANGE, "rank 2 of 2");
	check_ok(comm_open(&comm, w->device, 0, 1));
	assert_int_equal(comm_rank(comm), 0);
	assert_int_equal(comm_world_size(comm), 1);
	check_fails(comm_all_gather(comm, w->stream[0], w->arena, 0, DTYPE_F32), ERR_RANGE, "all_gather");
	check_fails(comm_all_gather(comm, w->stream[0], w->arena, INT64_MAX, DTYPE_F32), ERR_RANGE, "pieces");
	check_fails(comm_all_reduce(comm, w->stream[0], w->arena, 4, DTYPE_I32), ERR_RANGE, "I32");
	check_fails(comm_broadcast(comm, w->stream[0], w->arena, 4, DTYPE_F32, 1), ERR_RANGE, "rank 1");
	comm_close(comm);
	comm_close(NULL);
	stream_close(NULL);
	event_close(NULL);
	device_slab_close(w->device, NULL);
}

/* The memory that a plan counts beside the arena is known without a device of that name. */
static void test_reserves(void **state)
{
	const struct device_comms two = {2, 4}, eight = {1, 8};
	struct world *w = *state;
	struct device_reserve list[DEVICE_RESERVES_MAX];
	int count = device_reserve_list(list, DEVICE_CUDA, NULL), many;

	assert_true(count > 0);
	for (int i = 0; i < count; i++) {
		assert_non_null(list[i].name);
		assert_true(list[i].bytes > 0);
	}
	many = device_reserve_list(list, DEVICE_CUDA, &two); /* NCCL's communicators, where ranks have any */
	assert_int_equal(many, count + 1);
	assert_string_equal(list[count].name, "NCCL");
	assert_int_equal(list[count].bytes, 2 * (int64_t)RESERVE_NCCL_BYTES);
	assert_int_equal(device_reserve_list(list, DEVICE_CUDA, &eight), count + 2); /* and NVSwitch's */
	assert_int_equal(list[count + 1].bytes, RESERVE_NVLS_BYTES);
	assert_int_equal(device_reserve_list(list, DEVICE_HOST, &eight), 0);
	assert_int_equal(device_reserve_list(list, DEVICE_META, &eight), 0);
	assert_int_equal(device_free_bytes(w->device), 0);
	assert_int_equal(stats_of(w).reserve_bytes, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	        TEST(test_time_stays_in_range),
	        TEST(test_copy_then_op),
	        TEST(test_streams_run_beside_each_other),
	        TEST(test_overheads),
	        TEST(test_the_bus_is_shared),
	        TEST(test_copies_beside_an_update),
	        TEST(test_bus_fractions),
	        TEST(test_the_host_computes),
	        TEST(test_sync_moves_the_host),
	        TEST(test_collectives_of_four_ranks),
	        TEST(test_large),
	        TEST(test_bounds),
	        TEST(test_open),
	        TEST(test_reserves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
