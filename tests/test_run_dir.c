/* links: cli */
/* output_dir: its owner, its contents, and foreign files in it. */
#include "tests/run_fixture.h"

#include "base/dir_lock.h"
#include "base/err.h"
#include "base/log.h"
#include "checkpoint/file/temp_dir.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

#define TRAIN "train model=%s data=%s threads=1 output_dir=%s/"

static struct run_model tiny;

/* ---- the lock ---- */

static int warned;

static void count_warnings(void *context, enum log_level level, const char *line)
{
	(void)context;
	warned += level == LOG_WARN && strstr(line, "has no locks");
}

static int refuse_locks(void *context, const struct file_call *call)
{
	return call->kind == FILE_CALL_LOCK ? *(int *)context : 0;
}

static void test_lock(void **state)
{
	struct dir_lock *lock, *second;
	char dir[400], file[400];
	size_t len;
	char *text;

	(void)state;
	path_of(dir, "deep/er");
	path_of(file, "deep/er/.ferry.lock");
	assert_int_equal(dir_lock_take(&lock, dir, dir_lock_name), 0);
	assert_int_equal(dir_lock_take(&second, dir, dir_lock_name), ERR_INPUT); /* also in one process */
	assert_non_null(strstr(err_text(), "another ferry is writing there (process "));
	assert_int_equal(dir_lock_look(dir, dir_lock_name), ERR_INPUT);
	text = read_file(file, &len);
	assert_int_equal(strtol(text + strlen("process "), NULL, 10), getpid());
	mem_free(text);
	assert_true(dir_lock_is_there(lock));
	dir_lock_release(lock);
	assert_false(run_has("deep")); /* which was made for it */

	/* what a killed process left is free, and what came into the directory stays */
	path_of(dir, "left");
	assert_int_equal(file_make_dir(dir), 0);
	write_file("left/.ferry.lock",
	        "process 1 on elsewhere since ever, and a line that is longer than the next one's\n");
	assert_int_equal(dir_lock_look(dir, dir_lock_name), 0);
	assert_int_equal(dir_lock_take(&lock, dir, dir_lock_name), 0);
	write_file("left/notes", "x");
	dir_lock_release(lock);
	assert_true(run_has("left/notes") && !run_has("left/.ferry.lock"));

	/* one that was moved away is no longer there, and is not another's */
	path_of(dir, "moved");
	assert_int_equal(dir_lock_take(&lock, dir, dir_lock_name), 0);
	path_of(file, "elsewhere");
	assert_int_equal(rename(dir, file), 0);
	assert_false(dir_lock_is_there(lock));
	assert_int_equal(dir_lock_take(&second, dir, dir_lock_name), 0);
	dir_lock_release(lock);
	assert_true(dir_lock_is_there(second));
	dir_lock_release(second);
}

/* A file system without locks is warned about; another error is one. */
static void test_no_locks(void **state)
{
	static const int without[] = {ENOSYS, ENOLCK, EOPNOTSUPP};
	struct dir_lock *lock;
	char dir[400];
	int error = EIO;

	(void)state;
	path_of(dir, "unlocked");
	log_set_sink(count_warnings, NULL);
	for (size_t i = 0; i < sizeof(without) / sizeof(*without); i++) {
		error = without[i];
		file_hook_set(refuse_locks, &error);
		assert_int_equal(dir_lock_take(&lock, dir, dir_lock_name), 0);
		dir_lock_release(lock);
		assert_int_equal(warned, i + 1);
		assert_false(run_has("unlocked"));
	}
	error = EIO;
	assert_int_equal(dir_lock_take(&lock, dir, dir_lock_name), ERR_IO);
	file_hook_set(NULL, NULL);
	log_set_sink(NULL, NULL);
}

