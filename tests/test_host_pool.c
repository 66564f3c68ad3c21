/* links: host */
/* also: tsan */
/* The worker pool: every task once, worker numbers apart, several callers at once. */
#include "check.h"

#include "base/mem.h"
#include "host/pool.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 3, TASKS_MAX = 60 };

struct run {
	int done[TASKS_MAX];
	atomic_int in_use[THREADS]; /* worker numbers of tasks that run now */
	atomic_int clash;
};

static void task(void *ctx, int64_t task, int worker)
{
	struct run *run = ctx;

	if (worker < 0 || worker >= THREADS || atomic_fetch_add(&run->in_use[worker], 1))
		atomic_store(&run->clash, 1);
	run->done[task]++;
	atomic_fetch_sub(&run->in_use[worker], 1);
}

/* Runs of 0 to TASKS_MAX tasks; returns how many went wrong. */
static void *many_runs(void *pool)
{
	intptr_t wrong = 0;

	for (int r = 0; r < 500; r++) {
		struct run run = {0};
		int count = r * 7 % (TASKS_MAX + 1);

		pool_run(pool, count, task, &run);
		for (int i = 0; i < TASKS_MAX; i++)
			wrong += run.done[i] != (i < count);
		wrong += atomic_load(&run.clash);
	}
	return (void *)wrong;
}

static void test_one_caller(void **state)
{
	struct pool *pool;

	(void)state;
	for (int threads = 1; threads <= THREADS; threads++) {
		check_ok(pool_open(&pool, threads));
		assert_int_equal(pool_worker_count(pool), threads);
		assert_null(many_runs(pool));
		pool_close(pool);
	}
	pool_close(NULL);
}

static void test_callers_at_once(void **state)
{
	pthread_t thread[3];
	struct pool *pool;
	void *wrong;

	(void)state;
	check_ok(pool_open(&pool, THREADS));
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, many_runs, pool), 0);
	for (int i = 0; i < 3; i++) {
		pthread_join(thread[i], &wrong);
		assert_null(wrong);
	}
	pool_close(pool);
}

static void test_open(void **state)
{
	struct pool *pool;

	(void)state;
	assert_true(pool_default_threads() >= 1);
	check_fails(pool_open(&pool, 0), ERR_INPUT, "0 threads");
	assert_null(pool);
	mem_fault_arm(1, MEM_FAULT_ONCE);
	check_fails(pool_open(&pool, 2), ERR_NOMEM, "memory");
	assert_null(pool);
	mem_fault_arm(0, MEM_FAULT_ONCE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_one_caller),
	        cmocka_unit_test(test_callers_at_once),
	        cmocka_unit_test(test_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
