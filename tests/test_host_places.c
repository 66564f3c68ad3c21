/* links: host */
/* also: tsan */
/* Slabs on NUMA nodes of machines simulated by hwloc: the node that ferry requests for pages, and their
 * node. */
#include "check.h"

#include "host/pool.h"
#include "host/slab.h"
#include "host/topology.h"

#include <unistd.h>

static int clear_environment(void **state)
{
	(void)state;
	unsetenv(TOPOLOGY_ENVIRONMENT);
	return 0;
}

static int64_t found_sum(const struct numa_found *f)
{
	return f->right_bytes + f->wrong_bytes + f->absent_bytes + f->untold_bytes;
}

/* Three planes of two units each on `nodes` nodes, element sizes 2, 4 and 1, with gaps between planes. */
static int runs_make(struct slab_run *runs, int64_t *bytes, int nodes, int64_t unit_count)
{
	static const int sizes[] = {2, 4, 1};
	int count = 0;
	int64_t at = 0;

	for (int p = 0; p < 3; p++) {
		for (int u = 0; u < 2; u++)
			for (int n = 0; n < nodes; n++) {
				int64_t first = unit_count * n / nodes * sizes[p],
				        end = unit_count * (n + 1) / nodes * sizes[p];

				runs[count++] = (struct slab_run){
				        at + u * unit_count * sizes[p] + first, end - first, n, n};
			}
		at += 2 * unit_count * sizes[p] + (p < 2 ? SLAB_SKEW_BYTES : 0);
	}
	*bytes = at;
	return count;
}

/* Every run is where its node is, but for less than a page at either end. */
static void check_runs(int nodes, int64_t unit_count)
{
	struct slab_run runs[64];
	int64_t bytes, page_bytes = sysconf(_SC_PAGESIZE);
	int count = runs_make(runs, &bytes, nodes, unit_count);
	void *base;

	check_ok(slab_map_runs(&base, bytes, "planes", runs, count));
	for (int touched = 0; touched < 2; touched++) {
		if (touched)
			memset(base, 1, (size_t)bytes);
		for (int i = 0; i < count; i++) {
			struct numa_found f = {0};

			slab_find(&f, base, &runs[i]);
			assert_int_equal(found_sum(&f), runs[i].bytes);
			if (f.untold_bytes)
				fail_msg("%lld bytes of run %d: the system does not say where",
				        (long long)f.untold_bytes, i);
			if (!touched)
				assert_int_equal(f.absent_bytes, runs[i].bytes);
			else if (f.absent_bytes || f.wrong_bytes > 2 * page_bytes)
				fail_msg("run %d of %lld bytes: %lld on another node, %lld nowhere", i,
				        (long long)runs[i].bytes, (long long)f.wrong_bytes,
				        (long long)f.absent_bytes);
		}
	}
	slab_unmap(base, bytes);
}

static void test_runs_are_on_their_nodes(void **state)
{
	static const int64_t counts[] = {256, 5000 * 256, 999 * 256};

	(void)state;
	setenv(TOPOLOGY_ENVIRONMENT, "numa:8 core:1 pu:1", 1);
	for (int nodes = 1; nodes <= 8; nodes++)
		for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
			check_runs(nodes, counts[i]);
}

