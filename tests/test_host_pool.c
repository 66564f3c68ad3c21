/* links: host */
/* also: tsan */
/* The worker pool: each task runs once; several callers, slow and sleeping workers, errors. */
#include "check.h"

#include "base/mem.h"
#include "host/pool.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORKERS = 8 };

/* The observations of one call. */
struct record {
	int64_t count;
	unsigned char *times; /* a plain byte per task: a task that runs twice at once is a race */
	int64_t by_worker[MAX_WORKERS];
	atomic_int inside[MAX_WORKERS];
	atomic_int shared_index; /* two tasks of the call ran at once with one worker number */
	void (*work)(int64_t task);
};

static void note_task(void *ctx, int64_t task, int worker)
{
	struct record *r = ctx;

	if (atomic_fetch_add(&r->inside[worker], 1))
		atomic_store(&r->shared_index, 1);
	r->times[task]++;
	r->by_worker[worker]++;
	if (r->work)
		r->work(task);
	atomic_fetch_sub(&r->inside[worker], 1);
}

/* tasks[MAX_WORKERS], or NULL: how many each worker ran. */
static void check_run(struct pool *pool, int64_t count, void (*work)(int64_t task), int64_t *tasks)
{
	struct record r = {.count = count, .times = calloc((size_t)count + 1, 1), .work = work};
	int64_t sum = 0;

	pool_run(pool, count, note_task, &r);
	for (int64_t i = 0; i < count; i++)
		assert_int_equal(r.times[i], 1);
	assert_int_equal(r.times[count], 0);
	for (int i = 0; i < MAX_WORKERS; i++) {
		assert_true(i < pool_worker_count(pool) || !r.by_worker[i]);
		sum += r.by_worker[i];
		if (tasks)
			tasks[i] = r.by_worker[i];
	}
	assert_int_equal(sum, count);
	assert_false(atomic_load(&r.shared_index));
	free(r.times);
}

static void test_every_task_once(void **state)
{
	(void)state;
	for (int threads = 1; threads <= 5; threads++) {
		struct pool *pool;

		check_ok(pool_open(&pool, threads));
		assert_int_equal(pool_worker_count(pool), threads);
		for (int64_t count = 0; count < 70; count++)
			check_run(pool, count, NULL, NULL);
		check_run(pool, 20000, NULL, NULL);
		pool_close(pool);
	}
}

static void test_open_fails(void **state)
{
	struct pool *pool = (struct pool *)state;

	check_fails(pool_open(&pool, 0), ERR_INPUT, "0 threads");
	assert_null(pool);
	check_fails(pool_open(&pool, 5000), ERR_INPUT, "5000");
	for (int64_t i = 1; i <= 3; i++) {
		mem_fault_arm(i, MEM_FAULT_ONCE);
		assert_int_equal(pool_open(&pool, 3), ERR_NOMEM);
		assert_null(pool);
	}
	mem_fault_arm(0, MEM_FAULT_ONCE);
	pool_close(NULL);
}

struct caller {
	struct pool *pool;
	pthread_t thread;
	int64_t call_count;
};

static void *caller_main(void *argument)
{
	struct caller *c = argument;

	for (int64_t i = 0; i < c->call_count; i++)
		check_run(c->pool, 1 + i % 13, NULL, NULL);
	return NULL;
}

/* Callers that come and go reuse each other's slots thousands of times. */
static void run_callers(int caller_count, int64_t call_count)
{
	struct caller callers[80];
	struct pool *pool;

	check_ok(pool_open(&pool, 3));
	for (int i = 0; i < caller_count; i++) {
		callers[i] = (struct caller){.pool = pool, .call_count = call_count};
		assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]), 0);
	}
	for (int i = 0; i < caller_count; i++)
		pthread_join(callers[i].thread, NULL);
	pool_close(pool);
}

static void test_two_callers(void **state)
{
	(void)state;
	run_callers(2, 3000);
}

static void test_more_callers_than_slots(void **state)
{
	(void)state;
	run_callers(80, 30);
}

