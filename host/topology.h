/* The machine as this process may use it: cores, caches, NUMA nodes, memory, and the limits in force.
 *
 * Mental model. `machine` counts what there is; `allowed` what the affinity mask and cpuset leave; of that,
 * `cores` lists the ones that are this rank's, node by node. hwloc tells cores from their hardware threads;
 * cgroup.h adds quotas. thread_count is what a pool takes by default: one thread for each core of this rank,
 * as many as the quota pays for. Ranks of one host share its cores out among themselves. A launcher that gave
 * each rank cores of its own has done that already. Environment variables of other runtimes (OMP_NUM_THREADS
 * and such) have no say: launchers set them to 1. They are reported.
 *
 * FERRY_TOPOLOGY replaces the machine by one that hwloc makes up ("pack:2 [numa] core:4 pu:2", hwloc(7)
 * "Synthetic topologies") or reads from XML (a path): for tests, and to look at other machines. Threads are
 * then bound to nothing, memory is bound in a ledger only (numa.h), and sizes of RAM are still this
 * machine's.
 */
#ifndef FERRY_HOST_TOPOLOGY_H
#define FERRY_HOST_TOPOLOGY_H

#include "host/cgroup.h"

#include <stdint.h>

#define TOPOLOGY_ENVIRONMENT "FERRY_TOPOLOGY"

enum {
	TOPOLOGY_NODES_MAX = 64,
	TOPOLOGY_CORES_MAX = 1024, /* further ones get no worker of their own */
	TOPOLOGY_SMT_MAX = 8,
	TOPOLOGY_CACHE_LEVELS = 4,
	TOPOLOGY_RANKS_MAX = 256, /* that are told apart by their GPUs */
};

struct topology_counts {
	int package_count, node_count;   /* node: NUMA */
	int core_count, processor_count; /* processor: hardware thread, what the system calls a CPU */
};

struct topology_node {
	int os_index;
	int package;                       /* index of the package that it belongs to */
	int machine_core_count;            /* all that are next to its memory */
	int core_count, processor_count;   /* allowed */
	int64_t ram_bytes, ram_free_bytes; /* free: 0 where the kernel does not say */
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

/* How the cores that are allowed became this rank's. */
enum topology_share {
	TOPOLOGY_SHARE_ALL,     /* it is alone on its host */
	TOPOLOGY_SHARE_CUT,     /* ranks take runs of cores in order */
	TOPOLOGY_SHARE_NEAR,    /* as many each, next to their GPUs as far as there are cores */
	TOPOLOGY_SHARE_BOUND,   /* the launcher gave each rank its own */
	TOPOLOGY_SHARE_TOGETHER /* the launcher bound several ranks to the same cores, or there are fewer
	                           cores than ranks: all of those, but not as many threads */
};

/* Ranks on this host. */
struct topology_ranks {
	int rank, size;   /* 0 of 1 where nobody says otherwise */
	const char *said; /* by whom: the variable's name; static; NULL: nobody */
};

struct topology {
	char cpu_name[128];
	int is_synthetic; /* FERRY_TOPOLOGY */
	struct topology_counts machine, allowed;
	struct topology_cache cache[TOPOLOGY_CACHE_LEVELS];
	struct topology_node node[TOPOLOGY_NODES_MAX]; /* machine.node_count of them, at most so many */
	int mask_is_narrow; /* the affinity mask is less than what the cpuset allows */
	struct topology_ranks ranks;
	enum topology_share share;
	struct topology_core core[TOPOLOGY_CORES_MAX]; /* core_count of them, in order of nodes */
	int core_count;
	struct cgroup_limits cgroup;
	int64_t ram_bytes, ram_available_bytes; /* of the machine; available as the kernel estimates it */
	int64_t address_bytes;                  /* RLIMIT_AS, of each rank; -1: no limit */
	int64_t address_used_bytes; /* when this was first read: threads have mapped little of theirs then */
	int64_t usable_bytes;       /* what ranks of this host may still take: topology_find_usable */
	const char *usable_why;     /* a few words; static */
	int64_t memlock_bytes;      /* RLIMIT_MEMLOCK; -1: no limit, or the privilege to ignore it */
	char huge_pages[16];        /* transparent ones: "always", "madvise", "never"; "" where unknown */
	char omp_num_threads[8];    /* the variable, cut; "" where it is not set */
	int thread_count;
	char thread_reason[192]; /* why so many, as one clause */
};

/* 0; ERR_NOMEM or ERR_INTERNAL when hwloc cannot read the machine; ERR_INPUT when FERRY_TOPOLOGY is none. Any
 * thread; takes some milliseconds. */
int topology_read(struct topology *t);

/* Sets usable_bytes for `ranks` processes of so many threads each: available RAM, the cgroup's rest, and what
 * the limit on addresses leaves beside what threads map of their own. topology_read does so for one rank of
 * thread_count. */
void topology_find_usable(struct topology *t, int threads, int ranks);

/* Who the ranks of this host are: by the world (world.h) where it has been joined, else from the environment
 * that launchers leave (Open MPI, Intel MPI and MPICH, MVAPICH2, PALS, Slurm, torchrun). */
void topology_ranks_find(struct topology_ranks *ranks);

/* The NUMA node next to the GPU of each rank of this host, as the system numbers it (-1: not known). For the
 * readings that follow; without effect where another number of ranks is here, or a node is none. Before other
 * threads. */
void topology_set_rank_nodes(const int *os_index, int count);

/* A device on a bus, for people: GPUs, network, disks. */
struct topology_device {
	char bus_id[24], name[96], kind[24]; /* "0000:3b:00.0"; as the system or its vendor calls it */
	int node;                            /* index into topology.node; -1: near none, or unknown */
};

/* Devices of the machine as hwloc sees them, at most `max`; returns their number (0 where it sees none). */
int topology_devices_read(struct topology_device *devices, int max);

#endif