/* Long runs end at huge pages, so that no huge page lies on a border: at most 1 MiB is on the other node. */
static void test_long_runs_keep_huge_pages(void **state)
{
	enum { MIB = 1 << 20 };
	const struct slab_run runs[] = {{0, 65 * MIB - 4096, 0, 0}, {65 * MIB - 4096, 66 * MIB, 1, 1}};
	const int64_t bytes = 131 * MIB - 4096;
	struct numa_found found[2] = {{0}};
	char *base;
	void *at;

	(void)state;
	setenv(TOPOLOGY_ENVIRONMENT, "numa:2 core:1 pu:1", 1);
	check_ok(slab_map_runs(&at, bytes, "planes", runs, 2));
	base = at;
	assert_int_equal((uintptr_t)base % (2 * MIB), 0);
	for (int64_t i = 0; i < bytes; i += 4096)
		base[i] = 1;
	for (int i = 0; i < 2; i++) {
		slab_find(&found[i], base, &runs[i]);
		assert_int_equal(found_sum(&found[i]), runs[i].bytes);
	}
	/* the border moved to 64 MiB, down by less than 1 MiB; pages were asked about one in three */
	assert_true(found[0].wrong_bytes > MIB / 2 && found[0].wrong_bytes < MIB + MIB / 2);
	assert_int_equal(found[1].wrong_bytes, 0);
	slab_unmap(base, bytes);
}

/* The kernel's own words: on one node everything is on it, or nobody may ask. */
static void test_this_machine(void **state)
{
	struct slab_run run = {0, 3 << 20, 0, 0};
	struct numa_found f = {0};
	static struct topology t;
	void *base;

	(void)state;
	check_ok(topology_read(&t));
	run.os_index = t.node[t.core[0].node].os_index;
	check_ok(slab_map_runs(&base, 3 << 20, "a slab", &run, 1));
	memset(base, 1, 3 << 20);
	slab_find(&f, base, &run);
	print_message("bound: %lld right, %lld wrong, %lld untold; may bind: %d\n", (long long)f.right_bytes,
	        (long long)f.wrong_bytes, (long long)f.untold_bytes, numa_may_bind());
	assert_int_equal(found_sum(&f), run.bytes);
	assert_int_equal(f.absent_bytes, 0);
	if (numa_may_bind() && !f.untold_bytes)
		assert_int_equal(f.right_bytes, run.bytes);
	assert_true(slab_huge_bytes(base, 3 << 20) <= 3 << 20);
	slab_unmap(base, 3 << 20);
}

static void test_touching(void **state)
{
	struct slab_run run = {0, 200 << 20, 0, 0};
	struct numa_found f = {0};
	struct pool *pool;
	void *base;

	(void)state;
	check_ok(pool_open(&pool, 2));
	check_ok(slab_map(&base, run.bytes, "a slab"));
	check_ok(slab_touch(pool, base, 0, run.bytes, NULL, 0));
	slab_find(&f, base, &run);
	if (!f.untold_bytes && f.absent_bytes != run.bytes) /* the kernel knows how */
		assert_int_equal(f.absent_bytes, 0);
	slab_unmap(base, run.bytes);
	pool_close(pool);
}

/* With runs, in two pieces that do not care for their borders: all of the slab, what is in no run too. */
static void test_touching_runs(void **state)
{
	static struct topology t;
	struct slab_run runs[64];
	struct numa_found found = {0};
	int64_t bytes;
	struct pool *pool;
	void *base;
	int count;

	(void)state;
	setenv(TOPOLOGY_ENVIRONMENT, "numa:8 core:1 pu:1", 1);
	check_ok(topology_read(&t));
	check_ok(pool_open_on(&pool, 8, &t));
	count = runs_make(runs, &bytes, 8, 5000 * 256);
	bytes += 3 << 20;
	check_ok(slab_map_runs(&base, bytes, "planes", runs, count));
	check_ok(slab_touch(pool, base, 0, bytes / 3, runs, count));
	check_ok(slab_touch(pool, base, bytes / 3, bytes - bytes / 3, runs, count));
	slab_find(&found, base, &(struct slab_run){0, bytes, 0, 0});
	assert_true(!found.absent_bytes || found.absent_bytes == bytes); /* an old kernel */
	slab_unmap(base, bytes);
	pool_close(pool);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, clear_environment, clear_environment)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_runs_are_on_their_nodes),
	        TEST(test_long_runs_keep_huge_pages),
	        TEST(test_this_machine),
	        TEST(test_touching),
	        TEST(test_touching_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
