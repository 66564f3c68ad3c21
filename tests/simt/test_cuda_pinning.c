/* Host memory of the CUDA device on the fake runtime: pinned in pieces, without pinning, and copied both
 * ways. */
#include "tests/device_program.h"

#include "tests/simt/cuda_fixture.h"

enum { PIECE = 1 << 30 };

/* A slab of two pieces and a bit: copies across the border between two registrations are cut there. */
static void test_pinned_pieces(void **state)
{
	const int64_t bytes = 2ll * PIECE + 8192;
	void *slab;
	unsigned char *at;
	struct world w;

	(void)state;
	check_ok(world_open(&w, "cuda", NULL));
	check_ok(device_slab_open(w.device, &slab, bytes, SLAB_PINNED));
	assert_int_equal(stats_of(&w).slab_pinned_bytes, bytes + SLAB_BYTES);
	at = (unsigned char *)slab + PIECE - 4096;
	memset(at, 5, 8192);
	check_ok(stream_copy_in(w.stream[0], w.arena, at, 8192));
	check_ok(stream_copy_out(w.stream[0], at + PIECE, w.arena, 8192));
	check_ok(device_sync(w.device));
	assert_memory_equal(at, at + PIECE, 8192);
	assert_int_equal(stats_of(&w).copied_in_bytes, 8192);
	device_slab_close(w.device, slab);
	assert_int_equal(stats_of(&w).slab_pinned_bytes, SLAB_BYTES);
	assert_string_equal(last_warning, "");
	world_close(&w);
}

static void test_pin_limit(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	void *slab;
	unsigned char *at;
	struct world w;

	(void)state;
	machine.pin_bytes = 3ll * PIECE / 2;
	simt_runtime_set(&machine);
	check_ok(world_open(&w, "cuda", NULL));
	check_ok(device_slab_open(w.device, &slab, 2ll * PIECE, SLAB_PINNED));
	assert_int_equal(stats_of(&w).slab_pinned_bytes, PIECE + SLAB_BYTES);
	assert_non_null(strstr(last_warning, "only 1024 of 2048 MiB of host memory could be pinned"));
	assert_non_null(strstr(last_warning, "ulimit -l"));
	at = (unsigned char *)slab + PIECE - 4096;
	memset(at, 5, 8192);
	check_ok(stream_copy_in(w.stream[0], w.arena, at, 8192));
	check_ok(stream_copy_out(w.stream[0], at + 8192, w.arena, 8192));
	check_ok(device_sync(w.device));
	assert_memory_equal(at, at + 8192, 8192);
	world_close(&w);
}

static int write_five(void *context)
{
	memset(context, 5, 8192);
	return 0;
}

/* What a copy of pageable memory waits for is in it, though the driver stages such memory when it likes;
 * where a slab is pinned in part, on both sides of the border. */
static void check_pageable_order(int64_t pin_bytes, enum simt_schedule schedule)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	void *slab;
	unsigned char *at, back[8192];
	struct world w;

	machine.pin_bytes = pin_bytes;
	machine.schedule = schedule;
	simt_runtime_set(&machine);
	check_ok(world_open(&w, "cuda", NULL));
	check_ok(device_slab_open(w.device, &slab, 2ll * PIECE, pin_bytes ? SLAB_PINNED : SLAB_PAGEABLE));
	at = (unsigned char *)slab + PIECE - 4096;
	check_ok(stream_call(w.stream[QUEUE_CPU], write_five, at, NULL));
	check_ok(event_record(w.event[0], w.stream[QUEUE_CPU]));
	check_ok(stream_wait(w.stream[QUEUE_H2D], w.event[0]));
	check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, at, 8192));
	check_ok(stream_copy_out(w.stream[QUEUE_H2D], back, w.arena, 8192));
	check_ok(device_sync(w.device));
	assert_memory_equal(back, at, 8192);
	assert_int_equal(back[0], 5);
	world_close(&w);
}

/* A machine that registers nothing gives the whole slab itself: pinned, zero, copied in one. */
static void test_register_is_refused(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	const int64_t bytes = PIECE + 8192ll;
	unsigned char *at;
	void *slab, *second;
	struct world w;

	(void)state;
	machine.refuses_register = 1;
	simt_runtime_set(&machine);
	check_ok(world_open(&w, "cuda", NULL));
	check_ok(device_slab_open(w.device, &slab, bytes, SLAB_PINNED));
	assert_non_null(strstr(last_warning, "the driver allocates it instead"));
	assert_int_equal(stats_of(&w).slab_pinned_bytes, bytes + SLAB_BYTES);
	last_warning[0] = 0;
	check_ok(device_slab_open(w.device, &second, 4096, SLAB_PINNED));
	assert_string_equal(last_warning, ""); /* once */
	at = slab;
	assert_int_equal(at[0] | at[4096], 0);
	at += PIECE - 4096;
	memset(at, 5, 8192);
	simt_fail_work_after(0, cudaSuccess);
	check_ok(stream_copy_in(w.stream[0], w.arena, at, 8192));
	check_ok(stream_copy_out(w.stream[0], second, w.arena, 4096));
	assert_int_equal(simt_fail_work_after(0, cudaSuccess), 0); /* nobody waited */
	check_ok(device_sync(w.device));
	assert_memory_equal(at, second, 4096);
	device_slab_close(w.device, slab);
	world_close(&w);
}

