/* links: host */
/* The machine: cgroup limits, cores, affinity, addresses, and a pool on them. */
#include "check.h"

#include "host/pool.h"
#include "host/topology.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

static void write_text(const char *root, const char *path, const char *text)
{
	char full[4096], *slash;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	slash = strrchr(full, '/');
	*slash = 0;
	check_ok(file_make_dir(full));
	*slash = '/';
	f = fopen(full, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static struct cgroup_limits limits_at(const char *root)
{
	struct cgroup_limits limits;

	cgroup_limits_read(&limits, root);
	return limits;
}

static void check_none(struct cgroup_limits limits)
{
	assert_true(limits.cpu_quota == 0);
	assert_int_equal(limits.memory_bytes, 0);
	assert_int_equal(limits.memory_used_bytes, 0);
}

static char *sub_root(void **state, const char *name)
{
	static char root[4096];

	snprintf(root, sizeof(root), "%s/%s", (char *)*state, name);
	return root;
}

/* cgroup v2: each level may limit; used less file pages. */
static void test_v2(void **state)
{
	char *root = sub_root(state, "v2");
	struct cgroup_limits limits;

	check_none(limits_at(root));
	write_text(root, "/proc/self/cgroup", "0::/user.slice/job 1\n");
	check_none(limits_at(root));
	write_text(root, "/proc/self/mountinfo",
	        "22 1 0:21 / /proc rw - proc proc rw\n"
	        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
	write_text(root, "/sys/fs/cgroup/user.slice/job 1/cpu.max", "max 100000\n");
	write_text(root, "/sys/fs/cgroup/user.slice/job 1/memory.max", "max\n");
	check_none(limits_at(root));
	write_text(root, "/sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n");
	write_text(root, "/sys/fs/cgroup/user.slice/memory.max", "8000000000\n");
	write_text(root, "/sys/fs/cgroup/user.slice/memory.current", "5000000000\n");
	write_text(root, "/sys/fs/cgroup/user.slice/memory.stat",
	        "anon 1000000000\nfile 4100000000\ninactive_file 3000000000\nactive_file 1000000000\n");
	limits = limits_at(root);
	assert_true(limits.cpu_quota == 3.5);
	assert_int_equal(limits.memory_bytes, 8000000000);
	assert_int_equal(limits.memory_used_bytes, 1000000000);
	write_text(root, "/sys/fs/cgroup/user.slice/job 1/cpu.max", "50000 100000\n");
	write_text(root, "/sys/fs/cgroup/user.slice/job 1/memory.max", "9000000000\n");
	limits = limits_at(root);
	assert_true(limits.cpu_quota == 0.5);
	assert_int_equal(limits.memory_bytes, 8000000000); /* the tighter one, of the level above */
	/* the level above is almost full: its room counts, though its limit is larger */
	write_text(root, "/sys/fs/cgroup/user.slice/job 1/memory.max", "5000000000\n");
	write_text(root, "/sys/fs/cgroup/user.slice/memory.current", "11900000000\n");
	limits = limits_at(root);
	assert_int_equal(limits.memory_bytes, 8000000000);
	assert_int_equal(limits.memory_used_bytes, 7900000000);
	/* memory.high is a limit too, alone or below memory.max */
	write_text(root, "/sys/fs/cgroup/user.slice/job 1/memory.current", "1000000000\n");
	write_text(root, "/sys/fs/cgroup/user.slice/job 1/memory.high", "1050000000\n");
	limits = limits_at(root);
	assert_int_equal(limits.memory_bytes, 1050000000);
	assert_int_equal(limits.memory_used_bytes, 1000000000);
	write_text(root, "/sys/fs/cgroup/user.slice/job 1/memory.high", "max\n");
	assert_int_equal(limits_at(root).memory_bytes, 8000000000);
}

/* The mounted group's name only begins the group's: what is mounted counts, no path is made of the rest. */
static void test_names_that_begin_alike(void **state)
{
	char *root = sub_root(state, "alike");

	write_text(root, "/proc/self/cgroup", "0::/abc\n");
	write_text(root, "/proc/self/mountinfo", "30 23 0:26 /ab /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
	write_text(root, "/sys/fs/cgroupc/memory.max", "1000000000\n");
	write_text(root, "/sys/fs/cgroup/memory.max", "8000000000\n");
	assert_int_equal(limits_at(root).memory_bytes, 8000000000);
}

/* cgroup v1, as in a container: the host's group is named, its own is mounted. */
static void test_v1(void **state)
{
	char *root = sub_root(state, "v1");
	struct cgroup_limits limits;

	write_text(root, "/proc/self/cgroup",
	        "12:cpuset:/docker/abc\n4:memory:/docker/abc/x\n3:cpu,cpuacct:/docker/abc\n0::/system\n");
	write_text(root, "/proc/self/mountinfo",
	        "33 31 0:30 /docker/abc /sys/fs/cgroup/cpuacct,cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
	        "34 31 0:31 /docker/abc /sys/fs/cgroup/mem\\040ory ro - cgroup cgroup rw,memory\n");
	write_text(root, "/sys/fs/cgroup/cpuacct,cpu/cpu.cfs_quota_us", "-1\n");
	write_text(root, "/sys/fs/cgroup/cpuacct,cpu/cpu.cfs_period_us", "100000\n");
	write_text(root, "/sys/fs/cgroup/mem ory/memory.limit_in_bytes", "9223372036854771712\n");
	check_none(limits_at(root));
	write_text(root, "/sys/fs/cgroup/cpuacct,cpu/cpu.cfs_quota_us", "200000\n");
	write_text(root, "/sys/fs/cgroup/mem ory/x/memory.limit_in_bytes", "1000000\n");
	write_text(root, "/sys/fs/cgroup/mem ory/x/memory.usage_in_bytes", "700000\n");
	write_text(root, "/sys/fs/cgroup/mem ory/x/memory.stat",
	        "inactive_file 1\ntotal_inactive_file 100000\n");
	limits = limits_at(root);
	assert_true(limits.cpu_quota == 2);
	assert_int_equal(limits.memory_bytes, 1000000);
	assert_int_equal(limits.memory_used_bytes, 600000);
}

/* Files that make no sense set no limit and do no harm. */
static void test_damaged(void **state)
{
	static const char *const bad[] = {"", "\n", ":", "0:", "::::\n", "0::relative\n", "9:memory:\n"};
	char *root = sub_root(state, "bad");

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_text(root, "/proc/self/cgroup", bad[i]);
		write_text(root, "/proc/self/mountinfo", bad[i]);
		check_none(limits_at(root));
		write_text(root, "/proc/self/mountinfo",
		        "1 1 1 / /x - cgroup2 c rw\n2 1 1 / /x - cgroup c memory\n");
		write_text(root, "/x/cpu.max", bad[i]);
		write_text(root, "/x/memory.max", bad[i]);
		check_none(limits_at(root));
	}
}

static void test_this_machine(void **state)
{
	struct topology t;

	(void)state;
	check_ok(topology_read(&t));
	print_message("%s; %d threads: %s\n", t.cpu_name, t.thread_count, t.thread_reason);
	assert_true(t.machine.package_count >= 1 && t.machine.node_count >= 1);
	assert_true(t.machine.core_count >= t.allowed.core_count && t.allowed.core_count >= 1);
	assert_true(t.machine.processor_count >= t.machine.core_count);
	assert_true(t.allowed.processor_count <= sysconf(_SC_NPROCESSORS_ONLN));
	assert_true(t.thread_count >= 1 && t.thread_count <= t.allowed.core_count);
	assert_true(t.ram_bytes > 0 && t.ram_available_bytes > 0 && t.ram_available_bytes <= t.ram_bytes);
	assert_true(t.usable_bytes > 0 && t.usable_bytes <= t.ram_available_bytes);
	assert_int_equal(pool_default_threads(), t.thread_count);
}

/* The affinity mask of the process is respected. */
static void test_affinity(void **state)
{
	struct topology t;
	cpu_set_t all, one;
	int first = 0;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET(first, &all))
		first++;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	check_ok(topology_read(&t));
	assert_int_equal(t.allowed.processor_count, 1);
	assert_int_equal(t.allowed.core_count, 1);
	assert_int_equal(t.thread_count, 1);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	check_ok(topology_read(&t));
	assert_int_equal(t.allowed.processor_count, CPU_COUNT(&all));
}

/* A limit on addresses counts as one on memory, less what threads map of their own, for each rank. */
static void test_addresses(void **state)
{
	const int64_t left = 64 << 20, thread = 192 << 20;
	struct rlimit before, limit;
	struct topology t;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	check_ok(topology_read(&t));
	if (before.rlim_cur != RLIM_INFINITY)
		skip();
	assert_int_equal(t.address_bytes, -1);
	assert_non_null(strstr(t.usable_why, t.cgroup.memory_bytes ? "" : "available memory"));
	limit = before;
	limit.rlim_cur = (rlim_t)(t.address_used_bytes + 3 * thread + left);
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	check_ok(topology_read(&t));
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_int_equal(t.address_bytes, limit.rlim_cur);
	topology_find_usable(&t, 2, 1);
	assert_int_equal(t.usable_bytes, left);
	assert_non_null(strstr(t.usable_why, "ulimit -v"));
	topology_find_usable(&t, 2, 3);
	assert_int_equal(t.usable_bytes, 3 * left);
	topology_find_usable(&t, 3, 1);
	assert_int_equal(t.usable_bytes, 0);
}

/* A pool on this machine has the requested number of threads, or else this rank's share. */
static void test_pool_here(void **state)
{
	static const struct {
		int threads, ranks, want;
	} rows[] = {{0, 1, 8}, {0, 3, 2}, {0, 9, 1}, {5, 1, 5}, {5, 3, 5}};

	(void)state;
	setenv(TOPOLOGY_ENVIRONMENT, "pack:2 [numa] core:4 pu:2", 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct topology t;
		struct pool *pool = NULL;

		check_ok(pool_open_here(&pool, &t, rows[i].threads, rows[i].ranks));
		assert_int_equal(t.core_count, 8);
		if (t.thread_count == t.core_count) /* no quota takes some of them */
			assert_int_equal(pool_worker_count(pool), rows[i].want);
		pool_close(pool);
	}
	unsetenv(TOPOLOGY_ENVIRONMENT);
}

/* Ranks on GPUs leave a core to NCCL. Runs last: there is no way back. */
static void test_core_for_nccl(void **state)
{
	static const struct {
		const char *machine;
		int want;
	} rows[] = {{"pack:2 [numa] core:4 pu:2", 7}, {"pack:1 [numa] core:4 pu:1", 3},
	        {"pack:1 [numa] core:3 pu:1", 3}};

	(void)state;
	topology_leave_a_core();
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct topology t;

		setenv(TOPOLOGY_ENVIRONMENT, rows[i].machine, 1);
		check_ok(topology_read(&t));
		if (t.cgroup.cpu_quota > 0 && t.cgroup.cpu_quota < t.core_count)
			continue; /* a quota takes some of them */
		assert_int_equal(t.thread_count, rows[i].want);
		assert_int_equal(strstr(t.thread_reason, "one is left to NCCL") != NULL,
		        t.thread_count < t.core_count);
	}
	unsetenv(TOPOLOGY_ENVIRONMENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_v2),
	        cmocka_unit_test(test_names_that_begin_alike),
	        cmocka_unit_test(test_v1),
	        cmocka_unit_test(test_damaged),
	        cmocka_unit_test(test_this_machine),
	        cmocka_unit_test(test_affinity),
	        cmocka_unit_test(test_addresses),
	        cmocka_unit_test(test_pool_here),
	        cmocka_unit_test(test_core_for_nccl),
	};

	return cmocka_run_group_tests(tests, check_dir_make, check_dir_remove);
}
