/* A pool of worker threads that divide the tasks of a call.
 *
 * Mental model. pool_run(pool, count, fn, ctx) calls fn(ctx, task, worker) for each task in [0, count), on
 * the caller and the pool's workers, in any order, and returns when all are done. Any thread may run a task,
 * so results must depend only on the task. `worker` is below pool_worker_count and differs between tasks of
 * one call that run at the same time; use it to select scratch memory. Several threads may call at once; the
 * workers then alternate between their calls, task by task.
 *
 * Workers take one task at a time, so a preempted thread delays only its own task. A task costs about 0.1 us
 * and a call 2 us. Workers sleep 30 us after the last task; a call then costs 50 us more. Workers have
 * the default floating-point environment (no FTZ, no DAZ).
 *
 * Nodes. A pool of pool_open_on knows the NUMA node of each worker. Its nodes are numbered from 0, without
 * nodes that have no workers. pool_run_placed hands out tasks by node: a worker takes tasks of its own node
 * first, then of others. pool_run ignores nodes.
 *
 * Pinning. On one node workers are not bound. Binding gains nothing there, and a bound thread must wait if
 * another process runs on its core (measured: docs/design/machine.md). On several nodes each worker is bound
 * to its own core if only this process uses its cores: no narrower affinity mask, no quota, no ranks on the
 * same cores, no more threads than cores. Otherwise a worker is bound to all allowed cores of its node. This
 * keeps it near its memory, and the kernel chooses the core.
 */
#ifndef FERRY_HOST_POOL_H
#define FERRY_HOST_POOL_H

#include <stdint.h>

struct pool;
struct topology;

typedef void pool_fn(void *ctx, int64_t task, int worker);

/* threads >= 1 counts the caller: threads - 1 workers are started. ERR_NOMEM, ERR_INPUT (threads < 1),
 * ERR_DEVICE (the system has no more threads). Workers get no signals. */
int pool_open(struct pool **pool, int threads);

/* Opens workers on the cores of topology.h, spread evenly over its nodes and bound as above. Errors as
 * pool_open; if the system refuses to bind, workers run unbound. */
int pool_open_on(struct pool **pool, int threads, const struct topology *t);

/* Reads the machine into *t and opens a pool on it with `threads` threads; 0: topology.h's number for one of
 * `ranks`. Errors as topology_read and pool_open. */
int pool_open_here(struct pool **pool, struct topology *t, int threads, int ranks);
void pool_close(struct pool *pool); /* not during a call */

int pool_worker_count(const struct pool *pool);

enum { POOL_NODES_MAX = 64 };
enum pool_pinning { POOL_PINNED_NOT, POOL_PINNED_TO_NODES, POOL_PINNED_TO_CORES };

/* The pinning in use; *why is the reason as one clause, static. */
enum pool_pinning pool_pinning(const struct pool *pool, const char **why);

/* Number of nodes. A pool of pool_open, or on a machine with one node, has one node with os_index -1 and all
 * workers. */
int pool_node_count(const struct pool *pool);
int pool_node_os_index(const struct pool *pool, int node);
int pool_node_worker_count(const struct pool *pool, int node);
int pool_worker_node(const struct pool *pool, int worker);

/* Finds the node's elements [*first, *end) of `count`, in proportion to its workers. Borders are multiples
 * of `align`, so that arrays of any element size divide alike. */
void pool_node_range(
        const struct pool *pool, int node, int64_t *first, int64_t *end, int64_t count, int64_t align);

/* fn must not call pool_run. */
void pool_run(struct pool *pool, int64_t task_count, pool_fn *fn, void *ctx);

/* Tasks [node_first[n], node_first[n + 1]) belong to node n, for n < pool_node_count; node_first[0] is 0.
 * The caller works too, for its current node. */
void pool_run_placed(struct pool *pool, const int64_t *node_first, pool_fn *fn, void *ctx);

/* The same without stealing, for work that must run on its node (first touch). If the caller is the only
 * worker of a node, that node's tasks run on the caller's current node. */
void pool_run_near(struct pool *pool, const int64_t *node_first, pool_fn *fn, void *ctx);

/* Counts of a node's tasks in placed calls so far, run by its own threads and by others; for pools of
 * several nodes. */
void pool_get_placed(const struct pool *pool, int node, int64_t *near_count, int64_t *stolen_count);

/* Threads for a pool without other ranks: topology.h's thread_count. Reads the machine each time. */
int pool_default_threads(void);

#endif