enum { RUN_BYTES = 40 << 20 };

/* Where nothing of a slab can be pinned, copies go through the pinned buffer: the owning thread waits for
 * none, what they wait for is in them, and so is what waits for them, in every schedule. */
static void check_bounce(uint64_t seed, enum simt_schedule schedule)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	unsigned char *from, *back;
	void *slab;
	struct world w;

	machine.refuses_register = machine.refuses_alloc = 1;
	machine.seed = seed;
	machine.schedule = schedule;
	simt_runtime_set(&machine);
	check_ok(world_open_sized(&w, "cuda", NULL, 2 * RUN_BYTES));
	check_ok(device_slab_open(w.device, &slab, 2ll * RUN_BYTES + (64 << 20), SLAB_PINNED));
	assert_non_null(strstr(last_warning, "go through a pinned buffer"));
	from = slab;
	back = from + RUN_BYTES;
	for (int i = 0; i < RUN_BYTES; i++)
		from[i] = (unsigned char)(i * 7 + (i >> 12));
	simt_fail_work_after(0, cudaSuccess);
	check_ok(stream_call(w.stream[QUEUE_CPU], write_five, from, NULL));
	check_ok(event_record(w.event[0], w.stream[QUEUE_CPU]));
	check_ok(stream_wait(w.stream[QUEUE_H2D], w.event[0]));
	check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, from, RUN_BYTES));
	check_ok(event_record(w.event[1], w.stream[QUEUE_H2D]));
	check_ok(stream_wait(w.stream[QUEUE_D2H], w.event[1]));
	check_ok(stream_copy_out(w.stream[QUEUE_D2H], back, w.arena, RUN_BYTES));
	check_ok(event_record(w.event[0], w.stream[QUEUE_D2H]));
	check_ok(stream_wait(w.stream[QUEUE_H2D], w.event[0]));
	check_ok(stream_copy_in(w.stream[QUEUE_H2D], dev_at(w.arena, RUN_BYTES), back, RUN_BYTES));
	check_ok(stream_copy_out(w.stream[QUEUE_H2D], back, dev_at(w.arena, RUN_BYTES), RUN_BYTES));
	if (schedule == SIMT_LAZY)
		assert_int_equal(simt_fail_work_after(0, cudaSuccess), 0);
	check_ok(device_sync(w.device));
	assert_memory_equal(back, from, RUN_BYTES);
	assert_int_equal(back[0], 5);
	world_close(&w);
}

static void test_bounce(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++)
		check_bounce(seed, SIMT_LAZY);
	check_bounce(0, SIMT_EAGER);
}

/* A copy through the buffer runs beside a kernel: 40 MiB at 1 byte a nanosecond and 30 ms of work take the
 * longer of the two, not their sum. */
static void test_bounce_overlaps(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	struct device_stats before, after;
	struct op fill;
	struct world w;
	void *slab;

	(void)state;
	machine.refuses_register = machine.refuses_alloc = 1;
	machine.kernel_ns = 10000000;
	simt_runtime_set(&machine);
	check_ok(world_open_sized(&w, "cuda", NULL, 2 * RUN_BYTES));
	check_ok(device_slab_open(w.device, &slab, 128 << 20, SLAB_PINNED));
	fill = fill_op(dev_at(w.arena, RUN_BYTES), 64, 7);
	before = stats_of(&w);
	for (int i = 0; i < 3; i++) {
		check_ok(stream_copy_in(w.stream[QUEUE_H2D], w.arena, slab, RUN_BYTES / 3));
		check_ok(stream_op(w.stream[QUEUE_COMPUTE], &fill));
	}
	check_ok(device_sync(w.device));
	after = stats_of(&w);
	assert_in_range(after.now_ns - before.now_ns, 41000000, 43000000);
	world_close(&w);
}

/* Even the buffer is refused: slow, said, and right. */
static void test_nothing_is_pinned(void **state)
{
	struct simt_machine_options machine = simt_runtime_defaults();
	unsigned char *at;
	struct world w;

	(void)state;
	machine.refuses_register = 1;
	machine.pin_bytes = 1;
	simt_runtime_set(&machine);
	check_ok(world_open(&w, "cuda", NULL));
	assert_non_null(strstr(last_warning, "overlap with nothing"));
	at = w.slab;
	memset(at, 5, 4096);
	check_ok(stream_copy_in(w.stream[0], w.arena, at, 4096));
	check_ok(stream_copy_out(w.stream[0], at + 4096, w.arena, 4096));
	check_ok(device_sync(w.device));
	assert_memory_equal(at, at + 4096, 4096);
	world_close(&w);
}

static void test_pageable_order(void **state)
{
	(void)state;
	check_pageable_order(0, SIMT_LAZY);
	check_pageable_order(0, SIMT_EAGER);
	check_pageable_order(3ll * PIECE / 2, SIMT_LAZY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        CUDA_TEST(test_pinned_pieces),
	        CUDA_TEST(test_pin_limit),
	        CUDA_TEST(test_pageable_order),
	        CUDA_TEST(test_register_is_refused),
	        CUDA_TEST(test_bounce),
	        CUDA_TEST(test_bounce_overlaps),
	        CUDA_TEST(test_nothing_is_pinned),
	};

	setenv("FERRY_MATMUL", "plain", 1); /* a library of the machine would look for a GPU */
	device_register(&backend_cuda);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
