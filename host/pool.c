/* The worker pool: its threads, and how they take tasks by node. */
#include "host/pool.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/thread.h"
#include "host/topology.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	SLOT_COUNT = 64, /* calls under way at a time; further callers work alone */
	LINE_BYTES = 64,
	SPIN_NS = 30000, /* waking a sleeper costs the waker about 5 us and the sleeper 50 */
};

/* The state of a call under way. Slots live as long as the pool, so a thread may look at a slot after its
 * call has ended. It then finds no task left, or claims one of the next call.
 *
 * `left` is (generation << 32 | tasks not yet given out). The thread that lowers it owns task count - left.
 * The call cannot end until that task is done, so the other fields stay as they are. The generation tells a
 * thread that was preempted between looking and claiming that another call has the slot. */
struct slot {
	_Alignas(LINE_BYTES) _Atomic uint64_t left;
	pool_fn *fn;
	void *ctx;
	int64_t first;
	uint32_t count;
	int node; /* node of the tasks; -1: all nodes */
	_Alignas(LINE_BYTES) _Atomic uint32_t done;
	atomic_int is_waited_for; /* the caller sleeps on `done`, or is about to */
};

struct worker {
	struct pool *pool;
	pthread_t thread;
	int index, node;
};

/* Calls that have tasks for this node. */
struct node {
	_Alignas(LINE_BYTES) _Atomic uint64_t wanted;
	int os_index, worker_count;
	_Alignas(LINE_BYTES) _Atomic int64_t near_count, stolen_count; /* run by its threads, by others */
};

struct pool {
	struct slot slot[SLOT_COUNT];
	_Alignas(LINE_BYTES) _Atomic uint64_t used; /* bit: the slot belongs to a call */
	/* bit: the slot has tasks to give out, or will at once. It is set before `left` and cleared by the
	 * thread that claims the last task, so no bit outlives its tasks. */
	_Alignas(LINE_BYTES) _Atomic uint64_t wanted;
	/* bit: the slot belongs to a placed call that has published all its slots. Only then may workers of
	 * other nodes take from it: before that, tasks for their own node may still come */
	_Alignas(LINE_BYTES) _Atomic uint64_t placed;
	_Alignas(LINE_BYTES) _Atomic uint32_t call_count; /* idle workers sleep on it */
	atomic_int sleeper_count, is_closing;
	int thread_count, started_count;
	struct worker *worker;
	int node_count;
	struct node *node;
	int16_t *processor_node; /* [processor_count]; -1: no node of this pool. NULL: one node, or a
	                            synthetic machine */
	int processor_count;
	enum pool_pinning pinning;
	const char *pinning_why;
};

/* All callers allow wake-ups without a reason. TSan sees the atomics around the call. */
static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void spin_pause(void)
{
	for (int i = 0; i < 16; i++)
#if defined(__x86_64__)
		__builtin_ia32_pause();
#else
		atomic_signal_fence(memory_order_seq_cst);
#endif
}

static _Atomic uint64_t *wanted_of(struct pool *pool, int node)
{
	return node < 0 ? &pool->wanted : &pool->node[node].wanted;
}

/* Claims one task of the slot and runs it. node is the thread's. Returns 0 if no task was left. */
static int run_task(struct pool *pool, int index, int worker, int node)
{
	struct slot *s = &pool->slot[index];
	uint64_t left = atomic_load(&s->left);
	uint32_t count;

	do {
		if ((uint32_t)left == 0)
			return 0;
	} while (!atomic_compare_exchange_weak(&s->left, &left, left - 1));
	if ((uint32_t)left == 1)
		atomic_fetch_and(wanted_of(pool, s->node), ~(UINT64_C(1) << index));
	if (s->node >= 0)
		atomic_fetch_add_explicit(
		        s->node == node ? &pool->node[s->node].near_count : &pool->node[s->node].stolen_count,
		        1, memory_order_relaxed);
	count = s->count;
	s->fn(s->ctx, s->first + (count - (uint32_t)left), worker);
	/* after this addition the call may be over and the slot may belong to another */
	if (atomic_fetch_add(&s->done, 1) + 1 == count && atomic_load(&s->is_waited_for))
		futex_wake(&s->done, 1);
	return 1;
}

