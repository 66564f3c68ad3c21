/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it. */

/* Ranks that ferry starts itself (ranks=N): the same bits as with mpirun; Ctrl-C, signals, and death of
 * the parent or of ranks; refusals. */
#include "tests/ranks_job.h"

#include <pty.h>

static void test_same_as_mpirun(void **state)
{
	char command[4096], more[800];

	(void)state;
	if (!launcher) {
		print_message("SKIPPED the comparison: %s\n", launcher_absence());
		skip();
	}
	snprintf(more, sizeof(more), "max_steps=6 eval_steps=3 eval_data=%s", tiny.data);
	for (int local = 0; local <= 1; local++) {
		ranks_are_local = local;
		command_make(command, sizeof(command), local ? "local" : "mpi", more);
		assert_int_equal(ranks_wait(command), 0);
	}
	assert_same_runs("local", "mpi", "ranks=3 and mpirun -n 3");
}

/* The saved configuration has the ranks: the line that resumes says nothing of them. */
static void stopped_check(pid_t launched, const char *why)
{
	assert_int_equal(run_wait(launched), 3);
	assert_said(why);
	assert_said("config.yaml resume_from_checkpoint=auto");
	assert_null(strstr(ferry_said(), "-n 3"));
	assert_null(strstr(ferry_said(), "once more quits"));
	assert_null(strstr(ferry_said(), "was killed"));
	job_check_gone();
}

static void test_signals_of_the_parent(void **state)
{
	static const struct {
		int signal;
		const char *why;
	} rounds[] = {{SIGTERM, "stopped by SIGTERM"}, {SIGINT, "stopped by SIGINT"}};
	pid_t pids[RANKS], launched;
	char path[700];

	(void)state;
	for (int i = 0; i < 2; i++) {
		remove_run("told");
		launched = run_begin(pids, "told", SLOW, 3);
		kill(launched, rounds[i].signal);
		stopped_check(launched, rounds[i].why);
	}
	snprintf(path, sizeof(path),
	        "env FERRY_TOPOLOGY='numa:1 core:2 pu:1' %s train %s/told/config.yaml "
	        "resume_from_checkpoint=auto --json",
	        getenv("FERRY_BINARY"), work_dir);
	assert_int_equal(ranks_wait(path), 0);
	assert_said("ranks    3 (3 on this host)");
	assert_said("ranks=3 is more than the 2 processors that this process may use");
}

enum { SAID_BYTES = 1 << 18 };

/* The terminal tells the parent and all ranks. */
static void test_terminal(void **state)
{
	char command[4096] = "exec ", path[400], *said = mem_alloc(1, SAID_BYTES);
	int terminal, status, len = 0;
	pid_t pid;

	(void)state;
	remove_run("told");
	command_make(command + strlen(command), sizeof(command) - strlen(command), "told", SLOW);
	snprintf(path, sizeof(path), "%s/told/metrics.jsonl", work_dir);
	pid = forkpty(&terminal, NULL, NULL, NULL);
	if (pid < 0) { /* a chroot without /dev/pts */
		mem_free(said);
		print_message("SKIPPED test_terminal: no pseudo terminals here\n");
		skip();
	}
	if (!pid) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	fcntl(terminal, F_SETFL, O_NONBLOCK);
	for (int pressed = 0; waitpid(pid, &status, WNOHANG) == 0; sleep_ms(2)) {
		ssize_t came = read(terminal, said + len, SAID_BYTES - 1 - (size_t)len);

		len += came > 0 ? (int)came : 0;
		if (!pressed && line_count(path) >= 3)
			pressed = write(terminal, "\003", 1) == 1;
	}
	for (ssize_t came; (came = read(terminal, said + len, SAID_BYTES - 1 - (size_t)len)) > 0;)
		len += (int)came;
	close(terminal);
	said[len] = 0; /* it is all of it */
	assert_true(len < SAID_BYTES - 1);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 3 || !strstr(said, "stopped by SIGINT") ||
	        strstr(said, "once more quits"))
		fail_msg("status %x, said: %s", status, len > 900 ? said + len - 900 : said);
	mem_free(said);
	job_check_gone();
	assert_goes_on(RANKS, "told", "max_steps=4");
}

/* If a rank dies, the others end and name it; the parent reports how it died. */
static void test_death_of_a_rank(void **state)
{
	static const int signals[] = {SIGKILL, SIGSEGV};
	pid_t pids[RANKS], launched;
	char text[80];

	(void)state;
	for (int i = 0; i < 2; i++) {
		remove_run("dead");
		launched = run_begin(pids, "dead", SLOW "save_steps=1", 3);
		kill(pids[2 * i], signals[i]);
		assert_int_equal(run_wait(launched), 1);
		assert_said("\nthe last checkpoint is of step ");
		assert_said("/dead/config.yaml resume_from_checkpoint=auto\n");
		snprintf(text, sizeof(text), "rank %d (process %d) is gone; it was in ", 2 * i,
		        (int)pids[2 * i]);
		assert_said(text);
		snprintf(text, sizeof(text), "rank %d (process %d) was killed by %s", 2 * i, (int)pids[2 * i],
		        i ? "SIGSEGV" : "SIGKILL");
		assert_said(text);
		job_check_gone();
	}
}

