/* links: host */
/* also: tsan */
/* NUMA nodes on machines simulated by hwloc: who gets which cores and tasks. */
#include "check.h"

#include "base/mem.h"
#include "host/pool.h"
#include "host/topology.h"
#include "tests/sparing.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

static const char *const rank_variables[] = {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_LOCALID",
        "SLURM_NTASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_ID"};

static int clear_environment(void **state)
{
	(void)state;
	unsetenv(TOPOLOGY_ENVIRONMENT);
	for (size_t i = 0; i < sizeof(rank_variables) / sizeof(*rank_variables); i++)
		unsetenv(rank_variables[i]);
	return 0;
}

static const struct topology *machine(const char *text)
{
	static struct topology t;

	setenv(TOPOLOGY_ENVIRONMENT, text, 1);
	check_ok(topology_read(&t));
	assert_true(t.is_synthetic);
	return &t;
}

/* ---- the machine ---- */

static void test_made_up_machines(void **state)
{
	const struct topology *t = machine("pack:2 [numa(memory=8GB)] l3:1(size=16MB) core:4 pu:2");
	static struct topology other;

	(void)state;
	assert_int_equal(t->machine.package_count, 2);
	assert_int_equal(t->machine.node_count, 2);
	assert_int_equal(t->machine.core_count, 8);
	assert_int_equal(t->machine.processor_count, 16);
	assert_int_equal(t->thread_count, 8);
	assert_int_equal(t->core_count, 8);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(t->core[i].node, i / 4);
		assert_int_equal(t->core[i].processor_count, 2);
		assert_int_equal(t->core[i].processor[1], 2 * i + 1);
	}
	assert_int_equal(t->node[1].package, 1);
	assert_int_equal(t->node[1].core_count, 4);
	assert_int_equal(t->node[1].processor_count, 8);
	assert_int_equal(t->cache[2].count, 2);
	t = machine("pack:2 numa:4 core:3 pu:1");
	assert_int_equal(t->machine.node_count, 8);
	assert_int_equal(t->core[23].node, 7);
	setenv(TOPOLOGY_ENVIRONMENT, "pack:two", 1);
	check_fails(topology_read(&other), ERR_INPUT, "pack:two");
	setenv(TOPOLOGY_ENVIRONMENT, "/nowhere/machine.xml", 1);
	check_fails(topology_read(&other), ERR_INPUT, "machine.xml");
}

