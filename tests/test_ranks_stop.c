/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* Ranks that get a signal to stop, or differ from the others: all end together, and print the reason once. */
#include "tests/ranks_job.h"

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
		job_check_gone();
		assert_goes_on(RANKS, "told", "max_steps=24");
		assert_same_runs("whole", "told", "stopped and resumed");
	}
}

/* A rank that is not like rank 0 is named before anything is written. Ranks that ferry starts are alike. */
static void test_unlike(void **state)
{
	const char *binary = getenv("FERRY_BINARY");
	char one[1600], odd[1700];

	(void)state;
	if (ranks_are_local)
		skip();
	snprintf(one, sizeof(one), "exec %s train model=%s data=%s output_dir=%s/unlike threads=1",
	        binary ? binary : "build/ferry", tiny.dir, tiny.data, work_dir);
	snprintf(odd, sizeof(odd), "%s max_length=9", one);
	assert_int_equal(ranks_wait_apart(3, 2, odd, one), 2);
	assert_said("ferry train: rank 2: configuration differs: \"max_length: 9\"");
	assert_false(run_has("unlike"));
	snprintf(odd, sizeof(odd), "%s eval_data=/none", one);
	assert_int_equal(ranks_wait_apart(3, 2, odd, one), 2);
	assert_said("ferry train: rank 2: ");
	assert_said("/none");
	assert_false(run_has("unlike"));
}

/* A rank whose threads are on several NUMA nodes: cpu_offload=auto is on there alone, so on all ranks. */
static void test_other_machine(void **state)
{
	const char *binary = getenv("FERRY_BINARY");
	char one[1800], odd[1900];

	(void)state;
	if (ranks_are_local)
		skip();
	snprintf(one, sizeof(one),
	        "FERRY_TOPOLOGY='numa:1 core:8 pu:1' exec %s train model=%s data=%s output_dir=%s/other "
	        "threads=4 max_steps=2 overwrite_output_dir=on",
	        binary ? binary : "build/ferry", tiny.dir, tiny.data, work_dir);
	snprintf(odd, sizeof(odd), "FERRY_TOPOLOGY='numa:4 core:2 pu:1' %s", strstr(one, "exec"));
	assert_int_equal(ranks_wait_apart(2, 1, odd, one), 0);
	assert_int_equal(ranks_wait_apart(2, 0, odd, one), 0);
}

/* An error of all ranks is printed once, without the name of a rank. */
static void test_alike(void **state)
{
	(void)state;
	assert_ranks(2, RANKS, "train model=%s data=%s output_dir=%s/unlike learning_rate=1e30", tiny.dir,
	        tiny.data, work_dir);
	assert_said("ferry train: learning_rate=");
	assert_null(strstr(ferry_said(), "rank "));
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
	        cmocka_unit_test(test_told_to_stop),
	        cmocka_unit_test(test_unlike),
	        cmocka_unit_test(test_other_machine),
	        cmocka_unit_test(test_alike),
	        cmocka_unit_test(test_bad_shard),
	};
	int failed;

	if (!ranks_begin("test_ranks_stop"))
		return 0;
	ferry_run_begin("ranks-stop");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
