/* Jobs in order for the threads of a pool, the first error kept. */
#include "checkpoint/crew.h"

#include "base/err.h"

#include <pthread.h>
#include <stdatomic.h>

struct crew {
	crew_fn *fn;
	void *context;
	_Atomic int64_t failed; /* the lowest so far */
	pthread_mutex_t lock;   /* of the error's text */
	struct err error;
};

static void fail(struct crew *crew, int64_t job, int code)
{
	pthread_mutex_lock(&crew->lock);
	if (job < atomic_load(&crew->failed)) {
		atomic_store(&crew->failed, job);
		crew->error.code = 0;
		err_take(&crew->error, code);
	}
	pthread_mutex_unlock(&crew->lock);
}

static void run_job(void *context, int64_t job, int worker)
{
	struct crew *crew = context;
	int err;

	if (job > atomic_load_explicit(&crew->failed, memory_order_relaxed))
		return;
	err = crew->fn(crew->context, job, worker);
	if (err)
		fail(crew, job, err);
}

int crew_run(struct pool *pool, int64_t job_count, crew_fn *fn, void *context)
{
	struct crew crew = {.fn = fn, .context = context, .failed = INT64_MAX};

	pthread_mutex_init(&crew.lock, NULL);
	if (pool)
		pool_run(pool, job_count, run_job, &crew);
	for (int64_t job = 0; !pool && job < job_count; job++)
		run_job(&crew, job, 0);
	pthread_mutex_destroy(&crew.lock);
	return err_give(&crew.error);
}

int crew_worker_count(const struct pool *pool)
{
	return pool ? pool_worker_count(pool) : 1;
}
