#include "host/pool.h"

#include "base/err.h"
#include "base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* Looks at a counter before a thread sleeps, some microseconds in all: the next call is often nearer
 * than being woken. */
enum { SPINS = 400 };

/* One call, on its caller's stack; in the pool's ring as long as it has tasks to give out. */
struct job {
	pool_fn *fn;
	void *ctx;
	int64_t count, next;
	_Atomic int64_t done;
	struct job *ring_next, *ring_prev;
	pthread_cond_t finished;
};

struct worker {
	struct pool *pool;
	pthread_t thread;
	int index;
};

struct pool {
	pthread_mutex_t lock;
	pthread_cond_t wanted;
	struct job *turn;           /* whose task the next worker takes; NULL: no tasks */
	_Atomic int64_t call_count; /* so far */
	int is_closing, idle_count;
	int thread_count, started_count;
	struct worker worker[];
};

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void ring_add(struct pool *pool, struct job *job)
{
	if (!pool->turn) {
		pool->turn = job->ring_next = job->ring_prev = job;
		return;
	}
	job->ring_next = pool->turn;
	job->ring_prev = pool->turn->ring_prev;
	job->ring_prev->ring_next = job;
	job->ring_next->ring_prev = job;
}

static void ring_remove(struct pool *pool, struct job *job)
{
	job->ring_prev->ring_next = job->ring_next;
	job->ring_next->ring_prev = job->ring_prev;
	if (pool->turn == job)
		pool->turn = job->ring_next == job ? NULL : job->ring_next;
}

/* Runs one task of the job; the lock is held on entry and return. */
static void run_task(struct pool *pool, struct job *job, int worker)
{
	int64_t task = job->next++;

	if (job->next == job->count)
		ring_remove(pool, job);
	pthread_mutex_unlock(&pool->lock);
	job->fn(job->ctx, task, worker);
	pthread_mutex_lock(&pool->lock);
	if (++job->done == job->count)
		pthread_cond_signal(&job->finished);
}

static void *worker_main(void *argument)
{
	struct worker *w = argument;
	struct pool *pool = w->pool;
	int64_t seen;

	pthread_mutex_lock(&pool->lock);
	while (!pool->is_closing) {
		struct job *job = pool->turn;

		if (job) {
			pool->turn = job->ring_next;
			run_task(pool, job, w->index);
			continue;
		}
		seen = pool->call_count;
		pthread_mutex_unlock(&pool->lock);
		for (int i = 0; i < SPINS && pool->call_count == seen; i++)
			relax();
		pthread_mutex_lock(&pool->lock);
		if (pool->turn || pool->is_closing)
			continue;
		pool->idle_count++;
		pthread_cond_wait(&pool->wanted, &pool->lock);
		pool->idle_count--;
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

void pool_run(struct pool *pool, int64_t task_count, pool_fn *fn, void *ctx)
{
	struct job job = {.fn = fn, .ctx = ctx, .count = task_count};

	if (pool->thread_count == 1 || task_count <= 1) {
		for (int64_t i = 0; i < task_count; i++)
			fn(ctx, i, 0);
		return;
	}
	pthread_cond_init(&job.finished, NULL);
	pthread_mutex_lock(&pool->lock);
	ring_add(pool, &job);
	pool->call_count++;
	if (pool->idle_count)
		pthread_cond_broadcast(&pool->wanted);
	while (job.next < job.count)
		run_task(pool, &job, 0);
	if (job.done < job.count) {
		pthread_mutex_unlock(&pool->lock);
		for (int i = 0; i < SPINS && job.done < job.count; i++)
			relax();
		pthread_mutex_lock(&pool->lock);
	}
	while (job.done < job.count)
		pthread_cond_wait(&job.finished, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
	pthread_cond_destroy(&job.finished);
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

		*w = (struct worker){.pool = pool, .index = i};
		error = pthread_create(&w->thread, NULL, worker_main, w);
		pool->started_count += !error;
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
	p = mem_alloc(1, sizeof(*p) + (size_t)threads * sizeof(p->worker[0]));
	if (!p)
		return ERR_NOMEM;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wanted, NULL);
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
	pthread_mutex_lock(&pool->lock);
	pool->is_closing = 1;
	pthread_cond_broadcast(&pool->wanted);
	pthread_mutex_unlock(&pool->lock);
	for (int i = 1; i <= pool->started_count; i++)
		pthread_join(pool->worker[i].thread, NULL);
	pthread_cond_destroy(&pool->wanted);
	pthread_mutex_destroy(&pool->lock);
	mem_free(pool);
}

int pool_default_threads(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return CPU_COUNT(&set) < 1 ? 1 : CPU_COUNT(&set);
}