/* A run that is refused leaves nothing, not even the directory that it would have made. */
static void test_refused(void **state)
{
	char link[400];

	(void)state;
	write_file("bad.jsonl", "{\"input_ids\":[1,2\n");
	assert_ferry(2, NULL, "train model=%s data=%s/bad.jsonl output_dir=%s/new/run", tiny.dir, work_dir,
	        work_dir);
	assert_false(run_has("new"));
	assert_ferry(0, NULL, TRAIN "dry/run max_steps=1 --dry-run", tiny.dir, tiny.data, work_dir);
	assert_false(run_has("dry"));
	path_of(link, "dangling");
	assert_int_equal(symlink("nowhere", link), 0);
	assert_ferry(2, NULL, TRAIN "dangling max_steps=1", tiny.dir, tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "is a broken symbolic link"));
	unlink(link);
}

/* ---- exports ---- */

/* If the name of an export begins with the name of another, it removes nothing of that one. */
static void test_siblings(void **state)
{
	char parent[400];

	(void)state;
	path_of(parent, "several/out12.0123456789abcdef.tmp");
	assert_int_equal(file_make_dir(parent), 0);
	path_of(parent, "several/out.0123456789abcdef.tmp");
	assert_int_equal(file_make_dir(parent), 0);
	path_of(parent, "several/step-000012.0123456789abcdef.tmp");
	assert_int_equal(file_make_dir(parent), 0);
	write_file("several/out12.0123456789abcdef.tmp/x", "another export's");
	write_file("several/out.0123456789abcdef.tmp/x", "left by an earlier one");
	write_file("several/step-000012.0123456789abcdef.tmp/x", "x");
	path_of(parent, "several");
	assert_ferry(0, NULL, "init config=%s/tiny.json output_dir=%s/several/out", work_dir, work_dir);
	assert_true(run_has("several/out12.0123456789abcdef.tmp"));
	assert_false(run_has("several/out.0123456789abcdef.tmp"));
	assert_int_equal(temp_dir_clean(parent, "step-", TEMP_DIR_NUMBERED), 0);
	assert_false(run_has("several/step-000012.0123456789abcdef.tmp"));
}

/* The result goes to the target of a link; the link stays. */
static void test_link(void **state)
{
	char path[400], target[400];

	(void)state;
	path_of(target, "disk/results");
	assert_int_equal(file_make_dir(target), 0);
	path_of(path, "linked");
	assert_int_equal(symlink(target, path), 0);
	assert_ferry(0, NULL, "init config=%s/tiny.json output_dir=%s", work_dir, path);
	assert_true(file_is_link(path) && run_has("disk/results/config.json"));
	assert_ferry(0, NULL, "init config=%s/tiny.json output_dir=%s overwrite_output_dir=on seed=2",
	        work_dir, path);
	assert_true(file_is_link(path) && run_has("disk/results/config.json"));
	unlink(path);
}

/* "." cannot be renamed, and a shell that stands there is to see the files. */
static void test_here(void **state)
{
	char *binary = realpath(getenv("FERRY_BINARY") ? getenv("FERRY_BINARY") : "build/ferry", NULL);
	char command[4000], path[400];

	(void)state;
	assert_non_null(binary);
	path_of(path, "here");
	assert_int_equal(file_make_dir(path), 0);
	for (int i = 0; i < 2; i++) { /* the second has shards, and replaces the first */
		snprintf(command, sizeof(command),
		        "cd %s && %s init config=../tiny.json output_dir=. seed=%d %s >/dev/null && test -f "
		        "config.json",
		        path, binary, i, i ? "overwrite_output_dir=on max_shard_size=8KiB" : "");
		assert_int_equal(system(command), 0);
		assert_int_equal(run_has("here/model.safetensors"), !i);
		assert_int_equal(run_has("here/model.safetensors.index.json"), i);
	}
	free(binary);
}

