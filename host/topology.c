/* Reads cores, nodes, caches, memory and limits of the machine, with hwloc. */
#include "host/topology.h"

#include "base/err.h"
#include "host/topology_inner.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* Counts the objects of one type that overlap `set`. */
static int count_in(hwloc_topology_t h, hwloc_obj_type_t type, hwloc_const_bitmap_t set)
{
	int count = hwloc_get_nbobjs_by_type(h, type), inside = 0;

	for (int i = 0; i < count; i++)
		inside += hwloc_bitmap_intersects(hwloc_get_obj_by_type(h, type, (unsigned)i)->cpuset, set);
	return inside;
}

/* Virtual machines may not report cores; then each processor counts as one. */
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

/* From the node's meminfo; 0: unknown. */
static int64_t node_free_bytes(int os_index)
{
	char path[96], line[256];
	long long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/meminfo", os_index);
	f = fopen(path, "re");
	while (f && !kib && fgets(line, sizeof(line), f))
		if (sscanf(line, "Node %*d MemFree: %lld", &kib) != 1)
			kib = 0;
	if (f)
		fclose(f);
	return kib * 1024;
}

static void read_nodes(struct topology *t, hwloc_topology_t h, hwloc_const_bitmap_t allowed)
{
	hwloc_bitmap_t here = hwloc_bitmap_alloc();

	for (int i = 0; here && i < t->machine.node_count && i < TOPOLOGY_NODES_MAX; i++) {
		hwloc_obj_t node = hwloc_get_obj_by_type(h, HWLOC_OBJ_NUMANODE, (unsigned)i);
		hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(h, HWLOC_OBJ_PACKAGE, node);
		struct topology_counts counts;

		hwloc_bitmap_and(here, node->cpuset, allowed);
		counts = counts_in(h, here);
		t->node[i] = (struct topology_node){
		        .os_index = (int)node->os_index,
		        .package = package ? (int)package->logical_index : 0,
		        .machine_core_count = counts_in(h, node->cpuset).core_count,
		        .core_count = counts.core_count,
		        .processor_count = counts.processor_count,
		        .ram_bytes = (int64_t)node->attr->numanode.local_memory,
		        .ram_free_bytes = t->is_synthetic ? 0 : node_free_bytes((int)node->os_index),
		};
	}
	hwloc_bitmap_free(here);
}

int topology_node_of(hwloc_topology_t h, hwloc_obj_t object)
{
	int count = hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_NUMANODE), first = -1, near_count = 0;
	int64_t first_bytes = 0;

	while (object && !object->nodeset)
		object = object->parent;
	for (int i = 0; object && i < count; i++) {
		hwloc_obj_t node = hwloc_get_obj_by_type(h, HWLOC_OBJ_NUMANODE, (unsigned)i);
		int64_t bytes = (int64_t)node->attr->numanode.local_memory;

		if (!hwloc_bitmap_isset(object->nodeset, node->os_index))
			continue;
		near_count++;
		/* of several (fast memory beside ordinary), the first that has memory is the ordinary one */
		if (first < 0 || (!first_bytes && bytes)) {
			first = i;
			first_bytes = bytes;
		}
	}
	/* a card on a bridge of the whole machine is next to no node, unless there is only one */
	return object && object->type == HWLOC_OBJ_MACHINE && near_count > 1 ? -1 : first;
}

/* Appends a core with its allowed processors. If cores are unknown, `core` is a processor. */
static void add_core(struct topology *t, hwloc_topology_t h, hwloc_obj_t core, hwloc_const_bitmap_t allowed)
{
	struct topology_core c = {.node = (int16_t)topology_node_of(h, core)};
	unsigned cpu;

	if (t->core_count == TOPOLOGY_CORES_MAX)
		return;
	hwloc_bitmap_foreach_begin(cpu, core->cpuset)
	{
		if (hwloc_bitmap_isset(allowed, cpu) && c.processor_count < TOPOLOGY_SMT_MAX &&
		        cpu <= INT16_MAX)
			c.processor[c.processor_count++] = (int16_t)cpu;
	}
	hwloc_bitmap_foreach_end();
	if (c.node < 0 || c.node >= TOPOLOGY_NODES_MAX)
		c.node = 0;
	if (c.processor_count)
		t->core[t->core_count++] = c;
}

