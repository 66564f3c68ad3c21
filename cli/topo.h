/* ferry topo: what was found out of the machine, and its two ways out: a picture for people, an object for
 * programs. Both say the same. */
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
	enum pool_pinning pinning; /* as a pool of thread_count threads is bound */
	const char *pinning_why;
	int may_bind_memory;
	const char *isa;
	json_t *gpus; /* as topo_gpus_json gives them; borrowed */
};

/* The tree: packages, their nodes with memory, cores and caches, what hangs on each node. */
void topo_draw(struct str *out, const struct topo *t);

/* What limits this process; what was chosen and why; what memory can do. */
void topo_tell(struct str *out, const struct topo *t);

/* Adds its members to the object. */
void topo_add_json(json_t *object, const struct topo *t);

#endif
