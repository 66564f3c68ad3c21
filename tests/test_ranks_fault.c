/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* Ranks that die or hang: the whole job ends, names the rank, and committed checkpoints are valid.
 *
 * FERRY_RANKS_ROUNDS sets the number of kills; a tenth as many ranks are stopped. FERRY_CAMPAIGN_SEED
 * determines the ranks and moments.
 */
#include "tests/ranks_job.h"

#include "base/err.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"

enum { ENDS_IN_MS = 20000 }; /* even on a busy machine; the test prints the longest time */

static double longest_s;

static int rounds_of(int usual)
{
	const char *text = getenv("FERRY_RANKS_ROUNDS");

	return text ? atoi(text) : usual;
}

static int draw(int what, int round, int below)
{
	const char *text = getenv("FERRY_CAMPAIGN_SEED");

	return (int)rng_below(
	        text ? strtoull(text, NULL, 10) : 11, (uint64_t)what, (uint64_t)round, (uint64_t)below);
}

/* The job's exit code; it and all of its processes end. */
static int job_wait(pid_t launched)
{
	int64_t begin_ns = clock_now_ns();
	double seconds;
	int code;

	for (int ms = 0; is_running(launched); ms += 5) {
		if (ms > ENDS_IN_MS) {
			job_kill();
			kill(launched, SIGKILL);
			run_wait(launched);
			fail_msg("the job does not end: %s", ferry_said());
		}
		sleep_ms(5);
	}
	code = run_wait(launched);
	job_check_gone();
	seconds = 1e-9 * (double)(clock_now_ns() - begin_ns);
	longest_s = seconds > longest_s ? seconds : longest_s;
	return code;
}

/* Every byte of all checkpoints of a run; the newest one's step. */
static int64_t checkpoints_verify(const char *out)
{
	char dir[400], **names = NULL;
	int64_t newest = 0;
	size_t count = 0;

	snprintf(dir, sizeof(dir), "%s/%s", work_dir, out);
	if (file_kind_of(dir) != FILE_DIR)
		return 0;
	assert_int_equal(file_list_dir(dir, &names, &count), 0);
	for (size_t i = 0; i < count; i++) {
		int64_t step = checkpoint_step_of(names[i]);
		char *path = file_join(dir, names[i]);

		if (step >= 0 && checkpoint_verify(path, NULL, NULL))
			fail_msg("%s", err_text());
		newest = step > newest ? step : newest;
		mem_free(path);
	}
	file_list_free(names, count);
	return newest;
}

#define STEPS "max_steps=18 save_steps=3 "

/* Waits for the moment: some time after the rank has come, which MPI's start and loading fill, or after so
 * many steps, all of them included. Returns the rank's process; 0: it has ended. */
static pid_t moment_wait(pid_t launched, int victim, int round)
{
	int lines = draw(2, round, 25) - 6;
	char path[400];
	pid_t pid;

	snprintf(path, sizeof(path), "%s/killed/metrics.jsonl", work_dir);
	while (!(pid = job_rank(victim)) && is_running(launched))
		sleep_ms(1);
	while (line_count(path) < lines && is_running(launched))
		sleep_ms(1);
	sleep_ms(draw(3, round, lines < 0 ? 200 : 30));
	return pid;
}

/* Killed at any time: in MPI's start, while loading, in a step, while saving, at the end. */
static void test_killed(void **state)
{
	int rounds = rounds_of(6), never = 0;
	char command[4096];

	(void)state;
	command_make(command, sizeof(command), "whole", STEPS);
	assert_int_equal(ranks_wait(command), 0);
	command_make(command, sizeof(command), "killed", STEPS);
	longest_s = 0;
	for (int round = 0; round < rounds; round++) {
		int victim = draw(1, round, RANKS), other = 1 + round % 4, was_there, code;
		pid_t launched, pid;

		remove_run("killed");
		launched = run_start(command);
		pid = moment_wait(launched, victim, round);
		was_there = pid && !kill(pid, SIGKILL);
		never += !was_there;
		code = job_wait(launched);
		/* one that has written all may still be killed as it leaves */
		if (run_has("killed/model") ? code && !was_there : !code)
			fail_msg("exit %d: %s", code, ferry_said());
		checkpoints_verify("killed");
		assert_goes_on(other, "killed", STEPS);
		assert_near_runs("whole", "killed", 5e-6, "killed and resumed");
	}
	print_message("%d killed, %d of them had ended before; the longest end took %.1f s\n", rounds, never,
	        longest_s);
}

/* If a rank is stopped, the ranks that wait for it name it, at any moment. */
static void test_stands_still(void **state)
{
	int rounds = (rounds_of(1) + 9) / 10;

	(void)state;
	longest_s = 0;
	for (int round = 0; round < rounds; round++) {
		int victim = draw(4, round, RANKS);
		pid_t pids[RANKS], launched;
		char text[80];

		remove_run("still");
		launched = run_begin(pids, "still", SLOW "watchdog_timeout=1", 1 + draw(5, round, 9));
		sleep_ms(draw(6, round, 60));
		kill(pids[victim], SIGSTOP);
		assert_int_equal(job_wait(launched), 1);
		snprintf(text, sizeof(text), "rank %d (process %d) has not moved", victim, (int)pids[victim]);
		assert_said(text);
		checkpoints_verify("still");
	}
	print_message("%d stopped; the longest end took %.1f s\n", rounds, longest_s);
}

/* All of them are stopped for longer than the watchdog's time, as a scheduler does, and go on. */
static void test_all_stand_still(void **state)
{
	pid_t pids[RANKS], launched;

	(void)state;
	launched = run_begin(pids, "paused", "max_steps=6 " SLOW_STEPS "watchdog_timeout=1", 2);
	for (int r = 0; r < RANKS; r++)
		kill(pids[r], SIGSTOP);
	sleep_ms(3500);
	for (int r = 0; r < RANKS; r++)
		kill(pids[r], SIGCONT);
	assert_int_equal(job_wait(launched), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_killed),
	        cmocka_unit_test(test_stands_still),
	        cmocka_unit_test(test_all_stand_still),
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