/* The next wanted slot after `last`, cyclically; -1: none. */
static int next_slot(uint64_t wanted, int last)
{
	uint64_t behind = last == SLOT_COUNT - 1 ? 0 : wanted & (UINT64_MAX << (last + 1));

	return wanted ? __builtin_ctzll(behind ? behind : wanted) : -1;
}

/* Finds a slot with tasks for a worker of this node; -1: none. Tasks of its node and of all nodes come first,
 * then those of the following nodes, in order of number. */
static int find_slot(struct pool *pool, int node, int last)
{
	uint64_t placed = 0, wanted;

	if (pool->node_count > 1) /* read first: a placed call has published the tasks of the own node too */
		placed = atomic_load_explicit(&pool->placed, memory_order_acquire);
	wanted = atomic_load_explicit(&pool->wanted, memory_order_relaxed);
	if (pool->node_count > 1)
		wanted |= atomic_load_explicit(&pool->node[node].wanted, memory_order_relaxed);
	for (int i = 1; i < pool->node_count && !wanted; i++) {
		const struct node *other = &pool->node[(node + i) % pool->node_count];

		wanted = placed & atomic_load_explicit(&other->wanted, memory_order_relaxed);
	}
	return next_slot(wanted, last);
}

static int is_wanted(struct pool *pool)
{
	uint64_t wanted = atomic_load(&pool->wanted);

	for (int i = 0; i < pool->node_count; i++)
		wanted |= atomic_load(&pool->node[i].wanted);
	return wanted != 0;
}

static void worker_sleep(struct pool *pool)
{
	uint32_t seen = atomic_load(&pool->call_count);

	atomic_fetch_add(&pool->sleeper_count, 1);
	if (!is_wanted(pool) && !atomic_load(&pool->is_closing))
		futex_wait(&pool->call_count, seen);
	atomic_fetch_sub(&pool->sleeper_count, 1);
}

static void *worker_main(void *argument)
{
	struct worker *w = argument;
	struct pool *pool = w->pool;
	int last = SLOT_COUNT - 1;
	int64_t idle_since = clock_now_ns();

	while (!atomic_load(&pool->is_closing)) {
		int next = find_slot(pool, w->node, last);

		if (next >= 0) {
			last = next;
			if (run_task(pool, next, w->index, w->node)) {
				idle_since = 0;
				continue;
			}
		}
		spin_pause();
		if (!idle_since) {
			idle_since = clock_now_ns();
		} else if (clock_now_ns() - idle_since > SPIN_NS) {
			worker_sleep(pool);
			idle_since = clock_now_ns();
		}
	}
	return NULL;
}

/* -1: all are taken. */
static int take_slot(struct pool *pool)
{
	uint64_t used = atomic_load(&pool->used);

	do {
		if (used == UINT64_MAX)
			return -1;
	} while (!atomic_compare_exchange_weak(&pool->used, &used, used | (used + 1)));
	return __builtin_ctzll(~used);
}

static void wait_done(struct slot *s, uint32_t count)
{
	int64_t start = clock_now_ns();
	uint32_t done;

	while (atomic_load(&s->done) != count) {
		spin_pause();
		if (clock_now_ns() - start > SPIN_NS)
			break;
	}
	if (atomic_load(&s->done) == count)
		return;
	atomic_store(&s->is_waited_for, 1);
	while ((done = atomic_load(&s->done)) != count)
		futex_wait(&s->done, done);
}

static void wake_workers(struct pool *pool, uint32_t count)
{
	if (!atomic_load(&pool->sleeper_count))
		return;
	atomic_fetch_add(&pool->call_count, 1);
	futex_wake(&pool->call_count, count < INT32_MAX ? (int)count : INT32_MAX);
}

/* Publishes a slot's tasks for all workers, or first for those of one node. */
static void publish(struct pool *pool, int index, const struct slot *call)
{
	struct slot *s = &pool->slot[index];
	uint64_t generation = (atomic_load(&s->left) >> 32) + 1;

	s->fn = call->fn;
	s->ctx = call->ctx;
	s->first = call->first;
	s->count = call->count;
	s->node = call->node;
	atomic_store(&s->done, 0);
	atomic_store(&s->is_waited_for, 0);
	atomic_fetch_or(wanted_of(pool, s->node), UINT64_C(1) << index);
	atomic_store(&s->left, generation << 32 | call->count);
}

