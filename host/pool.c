#include "host/pool.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	SLOT_COUNT = 64, /* calls under way at a time; further callers work alone */
	LINE_BYTES = 64,
	SPIN_NS = 30000, /* a sleeper costs its waker about 5 us, and itself 50 */
};

/* Where a call stands while it is under way. Slots live as long as the pool, so that a thread may look at one
 * whose call has just ended: it finds no task left, or claims one of the next call.
 *
 * `left` is (generation << 32 | tasks not yet given out). Who lowers it owns the task count - left; until
 * that task is done the call cannot end, so its other fields stay. The generation keeps a thread that was
 * preempted between looking and claiming from taking the same number for the same call. */
struct slot {
	_Alignas(LINE_BYTES) _Atomic uint64_t left;
	pool_fn *fn;
	void *ctx;
	int64_t first;
	uint32_t count;
	_Alignas(LINE_BYTES) _Atomic uint32_t done;
	atomic_int is_waited_for; /* the caller sleeps on `done`, or is about to */
};

struct worker {
	struct pool *pool;
	pthread_t thread;
	int index;
};

struct pool {
	struct slot slot[SLOT_COUNT];
	_Alignas(LINE_BYTES) _Atomic uint64_t used; /* bit: the slot belongs to a call */
	/* bit: the slot has tasks to give out, or will at once. Set before `left`, cleared by who claims the
	 * last task: so no bit outlives its tasks. */
	_Alignas(LINE_BYTES) _Atomic uint64_t wanted;
	_Alignas(LINE_BYTES) _Atomic uint32_t call_count; /* idle workers sleep on it */
	atomic_int sleeper_count, is_closing;
	int thread_count, started_count;
	struct worker *worker;
};

/* TSan sees the atomics around it; a wake without reason is allowed everywhere. */
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

/* Claims one task of the slot and runs it; 0 when none was left. */
static int run_task(struct pool *pool, int index, int worker)
{
	struct slot *s = &pool->slot[index];
	uint64_t left = atomic_load(&s->left);
	uint32_t count;

	do {
		if ((uint32_t)left == 0)
			return 0;
	} while (!atomic_compare_exchange_weak(&s->left, &left, left - 1));
	if ((uint32_t)left == 1)
		atomic_fetch_and(&pool->wanted, ~(UINT64_C(1) << index));
	count = s->count;
	s->fn(s->ctx, s->first + (count - (uint32_t)left), worker);
	/* from here on the call may be over and the slot another's */
	if (atomic_fetch_add(&s->done, 1) + 1 == count && atomic_load(&s->is_waited_for))
		futex_wake(&s->done, 1);
	return 1;
}

/* The next wanted slot behind `last`, going round; -1: none. */
static int next_slot(uint64_t wanted, int last)
{
	uint64_t behind = last == SLOT_COUNT - 1 ? 0 : wanted & (UINT64_MAX << (last + 1));

	return wanted ? __builtin_ctzll(behind ? behind : wanted) : -1;
}

static void worker_sleep(struct pool *pool)
{
	uint32_t seen = atomic_load(&pool->call_count);

	atomic_fetch_add(&pool->sleeper_count, 1);
	if (!atomic_load(&pool->wanted) && !atomic_load(&pool->is_closing))
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
		int next = next_slot(atomic_load_explicit(&pool->wanted, memory_order_relaxed), last);

		if (next >= 0) {
			last = next;
			if (run_task(pool, next, w->index)) {
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

static void run_in_slot(struct pool *pool, int index, int64_t first, uint32_t count, pool_fn *fn, void *ctx)
{
	struct slot *s = &pool->slot[index];
	uint64_t generation = (atomic_load(&s->left) >> 32) + 1;

	s->fn = fn;
	s->ctx = ctx;
	s->first = first;
	s->count = count;
	atomic_store(&s->done, 0);
	atomic_store(&s->is_waited_for, 0);
	atomic_fetch_or(&pool->wanted, UINT64_C(1) << index);
	atomic_store(&s->left, generation << 32 | count);
	wake_workers(pool, count - 1);
	while (run_task(pool, index, 0))
		;
	wait_done(s, count);
}

void pool_run(struct pool *pool, int64_t task_count, pool_fn *fn, void *ctx)
{
	int index = pool->thread_count == 1 || task_count <= 1 ? -1 : take_slot(pool);

	if (index < 0) {
		for (int64_t i = 0; i < task_count; i++)
			fn(ctx, i, 0);
		return;
	}
	for (int64_t first = 0; first < task_count; first += UINT32_MAX) {
		int64_t rest = task_count - first;

		run_in_slot(pool, index, first, rest < UINT32_MAX ? (uint32_t)rest : UINT32_MAX, fn, ctx);
	}
	atomic_fetch_and(&pool->used, ~(UINT64_C(1) << index));
}

int pool_worker_count(const struct pool *pool)
{
	return pool->thread_count;
}

static int start_workers(struct pool *pool)
{
	sigset_t all, before;
	int error = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (int i = 1; i < pool->thread_count && !error; i++) {
		struct worker *w = &pool->worker[i];
		char name[32];

		*w = (struct worker){.pool = pool, .index = i};
		error = pthread_create(&w->thread, NULL, worker_main, w);
		if (error)
			break;
		snprintf(name, sizeof(name), "ferry-pool-%d", i);
		name[15] = 0; /* what the kernel keeps */
		pthread_setname_np(w->thread, name);
		pool->started_count++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error ? err_set(ERR_DEVICE, "no thread for worker %d of %d: %s", pool->started_count + 1,
	                       pool->thread_count, strerror(error))
	             : 0;
}

int pool_open(struct pool **pool, int threads)
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
	if (!p->worker) {
		mem_free(p);
		return ERR_NOMEM;
	}
	p->thread_count = threads;
	rc = start_workers(p);
	if (rc) {
		pool_close(p);
		return rc;
	}
	*pool = p;
	return 0;
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
	mem_free(pool->worker);
	mem_free(pool);
}
