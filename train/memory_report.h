/* Where the store's memory came to lie, once a run has touched all of it: a line or two in the log. */
#ifndef FERRY_TRAIN_MEMORY_REPORT_H
#define FERRY_TRAIN_MEMORY_REPORT_H

#include "offload/engine.h"

/* How much is in huge pages; on several NUMA nodes, how much of each node's share is there, and how many
 * pieces of updates threads of other nodes took. Says nothing where nothing lives in host memory. */
void memory_report(const struct engine *engine, const struct pool *pool);

#endif