/* Sorts the cores by node. In hwloc's order the nodes of some machines interleave. */
static void read_cores(struct topology *t, hwloc_topology_t h, hwloc_const_bitmap_t allowed)
{
	hwloc_obj_type_t type =
	        hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
	int count = hwloc_get_nbobjs_by_type(h, type);

	t->core_count = 0;
	for (int i = 0; i < count; i++)
		add_core(t, h, hwloc_get_obj_by_type(h, type, (unsigned)i), allowed);
	for (int i = 1; i < t->core_count; i++) { /* by node; stable */
		struct topology_core c = t->core[i];
		int at = i;

		for (; at > 0 && t->core[at - 1].node > c.node; at--)
			t->core[at] = t->core[at - 1];
		t->core[at] = c;
	}
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

/* Whether the kernel refuses to say which processors this process may use, as a sandbox may tell it to. hwloc
 * then asks for ever, with ever larger masks. */
static int affinity_is_refused(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) && errno != EINVAL; /* EINVAL: more processors */
}

/* Turns off plugins that start a driver or look for a display; PCI already gives what they find. Turns off
 * libpciaccess ("pci") too, because its lists stay in memory; hwloc reads the same from the system's files.
 */
static void leave_drivers_alone(hwloc_topology_t h)
{
#if HWLOC_API_VERSION >= 0x00020100
	static const char *const plugins[] = {"cuda", "nvml", "opencl", "rsmi", "levelzero", "gl", "pci"};

	for (size_t i = 0; i < sizeof(plugins) / sizeof(plugins[0]); i++)
		hwloc_topology_set_components(h, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugins[i]);
	if (affinity_is_refused()) /* this part runs on each processor in turn */
		hwloc_topology_set_components(h, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
#else
	(void)h;
#endif
}

int topology_hwloc_load(hwloc_topology_t *h, int *is_synthetic, enum topology_scope scope)
{
	const char *instead = getenv(TOPOLOGY_ENVIRONMENT);
	int rc = 0;

	*is_synthetic = instead && *instead;
	if (hwloc_topology_init(h)) {
		*h = NULL;
		return err_set(ERR_NOMEM, "out of memory for the machine's topology");
	}
	leave_drivers_alone(*h);
	if (*is_synthetic)
		rc = strchr(instead, '/') || strstr(instead, ".xml")
		             ? hwloc_topology_set_xml(*h, instead)
		             : hwloc_topology_set_synthetic(*h, instead);
	if (rc) {
		rc = err_set(ERR_INPUT,
		        TOPOLOGY_ENVIRONMENT "=%s: hwloc reads it neither as a synthetic machine nor as XML",
		        instead);
	} else if (hwloc_topology_set_flags(*h, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) ||
	           (scope == TOPOLOGY_SCOPE_DEVICES &&
	                   hwloc_topology_set_io_types_filter(*h, HWLOC_TYPE_FILTER_KEEP_IMPORTANT)) ||
	           hwloc_topology_load(*h)) {
		rc = err_set(ERR_INTERNAL, "hwloc cannot read this machine's topology: %s", strerror(errno));
	}
	if (rc) {
		hwloc_topology_destroy(*h);
		*h = NULL;
	}
	return rc;
}

/* Reads cores, nodes and caches with hwloc. */
static int read_machine(struct topology *t)
{
	hwloc_topology_t h = NULL;
	hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
	hwloc_const_bitmap_t cpuset;
	const char *name;
	int rc = allowed ? topology_hwloc_load(&h, &t->is_synthetic, TOPOLOGY_SCOPE_CORES)
	                 : err_set(ERR_NOMEM, "out of memory for the machine's topology");

	if (rc)
		goto out;
	cpuset = hwloc_topology_get_allowed_cpuset(h);
	if (t->is_synthetic || affinity_is_refused() || hwloc_get_cpubind(h, allowed, HWLOC_CPUBIND_THREAD))
		hwloc_bitmap_copy(allowed, cpuset);
	hwloc_bitmap_and(allowed, allowed, cpuset);
	t->mask_is_narrow = !hwloc_bitmap_isequal(allowed, cpuset);
	name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(h), "CPUModel");
	if (!name && hwloc_get_nbobjs_by_type(h, HWLOC_OBJ_PACKAGE) > 0)
		name = hwloc_obj_get_info_by_name(hwloc_get_obj_by_type(h, HWLOC_OBJ_PACKAGE, 0), "CPUModel");
	snprintf(t->cpu_name, sizeof(t->cpu_name), "%s",
	        name              ? name
	        : t->is_synthetic ? "made up by " TOPOLOGY_ENVIRONMENT
	                          : "unknown processor");
	t->machine = counts_in(h, hwloc_topology_get_topology_cpuset(h));
	t->allowed = counts_in(h, allowed);
	read_nodes(t, h, allowed);
	read_caches(t, h);
	read_cores(t, h, allowed);
	topology_ranks_find(&t->ranks);
	topology_share_cores(t, counts_in(h, cpuset).core_count);
out:
	if (h)
		hwloc_topology_destroy(h);
	hwloc_bitmap_free(allowed);
	return rc;
}

