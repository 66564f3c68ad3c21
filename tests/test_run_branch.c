/* links: cli */
/* Resuming from an older checkpoint: the new branch has its own checkpoints, metrics and result. The
 * abandoned part is kept separately. */
#include "tests/run_fixture.h"

#include "base/err.h"
#include "checkpoint/branch.h"
#include "checkpoint/load.h"

#define TRAIN                                                                                                \
	"train model=%s data=%s threads=1 output_dir=%s/%s lr_scheduler_type=constant save_total_limit=all "

static struct run_model tiny;

static void assert_there(const char *dir, const char *names)
{
	char path[140], *copy = strdup(names), *rest = copy, *word;

	while ((word = strsep(&rest, " ")) != NULL) {
		int is_wanted = *word != '!';

		snprintf(path, sizeof(path), "%s/%s", dir, word + !is_wanted);
		if (run_has(path) != is_wanted)
			fail_msg("%s is %s", path, is_wanted ? "missing" : "there");
	}
	free(copy);
}

/* Steps 1 to 6 of a run that saves every second one. */
static void run_make(const char *name)
{
	remove_run(name);
	assert_ferry(0, NULL, TRAIN "max_steps=6 save_steps=2 lr=1e-2", tiny.dir, tiny.data, work_dir, name);
}

#define BRANCH "train %s/%s/config.yaml resume_from_checkpoint=%s/%s/checkpoint-000002 lr=1e-3 "

static void test_branch(void **state)
{
	char path[400];

	(void)state;
	run_make("a");
	/* the expected result of the branch, from a run without an abandoned part */
	assert_ferry(0, NULL,
	        "train %s/a/config.yaml output_dir=%s/expected resume_from_checkpoint=%s/a/checkpoint-000002 "
	        "lr=1e-3",
	        work_dir, work_dir, work_dir);
	assert_ferry(0, NULL, BRANCH "max_steps=5", work_dir, "a", work_dir, "a");
	assert_non_null(
	        strstr(ferry_said(), "a/abandoned-1, because this run starts from an older checkpoint: "
	                             "checkpoint-000004, checkpoint-000006, model;"));
	assert_there("a", "checkpoint-000002 checkpoint-000004 checkpoint-000005 !checkpoint-000006 model");
	assert_there("a/abandoned-1", "checkpoint-000004 checkpoint-000006 model metrics.jsonl config.yaml");

	/* auto goes on with the branch, and says nothing of the others again */
	assert_ferry(0, NULL, "train %s/a/config.yaml resume_from_checkpoint=auto max_steps=6", work_dir);
	assert_null(strstr(ferry_said(), "abandoned"));
	assert_non_null(strstr(ferry_said(), "checkpoint-000005 at step 5"));
	snprintf(path, sizeof(path), "%s/expected/model/model.safetensors", work_dir);
	{
		char own[400];

		snprintf(own, sizeof(own), "%s/a/model/model.safetensors", work_dir);
		assert_same_files(own, path, "the branch's result");
		snprintf(own, sizeof(own), "%s/a/metrics.jsonl", work_dir);
		assert_int_equal(line_count(own), 6);
		snprintf(own, sizeof(own), "%s/a/abandoned-1/metrics.jsonl", work_dir);
		assert_int_equal(line_count(own), 6);
	}
	/* export of the directory takes the branch, too */
	assert_ferry(0, NULL, "export checkpoint=%s/a output_dir=%s/out", work_dir, work_dir);

	/* back to the abandoned part: now the branch is abandoned */
	assert_ferry(0, NULL,
	        "train %s/a/config.yaml resume_from_checkpoint=%s/a/abandoned-1/checkpoint-000006 "
	        "max_steps=7 lr=1e-2",
	        work_dir, work_dir);
	assert_there("a", "checkpoint-000002 checkpoint-000007 !checkpoint-000004 !checkpoint-000005");
	assert_there("a/abandoned-2", "checkpoint-000004 checkpoint-000005 checkpoint-000006 model");
	assert_there("a/abandoned-1", "checkpoint-000006");
	snprintf(path, sizeof(path), "%s/a/metrics.jsonl", work_dir);
	assert_int_equal(line_count(path), 7);
	assert_ferry(0, NULL,
	        "train %s/a/config.yaml resume_from_checkpoint=%s/a/abandoned-1/checkpoint-000006 "
	        "max_steps=8 lr=1e-2",
	        work_dir, work_dir);
	assert_int_equal(line_count(path), 8);
}

/* Rotation counts the branch's checkpoints alone. */
static void test_rotation(void **state)
{
	(void)state;
	run_make("a");
	assert_ferry(
	        0, NULL, BRANCH "max_steps=5 save_steps=1 save_total_limit=2", work_dir, "a", work_dir, "a");
	assert_there("a", "checkpoint-000004 checkpoint-000005 !checkpoint-000002 !checkpoint-000003");
	assert_there("a/abandoned-1", "checkpoint-000004 checkpoint-000006");
}

