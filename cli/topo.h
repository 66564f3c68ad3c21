/* The findings of ferry topo about the machine, and their two outputs with equal contents: text for users, an
 * object for programs. */
#ifndef FERRY_CLI_TOPO_H
#define FERRY_CLI_TOPO_H

#include "base/json.h"
#include "base/str.h"
#include "bench/bandwidth.h"
#include "host/pool.h"
#include "host/topology.h"

enum { TOPO_DEVICES_MAX = 256 };

struct topo {
	struct topology machine;
	struct topology_device devices[TOPO_DEVICES_MAX];
	int device_count;
	struct bandwidth bandwidth;
	enum pool_pinning pinning; /* binding of a pool with thread_count threads */
	const char *pinning_why;
	int may_bind_memory;
	const char *isa;
	json_t *gpus; /* from topo_gpus_json; borrowed */
};

/* Draws the tree: packages, their nodes with memory, cores and caches, and each node's devices. */
void topo_draw(struct str *out, const struct topo *t);

/* Prints the limits of this process, ferry's choices with reasons, and the memory bandwidth. */
void topo_tell(struct str *out, const struct topo *t);

/* Adds the findings to the object. */
void topo_add_json(json_t *object, const struct topo *t);

#endif
