/* How many bytes a collective sends over which links: arithmetic for plans, clocks and counters.
 *
 * Mental model. The ranks of a world are numbered node by node, ranks_per_node on each. A collective runs
 * over a group of ranks. A rank sends to ranks of its own node or over the network. Both algorithms send the
 * same amount per rank: (S-1)/S of the buffer for a gather or a scatter over S ranks. They differ in how
 * much of it leaves the node.
 */
#ifndef FERRY_DEVICE_COMM_COST_H
#define FERRY_DEVICE_COMM_COST_H

#include <stdint.h>

/* The ranks of a group: first, first + stride, ..., `size` of them. This rank has number `rank` in the
 * group. */
struct comm_group {
	int rank, size, first, stride, world_size;
};

/* COMM_RING: every rank sends only to the next one, as in NCCL's rings for large buffers. A ring enters and
 * leaves each node once. Each channel does so at another rank, so every rank counts the average.
 *
 * COMM_DIRECT: every rank sends to every other rank (host/cpu/cpu_comm.c). */
enum comm_algorithm { COMM_RING, COMM_DIRECT };

/* The node of a rank of the group. */
int comm_node(const struct comm_group *group, int rank, int ranks_per_node);

/* The nodes of a group's ranks, and how they send. */
struct comm_links {
	enum comm_algorithm algorithm;
	int rank, size;     /* in the group */
	int ranks_per_node; /* of the world, on each node */
	int local;          /* ranks of the group on this rank's node, itself among them */
	int crossings;      /* neighbours in a ring through the group that are on different nodes */
};

/* ranks_per_node <= 0: one node. */
void comm_links_find(struct comm_links *links, const struct comm_group *group, int ranks_per_node,
        enum comm_algorithm algorithm);

enum comm_kind { COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_ALL_REDUCE, COMM_BROADCAST };

struct comm_traffic {
	int64_t node_bytes, network_bytes; /* sent by this rank to its node and to other nodes */
	int node_hops, network_hops;       /* links that a byte crosses one after the other */
};

/* bytes: the whole buffer with all shards, in elements of element_bytes. */
void comm_traffic_find(struct comm_traffic *traffic, enum comm_kind kind, int64_t bytes,
        int64_t element_bytes, const struct comm_links *links);

#endif