/* Without /proc (a bare chroot) uses sysinfo(2), which counts free pages but not those of the page cache. */
static void read_ram(struct topology *t)
{
	FILE *f = fopen("/proc/meminfo", "re");
	struct sysinfo info;
	char line[256];
	long long kib;

	if (!f && sysinfo(&info) == 0) {
		t->ram_bytes = (int64_t)info.totalram * info.mem_unit;
		t->ram_available_bytes = (int64_t)(info.freeram + info.bufferram) * info.mem_unit;
	}

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "MemTotal: %lld", &kib) == 1)
			t->ram_bytes = kib * 1024;
		if (sscanf(line, "MemAvailable: %lld", &kib) == 1)
			t->ram_available_bytes = kib * 1024;
	}
	if (f)
		fclose(f);
}

/* The used bytes are those of the first call. topology_find_usable counts later threads by their number. */
static void read_addresses(struct topology *t)
{
	static _Atomic int64_t first_used_bytes;
	FILE *f = fopen("/proc/self/statm", "re");
	struct rlimit limit;
	long long pages = 0;
	int64_t first = 0;

	t->address_bytes = -1;
	if (!getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur < INT64_MAX)
		t->address_bytes = (int64_t)limit.rlim_cur;
	if (f && fscanf(f, "%lld", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	t->address_used_bytes = pages * sysconf(_SC_PAGESIZE);
	if (!atomic_compare_exchange_strong(&first_used_bytes, &first, t->address_used_bytes))
		t->address_used_bytes = first;
}

/* Address space that a thread maps before it computes: OpenBLAS's buffer of 128 MiB and malloc's arena of 64
 * MiB. If that fails, OpenBLAS tries for ever, and oneDNN ends the program. */
static const int64_t thread_address_bytes = 192 << 20;

static void usable_lower(struct topology *t, int64_t bytes, const char *why)
{
	if (bytes >= t->usable_bytes)
		return;
	t->usable_bytes = bytes > 0 ? bytes : 0;
	t->usable_why = why;
}

int64_t topology_address_bytes(const struct topology *t, int threads)
{
	return t->address_used_bytes + (threads + 1) * thread_address_bytes;
}

void topology_find_usable(struct topology *t, int threads, int ranks)
{
	t->usable_bytes = t->ram_available_bytes;
	t->usable_why = "available memory";
	if (t->cgroup.memory_bytes)
		usable_lower(
		        t, t->cgroup.memory_bytes - t->cgroup.memory_used_bytes, "left of the cgroup limit");
	if (t->address_bytes >= 0)
		usable_lower(t, ranks * (t->address_bytes - topology_address_bytes(t, threads)),
		        "left of the address space limit (ulimit -v), less 192 MiB for each thread");
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

enum { LEAVES_FROM = 4 };

static int leaves_a_core;

void topology_leave_a_core(void)
{
	leaves_a_core = 1;
}

static void leave_a_core(struct topology *t)
{
	size_t used = strlen(t->thread_reason);

	if (!leaves_a_core || t->thread_count < LEAVES_FROM)
		return;
	t->thread_count--;
	snprintf(t->thread_reason + used, sizeof(t->thread_reason) - used, "; one is left to NCCL");
}

static void choose_threads(struct topology *t)
{
	double quota = t->cgroup.cpu_quota / t->ranks.size; /* one cgroup for all ranks, as in a container */
	char *why = t->thread_reason;
	size_t bytes = sizeof(t->thread_reason);

	if (t->share == TOPOLOGY_SHARE_ALL || t->share == TOPOLOGY_SHARE_BOUND)
		t->thread_count = t->core_count > 0 ? t->core_count : 1;
	if (t->share == TOPOLOGY_SHARE_CUT)
		snprintf(why, bytes,
		        "one for each core of this rank: %d ranks share %d of the machine's %d cores",
		        t->ranks.size, t->allowed.core_count, t->machine.core_count);
	else if (t->share == TOPOLOGY_SHARE_NEAR)
		snprintf(why, bytes,
		        "one for each core of this rank, next to its GPU where possible: %d ranks share %d "
		        "cores",
		        t->ranks.size, t->allowed.core_count);
	else if (t->share == TOPOLOGY_SHARE_TOGETHER)
		snprintf(why, bytes,
		        "%d ranks on this host; several share the same %d of the machine's %d cores",
		        t->ranks.size, t->allowed.core_count, t->machine.core_count);
	else
		snprintf(why, bytes,
		        "one for each of the %d cores (%d hardware threads) that this process may use; "
		        "the machine has %d",
		        t->allowed.core_count, t->allowed.processor_count, t->machine.core_count);
	if (quota > 0 && quota < t->thread_count) {
		snprintf(t->thread_reason, sizeof(t->thread_reason),
		        "the cgroup quota of %.2f processors, less than the %d cores that this process may "
		        "use",
		        quota, t->thread_count);
		t->thread_count = quota < 1 ? 1 : (int)quota;
	}
	leave_a_core(t);
}

/* The kernel writes "always [madvise] never". */
static void read_huge_pages(struct topology *t)
{
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	char text[64] = "", *from, *to;

	if (!f)
		return;
	if (!fgets(text, sizeof(text), f))
		text[0] = 0;
	fclose(f);
	from = strchr(text, '[');
	to = from ? strchr(from, ']') : NULL;
	if (to)
		snprintf(t->huge_pages, sizeof(t->huge_pages), "%.*s", (int)(to - from - 1), from + 1);
}

int topology_read(struct topology *t)
{
	const char *omp = getenv("OMP_NUM_THREADS");
	int rc;

	memset(t, 0, sizeof(*t));
	rc = read_machine(t);
	if (rc)
		return rc;
	cgroup_limits_read(&t->cgroup, "");
	read_ram(t);
	read_addresses(t);
	read_memlock(t);
	read_huge_pages(t);
	if (omp)
		snprintf(t->omp_num_threads, sizeof(t->omp_num_threads), "%s", omp);
	choose_threads(t);
	topology_find_usable(t, t->thread_count, 1);
	return 0;
}