/* hwloc's own format (hwloc2.dtd): a GPU on node 1, and a network card near the whole machine. */
static const char two_nodes_xml[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<topology version=\"2.0\">\n"
        "<object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" "
        "allowed_cpuset=\"0x3\" nodeset=\"0x3\" complete_nodeset=\"0x3\" allowed_nodeset=\"0x3\" "
        "gp_index=\"1\">\n"
        "<info name=\"CPUModel\" value=\"A Processor\"/>\n"
        "<object type=\"Package\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
        "complete_nodeset=\"0x1\" gp_index=\"2\">\n"
        "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
        "complete_nodeset=\"0x1\" gp_index=\"3\" local_memory=\"8000000000\"/>\n"
        "<object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
        "complete_nodeset=\"0x1\" gp_index=\"4\"/>\n"
        "</object>\n"
        "<object type=\"Package\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x2\" "
        "complete_nodeset=\"0x2\" gp_index=\"5\">\n"
        "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x2\" "
        "complete_nodeset=\"0x2\" gp_index=\"6\" local_memory=\"8000000000\"/>\n"
        "<object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x2\" "
        "complete_nodeset=\"0x2\" gp_index=\"7\"/>\n"
        "<object type=\"Bridge\" gp_index=\"8\" bridge_type=\"0-1\" depth=\"0\" "
        "bridge_pci=\"0000:[80-81]\">\n"
        "<object type=\"PCIDev\" gp_index=\"9\" pci_busid=\"0000:81:00.0\" "
        "pci_type=\"0302 [10de:2330] [10de:16c1] a1\" pci_link_speed=\"0.0\">"
        "<info name=\"PCIVendor\" value=\"A Vendor\"/><info name=\"PCIDevice\" value=\"A Board\"/>"
        "</object>\n"
        "</object>\n"
        "</object>\n"
        "<object type=\"Bridge\" gp_index=\"10\" bridge_type=\"0-1\" depth=\"0\" "
        "bridge_pci=\"0000:[00-01]\">\n"
        "<object type=\"PCIDev\" gp_index=\"11\" pci_busid=\"0000:01:00.0\" "
        "pci_type=\"0200 [15b3:1017] [15b3:0001] 00\" pci_link_speed=\"0.0\">"
        "<object type=\"OSDev\" gp_index=\"12\" name=\"eth0\" osdev_type=\"2\"/>"
        "</object>\n"
        "</object>\n"
        "</object>\n"
        "</topology>\n";

static void test_devices_hang_on_nodes(void **state)
{
	struct topology_device devices[4];
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/machine.xml", (char *)*state);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(two_nodes_xml, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_string_equal(machine(path)->cpu_name, "A Processor");
	assert_int_equal(machine(path)->core_count, 2);
	assert_int_equal(machine(path)->core[1].node, 1);
	assert_int_equal(topology_devices_read(devices, 4), 2);
	for (int i = 0; i < 2; i++)
		if (!strcmp(devices[i].kind, "GPU")) {
			assert_string_equal(devices[i].bus_id, "0000:81:00.0");
			assert_string_equal(devices[i].name, "A Vendor A Board");
			assert_int_equal(devices[i].node, 1);
		} else {
			assert_string_equal(devices[i].kind, "network");
			assert_string_equal(devices[i].name, "eth0");
			assert_int_equal(devices[i].node, -1);
		}
	assert_string_not_equal(devices[0].kind, devices[1].kind);
	assert_int_equal(topology_devices_read(devices, 1), 1);
}

/* ---- ranks of one host ---- */

static void test_ranks_are_found(void **state)
{
	static const struct {
		const char *rank, *rank_text, *size, *size_text;
		int want_rank, want_size;
	} cases[] = {
	        {"OMPI_COMM_WORLD_LOCAL_RANK", "3", "OMPI_COMM_WORLD_LOCAL_SIZE", "8", 3, 8},
	        {"MPI_LOCALRANKID", "0", "MPI_LOCALNRANKS", "2", 0, 2},
	        {"SLURM_LOCALID", "5", "SLURM_NTASKS_PER_NODE", "6", 5, 6},
	        {"SLURM_LOCALID", "1", "SLURM_STEP_TASKS_PER_NODE", "4(x2),3", 1, 4},
	        {"LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "2", 1, 2},
	        {"SLURM_LOCALID", "6", "SLURM_NTASKS_PER_NODE", "6", 0, 1},   /* makes no sense */
	        {"LOCAL_RANK", "one", "LOCAL_WORLD_SIZE", "2", 0, 1},         /* nor do words, */
	        {"LOCAL_RANK", "-1", "LOCAL_WORLD_SIZE", "2", 0, 1},          /* negative numbers, */
	        {"LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "99999999999", 0, 1}, /* and large ones */
	        {"LOCAL_RANK", "1", "MPI_LOCALNRANKS", "2", 0, 1},            /* halves of two launchers */
	};
	struct topology_ranks ranks;

	(void)state;
	topology_ranks_find(&ranks);
	assert_int_equal(ranks.size, 1);
	assert_null(ranks.said);
	setenv("SLURM_LOCALID", "0", 1);
	setenv("SLURM_NTASKS_PER_NODE", "8", 1);
	topology_ranks_find(&ranks); /* in a batch script, not under srun */
	assert_int_equal(ranks.size, 1);
	setenv("SLURM_STEP_ID", "0", 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		setenv(cases[i].rank, cases[i].rank_text, 1);
		setenv(cases[i].size, cases[i].size_text, 1);
		topology_ranks_find(&ranks);
		assert_int_equal(ranks.rank, cases[i].want_rank);
		assert_int_equal(ranks.size, cases[i].want_size);
		assert_true((ranks.said != NULL) == (ranks.size > 1));
		unsetenv(cases[i].rank);
		unsetenv(cases[i].size);
	}
}

/* Each core is one rank's, and every rank has its share. */
static void test_ranks_share_cores(void **state)
{
	static const char *const machines[] = {
	        "pack:2 [numa] core:4 pu:2", "pack:1 [numa] core:7 pu:1", "numa:8 core:2 pu:1"};

	(void)state;
	for (size_t m = 0; m < sizeof(machines) / sizeof(*machines); m++)
		for (int size = 2; size <= 5; size++) {
			int owners[64] = {0}, cores = machine(machines[m])->machine.core_count;

			for (int rank = 0; rank < size; rank++) {
				char text[2][16];
				const struct topology *t;

				snprintf(text[0], sizeof(text[0]), "%d", rank);
				snprintf(text[1], sizeof(text[1]), "%d", size);
				setenv("OMPI_COMM_WORLD_LOCAL_RANK", text[0], 1);
				setenv("OMPI_COMM_WORLD_LOCAL_SIZE", text[1], 1);
				t = machine(machines[m]);
				assert_int_equal(t->share, TOPOLOGY_SHARE_CUT);
				assert_int_equal(t->thread_count, t->core_count);
				assert_true(t->core_count >= cores / size &&
				            t->core_count <= (cores + size - 1) / size);
				for (int i = 0; i < t->core_count; i++)
					owners[t->core[i].processor[0]]++;
			}
			for (int p = 0; p < 64; p++)
				assert_true(owners[p] <= 1);
			clear_environment(NULL);
		}
}

static const struct topology *machine_of_rank(const char *text, int rank, int size)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", rank);
	setenv("OMPI_COMM_WORLD_LOCAL_RANK", number, 1);
	snprintf(number, sizeof(number), "%d", size);
	setenv("OMPI_COMM_WORLD_LOCAL_SIZE", number, 1);
	return machine(text);
}

/* Each rank has cores of its GPU's node before all others, each core is one rank's, and all have as many as
 * without GPUs. Where the nodes are not known, nothing changes. */
static void test_ranks_stand_by_their_gpus(void **state)
{
	static const struct {
		const char *machine;
		int size, nodes[8], near[8]; /* cores on its node, for each rank */
	} cases[] = {
	        {"pack:2 [numa] core:8 pu:2", 4, {1, 1, 0, 0}, {4, 4, 4, 4}},
	        {"pack:2 [numa] core:8 pu:1", 2, {1, 0}, {8, 8}},
	        {"pack:2 [numa] core:8 pu:1", 4, {1, 0, 1, 0}, {4, 4, 4, 4}},
	        {"pack:2 [numa] core:8 pu:1", 4, {1, 1, 1, 1}, {2, 2, 2, 2}},
	        {"pack:2 [numa] core:8 pu:1", 3, {1, 1, 0}, {4, 4, 6}},
	        {"pack:1 [numa] core:7 pu:1", 3, {0, 0, 0}, {2, 2, 3}},
	        {"numa:4 core:3 pu:1", 8, {3, 3, 2, 2, 1, 1, 0, 0}, {1, 1, 1, 2, 1, 1, 1, 2}},
	};

	(void)state;
	for (size_t k = 0; k < sizeof(cases) / sizeof(*cases); k++) {
		int owners[64] = {0}, cores = machine(cases[k].machine)->machine.core_count,
		    size = cases[k].size;

		topology_set_rank_nodes(cases[k].nodes, size);
		for (int rank = 0; rank < size; rank++) {
			const struct topology *t = machine_of_rank(cases[k].machine, rank, size);
			int near = 0;

			assert_int_equal(t->share, TOPOLOGY_SHARE_NEAR);
			assert_int_equal(t->thread_count, t->core_count);
			assert_int_equal(t->core_count, cores * (rank + 1) / size - cores * rank / size);
			for (int i = 0; i < t->core_count; i++) {
				owners[t->core[i].processor[0]]++;
				near += t->node[t->core[i].node].os_index == cases[k].nodes[rank];
			}
			if (near < cases[k].near[rank])
				fail_msg("%s, rank %d of %d: %d cores near", cases[k].machine, rank, size,
				        near);
		}
		for (int p = 0; p < 64; p++)
			assert_true(owners[p] <= 1);
		clear_environment(NULL);
	}
	topology_set_rank_nodes((const int[]){1, -1}, 2);
	assert_int_equal(machine_of_rank("pack:2 [numa] core:4 pu:1", 0, 2)->share, TOPOLOGY_SHARE_CUT);
	topology_set_rank_nodes((const int[]){1, 0, 1}, 3);
	assert_int_equal(machine_of_rank("pack:2 [numa] core:4 pu:1", 0, 2)->share, TOPOLOGY_SHARE_CUT);
	topology_set_rank_nodes(NULL, 0);
}

/* More ranks than cores: one thread each, on any of them. */
static void test_too_many_ranks(void **state)
{
	const struct topology *t;

	(void)state;
	setenv("MPI_LOCALRANKID", "7", 1);
	setenv("MPI_LOCALNRANKS", "8", 1);
	t = machine("pack:1 [numa] core:4 pu:1");
	assert_int_equal(t->share, TOPOLOGY_SHARE_TOGETHER);
	assert_int_equal(t->thread_count, 1);
	assert_int_equal(t->core_count, 4);
}

/* A launcher that bound its ranks has shared out already. */
static void test_bound_ranks_are_not_cut_again(void **state)
{
	static struct topology t;
	cpu_set_t all, one;
	int first = 0;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	if (CPU_COUNT(&all) < 2) {
		print_message("one processor: nothing to bind to\n");
		skip();
	}
	while (!CPU_ISSET(first, &all))
		first++;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
	setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	check_ok(topology_read(&t));
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(t.thread_count, 1);
	assert_int_equal(t.core[0].processor[0], first);
	assert_true(t.share == TOPOLOGY_SHARE_BOUND || t.share == TOPOLOGY_SHARE_TOGETHER);
}

static void test_omp_num_threads_is_only_reported(void **state)
{
	const struct topology *t;

	(void)state;
	setenv("OMP_NUM_THREADS", "1", 1);
	t = machine("pack:2 [numa] core:4 pu:2");
	assert_string_equal(t->omp_num_threads, "1");
	assert_int_equal(t->thread_count, 8);
	unsetenv("OMP_NUM_THREADS");
}

/* ---- the pool's nodes ---- */

static void test_workers_stand_on_nodes(void **state)
{
	const struct topology *t = machine("pack:2 [numa] core:4 pu:1");
	const char *why;
	struct pool *pool;

	(void)state;
	for (int threads = 1; threads <= 11; threads++) {
		check_ok(pool_open_on(&pool, threads, t));
		assert_int_equal(pool_node_count(pool), threads == 1 ? 1 : 2);
		for (int i = 0, last = 0; i < threads; i++) {
			assert_true(pool_worker_node(pool, i) >= last);
			last = pool_worker_node(pool, i);
		}
		if (threads > 1) {
			int difference = pool_node_worker_count(pool, 0) - pool_node_worker_count(pool, 1);

			assert_true(difference == 0 || difference == 1);
			assert_int_equal(pool_node_os_index(pool, 1), 1);
		}
		assert_int_equal(pool_node_os_index(pool, 0), 0);
		assert_int_equal(pool_pinning(pool, &why), POOL_PINNED_NOT);
		pool_close(pool);
	}
	check_ok(pool_open(&pool, 3));
	assert_int_equal(pool_node_count(pool), 1);
	assert_int_equal(pool_node_worker_count(pool, 0), 3);
	assert_int_equal(pool_node_os_index(pool, 0), -1);
	pool_close(pool);
}

/* Ranges cover everything once, in order, aligned, and in proportion. */
static void test_ranges(void **state)
{
	static const int64_t counts[] = {
	        0, 1, 255, 256, 257, 4096, 1000000, INT64_C(1) << 45, INT64_MAX / 4096};
	struct pool *pool;

	(void)state;
	check_ok(pool_open_on(&pool, 7, machine("numa:3 core:4 pu:1")));
	assert_int_equal(pool_node_count(pool), 3);
	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
		int64_t first, end, last = 0;

		for (int n = 0; n < 3; n++) {
			double share = (double)pool_node_worker_count(pool, n) / 7 * (double)counts[i];

			pool_node_range(pool, n, &first, &end, counts[i], 256);
			assert_int_equal(first, last);
			assert_true(first <= end && (end % 256 == 0 || end == counts[i]));
			assert_true((double)(end - first) - share < 257 + share * 1e-9 &&
			            share - (double)(end - first) < 257 + share * 1e-9);
			last = end;
		}
		assert_int_equal(last, counts[i]);
	}
	pool_close(pool);
}

enum { NODES = 8, TASKS_MAX = 4000 };

struct record {
	struct pool *pool;
	int64_t node_first[NODES + 1];
	unsigned char times[TASKS_MAX];
	_Atomic int64_t begun[NODES]; /* tasks of each node */
	atomic_int early;             /* times a task was taken from another node while there were own ones */
	int is_slow;
};

static void note_task(void *context, int64_t task, int worker)
{
	struct record *r = context;
	int node = 0, own = pool_worker_node(r->pool, worker);

	while (task >= r->node_first[node + 1])
		node++;
	r->times[task]++;
	atomic_fetch_add(&r->begun[node], 1);
	/* claimed but not yet counted: at most one by each other worker */
	if (node != own && r->node_first[own + 1] - r->node_first[own] - atomic_load(&r->begun[own]) >=
	                           pool_worker_count(r->pool))
		atomic_fetch_add(&r->early, 1);
	if (r->is_slow)
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void placed_counts(const struct pool *pool, int64_t *counts, int64_t *near, int64_t *stolen)
{
	*near = *stolen = 0;
	for (int n = 0; n < pool_node_count(pool); n++) {
		int64_t own, others;

		pool_get_placed(pool, n, &own, &others);
		counts[n] = own + others;
		*near += own;
		*stolen += others;
	}
}

typedef void run_fn(struct pool *pool, const int64_t *node_first, pool_fn *fn, void *ctx);

static void check_placed(struct pool *pool, run_fn *run, const int64_t *node_first, int is_slow)
{
	static struct record r;
	int64_t before[NODES], after[NODES], near, stolen, count = node_first[pool_node_count(pool)];

	memset(&r, 0, sizeof(r));
	r.pool = pool;
	r.is_slow = is_slow;
	memcpy(r.node_first, node_first, ((size_t)pool_node_count(pool) + 1) * sizeof(*node_first));
	placed_counts(pool, before, &near, &stolen);
	run(pool, node_first, note_task, &r);
	placed_counts(pool, after, &near, &stolen);
	for (int64_t i = 0; i < TASKS_MAX; i++)
		assert_int_equal(r.times[i], i < count);
	/* a worker that was looking when the call before ended may be misled once */
	assert_true(atomic_load(&r.early) < pool_worker_count(pool));
	if (pool_node_count(pool) > 1 && count > 1)
		for (int n = 0; n < pool_node_count(pool); n++)
			assert_int_equal(after[n] - before[n], node_first[n + 1] - node_first[n]);
}

static void test_placed_tasks_run_once(void **state)
{
	static const int64_t cuts[][NODES + 1] = {
	        {0, 500, 1000, 1500, 2000, 2500, 3000, 3500, 4000},
	        {0, 0, 0, 0, 3000, 3000, 3000, 3000, 3000}, /* one node has all of them */
	        {0, 1, 2, 3, 4, 5, 6, 7, 8},
	        {0, 0, 0, 0, 0, 0, 0, 0, 1},
	        {0},
	        {0, 2000, 2001, 2001, 2001, 2001, 2001, 2002, 3000},
	};
	static const int64_t slow[NODES + 1] = {0, 100, 101, 101, 101, 101, 200, 202, 300};
	struct pool *pool;

	(void)state;
	for (int threads = 1; threads <= 8; threads += 7) {
		check_ok(pool_open_on(&pool, threads, machine("numa:8 core:1 pu:1")));
		for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++)
			for (int round = 0; round < 4 / sparing(2); round++) {
				int64_t all[] = {0, cuts[i][NODES]};

				check_placed(pool, pool_run_placed, threads == 1 ? all : cuts[i], 0);
				check_placed(pool, pool_run_near, threads == 1 ? all : cuts[i], 0);
			}
		for (int round = 0; round < 4 && threads > 1; round++) { /* some workers wait for others */
			check_placed(pool, pool_run_placed, slow, 1);
			check_placed(pool, pool_run_near, slow, 1);
		}
		pool_close(pool);
	}
}

/* Tasks that take long are shared out by node: nearly all stay, where nodes have the same work. Nobody owns
 * a core here, so the bound is a loose one. */
static void test_near_tasks_stay(void **state)
{
	static const int64_t cut[] = {0, 400, 800};
	int64_t counts[NODES], near, stolen;
	struct pool *pool;

	(void)state;
	check_ok(pool_open_on(&pool, 4, machine("numa:2 core:2 pu:1")));
	for (int i = 0; i < 5; i++)
		check_placed(pool, pool_run_placed, cut, 1);
	placed_counts(pool, counts, &near, &stolen);
	print_message("%lld tasks on their node, %lld stolen\n", (long long)near, (long long)stolen);
	assert_true(near > stolen);
	pool_close(pool);
}

/* No worker takes near tasks of another node, except node 0's: its only worker is the caller. */
static void test_near_tasks_are_never_stolen(void **state)
{
	enum { CALLS = 12 };
	static const int64_t cut[NODES + 1] = {0, 1, 2, 100, 101, 101, 120, 130, 140};
	struct pool *pool;

	(void)state;
	check_ok(pool_open_on(&pool, 8, machine("numa:8 core:1 pu:1")));
	for (int i = 0; i < CALLS; i++) {
		check_placed(pool, pool_run_near, cut, i & 1);
		if (i % 5 == 0) /* and from sleep */
			nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
	}
	for (int n = 0; n < NODES; n++) {
		int64_t near, stolen;

		pool_get_placed(pool, n, &near, &stolen);
		assert_int_equal(near, CALLS * (cut[n + 1] - cut[n]));
		assert_int_equal(stolen, 0);
	}
	pool_close(pool);
}

static void count_task(void *context, int64_t task, int worker)
{
	(void)task;
	(void)worker;
	atomic_fetch_add((_Atomic int64_t *)context, 1);
}

static void *caller_main(void *pool)
{
	static const int64_t cut[] = {0, 3, 9, 9, 14};

	for (int i = 0; i < 400; i++) {
		_Atomic int64_t count = 0;

		if (i % 3)
			pool_run_placed(pool, cut, count_task, &count);
		else
			pool_run(pool, 14, count_task, &count);
		assert_int_equal(atomic_load(&count), 14);
	}
	return NULL;
}

/* Placed and plain calls side by side, more than there are slots for. */
static void test_many_callers(void **state)
{
	pthread_t callers[24];
	struct pool *pool;

	(void)state;
	check_ok(pool_open_on(&pool, 4, machine("numa:4 core:1 pu:1")));
	for (int i = 0; i < 24; i++)
		assert_int_equal(pthread_create(&callers[i], NULL, caller_main, pool), 0);
	for (int i = 0; i < 24; i++)
		pthread_join(callers[i], NULL);
	pool_close(pool);
}

static void test_open_fails(void **state)
{
	const struct topology *t = machine("numa:4 core:1 pu:1");
	struct pool *pool = (struct pool *)state;

	for (int64_t i = 1; i <= 3; i++) {
		mem_fault_arm(i, MEM_FAULT_ONCE);
		assert_int_equal(pool_open_on(&pool, 4, t), ERR_NOMEM);
		assert_null(pool);
	}
	mem_fault_arm(0, MEM_FAULT_ONCE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, clear_environment, clear_environment)

int main(void)
{
	const struct CMUnitTest tests[] = {
	        TEST(test_made_up_machines),
	        TEST(test_devices_hang_on_nodes),
	        TEST(test_ranks_are_found),
	        TEST(test_ranks_share_cores),
	        TEST(test_ranks_stand_by_their_gpus),
	        TEST(test_too_many_ranks),
	        TEST(test_bound_ranks_are_not_cut_again),
	        TEST(test_omp_num_threads_is_only_reported),
	        TEST(test_workers_stand_on_nodes),
	        TEST(test_ranges),
	        TEST(test_placed_tasks_run_once),
	        TEST(test_near_tasks_stay),
	        TEST(test_near_tasks_are_never_stolen),
	        TEST(test_many_callers),
	        TEST(test_open_fails),
	};

	return cmocka_run_group_tests(tests, check_dir_make, check_dir_remove);
}
