/* A pool of worker threads that share out the tasks of one call.
 *
 * Mental model. pool_run(pool, count, fn, ctx) calls fn(ctx, task, worker) for each task in [0, count), on
 * the caller and the pool's workers, in any order, and returns when all are done. Which thread runs a task is
 * chance; results must depend on the task alone. `worker` is below pool_worker_count and differs between
 * tasks of one call that run at the same time: it picks scratch memory. Several threads may call at once; the
 * workers then go round their calls, task by task.
 *
 * Tasks are taken one at a time, so a thread that the system takes off its core delays only the task that it
 * holds. A task costs about 0.1 us to hand out, a call 2 us, 50 more where workers sleep: they do so 30 us
 * after the last task. The floating-point environment of workers is the default one (no FTZ, no DAZ).
 */
#ifndef FERRY_HOST_POOL_H
#define FERRY_HOST_POOL_H

#include <stdint.h>

struct pool;

typedef void pool_fn(void *ctx, int64_t task, int worker);

/* threads >= 1 counts the caller: threads - 1 workers are started. ERR_NOMEM, ERR_INPUT (threads < 1),
 * ERR_DEVICE (the system gives no more threads). Signals do not reach workers. */
int pool_open(struct pool **pool, int threads);
void pool_close(struct pool *pool); /* no call may be under way */

int pool_worker_count(const struct pool *pool);

/* fn must not call pool_run. */
void pool_run(struct pool *pool, int64_t task_count, pool_fn *fn, void *ctx);

/* Threads for a pool that has the machine to itself: topology.h's thread_count. Reads the machine each time.
 */
int pool_default_threads(void);

#endif