/* A mount point in the test's own mount namespace; skipped if that is not allowed. */
static void test_mount_point(void **state)
{
	const char *binary = getenv("FERRY_BINARY");
	char path[400], config[400];
	int status;
	pid_t pid;

	(void)state;
	path_of(path, "mounted");
	path_of(config, "tiny.json");
	assert_int_equal(file_make_dir(path), 0);
	pid = fork();
	if (!pid) {
		char command[4000];

		if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		        mount("tmpfs", path, "tmpfs", 0, "size=4m"))
			_exit(77);
		snprintf(command, sizeof(command),
		        "mkdir %s/lost+found && %s init config=%s output_dir=%s 2>%s/stderr >/dev/null && "
		        "test -f %s/config.json && test -d %s/lost+found",
		        path, binary ? binary : "build/ferry", config, path, work_dir, path, path);
		status = system(command);
		_exit(WEXITSTATUS(status));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WEXITSTATUS(status) == 77) {
		printf("SKIPPED test_mount_point: no mount namespaces here\n");
		skip();
	}
	if (WEXITSTATUS(status))
		fail_msg("%d: %s", WEXITSTATUS(status), ferry_said());
}

/* ---- what others put there ---- */

static void make(const char *name)
{
	char path[400], *slash;

	path_of(path, name);
	slash = strrchr(path, '/');
	*slash = 0;
	assert_int_equal(file_make_dir(path), 0);
	write_file(name, "somebody's");
}

/* Overwriting removes ferry's files. It is refused if foreign files are in the way. */
static void test_foreign(void **state)
{
	static const char *const in_the_way[] = {"foreign/config.yaml", "foreign/metrics.jsonl",
	        "foreign/trace.json", "foreign/model/README.md",
	        "foreign/checkpoint-000500/trainer_state.json", "foreign/abandoned-1/x"};
	static const char *const beside[] = {"foreign/checkpoint-500/trainer_state.json", "foreign/latest",
	        "foreign/report.html", "foreign/model-old/config.json", "foreign/checkpoint-best/x"};
	char path[400];

	(void)state;
	for (size_t i = 0; i < sizeof(in_the_way) / sizeof(*in_the_way); i++) {
		make(in_the_way[i]);
		for (int resumes = 0; resumes < 2; resumes++) {
			assert_ferry(2, NULL, TRAIN "foreign max_steps=1 %s", tiny.dir, tiny.data, work_dir,
			        resumes ? "resume_from_checkpoint=auto" : "overwrite_output_dir=on");
			assert_non_null(strstr(ferry_said(), ", which ferry did not write"));
		}
		assert_true(run_has(in_the_way[i]));
		remove_run("foreign");
	}
	for (size_t i = 0; i < sizeof(beside) / sizeof(*beside); i++)
		make(beside[i]);
	for (int i = 0; i < 2; i++)
		assert_ferry(0, NULL, TRAIN "foreign max_steps=2 save_steps=1 overwrite_output_dir=on",
		        tiny.dir, tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "removed the run that was there, with 2 checkpoints"));
	for (size_t i = 0; i < sizeof(beside) / sizeof(*beside); i++)
		assert_true(run_has(beside[i]));

	/* the result of a run that goes on does not take somebody's notes with it */
	make("foreign/model/README.md");
	assert_ferry(
	        2, NULL, TRAIN "foreign max_steps=2 overwrite_output_dir=on", tiny.dir, tiny.data, work_dir);
	assert_ferry(
	        0, NULL, "train %s/foreign/config.yaml resume_from_checkpoint=auto max_steps=3", work_dir);
	assert_non_null(
	        strstr(ferry_said(), "model contains README.md, which ferry did not write; keeping it as "));
	assert_true(run_has("foreign/model/config.json") && !run_has("foreign/model/README.md") &&
	            run_has("foreign/model.replaced-1/README.md"));
	make("foreign/model/2024_notes/x"); /* called as a folder of sentence-transformers */
	assert_ferry(
	        0, NULL, "train %s/foreign/config.yaml resume_from_checkpoint=auto max_steps=4", work_dir);
	assert_true(run_has("foreign/model.replaced-2/2024_notes/x"));

	make("foreign/model/README.md");
	path_of(path, "foreign/model");
	assert_ferry(
	        2, NULL, "init config=%s/tiny.json output_dir=%s overwrite_output_dir=on", work_dir, path);
	assert_true(run_has("foreign/model/README.md"));
}

