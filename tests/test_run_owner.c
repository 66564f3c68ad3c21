/* links: cli */
/* The directory or lock of a run is moved, removed or taken while it runs: nothing of it is lost, and
 * nothing of another run is touched. */
#include "tests/run_fixture.h"

#include "base/dir_lock.h"
#include "base/err.h"
#include "train/run_dir/run_owner.h"

#include <sys/prctl.h>

#define TRAIN                                                                                                \
	"train model=%s data=%s threads=1 device=host lr_scheduler_type=constant logging_steps=1 "           \
	"output_dir=%s/"

static struct run_model tiny;

/* A run that takes minutes, and saves after each step unless `more` says otherwise. */
static pid_t slow_start(const char *name, const char *more)
{
	char command[4000];

	snprintf(command, sizeof(command),
	        "%s " TRAIN "%s max_steps=4000 save_steps=1 save_total_limit=all host_copy_gbps=0.001 "
	        "%s",
	        getenv("FERRY_BINARY"), tiny.dir, tiny.data, work_dir, name, more);
	return run_start(command);
}

static void wait_for_name(pid_t pid, const char *name)
{
	while (!run_has(name) && is_running(pid))
		sleep_ms(2);
	if (!run_has(name))
		fail_msg("it ended without %s: %s", name, ferry_said());
}

static void stop(pid_t pid)
{
	kill(pid, SIGTERM);
	if (run_wait(pid) != 3)
		fail_msg("it was stopped: %s", ferry_said());
}

/* What the run says from here on is not looked for where the next command's words are. */
static void keep_words(const char *as)
{
	char from[400], to[400];

	path_of(from, "stderr");
	path_of(to, as);
	assert_int_equal(rename(from, to), 0);
}

/* The run in work_dir/NAME goes on to `steps` as one that nothing happened to; rows of `lost` steps are
 * elsewhere. */
static void check_goes_on(const char *name, int lost)
{
	char *numbers, *expected, *tail, path[400], other[400], text[40];
	int steps;

	path_of(path, name);
	assert_ferry(0, NULL, "verify %s", path);
	numbers = run_numbers(name);
	steps = count_of(numbers, " step ") + lost + 2;
	mem_free(numbers);
	assert_ferry(0, NULL,
	        "train %s/config.yaml resume_from_checkpoint=auto max_steps=%d host_copy_gbps=off "
	        "save_steps=0",
	        path, steps);
	remove_run("straight");
	assert_ferry(0, NULL, TRAIN "straight max_steps=%d", tiny.dir, tiny.data, work_dir, steps);
	numbers = run_numbers(name);
	expected = run_numbers("straight");
	snprintf(text, sizeof(text), " step %d ", lost + 1);
	tail = strstr(expected, text);
	assert_non_null(tail);
	assert_string_equal(numbers, tail);
	mem_free(numbers);
	mem_free(expected);
	snprintf(path, sizeof(path), "%s/%s/model/model.safetensors", work_dir, name);
	path_of(other, "straight/model/model.safetensors");
	assert_same_files(path, other, name);
}

/* ---- moved ---- */

/* The run goes with its directory: checkpoints, rows and configuration stay together. */
static void test_moved(void **state)
{
	char from[400], to[400];
	pid_t pid = slow_start("away", "");

	(void)state;
	wait_for_name(pid, "away/checkpoint-000001");
	path_of(from, "away");
	path_of(to, "archive");
	assert_int_equal(rename(from, to), 0);
	run_wait_for_words(pid, "archive during the run; the run goes on there");
	wait_for_name(pid, "archive/checkpoint-000003");
	stop(pid);
	assert_non_null(strstr(last_line(), "/archive/config.yaml resume_from_checkpoint=auto"));
	assert_false(run_has("away"));
	assert_false(run_has("archive/.ferry.lock"));
	check_goes_on("archive", 0);
}

/* Removed as a whole: it is made again, and a checkpoint stands there at once, not after save_steps. */
static void test_removed(void **state)
{
	char path[400];
	pid_t pid = slow_start("gone", "save_steps=1000 save_first_step=on");
	int lost;

	(void)state;
	wait_for_name(pid, "gone/checkpoint-000001");
	run_halt(pid);
	path_of(path, "gone/metrics.jsonl");
	lost = line_count(path);
	path_of(path, "gone");
	assert_int_equal(file_remove_tree(path), 0);
	kill(pid, SIGCONT);
	run_wait_for_words(pid, "gone was removed during the run; ferry makes it again");
	while (!strstr(strstr(ferry_said(), "makes it again"), "saved ") && is_running(pid))
		sleep_ms(2);
	stop(pid);
	assert_true(run_has("gone/branch.json"));
	check_goes_on("gone", lost);
}

/* ---- the lock alone ---- */

/* Nobody came: it is put back, and keeps others out. */
static void test_lock_removed(void **state)
{
	char path[400];
	pid_t pid = slow_start("open", "save_steps=1000");

	(void)state;
	wait_for_name(pid, "open/metrics.jsonl");
	path_of(path, "open/.ferry.lock");
	assert_int_equal(unlink(path), 0);
	run_wait_for_words(pid, "open/.ferry.lock was removed during the run; ferry puts it back");
	keep_words("of-the-first");
	assert_ferry(
	        2, NULL, TRAIN "open max_steps=1 overwrite_output_dir=on", tiny.dir, tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "another ferry is writing there (process "));
	kill(pid, SIGTERM);
	assert_int_equal(run_wait(pid), 3);
	check_goes_on("open", 0);
}

