/* The machine as this process may use it: cores, caches, NUMA nodes, memory, and the limits in force.
 *
 * `machine` counts what there is; `allowed` what the affinity mask and cpuset leave. hwloc tells cores from
 * their hardware threads; cgroup.h adds quotas. thread_count is what a pool takes by default: one thread for
 * each allowed core, as many as the quota pays for. Environment variables of other runtimes
 * (OMP_NUM_THREADS and such) have no say: launchers set them to 1.
 */
#ifndef FERRY_HOST_TOPOLOGY_H
#define FERRY_HOST_TOPOLOGY_H

#include "host/cgroup.h"

#include <stdint.h>

enum { TOPOLOGY_NODES_MAX = 64, TOPOLOGY_CACHE_LEVELS = 4 };

struct topology_counts {
	int package_count, node_count;   /* node: NUMA */
	int core_count, processor_count; /* processor: hardware thread, what the system calls a CPU */
};

struct topology_node {
	int os_index;
	int core_count; /* allowed */
	int64_t ram_bytes;
};

/* cache[i] is level i + 1 (data or unified); shared_count processors of the machine share one. */
struct topology_cache {
	int64_t bytes;
	int count, shared_count;
};

struct topology {
	char cpu_name[128];
	struct topology_counts machine, allowed;
	struct topology_cache cache[TOPOLOGY_CACHE_LEVELS];
	struct topology_node node[TOPOLOGY_NODES_MAX]; /* machine.node_count of them, at most so many */
	struct cgroup_limits cgroup;
	int64_t ram_bytes, ram_available_bytes; /* of the machine; available as the kernel estimates it */
	int64_t usable_bytes;  /* what this process may still take: available RAM, and the cgroup's rest */
	int64_t memlock_bytes; /* RLIMIT_MEMLOCK; -1: no limit, or the privilege to ignore it */
	int thread_count;
	char thread_reason[160]; /* why so many, as one clause */
};

/* 0; ERR_NOMEM or ERR_INTERNAL when hwloc cannot read the machine. Any thread; takes some milliseconds. */
int topology_read(struct topology *t);

#endif
