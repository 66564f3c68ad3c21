/* links: host_cpu device_meta */
/* also: tsan */
/* Random programs over all streams: the host device with delays against sequential C and against meta, and
 * their result if a wait is missing. */
#include "device_program.h"

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

/* A missing wait is found when the work is queued, for any timing of threads; or other waits imply it, and
 * the bytes are right. */
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
