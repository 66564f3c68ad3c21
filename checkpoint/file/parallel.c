/* Runs jobs on the threads of a pool, and keeps the error of the lowest job. */
#include "checkpoint/file/parallel.h"

#include "base/err.h"
#include "base/work.h"

#include <pthread.h>
#include <stdatomic.h>

struct parallel {
	parallel_fn *fn;
	void *context;
	_Atomic int64_t failed; /* the lowest failed job so far */
	pthread_mutex_t lock;   /* protects `error` */
	struct err error;
};

static void fail(struct parallel *p, int64_t job, int code)
{
	pthread_mutex_lock(&p->lock);
	if (job < atomic_load(&p->failed)) {
		atomic_store(&p->failed, job);
		p->error.code = 0;
		err_take(&p->error, code);
	}
	pthread_mutex_unlock(&p->lock);
}

static void run_job(void *context, int64_t job, int worker)
{
	struct parallel *p = context;
	int err;

	if (job > atomic_load_explicit(&p->failed, memory_order_relaxed))
		return;
	err = p->fn(p->context, job, worker);
	work_add(1);
	if (err)
		fail(p, job, err);
}

int parallel_run(struct pool *pool, int64_t job_count, parallel_fn *fn, void *context)
{
	struct parallel p = {.fn = fn, .context = context, .failed = INT64_MAX};

	pthread_mutex_init(&p.lock, NULL);
	work_begin("loading weights", job_count);
	if (pool)
		pool_run(pool, job_count, run_job, &p);
	for (int64_t job = 0; !pool && job < job_count; job++)
		run_job(&p, job, 0);
	work_end();
	pthread_mutex_destroy(&p.lock);
	return err_give(&p.error);
}

int parallel_worker_count(const struct pool *pool)
{
	return pool ? pool_worker_count(pool) : 1;
}
