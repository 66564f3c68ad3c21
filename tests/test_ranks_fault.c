/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* Ranks that die or stand still: the job ends as a whole, says which it was, and what was committed is good.
 * FERRY_RANKS_ROUNDS sets how many are killed. */
#include "tests/ranks_job.h"

static void test_killed(void **state)
{
	const char *text = getenv("FERRY_RANKS_ROUNDS");
	int rounds = text ? atoi(text) : 1;

	(void)state;
	for (int round = 0; round < rounds; round++) {
		int victim = (int)rng_below(11, 1, (uint64_t)round, RANKS);
		int lines = 4 + (int)rng_below(11, 2, (uint64_t)round, 8);
		pid_t pids[RANKS], launched;

		remove_run("killed");
		launched = run_begin(pids, "killed", SLOW, lines);
		sleep_ms((int)rng_below(11, 3, (uint64_t)round, 60));
		kill(pids[victim], SIGKILL);
		assert_int_not_equal(run_wait(launched), 0);
		assert_gone(pids);
		assert_goes_on("killed", "max_steps=24 save_steps=3");
	}
}

/* One that is stopped is named by those that wait for it. */
static void test_stands_still(void **state)
{
	pid_t pids[RANKS], launched;

	(void)state;
	for (int victim = getenv("FERRY_RANKS_ROUNDS") ? 0 : 1; victim < 2; victim++) {
		char text[80];

		remove_run("still");
		launched = run_begin(pids, "still", SLOW "watchdog_timeout=1", 3);
		kill(pids[victim], SIGSTOP);
		assert_int_not_equal(run_wait(launched), 0);
		snprintf(text, sizeof(text), "rank %d (process %d) has not moved", victim, (int)pids[victim]);
		assert_said(text);
		assert_gone(pids);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_killed),
	        cmocka_unit_test(test_stands_still),
	};
	int failed;

	if (!ranks_begin("test_ranks_fault"))
		return 0;
	ferry_run_begin("ranks-fault");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
