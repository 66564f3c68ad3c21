/* What the files of the topology share: hwloc's view of the machine, or of the one that FERRY_TOPOLOGY says.
 */
#ifndef FERRY_HOST_TOPOLOGY_INNER_H
#define FERRY_HOST_TOPOLOGY_INNER_H

#include "host/topology.h"

#include <hwloc.h>

enum topology_scope { TOPOLOGY_SCOPE_CORES, TOPOLOGY_SCOPE_DEVICES };

/* Devices only where the scope says so. *is_synthetic: FERRY_TOPOLOGY was obeyed. ERR_*; to be destroyed by
 * hwloc_topology_destroy. */
int topology_hwloc_load(hwloc_topology_t *h, int *is_synthetic, enum topology_scope scope);

/* The node whose memory is next to an object, as an index of hwloc's; -1: none. */
int topology_node_of(hwloc_topology_t h, hwloc_obj_t object);

/* Cuts core[] and sets share and thread_count (which core_count is before) for t->ranks. available: cores
 * that the cpuset leaves to all ranks of this host. */
void topology_share_cores(struct topology *t, int available_core_count);

#endif