/* Nothing outlives the parent. */
static void test_death_of_the_parent(void **state)
{
	pid_t pids[RANKS], launched;

	(void)state;
	remove_run("dead");
	launched = run_begin(pids, "dead", SLOW, 3);
	kill(launched, SIGKILL);
	assert_int_not_equal(run_wait(launched), 0);
	job_check_gone();
}

/* Evaluation on two ranks has the same loss and number of targets as on one. */
static void test_eval(void **state)
{
	json_t *one = NULL, *two = NULL;

	(void)state;
	assert_ferry_json(
	        &one, "eval model=%s data=%s threads=1 compute_dtype=fp32 --json", tiny.dir, tiny.data);
	assert_ferry_json(&two, "eval model=%s data=%s threads=1 compute_dtype=fp32 ranks=2 --json", tiny.dir,
	        tiny.data);
	assert_true(fabs(json_number_value(json_object_get(one, "loss")) -
	                    json_number_value(json_object_get(two, "loss"))) < 1e-6);
	assert_int_equal(json_integer_value(json_object_get(one, "target_tokens")),
	        json_integer_value(json_object_get(two, "target_tokens")));
	json_decref(one);
	json_decref(two);
}

static void test_refused(void **state)
{
	char command[4096];

	(void)state;
	assert_ranks(2, RANKS, "train model=%s data=%s output_dir=%s/none learning_rate=1e30", tiny.dir,
	        tiny.data, work_dir);
	assert_said("ferry train: learning_rate=");
	assert_null(strstr(ferry_said(), "rank "));
	assert_ranks(0, RANKS, "train --help");
	if (!launcher)
		return;
	ranks_are_local = 0;
	assert_ranks(
	        2, 2, "train model=%s data=%s output_dir=%s/none ranks=3", tiny.dir, tiny.data, work_dir);
	assert_said("ranks is 3, but mpirun started 2; set ranks=2, or leave it out");
	assert_null(strstr(ferry_said(), "rank 0"));
	assert_false(run_has("none"));
	/* the launcher's own number may be said */
	ranks_command(command, sizeof(command), 2,
	        "train model=%s data=%s output_dir=%s/none ranks=2 max_steps=1 threads=1 --json", tiny.dir,
	        tiny.data, work_dir);
	assert_int_equal(ranks_wait(command), 0);
	assert_said("ranks    2 (2 on this host)");
	ranks_are_local = 1;
}

static void words_set(const char *const *words, int is_set)
{
	for (int i = 0; words[i]; i += 2)
		if (is_set)
			setenv(words[i], words[i + 1], 1);
		else
			unsetenv(words[i]);
}

/* A launcher that started one process does not start the ranks: that is said. One that started several which
 * cannot be joined is refused, before each of them starts ranks. */
static void test_in_a_launcher(void **state)
{
	static const char *const one[] = {"OMPI_COMM_WORLD_SIZE", "1", "OMPI_COMM_WORLD_RANK", "0", NULL};
	static const char *const several[] = {"WORLD_SIZE", "2", "LOCAL_RANK", "0", NULL};

	(void)state;
	words_set(one, 1);
	assert_ranks(0, 2, "train model=%s data=%s output_dir=%s/one max_steps=1 threads=1", tiny.dir,
	        tiny.data, work_dir);
	words_set(one, 0);
	assert_int_equal(count_of(ferry_said(), "mpirun started one process; ferry itself starts the 2 "
	                                        "ranks of ranks=2"),
	        1);
	words_set(several, 1);
	assert_ranks(2, 2, "train model=%s data=%s output_dir=%s/strangers max_steps=1 threads=1", tiny.dir,
	        tiny.data, work_dir);
	words_set(several, 0);
	assert_said("cannot join the 2 processes of torchrun (WORLD_SIZE)");
	assert_null(strstr(ferry_said(), "rank "));
	assert_false(run_has("strangers"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_same_as_mpirun),
	        cmocka_unit_test(test_signals_of_the_parent),
	        cmocka_unit_test(test_terminal),
	        cmocka_unit_test(test_death_of_a_rank),
	        cmocka_unit_test(test_death_of_the_parent),
	        cmocka_unit_test(test_eval),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_in_a_launcher),
	};
	int failed;

	setenv("FERRY_TEST_LOCAL", "1", 1);
	assert_true(ranks_begin("test_local_ranks"));
	ferry_run_begin("local-ranks");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
