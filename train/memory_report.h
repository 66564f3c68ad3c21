/* Logs in a line or two where the system put the store's memory. Call after a run has touched all of it. */
#ifndef FERRY_TRAIN_MEMORY_REPORT_H
#define FERRY_TRAIN_MEMORY_REPORT_H

#include "offload/engine.h"

/* Logs the share in huge pages. With several NUMA nodes also the share of each node's memory that is on that
 * node, and the pieces of updates that threads of other nodes did. Logs nothing if nothing is in host
 * memory. */
void memory_report(const struct engine *engine, const struct pool *pool);

#endif