static void run_alone(int64_t first, int64_t end, pool_fn *fn, void *ctx)
{
	for (int64_t i = first; i < end; i++)
		fn(ctx, i, 0);
}

void pool_run(struct pool *pool, int64_t task_count, pool_fn *fn, void *ctx)
{
	int index = pool->thread_count == 1 || task_count <= 1 ? -1 : take_slot(pool);
	struct slot call = {.fn = fn, .ctx = ctx, .node = -1};

	if (index < 0) {
		run_alone(0, task_count, fn, ctx);
		return;
	}
	for (; call.first < task_count; call.first += call.count) {
		int64_t rest = task_count - call.first;

		call.count = rest < UINT32_MAX ? (uint32_t)rest : UINT32_MAX;
		publish(pool, index, &call);
		wake_workers(pool, call.count - 1);
		while (run_task(pool, index, 0, -1))
			;
		wait_done(&pool->slot[index], call.count);
	}
	atomic_fetch_and(&pool->used, ~(UINT64_C(1) << index));
}

/* The caller's node, or worker 0's if the caller runs on no node of the pool. */
static int node_here(const struct pool *pool)
{
	int cpu = pool->processor_node ? sched_getcpu() : -1;
	int node = cpu >= 0 && cpu < pool->processor_count ? pool->processor_node[cpu] : -1;

	return node < 0 ? pool->worker[0].node : node;
}

enum stealing { STEALING_LATE, STEALING_NEVER };

/* Worker 0 is the caller, so a node without another worker has no thread of its own. */
static int has_workers(const struct pool *pool, int node)
{
	return pool->node[node].worker_count > (pool->worker[0].node == node);
}

/* Takes one slot per node. If no slot is free, the caller runs that node's tasks alone, as in pool_run. */
static void run_by_node(
        struct pool *pool, const int64_t *node_first, pool_fn *fn, void *ctx, enum stealing stealing)
{
	int index[POOL_NODES_MAX], count = pool->node_count, here;
	int64_t task_count = node_first[count];
	uint64_t slots = 0;

	if (count == 1 || pool->thread_count == 1 || task_count <= 1 || task_count > UINT32_MAX) {
		pool_run(pool, task_count, fn, ctx);
		return;
	}
	for (int n = 0; n < count; n++) {
		const struct slot call = {.fn = fn,
		        .ctx = ctx,
		        .first = node_first[n],
		        .count = (uint32_t)(node_first[n + 1] - node_first[n]),
		        .node = n};

		index[n] = call.count ? take_slot(pool) : -1;
		if (index[n] >= 0) {
			publish(pool, index[n], &call);
			slots |= UINT64_C(1) << index[n];
		}
	}
	if (stealing == STEALING_LATE)
		atomic_fetch_or(&pool->placed, slots);
	/* without stealing the workers of each node must wake, so all do */
	wake_workers(pool, stealing == STEALING_LATE ? (uint32_t)task_count - 1 : INT32_MAX);
	here = node_here(pool);
	for (int i = 0; i < count; i++) {
		int n = (here + i) % count;

		if (index[n] < 0)
			run_alone(node_first[n], node_first[n + 1], fn, ctx);
		while (index[n] >= 0 && (stealing == STEALING_LATE || n == here || !has_workers(pool, n)) &&
		        run_task(pool, index[n], 0, here))
			;
	}
	for (int n = 0; n < count; n++)
		if (index[n] >= 0)
			wait_done(&pool->slot[index[n]], (uint32_t)(node_first[n + 1] - node_first[n]));
	atomic_fetch_and(&pool->placed, ~slots);
	atomic_fetch_and(&pool->used, ~slots);
}

void pool_run_placed(struct pool *pool, const int64_t *node_first, pool_fn *fn, void *ctx)
{
	run_by_node(pool, node_first, fn, ctx, STEALING_LATE);
}

void pool_run_near(struct pool *pool, const int64_t *node_first, pool_fn *fn, void *ctx)
{
	run_by_node(pool, node_first, fn, ctx, STEALING_NEVER);
}