/* One that somebody renamed does not pass for the newest, now or at the next save. */
static void test_renamed(void **state)
{
	char from[400], to[400];

	(void)state;
	run_make("r");
	path_of(from, "r/checkpoint-000002");
	path_of(to, "r/checkpoint-000099");
	assert_int_equal(rename(from, to), 0);
	assert_ferry(2, NULL, "train %s/r/config.yaml resume_from_checkpoint=%s/", work_dir, to);
	assert_non_null(
	        strstr(ferry_said(), "checkpoint-000099/ holds step 2; rename it to checkpoint-000002"));
	assert_ferry(0, NULL,
	        "train %s/r/config.yaml resume_from_checkpoint=auto max_steps=8 save_steps=1 "
	        "save_total_limit=2",
	        work_dir);
	assert_non_null(strstr(ferry_said(), "checkpoint-000099 holds step 2;"));
	assert_non_null(strstr(ferry_said(), "checkpoint-000006 at step 6"));
	assert_there("r", "checkpoint-000007 checkpoint-000008 !checkpoint-000006 !checkpoint-000099");
	assert_there("r/abandoned-1", "checkpoint-000099 !checkpoint-000006");
}

/* Killed before it saved anything, the branch is still the one in force. */
static void test_killed(void **state)
{
	const char *binary = getenv("FERRY_BINARY");
	char command[2000];
	pid_t pid;

	(void)state;
	run_make("a");
	snprintf(command, sizeof(command), "%s " BRANCH "max_steps=4000 save_steps=0 host_copy_gbps=0.001",
	        binary ? binary : "build/ferry", work_dir, "a", work_dir, "a");
	pid = run_start(command);
	while (!run_has("a/abandoned-1/checkpoint-000004") && is_running(pid)) /* the last to be moved */
		sleep_ms(2);
	kill(pid, SIGKILL);
	assert_int_equal(run_wait(pid), 128 + SIGKILL);
	assert_ferry(0, NULL,
	        "train %s/a/config.yaml resume_from_checkpoint=auto host_copy_gbps=off max_steps=3",
	        work_dir);
	assert_non_null(strstr(ferry_said(), "checkpoint-000002 at step 2"));
	assert_there("a", "checkpoint-000003 !abandoned-2");
}

/* Killed between the decision and the last of the moves: the next run makes the rest. */
static void test_half_moved(void **state)
{
	struct checkpoint *checkpoint;
	json_t *line, *fork;
	char path[400];

	(void)state;
	run_make("a");
	snprintf(path, sizeof(path), "%s/a/checkpoint-000002", work_dir);
	assert_int_equal(checkpoint_open(&checkpoint, path), 0);
	assert_int_equal(branch_of_training(&line, checkpoint_manifest(checkpoint)->training, path), 0);
	fork = branch_fork(line, 2);
	snprintf(path, sizeof(path), "%s/a", work_dir);
	assert_int_equal(branch_write(fork, 1, path), 0);
	checkpoint_close(checkpoint);
	json_decref(line);
	json_decref(fork);
	assert_ferry(0, NULL, "train %s/a/config.yaml resume_from_checkpoint=auto max_steps=4", work_dir);
	assert_non_null(strstr(ferry_said(), "checkpoint-000002 at step 2"));
	assert_there("a", "checkpoint-000002 checkpoint-000004 !checkpoint-000006");
	assert_there("a/abandoned-1", "checkpoint-000004 checkpoint-000006");
}

/* Another run's checkpoint does not come into a run's directory; the same command a second time does. */
static void test_other_run(void **state)
{
	(void)state;
	run_make("a");
	run_make("b");
	assert_ferry(2, NULL, "train %s/b/config.yaml resume_from_checkpoint=%s/a/checkpoint-000004",
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "b holds another run than resume_from_checkpoint="));
	assert_there("b", "checkpoint-000002 checkpoint-000004 checkpoint-000006 model !abandoned-1");
	for (int i = 0; i < 2; i++)
		assert_ferry(0, NULL,
		        "train %s/a/config.yaml output_dir=%s/c "
		        "resume_from_checkpoint=%s/a/checkpoint-000004 max_steps=5",
		        work_dir, work_dir, work_dir);
	assert_there("c", "checkpoint-000005 abandoned-1/checkpoint-000005");
}

/* A directory of before there were branches goes on as it was. */
static void test_old(void **state)
{
	char path[400];

	(void)state;
	run_make("a");
	snprintf(path, sizeof(path), "%s/a/branch.json", work_dir);
	assert_int_equal(unlink(path), 0);
	assert_ferry(0, NULL, "train %s/a/config.yaml resume_from_checkpoint=auto max_steps=8", work_dir);
	assert_there("a", "checkpoint-000002 checkpoint-000004 checkpoint-000006 checkpoint-000008 "
	                  "branch.json !abandoned-1");
}

static void test_lines(void **state)
{
	json_t *a = branch_new(), *b = branch_fork(a, 20), *c = branch_fork(b, 30), *d = branch_fork(a, 10),
	       *e = branch_new();

	(void)state;
	assert_true(branch_common(a, a) == INT64_MAX);
	assert_int_equal(branch_common(a, b), 20);
	assert_int_equal(branch_common(c, b), 30);
	assert_int_equal(branch_common(c, d), 10);
	assert_int_equal(branch_common(a, e), -1);
	assert_int_equal(branch_begin(c), 30);
	json_decref(a);
	json_decref(b);
	json_decref(c);
	json_decref(d);
	json_decref(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_lines),
	        cmocka_unit_test(test_branch),
	        cmocka_unit_test(test_rotation),
	        cmocka_unit_test(test_renamed),
	        cmocka_unit_test(test_killed),
	        cmocka_unit_test(test_half_moved),
	        cmocka_unit_test(test_other_run),
	        cmocka_unit_test(test_old),
	};
	int failed;

	ferry_run_begin("branch");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
