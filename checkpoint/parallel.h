/* Jobs of a transfer, spread over a pool's threads; the error of the lowest job is the transfer's.
 *
 * Once a job failed, those above it are skipped and those below it still run: whichever thread was faster, an
 * error that several jobs would meet is reported for the same one.
 */
#ifndef FERRY_CHECKPOINT_PARALLEL_H
#define FERRY_CHECKPOINT_PARALLEL_H

#include "host/pool.h"

#include <stdint.h>

/* 0 or ERR_* with a text, which finds its way to the caller's thread. `worker` picks scratch memory. */
typedef int parallel_fn(void *context, int64_t job, int worker);

/* NULL for the pool: on this thread alone. */
int parallel_run(struct pool *pool, int64_t job_count, parallel_fn *fn, void *context);
int parallel_worker_count(const struct pool *pool);

#endif