int pool_worker_count(const struct pool *pool)
{
	return pool->thread_count;
}

int pool_node_count(const struct pool *pool)
{
	return pool->node_count;
}

int pool_node_os_index(const struct pool *pool, int node)
{
	return pool->node[node].os_index;
}

int pool_node_worker_count(const struct pool *pool, int node)
{
	return pool->node[node].worker_count;
}

int pool_worker_node(const struct pool *pool, int worker)
{
	return pool->worker[worker].node;
}

void pool_get_placed(const struct pool *pool, int node, int64_t *near_count, int64_t *stolen_count)
{
	*near_count = atomic_load_explicit(&pool->node[node].near_count, memory_order_relaxed);
	*stolen_count = atomic_load_explicit(&pool->node[node].stolen_count, memory_order_relaxed);
}

enum pool_pinning pool_pinning(const struct pool *pool, const char **why)
{
	*why = pool->pinning_why;
	return pool->pinning;
}

void pool_node_range(
        const struct pool *pool, int node, int64_t *first, int64_t *end, int64_t count, int64_t align)
{
	int64_t units = (count + align - 1) / align, before = 0;
	int64_t *const borders[] = {first, end};

	for (int n = 0; n < node; n++)
		before += pool->node[n].worker_count;
	for (int i = 0; i < 2; i++) {
		/* in two parts, because units * workers may exceed 64 bits */
		int64_t whole = units / pool->thread_count * before;
		int64_t at = (whole + units % pool->thread_count * before / pool->thread_count) * align;

		*borders[i] = at < count ? at : count;
		before += pool->node[node].worker_count;
	}
}

static int start_workers(struct pool *pool)
{
	int error = 0;

	for (int i = 1; i < pool->thread_count && !error; i++) {
		struct worker *w = &pool->worker[i];
		char name[32];

		w->pool = pool;
		w->index = i;
		error = thread_start(&w->thread, worker_main, w);
		if (error)
			break;
		snprintf(name, sizeof(name), "ferry-pool-%d", i);
		name[15] = 0; /* the kernel keeps 15 characters */
		pthread_setname_np(w->thread, name);
		pool->started_count++;
	}
	return error ? err_set(ERR_DEVICE, "cannot start worker thread %d of %d: %s", pool->started_count + 1,
	                       pool->thread_count, strerror(error))
	             : 0;
}

/* ---- nodes and cores ---- */

/* The core of a worker. Workers are spread evenly over the cores, which are in order of nodes. */
static const struct topology_core *worker_core(const struct pool *pool, const struct topology *t, int worker)
{
	return &t->core[(int64_t)worker * t->core_count / pool->thread_count];
}

/* The pool's nodes are the nodes of its workers' cores, in that order. */
static int place_workers(struct pool *pool, const struct topology *t)
{
	int last = -1, limit = t ? POOL_NODES_MAX : 1;

	_Static_assert((int)POOL_NODES_MAX >= (int)TOPOLOGY_NODES_MAX, "a pool's nodes are the machine's");
	pool->node = mem_alloc_aligned((size_t)limit, sizeof(pool->node[0]), LINE_BYTES);
	if (!pool->node)
		return ERR_NOMEM;
	pool->node_count = 1;
	pool->node[0].os_index = -1;
	for (int i = 0; i < pool->thread_count; i++) {
		int node = t && t->core_count ? worker_core(pool, t, i)->node : -1;

		if (i && node != last)
			pool->node_count++;
		last = node;
		pool->worker[i].node = pool->node_count - 1;
		pool->node[pool->node_count - 1].worker_count++;
		if (node >= 0 && t->machine.node_count > 1)
			pool->node[pool->node_count - 1].os_index = t->node[node].os_index;
	}
	return 0;
}

