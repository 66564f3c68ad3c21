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
 *
 * Nodes. A pool that pool_open_on opened knows which NUMA node each worker runs on; its nodes are numbered
 * from 0, those without workers left out. pool_run_placed hands tasks out by node: a worker takes its own
 * node's first, and another's when its own has none left. pool_run does not care.
 *
 * Pinning. On one node workers are not bound: there is nothing to be near to, and a bound thread waits where
 * another process runs on its core, while the kernel would have moved it to a free one (measured:
 * docs/design/machine.md). On several nodes each worker is bound to a core of its own, where this process
 * alone decides over its cores (no narrower affinity mask, no quota, no ranks on the same cores, no more
 * threads than cores); else to all cores that it may use on its node, which keeps it near its memory and
 * leaves the choice of core to the kernel.
 */
#ifndef FERRY_HOST_POOL_H
#define FERRY_HOST_POOL_H

#include <stdint.h>

struct pool;
struct topology;

typedef void pool_fn(void *ctx, int64_t task, int worker);

/* threads >= 1 counts the caller: threads - 1 workers are started. ERR_NOMEM, ERR_INPUT (threads < 1),
 * ERR_DEVICE (the system gives no more threads). Signals do not reach workers. */
int pool_open(struct pool **pool, int threads);

/* Workers over the cores of topology.h, spread evenly over its nodes, and bound as said above. Errors as
 * pool_open; where the system refuses to bind, workers run unbound. */
int pool_open_on(struct pool **pool, int threads, const struct topology *t);

/* Reads the machine into *t and opens a pool over it: `threads`, or with 0 as many as topology.h says for one
 * of `ranks` that share them. Errors as topology_read and pool_open. */
int pool_open_here(struct pool **pool, struct topology *t, int threads, int ranks);
void pool_close(struct pool *pool); /* no call may be under way */

int pool_worker_count(const struct pool *pool);

enum { POOL_NODES_MAX = 64 };
enum pool_pinning { POOL_PINNED_NOT, POOL_PINNED_TO_NODES, POOL_PINNED_TO_CORES };

/* What was decided and done, and why, as one clause; static. */
enum pool_pinning pool_pinning(const struct pool *pool, const char **why);

/* Of pool_open's pools, and on machines of one node: one, of os_index -1, that has all workers. */
int pool_node_count(const struct pool *pool);
int pool_node_os_index(const struct pool *pool, int node);
int pool_node_worker_count(const struct pool *pool, int node);
int pool_worker_node(const struct pool *pool, int worker);

/* Elements [*first, *end) of `count` are node's, in proportion to its workers. Borders are multiples of
 * `align`, so that arrays of any element size can be cut alike. */
void pool_node_range(
        const struct pool *pool, int node, int64_t *first, int64_t *end, int64_t count, int64_t align);

/* fn must not call pool_run. */
void pool_run(struct pool *pool, int64_t task_count, pool_fn *fn, void *ctx);

/* Tasks [node_first[n], node_first[n + 1]) are node n's, for n < pool_node_count; node_first[0] is 0. The
 * caller works too, for the node that it happens to run on. */
void pool_run_placed(struct pool *pool, const int64_t *node_first, pool_fn *fn, void *ctx);

/* The same without stealing, for work whose place matters more than its time (first touch). The tasks of a
 * node without a thread of its own (it has one worker, which is the caller's part) run wherever the caller
 * is. */
void pool_run_near(struct pool *pool, const int64_t *node_first, pool_fn *fn, void *ctx);

/* A node's tasks of placed calls so far, on a pool of several nodes: run by its own threads, and by others.
 */
void pool_get_placed(const struct pool *pool, int node, int64_t *near_count, int64_t *stolen_count);

/* Threads for a pool that has the machine to itself: topology.h's thread_count. Reads the machine each time.
 */
int pool_default_threads(void);

#endif