/* Another run came and ended: its files stay byte for byte. */
static void lost_to_one_that_ended(const char *how)
{
	char path[400], *before, *after, moved[40];
	int lost;
	pid_t pid;

	remove_run("taken");
	remove_run("taken.1");
	pid = slow_start("taken", "");
	wait_for_name(pid, "taken/checkpoint-000002");
	run_halt(pid);
	keep_words("of-the-first");
	path_of(path, "taken/metrics.jsonl");
	lost = line_count(path);
	path_of(path, "taken/.ferry.lock");
	assert_int_equal(unlink(path), 0);
	assert_ferry(0, NULL, TRAIN "taken max_steps=4 lr=1e-3 %s", tiny.dir, tiny.data, work_dir, how);
	before = run_numbers("taken");
	kill(pid, SIGCONT);
	snprintf(moved, sizeof(moved), "taken.1/checkpoint-%06d", lost + 2);
	wait_for_name(pid, moved);
	kill(pid, SIGTERM);
	assert_int_equal(run_wait(pid), 3);
	after = run_numbers("taken");
	assert_string_equal(before, after);
	mem_free(before);
	mem_free(after);
	assert_ferry(0, NULL, "verify %s/taken", work_dir);
	assert_true(run_has("taken/checkpoint-000004") && !run_has("taken/checkpoint-000005"));
	check_goes_on("taken.1", lost);
}

static void test_taken_by_one_that_ended(void **state)
{
	(void)state;
	lost_to_one_that_ended("overwrite_output_dir=on");
	lost_to_one_that_ended("resume_from_checkpoint=auto"); /* on the same line of steps */
}

/* Another run has it now: both go on, each in its own, and with save_fallback_dir there. */
static void test_taken(void **state)
{
	char path[400], spare[500];
	pid_t first, second;

	(void)state;
	snprintf(spare, sizeof(spare), "save_fallback_dir=%s/spare", work_dir);
	first = slow_start("both", spare);
	wait_for_name(first, "both/checkpoint-000002");
	run_halt(first);
	keep_words("of-the-first");
	path_of(path, "both/.ferry.lock");
	assert_int_equal(unlink(path), 0);
	second = slow_start("both", "resume_from_checkpoint=auto lr=1e-3 ");
	wait_for_name(second, "both/checkpoint-000004");
	kill(first, SIGCONT);
	while (!run_has("spare/both.1/checkpoint-000004") && is_running(first))
		sleep_ms(2);
	assert_true(run_has("spare/both.1/checkpoint-000004"));
	kill(first, SIGTERM);
	assert_int_equal(run_wait(first), 3);
	stop(second);
	assert_ferry(0, NULL, "verify %s/both", work_dir);
	assert_ferry(0, NULL, "verify %s/spare/both.1", work_dir);
	mem_free(run_numbers("both")); /* whole lines */
	assert_false(run_has("both/.ferry.lock") || run_has("spare/both.1/.ferry.lock"));
}

/* ---- save_fallback_dir ---- */

/* Runs that need it at once get a directory each. */
static void test_spares(void **state)
{
	enum { RUNS = 8 };
	char paths[RUNS][400], dir[400], fallback[400];
	char *argv[] = {dir, fallback};
	struct config c = {0};
	int ends[2], begin[2];
	pid_t pids[RUNS];

	(void)state;
	snprintf(dir, sizeof(dir), "output_dir=%s/busy", work_dir);
	snprintf(fallback, sizeof(fallback), "save_fallback_dir=%s/crowd", work_dir);
	assert_int_equal(config_parse(&c, VERB_TRAIN, 2, argv), 0);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(begin), 0);
	for (int i = 0; i < RUNS; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			char text[400] = "", *path = NULL;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(begin[1]);
			(void)!read(begin[0], text, 1); /* all at once */
			if (!run_owner_spare(&path, &c))
				snprintf(text, sizeof(text), "%s", path);
			(void)!write(ends[1], text, sizeof(text));
			pause();
			_exit(0);
		}
	}
	close(begin[0]);
	close(begin[1]);
	for (int i = 0; i < RUNS; i++) {
		assert_int_equal(read(ends[0], paths[i], sizeof(paths[i])), sizeof(paths[i]));
		assert_true(*paths[i]);
		for (int j = 0; j < i; j++)
			assert_string_not_equal(paths[i], paths[j]);
		assert_int_equal(dir_lock_look(paths[i], dir_lock_name), ERR_INPUT);
	}
	for (int i = 0; i < RUNS; i++) {
		kill(pids[i], SIGKILL);
		run_wait(pids[i]);
	}
	config_free(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_moved),
	        cmocka_unit_test(test_removed),
	        cmocka_unit_test(test_lock_removed),
	        cmocka_unit_test(test_taken_by_one_that_ended),
	        cmocka_unit_test(test_taken),
	        cmocka_unit_test(test_spares),
	};
	int failed;

	ferry_run_begin("run-owner");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