static int64_t now_ms(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void sleep_ms(int64_t ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- tasks that wait for each other: however slow the machine is, only a pool that is wrong fails ---- */

enum { GIVE_UP_MS = 60000 };

static atomic_long came, missed; /* tasks that began, and that waited in vain */

static void come_and_wait(long wanted)
{
	int64_t until = now_ms(CLOCK_MONOTONIC) + GIVE_UP_MS;

	atomic_fetch_add(&came, 1);
	while (atomic_load(&came) < wanted && now_ms(CLOCK_MONOTONIC) < until)
		sleep_ms(1);
	atomic_fetch_add(&missed, atomic_load(&came) < wanted);
}

static void check_meeting(struct pool *pool, int64_t count, void (*work)(int64_t task), int64_t *tasks)
{
	atomic_store(&came, 0);
	atomic_store(&missed, 0);
	check_run(pool, count, work, tasks);
	assert_int_equal(atomic_load(&missed), 0);
}

enum { SLOW_TASKS = 90 };

/* Task 0 acts like a preempted thread: it continues when all others have begun. */
static void slow_first(int64_t task)
{
	come_and_wait(task ? 0 : SLOW_TASKS);
}

/* The others take all the rest meanwhile: nobody owns a part of the tasks beforehand. */
static void test_slow_thread_stalls_nobody(void **state)
{
	struct pool *pool;

	(void)state;
	check_ok(pool_open(&pool, 3));
	check_meeting(pool, SLOW_TASKS, slow_first, NULL);
	pool_close(pool);
}

static atomic_int long_is_over;

static void until_over(int64_t task)
{
	(void)task;
	if (!atomic_load(&long_is_over))
		sleep_ms(1);
}

static void *long_call(void *argument)
{
	check_run(argument, 5 * GIVE_UP_MS, until_over, NULL); /* of 5 threads, a task each millisecond */
	return NULL;
}

enum { MET = 3 };

static void meet(int64_t task)
{
	(void)task;
	come_and_wait(MET);
}

/* A short call beside a long one gets workers before the long one's end: its tasks wait for each other. */
static void test_calls_share_workers(void **state)
{
	struct pool *pool;
	pthread_t thread;

	(void)state;
	check_ok(pool_open(&pool, 5));
	atomic_store(&long_is_over, 0);
	assert_int_equal(pthread_create(&thread, NULL, long_call, pool), 0);
	sleep_ms(10);
	check_meeting(pool, MET, meet, NULL);
	atomic_store(&long_is_over, 1);
	pthread_join(thread, NULL);
	pool_close(pool);
}

/* By the time that its threads had of a core, which other processes do not change. */
static void test_idle_pool_sleeps(void **state)
{
	struct pool *pool;
	int64_t start;

	(void)state;
	check_ok(pool_open(&pool, 4));
	check_run(pool, 100, NULL, NULL);
	sleep_ms(20);
	start = now_ms(CLOCK_PROCESS_CPUTIME_ID);
	sleep_ms(200);
	assert_true(now_ms(CLOCK_PROCESS_CPUTIME_ID) - start < 20);
	check_run(pool, 100, NULL, NULL); /* and wakes */
	pool_close(pool);
}

static void meet_all(int64_t task)
{
	(void)task;
	come_and_wait(4);
}

static void test_sleepers_wake(void **state)
{
	int64_t tasks[MAX_WORKERS];
	struct pool *pool;

	(void)state;
	check_ok(pool_open(&pool, 4));
	for (int i = 0; i < 3; i++) {
		sleep_ms(5);
		check_meeting(pool, 4, meet_all, tasks);
		for (int w = 0; w < 4; w++)
			assert_int_equal(tasks[w], 1);
	}
	pool_close(pool);
}

static void test_open_close_many(void **state)
{
	(void)state;
	for (int i = 0; i < 100; i++) {
		struct pool *pool;

		check_ok(pool_open(&pool, 1 + i % 4));
		if (i & 1)
			check_run(pool, i, NULL, NULL);
		pool_close(pool);
	}
}

static void test_default_threads(void **state)
{
	(void)state;
	setenv("OMP_NUM_THREADS", "999", 1);
	assert_true(pool_default_threads() >= 1);
	assert_true(pool_default_threads() <= sysconf(_SC_NPROCESSORS_ONLN));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_every_task_once),
	        cmocka_unit_test(test_open_fails),
	        cmocka_unit_test(test_two_callers),
	        cmocka_unit_test(test_more_callers_than_slots),
	        cmocka_unit_test(test_slow_thread_stalls_nobody),
	        cmocka_unit_test(test_calls_share_workers),
	        cmocka_unit_test(test_idle_pool_sleeps),
	        cmocka_unit_test(test_sleepers_wake),
	        cmocka_unit_test(test_open_close_many),
	        cmocka_unit_test(test_default_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
