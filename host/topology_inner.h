/* Shared by the topology files: hwloc's view of this machine, or of the one that FERRY_TOPOLOGY describes. */
#ifndef FERRY_HOST_TOPOLOGY_INNER_H
#define FERRY_HOST_TOPOLOGY_INNER_H

#include "host/topology.h"

#include <hwloc.h>

enum topology_scope { TOPOLOGY_SCOPE_CORES, TOPOLOGY_SCOPE_DEVICES };

/* Loads devices only if the scope includes them. Sets *is_synthetic to 1 if FERRY_TOPOLOGY describes the
 * machine. Returns 0 or an ERR_*. The caller frees *h with hwloc_topology_destroy. */
int topology_hwloc_load(hwloc_topology_t *h, int *is_synthetic, enum topology_scope scope);

/* hwloc's index of the node with memory next to an object; -1: none. */
int topology_node_of(hwloc_topology_t h, hwloc_obj_t object);

/* Reduces core[] to the cores of this rank (t->ranks) and sets share. With several ranks it also sets
 * thread_count. available_core_count: cores that the cpuset allows on this host. */
void topology_share_cores(struct topology *t, int available_core_count);

#endif
