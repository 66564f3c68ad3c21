/* Runs the jobs of a transfer on a pool's threads, and returns the error of the lowest job.
 *
 * After a job fails, higher jobs are skipped and lower ones still run. So if several jobs would fail, the
 * reported job does not depend on the speed of threads.
 */
#ifndef FERRY_CHECKPOINT_FILE_PARALLEL_H
#define FERRY_CHECKPOINT_FILE_PARALLEL_H

#include "host/pool.h"

#include <stdint.h>

/* 0 or ERR_*; its text reaches the caller's thread. `worker` selects scratch memory. */
typedef int parallel_fn(void *context, int64_t job, int worker);

/* pool NULL: only this thread. Whoever shows work sees the jobs as "loading weights" (base/work.h). */
int parallel_run(struct pool *pool, int64_t job_count, parallel_fn *fn, void *context);
int parallel_worker_count(const struct pool *pool);

#endif
