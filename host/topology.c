#include "host/topology.h"

#include "base/err.h"
#include "host/pool.h"

#include <errno.h>
#include <hwloc.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* Objects of one type of which a part lies in `set`. */
static int count_in(hwloc_topology_t h, hwloc_obj_type_t type, hwloc_const_bitmap_t set)
{
	int count = hwloc_get_nbobjs_by_type(h, type), inside = 0;

	for (int i = 0; i < count; i++)
		inside += hwloc_bitmap_intersects(hwloc_get_obj_by_type(h, type, (unsigned)i)->cpuset, set);
	return inside;
}

/* Virtual machines may tell nothing of cores: then each processor is one. */
static struct topology_counts counts_in(hwloc_topology_t h, hwloc_const_bitmap_t set)
{
	struct topology_counts c = {
	        .package_count = count_in(h, HWLOC_OBJ_PACKAGE, set),
	        .node_count = count_in(h, HWLOC_OBJ_NUMANODE, set),
	        .core_count = count_in(h, HWLOC_OBJ_CORE, set),
	        .processor_count = count_in(h, HWLOC_OBJ_PU, set),
	};

	if (!c.core_count)
		c.core_count = c.processor_count;
	return c;
}

static void read_nodes(struct topology *t, hwloc_topology_t h, hwloc_const_bitmap_t allowed)
{
	hwloc_bitmap_t here = hwloc_bitmap_alloc();

	for (int i = 0; here && i < t->machine.node_count && i < TOPOLOGY_NODES_MAX; i++) {
		hwloc_obj_t node = hwloc_get_obj_by_type(h, HWLOC_OBJ_NUMANODE, (unsigned)i);

		hwloc_bitmap_and(here, node->cpuset, allowed);
		t->node[i] = (struct topology_node){
		        .os_index = (int)node->os_index,
		        .core_count = counts_in(h, here).core_count,
		        .ram_bytes = (int64_t)node->attr->numanode.local_memory,
		};
	}
	hwloc_bitmap_free(here);
}

static void read_caches(struct topology *t, hwloc_topology_t h)
{
	static const hwloc_obj_type_t levels[TOPOLOGY_CACHE_LEVELS] = {
	        HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE};

	for (int i = 0; i < TOPOLOGY_CACHE_LEVELS; i++) {
		hwloc_obj_t first = hwloc_get_obj_by_type(h, levels[i], 0);

		if (!first)
			continue;
		t->cache[i] = (struct topology_cache){
		        .bytes = (int64_t)first->attr->cache.size,
		        .count = hwloc_get_nbobjs_by_type(h, levels[i]),
		        .shared_count = hwloc_bitmap_weight(first->cpuset),
		};
	}
}

/* Cores, nodes and caches by hwloc. */
static int read_machine(struct topology *t)
{
	hwloc_topology_t h = NULL;
	hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
	const char *name;
	int rc = ERR_NOMEM;

	if (!allowed || hwloc_topology_init(&h)) {
		err_set(rc, "out of memory for the machine's topology");
		goto out;
	}
	if (hwloc_topology_set_flags(h, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) || hwloc_topology_load(h)) {
		rc = err_set(ERR_INTERNAL, "hwloc cannot read this machine's topology: %s", strerror(errno));
		goto out;
	}
	if (hwloc_get_cpubind(h, allowed, HWLOC_CPUBIND_THREAD))
		hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(h));
	hwloc_bitmap_and(allowed, allowed, hwloc_topology_get_allowed_cpuset(h));
	name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(h), "CPUModel");
	if (!name && hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PACKAGE) > 0)
		name = hwloc_obj_get_info_by_name(hwloc_get_obj_by_type(h, HWLOC_OBJ_PACKAGE, 0), "CPUModel");
	snprintf(t->cpu_name, sizeof(t->cpu_name), "%s", name ? name : "unknown processor");
	t->machine = counts_in(h, hwloc_topology_get_topology_cpuset(h));
	t->allowed = counts_in(h, allowed);
	read_nodes(t, h, allowed);
	read_caches(t, h);
	rc = 0;
out:
	if (h)
		hwloc_topology_destroy(h);
	hwloc_bitmap_free(allowed);
	return rc;
}

static void read_ram(struct topology *t)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[256];
	long long kib;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemTotal: %lld", &kib) == 1)
			t->ram_bytes = kib * 1024;
		if (sscanf(line, "MemAvailable: %lld", &kib) == 1)
			t->ram_available_bytes = kib * 1024;
	}
	if (f)
		fclose(f);
	t->usable_bytes = t->ram_available_bytes;
	if (t->cgroup.memory_bytes) {
		int64_t rest = t->cgroup.memory_bytes - t->cgroup.memory_used_bytes;

		if (rest < t->usable_bytes)
			t->usable_bytes = rest > 0 ? rest : 0;
	}
}

/* mlock(2): CAP_IPC_LOCK ignores the limit. */
static int may_lock_anything(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long long effective = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	if (f)
		fclose(f);
	return effective >> CAP_IPC_LOCK & 1;
}

static void read_memlock(struct topology *t)
{
	struct rlimit limit;

	t->memlock_bytes = -1;
	if (!may_lock_anything() && !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur != RLIM_INFINITY)
		t->memlock_bytes = (int64_t)limit.rlim_cur;
}

static void choose_threads(struct topology *t)
{
	int cores = t->allowed.core_count > 0 ? t->allowed.core_count : 1;
	double quota = t->cgroup.cpu_quota;

	t->thread_count = cores;
	snprintf(t->thread_reason, sizeof(t->thread_reason),
	        "one for each of %d cores (%d processors) that this process may use, of %d", cores,
	        t->allowed.processor_count, t->machine.core_count);
	if (quota > 0 && quota < cores) {
		t->thread_count = quota < 1 ? 1 : (int)quota;
		snprintf(t->thread_reason, sizeof(t->thread_reason),
		        "the control group's quota of %.2f processors, less than the %d cores that this "
		        "process may use",
		        quota, cores);
	}
}

int topology_read(struct topology *t)
{
	int rc;

	*t = (struct topology){0};
	rc = read_machine(t);
	if (rc)
		return rc;
	cgroup_limits_read(&t->cgroup, "");
	read_ram(t);
	read_memlock(t);
	choose_threads(t);
	return 0;
}

int pool_default_threads(void)
{
	struct topology t;
	cpu_set_t set;

	if (topology_read(&t) == 0)
		return t.thread_count;
	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return CPU_COUNT(&set) < 1 ? 1 : CPU_COUNT(&set);
}
