/* The machine as this process may use it: cores, caches, NUMA nodes, memory, and the limits in force.
 *
 * Mental model. `machine` counts the whole machine. `allowed` counts the part within the affinity mask and
 * cpuset. `cores` lists this rank's part of these, node by node. hwloc separates cores from hardware
 * threads; cgroup.h adds quotas. thread_count is the default of a pool: one thread per core of this rank,
 * limited by the quota. Ranks of one host divide its cores, unless the launcher already gave each rank its
 * own. ferry ignores variables of other runtimes (OMP_NUM_THREADS and similar), because launchers set them
 * to 1; it reports them.
 *
 * FERRY_TOPOLOGY replaces the machine, for tests and to look at other machines. Its value is a synthetic
 * machine of hwloc ("pack:2 [numa] core:4 pu:2", hwloc(7) "Synthetic topologies") or the path of an XML file.
 * Threads are then not bound, memory is bound only in a record (numa.h), and sizes of RAM are those of this
 * machine.
 */
#ifndef FERRY_HOST_TOPOLOGY_H
#define FERRY_HOST_TOPOLOGY_H

#include "host/cgroup.h"

#include <stdint.h>

#define TOPOLOGY_ENVIRONMENT "FERRY_TOPOLOGY"

enum {
	TOPOLOGY_NODES_MAX = 64,
	TOPOLOGY_CORES_MAX = 1024, /* further cores get no worker */
	TOPOLOGY_SMT_MAX = 8,
	TOPOLOGY_CACHE_LEVELS = 4,
	TOPOLOGY_RANKS_MAX = 256, /* maximum for placement by GPU */
};

struct topology_counts {
	int package_count, node_count;   /* node: NUMA node */
	int core_count, processor_count; /* processor: hardware thread */
};

struct topology_node {
	int os_index;
	int package;                       /* index of its package */
	int machine_core_count;            /* all cores of the machine next to its memory */
	int core_count, processor_count;   /* allowed */
	int64_t ram_bytes, ram_free_bytes; /* free: 0 if unknown */
};

/* A core of this rank; processors are the allowed ones, by the system's numbers. */
struct topology_core {
	int16_t node; /* index into topology.node */
	int16_t processor_count;
	int16_t processor[TOPOLOGY_SMT_MAX];
};

/* cache[i] is level i + 1 (data or unified); shared_count processors of the machine share one. */
struct topology_cache {
	int64_t bytes;
	int count, shared_count;
};

/* How ranks divide the allowed cores. */
enum topology_share {
	TOPOLOGY_SHARE_ALL,     /* one rank on the host */
	TOPOLOGY_SHARE_CUT,     /* ranks take runs of cores in order */
	TOPOLOGY_SHARE_NEAR,    /* equal numbers, next to their GPUs as far as possible */
	TOPOLOGY_SHARE_BOUND,   /* the launcher gave each rank its own cores */
	TOPOLOGY_SHARE_TOGETHER /* several ranks share the same cores, by the launcher's binding or because
	                           there are fewer cores than ranks: all of these cores, but fewer threads */
};

/* Ranks on this host. */
struct topology_ranks {
	int rank, size;   /* 0 of 1 by default */
	const char *said; /* name of the variable with it, static; NULL: none */
};

struct topology {
	char cpu_name[128];
	int is_synthetic; /* FERRY_TOPOLOGY */
	struct topology_counts machine, allowed;
	struct topology_cache cache[TOPOLOGY_CACHE_LEVELS];
	struct topology_node node[TOPOLOGY_NODES_MAX]; /* the first machine.node_count */
	int mask_is_narrow;                            /* the affinity mask is smaller than the cpuset */
	struct topology_ranks ranks;
	enum topology_share share;
	struct topology_core core[TOPOLOGY_CORES_MAX]; /* the first core_count, in order of nodes */
	int core_count;
	struct cgroup_limits cgroup;
	int64_t ram_bytes, ram_available_bytes; /* of the machine; available: the kernel's estimate */
	int64_t address_bytes;                  /* RLIMIT_AS, of each rank; -1: no limit */
	int64_t address_used_bytes;             /* at the first read, before threads map their own */
	int64_t usable_bytes;    /* memory that ranks of this host may still use: topology_find_usable */
	const char *usable_why;  /* a few words; static */
	int64_t memlock_bytes;   /* RLIMIT_MEMLOCK; -1: no limit, or the privilege to ignore it */
	char huge_pages[16];     /* transparent huge pages: "always", "madvise", "never"; "": unknown */
	char omp_num_threads[8]; /* the variable, truncated; "": not set */
	int thread_count;
	char thread_reason[192]; /* reason for thread_count, as one clause */
};

/* 0; ERR_NOMEM or ERR_INTERNAL if hwloc cannot read the machine; ERR_INPUT if FERRY_TOPOLOGY is invalid. Any
 * thread; takes some milliseconds. */
int topology_read(struct topology *t);

/* Address space that a process with `threads` threads maps before it loads anything. */
int64_t topology_address_bytes(const struct topology *t, int threads);

/* Sets usable_bytes for `ranks` processes with `threads` threads each: the minimum of available RAM, the room
 * in the cgroup, and the room in the address limit after the threads' own mappings. topology_read does
 * this for one rank with thread_count threads. */
void topology_find_usable(struct topology *t, int threads, int ranks);

/* Finds the ranks of this host: from the world (world.h) after it is joined, else from the environment of
 * launchers (Open MPI, Intel MPI and MPICH, MVAPICH2, PALS, Slurm, torchrun). */
void topology_ranks_find(struct topology_ranks *ranks);

/* From now on a pool's default leaves a core of this rank to other threads, where it has at least four:
 * NCCL's, and the one that feeds a GPU, would wait behind AdamW on all cores. Call before other threads. */
void topology_leave_a_core(void);

/* Sets the system's NUMA node next to the GPU of each rank of this host (-1: unknown), for later reads. No
 * effect if the number of ranks differs, or a node does not exist. Call before other threads. */
void topology_set_rank_nodes(const int *os_index, int count);

/* A device on a bus, for display: GPUs, network, disks. */
struct topology_device {
	char bus_id[24], name[96], kind[24]; /* "0000:3b:00.0"; as the system or its vendor calls it */
	int node;                            /* index into topology.node; -1: none, or unknown */
};

/* Lists at most `max` devices of the machine from hwloc; returns their number, 0 if it finds none. */
int topology_devices_read(struct topology_device *devices, int max);

#endif
