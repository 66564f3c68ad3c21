/* Measures the time that the worker pool needs to hand out work. */
#include "bench/bench.h"

#include "base/clock.h"
#include "base/err.h"
#include "host/pool.h"

#include <time.h>

enum { ROUNDS = 9, TASKS = 4096 };

static void nothing(void *ctx, int64_t task, int worker)
{
	(void)ctx;
	(void)task;
	(void)worker;
}

static double ns_per_call(struct pool *pool, int64_t calls, int64_t tasks)
{
	int64_t start = clock_now_ns();

	for (int64_t i = 0; i < calls; i++)
		pool_run(pool, tasks, nothing, NULL);
	return (double)(clock_now_ns() - start) / (double)calls;
}

/* A call after a pause long enough for the workers to sleep. */
static double ns_of_waking(struct pool *pool, int threads)
{
	int64_t start;

	nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	start = clock_now_ns();
	pool_run(pool, threads, nothing, NULL);
	return (double)(clock_now_ns() - start);
}

int bench_pool(json_t **result, const struct bench_args *args)
{
	double call[ROUNDS], task[ROUNDS], waking[ROUNDS];
	int64_t calls = args->count > 0 ? args->count : 10000;
	struct pool *pool;
	int rc = pool_open(&pool, args->threads);

	if (rc)
		return rc;
	for (int round = 0; round < ROUNDS; round++) {
		waking[round] = ns_of_waking(pool, args->threads);
		call[round] = ns_per_call(pool, calls, args->threads);
		task[round] = ns_per_call(pool, 20, TASKS) / TASKS;
	}
	pool_close(pool);
	*result = json_pack("{s:i, s:I, s:i, s:f, s:f, s:f}", "threads", args->threads, "calls",
	        (json_int_t)calls, "rounds", ROUNDS, "call_ns", bench_median(call, ROUNDS), "task_ns",
	        bench_median(task, ROUNDS), "call_after_sleep_ns", bench_median(waking, ROUNDS));
	return *result ? 0 : err_set(ERR_NOMEM, "out of memory for a benchmark's result");
}
