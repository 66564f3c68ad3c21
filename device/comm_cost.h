/* What a collective sends over which links: arithmetic, for plans, clocks and counters.
 *
 * Mental model. Ranks of a world are numbered node by node, ranks_per_node on each. A collective runs over a
 * group of them; what a rank of the group sends goes to ranks of its own node or over the network. How much
 * each rank sends is the same for both algorithms, (S-1)/S of the buffer for a gather or a scatter over S
 * ranks; how much of that leaves a node is not.
 */
#ifndef FERRY_DEVICE_COMM_COST_H
#define FERRY_DEVICE_COMM_COST_H

#include <stdint.h>

/* Ranks of a world that join: first, first + stride, ..., `size` of them; this one is number `rank` there. */
struct comm_group {
	int rank, size, first, stride, world_size;
};

/* COMM_RING: every rank sends to the next one only, as NCCL's rings do for large buffers; a ring enters and
 * leaves a node once, and each channel's ring elsewhere, so a rank's part of that is the average.
 * COMM_DIRECT: every rank sends to every other (host/cpu/cpu_comm.c). */
enum comm_algorithm { COMM_RING, COMM_DIRECT };

/* The node of a rank of the group. */
int comm_node(const struct comm_group *group, int rank, int ranks_per_node);

/* Where the ranks of a group stand, and how they send. */
struct comm_links {
	enum comm_algorithm algorithm;
	int rank, size;     /* in the group */
	int ranks_per_node; /* of the world, on each node */
	int local;          /* ranks of the group on this rank's node, itself among them */
	int crossings;      /* neighbours of a ring through the group that stand on two nodes */
};

/* ranks_per_node <= 0: one node. */
void comm_links_find(struct comm_links *links, const struct comm_group *group, int ranks_per_node,
        enum comm_algorithm algorithm);

enum comm_kind { COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE, COMM_BROADCAST };

struct comm_traffic {
	int64_t node_bytes, network_bytes; /* that this rank sends, to its node and to others */
	int node_hops, network_hops;       /* links that a byte crosses one after the other */
};

/* A buffer of so many bytes, all shards, in elements of element_bytes. */
void comm_traffic_find(struct comm_traffic *traffic, enum comm_kind kind, int64_t bytes,
        int64_t element_bytes, const struct comm_links *links);

#endif