/* Rotation removes only the files of a save. It keeps foreign notes, another run inside a checkpoint, and
 * write-protected files. */
static void test_kept(void **state)
{
	char path[400], to[400];

	(void)state;
	assert_ferry(0, NULL, TRAIN "kept max_steps=4 save_steps=1 save_total_limit=all", tiny.dir, tiny.data,
	        work_dir);
	make("kept/checkpoint-000001/hf/notes");
	make("kept/checkpoint-000003/.DS_Store");
	for (int i = 0; i < 2; i++) {
		assert_ferry(2, NULL, TRAIN "kept/checkpoint-000002/%smore max_steps=1", tiny.dir, tiny.data,
		        work_dir, i ? "a/b/" : "");
		assert_non_null(strstr(ferry_said(), " is inside the checkpoint "));
	}
	assert_ferry(2, NULL,
	        "export checkpoint=%s/kept/checkpoint-000004 output_dir=%s/kept/checkpoint-000003/hf "
	        "overwrite_output_dir=on",
	        work_dir, work_dir);
	assert_ferry(0, NULL, TRAIN "more max_steps=1", tiny.dir, tiny.data, work_dir);
	path_of(path, "more");
	path_of(to, "kept/checkpoint-000002/more");
	assert_int_equal(rename(path, to), 0);
	path_of(path, "kept/checkpoint-000004");
	assert_int_equal(chmod(path, 0555), 0);
	make("kept/model/notes");
	assert_ferry(
	        2, NULL, TRAIN "kept max_steps=1 overwrite_output_dir=on", tiny.dir, tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "which ferry did not write; move it away"));
	path_of(to, "kept/model/notes");
	assert_int_equal(unlink(to), 0);
	assert_ferry(0, NULL,
	        "train %s/kept/config.yaml resume_from_checkpoint=auto max_steps=7 save_total_limit=1",
	        work_dir);
	assert_int_equal(count_of(ferry_said(), "ferry keeps this checkpoint beyond save_total_limit"), 3);
	assert_non_null(strstr(ferry_said(), "hf contains notes, which ferry did not write; ferry keeps"));
	assert_non_null(strstr(ferry_said(), "checkpoint-000004 is write-protected; ferry keeps"));
	assert_true(run_has("kept/checkpoint-000001/hf/notes") &&
	            run_has("kept/checkpoint-000004/manifest.json") &&
	            run_has("kept/checkpoint-000002/more/checkpoint-000001/manifest.json") &&
	            run_has("kept/checkpoint-000007/manifest.json"));
	assert_false(run_has("kept/checkpoint-000003") || run_has("kept/checkpoint-000005") ||
	             run_has("kept/checkpoint-000006"));
	assert_ferry(0, NULL, "verify %s/kept", work_dir);
	assert_ferry(
	        2, NULL, TRAIN "kept max_steps=1 overwrite_output_dir=on", tiny.dir, tiny.data, work_dir);
	assert_true(run_has("kept/checkpoint-000002/more/checkpoint-000001/manifest.json"));
}

/* The next run would read this one's files as rows. */
static void test_in_data(void **state)
{
	(void)state;
	make("folder/rows.jsonl");
	make("manifest.json"); /* of another program, and no checkpoint */
	for (int i = 0; i < 2; i++) {
		assert_ferry(2, NULL, TRAIN "folder/out max_steps=1 data=%s/folder%s", tiny.dir, tiny.data,
		        work_dir, work_dir, i ? "/" : "");
		assert_non_null(strstr(ferry_said(), "/folder/out is inside data="));
		assert_false(run_has("folder/out"));
	}
	assert_ferry(0, NULL, TRAIN "folder-out max_steps=1 eval_data=%s", tiny.dir, tiny.data, work_dir,
	        tiny.data);
}

