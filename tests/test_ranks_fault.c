/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* Ranks that die, stand still, are told to stop, or are not like the others: the job ends as a whole, says
 * what happened where, and what was committed is good. FERRY_RANKS_ROUNDS sets how many are killed. */
#include "tests/ranks_run.h"

static struct run_model tiny;

enum { RANKS = 3 };

#define SETTINGS                                                                                             \
	"learning_rate=1e-3 threads=1 compute_dtype=fp32 export_dtype=fp32 gradient_accumulation_steps=4 "

/* A run that takes seconds: copies are slow. */
#define SLOW "max_steps=24 save_steps=3 host_copy_gbps=0.008 "

static void command_make(char *command, size_t bytes, const char *out, const char *more)
{
	ranks_command(command, bytes, RANKS, "train model=%s data=%s output_dir=%s/%s " SETTINGS "%s",
	        tiny.dir, tiny.data, work_dir, out, more);
}

/* The processes of the ranks, in the order of ranks. */
static void ranks_find(pid_t *pids, pid_t launcher_pid)
{
	char path[64];
	FILE *f;
	int count = 0, pid;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)launcher_pid, (int)launcher_pid);
	f = fopen(path, "r");
	assert_non_null(f);
	while (count < RANKS && fscanf(f, "%d", &pid) == 1)
		pids[count++] = pid;
	fclose(f);
	assert_int_equal(count, RANKS);
}

/* Starts a run and waits until it has logged so many steps. */
static pid_t run_begin(pid_t *pids, const char *out, const char *more, int lines)
{
	char command[4096], path[400];
	pid_t launched;

	command_make(command, sizeof(command), out, more);
	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, out);
	launched = run_start(command);
	while (line_count(path) < lines && is_running(launched))
		sleep_ms(2);
	if (!is_running(launched))
		fail_msg("ended before step %d: %s", lines, ferry_said());
	ranks_find(pids, launched);
	return launched;
}

/* Nothing of the job is left within seconds of its end. */
static void assert_gone(const pid_t *pids)
{
	for (int r = 0; r < RANKS; r++)
		for (int waited = 0; !kill(pids[r], 0); waited++) {
			if (waited > 1000)
				fail_msg("rank %d is still there", r);
			sleep_ms(10);
		}
}

static void assert_said(const char *text)
{
	if (!strstr(ferry_said(), text))
		fail_msg("nothing of \"%s\" in: %s", text, ferry_said());
}

/* The newest checkpoint is whole, and the run goes on from it. */
static void assert_goes_on(const char *out, const char *more)
{
	char command[4096];

	command_make(command, sizeof(command), out, more);
	strcat(command, " resume_from_checkpoint=auto");
	if (ranks_wait(command))
		fail_msg("%s: %s", command, ferry_said());
}

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

/* A signal to one rank, or one that mpirun passes to all, stops all of them after the same step. */
static void test_told_to_stop(void **state)
{
	pid_t pids[RANKS], launched;
	char command[4096];

	(void)state;
	remove_run("whole");
	command_make(command, sizeof(command), "whole", "max_steps=24");
	assert_int_equal(ranks_wait(command), 0);
	for (int round = 0; round < 2; round++) {
		remove_run("told");
		launched = run_begin(pids, "told", SLOW, 3 + round);
		kill(round ? launched : pids[1], round ? SIGUSR1 : SIGTERM);
		assert_int_equal(run_wait(launched), 3);
		assert_said(round ? "stopped by SIGUSR1" : "stopped by SIGTERM");
		assert_said("resume_from_checkpoint=auto");
		assert_gone(pids);
		assert_goes_on("told", "max_steps=24");
		assert_same_runs("whole", "told", "stopped and resumed");
	}
}

/* A rank that is not like rank 0 is named before anything is written. */
static void test_unlike(void **state)
{
	const char *binary = getenv("FERRY_BINARY");
	char command[4096], one[1600];

	(void)state;
	snprintf(one, sizeof(one), "%s train model=%s data=%s output_dir=%s/unlike threads=1",
	        binary ? binary : "build/ferry", tiny.dir, tiny.data, work_dir);
	snprintf(command, sizeof(command), "%s --oversubscribe -n 2 %s : -n 1 %s max_length=9", launcher, one,
	        one);
	assert_int_equal(ranks_wait(command), 2);
	assert_said("ferry train: rank 2: another configuration than rank 0: \"max_length: 9\"");
	assert_false(run_has("unlike"));
	snprintf(command, sizeof(command), "%s --oversubscribe -n 2 %s : -n 1 %s eval_data=/none", launcher,
	        one, one);
	assert_int_equal(ranks_wait(command), 2);
	assert_said("ferry train: rank 2: ");
	assert_said("/none");
	assert_false(run_has("unlike"));
}

/* A damaged checkpoint: one message, though all of them see it. */
static void test_bad_shard(void **state)
{
	char command[4096], path[400];
	FILE *f;

	(void)state;
	remove_run("bad");
	command_make(command, sizeof(command), "bad", "max_steps=2");
	assert_int_equal(ranks_wait(command), 0);
	snprintf(path, sizeof(path), "%s/bad/checkpoint-000002/rank-00001.safetensors", work_dir);
	f = fopen(path, "r+");
	assert_non_null(f);
	assert_int_equal(fseek(f, -1000, SEEK_END), 0);
	assert_int_equal(fwrite("\x5a\xa5", 1, 2, f), 2);
	fclose(f);
	command_make(command, sizeof(command), "bad2", "max_steps=4");
	strcat(command, " resume_from_checkpoint=");
	snprintf(path, sizeof(path), "%s/bad/checkpoint-000002", work_dir);
	strcat(command, path);
	assert_int_equal(ranks_wait(command), 2);
	assert_said("rank-00001.safetensors: byte ");
	assert_null(strstr(strstr(ferry_said(), "safetensors: byte ") + 1, "safetensors: byte "));
	assert_false(run_has("bad2"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_killed),
	        cmocka_unit_test(test_stands_still),
	        cmocka_unit_test(test_told_to_stop),
	        cmocka_unit_test(test_unlike),
	        cmocka_unit_test(test_bad_shard),
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