/* Finds the node of each processor, for node_here. */
static int map_processors(struct pool *pool, const struct topology *t)
{
	if (pool->node_count == 1 || t->is_synthetic)
		return 0;
	for (int i = 0; i < t->core_count; i++)
		for (int p = 0; p < t->core[i].processor_count; p++)
			if (t->core[i].processor[p] >= pool->processor_count)
				pool->processor_count = t->core[i].processor[p] + 1;
	pool->processor_node = mem_alloc((size_t)pool->processor_count, sizeof(pool->processor_node[0]));
	if (!pool->processor_node)
		return ERR_NOMEM;
	memset(pool->processor_node, 0xff, (size_t)pool->processor_count * sizeof(pool->processor_node[0]));
	for (int i = 0; i < t->core_count; i++)
		for (int n = 0; n < pool->node_count; n++)
			for (int p = 0; p < t->core[i].processor_count &&
			                pool->node[n].os_index == t->node[t->core[i].node].os_index;
			        p++)
				pool->processor_node[t->core[i].processor[p]] = (int16_t)n;
	return 0;
}

static void choose_pinning(struct pool *pool, const struct topology *t)
{
	static const struct {
		enum pool_pinning pinning;
		const char *why;
	} choices[] = {
	        {POOL_PINNED_NOT, "one NUMA node: the kernel places threads better"},
	        {POOL_PINNED_NOT, "FERRY_TOPOLOGY describes another machine"},
	        {POOL_PINNED_TO_NODES, "several NUMA nodes, cores shared with other processes"},
	        {POOL_PINNED_TO_CORES, "several NUMA nodes, cores of this process alone"},
	};
	int choice = 3;

	if (!t || t->machine.node_count < 2 || !t->core_count)
		choice = 0;
	else if (t->is_synthetic)
		choice = 1;
	else if (t->mask_is_narrow || t->cgroup.cpu_quota > 0 || pool->thread_count > t->core_count ||
	         t->share == TOPOLOGY_SHARE_TOGETHER)
		choice = 2;
	pool->pinning = choices[choice].pinning;
	pool->pinning_why = choices[choice].why;
}

static void add_processors(uint64_t *mask, const struct topology_core *core)
{
	for (int p = 0; p < core->processor_count; p++)
		mask[core->processor[p] / 64] |= UINT64_C(1) << core->processor[p] % 64;
}

/* Binds the started workers. The caller's thread is not bound; worker 0's core stays free for it. */
static void pin_workers(struct pool *pool, const struct topology *t)
{
	choose_pinning(pool, t);
	for (int i = 1; i <= pool->started_count && pool->pinning != POOL_PINNED_NOT; i++) {
		const struct topology_core *own = worker_core(pool, t, i);
		uint64_t mask[(INT16_MAX + 1) / 64] = {0};

		for (int c = 0; c < t->core_count; c++)
			if (&t->core[c] == own ||
			        (pool->pinning == POOL_PINNED_TO_NODES && t->core[c].node == own->node))
				add_processors(mask, &t->core[c]);
		if (pthread_setaffinity_np(pool->worker[i].thread, sizeof(mask), (const cpu_set_t *)mask)) {
			pool->pinning = POOL_PINNED_NOT;
			pool->pinning_why = "the system refused to bind threads";
		}
	}
}

int pool_open_on(struct pool **pool, int threads, const struct topology *t)
{
	struct pool *p;
	int rc;

	*pool = NULL;
	if (threads < 1 || threads > 4096)
		return err_set(ERR_INPUT, "a pool of %d threads: must be from 1 to 4096", threads);
	p = mem_alloc_aligned(1, sizeof(*p), LINE_BYTES);
	if (!p)
		return ERR_NOMEM;
	p->worker = mem_alloc((size_t)threads, sizeof(p->worker[0]));
	p->thread_count = threads;
	rc = p->worker ? place_workers(p, t) : ERR_NOMEM;
	if (!rc)
		rc = map_processors(p, t);
	if (!rc)
		rc = start_workers(p);
	if (rc) {
		pool_close(p);
		return rc;
	}
	pin_workers(p, t);
	*pool = p;
	return 0;
}

int pool_open(struct pool **pool, int threads)
{
	return pool_open_on(pool, threads, NULL);
}

void pool_close(struct pool *pool)
{
	if (!pool)
		return;
	atomic_store(&pool->is_closing, 1);
	atomic_fetch_add(&pool->call_count, 1);
	futex_wake(&pool->call_count, INT32_MAX);
	for (int i = 1; i <= pool->started_count; i++)
		pthread_join(pool->worker[i].thread, NULL);
	mem_free(pool->processor_node);
	mem_free(pool->node);
	mem_free(pool->worker);
	mem_free(pool);
}