static void test_model_link(void **state)
{
	char path[400], target[400];

	(void)state;
	assert_ferry(0, NULL, TRAIN "elsewhere max_steps=1", tiny.dir, tiny.data, work_dir);
	path_of(path, "elsewhere/model");
	assert_int_equal(file_remove_tree(path), 0);
	path_of(target, "big");
	assert_int_equal(symlink(target, path), 0);
	assert_ferry(
	        2, NULL, "train %s/elsewhere/config.yaml resume_from_checkpoint=auto max_steps=2", work_dir);
	assert_non_null(strstr(ferry_said(), "model is a broken symbolic link"));
	assert_int_equal(file_make_dir(target), 0);
	assert_ferry(
	        0, NULL, "train %s/elsewhere/config.yaml resume_from_checkpoint=auto max_steps=2", work_dir);
	assert_true(file_is_link(path) && run_has("big/model.safetensors"));
}

/* While a run goes on, nothing else writes into its directory. */
static void test_owned(void **state)
{
	const char *binary = getenv("FERRY_BINARY");
	char command[4000], path[400];
	pid_t pid;

	(void)state;
	snprintf(command, sizeof(command),
	        "%s " TRAIN "busy max_steps=4000 save_steps=1 save_total_limit=all host_copy_gbps=0.001",
	        binary ? binary : "build/ferry", tiny.dir, tiny.data, work_dir);
	pid = run_start(command);
	path_of(path, "busy/checkpoint-000001");
	while (!run_has("busy/checkpoint-000001") && is_running(pid))
		sleep_ms(2);
	assert_ferry(2, NULL, TRAIN "busy max_steps=1", tiny.dir, tiny.data, work_dir);
	assert_non_null(strstr(ferry_said(), "another ferry is writing there (process "));
	assert_ferry(2, NULL, "init config=%s/tiny.json output_dir=%s/busy/model", work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "another ferry is writing there (process "));
	kill(pid, SIGKILL);
	run_wait(pid);
	assert_true(run_has("busy/.ferry.lock"));
	assert_ferry(0, NULL, "init config=%s/tiny.json output_dir=%s/busy/model", work_dir, work_dir);
	assert_ferry(0, NULL,
	        "train %s/busy/config.yaml overwrite_output_dir=on max_steps=1 host_copy_gbps=off", work_dir);
	assert_false(run_has("busy/.ferry.lock"));
}

/* Moved or copied between two runs: config.yaml names the old place, and nothing begins there in silence. */
static void test_moved_before(void **state)
{
	char from[400], to[400];

	(void)state;
	assert_ferry(0, NULL, TRAIN "place max_steps=1", tiny.dir, tiny.data, work_dir);
	path_of(from, "place");
	path_of(to, "shelf");
	assert_int_equal(rename(from, to), 0);
	assert_ferry(2, NULL, "train %s/shelf/config.yaml resume_from_checkpoint=auto max_steps=2", work_dir);
	assert_non_null(strstr(ferry_said(), "shelf now (moved or copied); set output_dir="));
	assert_false(run_has("place/config.yaml"));
	assert_ferry(0, NULL,
	        "train %1$s/shelf/config.yaml output_dir=%1$s/shelf resume_from_checkpoint=auto "
	        "max_steps=2",
	        work_dir);
	assert_ferry(0, NULL, "train %s/shelf/config.yaml resume_from_checkpoint=auto max_steps=3", work_dir);
	assert_true(run_has("shelf/checkpoint-000003") && !run_has("place/config.yaml"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_lock),
	        cmocka_unit_test(test_no_locks),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_siblings),
	        cmocka_unit_test(test_link),
	        cmocka_unit_test(test_here),
	        cmocka_unit_test(test_mount_point),
	        cmocka_unit_test(test_foreign),
	        cmocka_unit_test(test_kept),
	        cmocka_unit_test(test_in_data),
	        cmocka_unit_test(test_model_link),
	        cmocka_unit_test(test_owned),
	        cmocka_unit_test(test_moved_before),
	};
	int failed;

	ferry_run_begin("run-dir");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
