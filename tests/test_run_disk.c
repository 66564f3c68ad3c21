/* links: cli */
/* A disk that is full, read-only, slow to free space or faulty during a run. No data in memory is lost,
 * the user gets one message, and the final files are complete. Some disks are mounts, others are a hook on
 * the run's file operations. */
#include "tests/run_disks.h"

#include "train/metrics.h"

#include <dirent.h>
#include <glob.h>
#include <sched.h>
#include <sys/resource.h>

static struct run_model tiny;

static const char common[] = "per_device_train_batch_size=2 threads=1 device=host logging_steps=1 "
                             "learning_rate=1e-3 lr_scheduler_type=constant";

/* ---- a disk under a hook ---- */

/* The fault of calls with `part` in their path, for calls first_call to last_call (from 0). */
struct bad_disk {
	const char *part;
	int kind, error, first_call, last_call;
	int seen;
};

static int bad_disk_hook(void *context, const struct file_call *call)
{
	struct bad_disk *d = context;
	int number;

	if (!call->path || !strstr(call->path, d->part) || (d->kind >= 0 && (int)call->kind != d->kind))
		return 0;
	number = d->seen++;
	return number >= d->first_call && number <= d->last_call ? d->error : 0;
}

/* Every kind of error that a save may meet, not only EIO: the run goes on and saves later. */
static void test_each_error_is_tried_again(void **state)
{
	static const struct {
		const char *part;
		int kind, error;
	} cases[] = {
	        {"/step-", FILE_CALL_MKDIR, EACCES},
	        {"/step-", FILE_CALL_MKDIR, ENOENT},
	        {"/step-", FILE_CALL_MKDIR, EROFS},
	        {"rank-00000.safetensors", FILE_CALL_CREATE, EPERM},
	        {"rank-00000.safetensors", FILE_CALL_CREATE, EMFILE},
	        {"rank-00000.safetensors", FILE_CALL_WRITE, ENOSPC},
	        {"rank-00000.safetensors", FILE_CALL_WRITE, EDQUOT},
	        {"rank-00000.safetensors", FILE_CALL_SYNC, EIO},
	        {"/step-", FILE_CALL_RENAME, ENOTDIR},
	        {"/hf/config.json", FILE_CALL_CREATE, EACCES},
	        {"manifest.json", FILE_CALL_CREATE, ENOMEM},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct bad_disk disk = {cases[i].part, cases[i].kind, cases[i].error, 0, 1, 0};
		int code;

		remove_run("out");
		code = run_hooked(bad_disk_hook, &disk,
		        "train model=%s data=%s output_dir=%s/out max_steps=9 save_steps=3 "
		        "save_total_limit=0 %s",
		        tiny.dir, tiny.data, work_dir, common);
		if (code || (cases[i].error != ENOMEM && !strstr(ferry_said(), strerror(cases[i].error))))
			fail_msg("case %zu: exit code %d: %s", i, code, ferry_said());
		assert_int_equal(count_of(ferry_said(), "saving failed and will be tried again"), 1);
		assert_int_equal(
		        count_of(ferry_said(), "still not saved (2 failures); there is no checkpoint yet"),
		        1);
		assert_int_equal(count_of(ferry_said(), "saving works again"), 1);
		assert_true(run_has("out/checkpoint-000009"));
		assert_ferry(0, NULL, "verify %s/out", work_dir);
	}
}

static void write_garbage(void)
{
	char path[700];

	path_of(path, "out/step-000001.0123456789abcdef.tmp");
	assert_int_equal(file_make_dir(path), 0);
	write_file("out/step-000001.0123456789abcdef.tmp/garbage", "x");
}

/* Left-overs of others that cannot be removed are in nobody's way. */
static void test_garbage_that_stays(void **state)
{
	char path[700];
	glob_t left;

	(void)state;
	remove_run("out");
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/out max_steps=2 %s", tiny.dir, tiny.data,
	        work_dir, common);
	write_garbage();
	assert_int_equal(
	        run_hooked(bad_disk_hook,
	                &(struct bad_disk){".tmp/garbage", FILE_CALL_REMOVE, EBUSY, 0, 99, 0},
	                "train %s/out/config.yaml max_steps=5 save_steps=1 resume_from_checkpoint=auto",
	                work_dir),
	        0);
	assert_int_equal(count_of(ferry_said(), "cannot remove the files of an unfinished save"), 1);
	assert_null(strstr(ferry_said(), "saving failed"));
	path_of(path, "out/step-*.tmp/garbage");
	assert_int_equal(glob(path, 0, NULL, &left), 0);
	globfree(&left);
	assert_true(run_has("out/checkpoint-000005"));
}

/* Reads of rows fail after some that go back: loading reads in order, steps do not. */
struct lost_rows {
	int64_t offset_bytes;
	int back;
};

static int rows_hook(void *context, const struct file_call *call)
{
	struct lost_rows *l = context;

	if (!call->path || !strstr(call->path, ".rows") || call->kind != FILE_CALL_READ)
		return 0;
	l->back += call->offset_bytes < l->offset_bytes;
	l->offset_bytes = call->offset_bytes;
	return l->back > 12 ? EIO : 0;
}

/* Rows that cannot be read end the run, but not before its weights are saved. */
static void test_rows_are_lost(void **state)
{
	struct lost_rows lost = {0};
	char path[700];
	FILE *f;

	(void)state;
	remove_run("out");
	path_of(path, "long.jsonl");
	f = fopen(path, "w");
	assert_non_null(f);
	for (int row = 0; row < 6000; row++) { /* more than data_memory */
		fputs("{\"input_ids\":[1", f);
		for (int i = 0; i < 60; i++)
			fprintf(f, ",%d", 1 + (row + i) % 20);
		fputs("]}\n", f);
	}
	assert_int_equal(fclose(f), 0);
	assert_int_equal(
	        run_hooked(rows_hook, &lost,
	                "train model=%s data=%s data_memory=1MiB data_cache=%s/cache output_dir=%s/out "
	                "max_steps=40 %s",
	                tiny.dir, path, work_dir, work_dir, common),
	        1);
	assert_non_null(strstr(ferry_said(), strerror(EIO)));
	if (!strstr(ferry_said(), "the last checkpoint is of step "))
		fail_msg("%s", ferry_said());
	assert_ferry(0, NULL, "train %s/out/config.yaml resume_from_checkpoint=auto", work_dir);
	assert_non_null(strstr(ferry_said(), "resumed "));
}

/* ---- data reads back differently than it was written ---- */

/* The first shard that is read back comes back wrong: memory writes it again. */
static void test_damage_is_written_again(void **state)
{
	char path[700];

	(void)state;
	remove_run("out");
	assert_int_equal(run_hooked(bad_disk_hook,
	                         &(struct bad_disk){"checkpoint-000002/rank-00000.safetensors",
	                                 FILE_CALL_READ, EIO, 0, 0, 0},
	                         "train model=%s data=%s output_dir=%s/out max_steps=5 save_steps=1 "
	                         "save_total_limit=1 %s",
	                         tiny.dir, tiny.data, work_dir, common),
	        0);
	assert_non_null(strstr(ferry_said(), "checkpoint-000002 was damaged when read back; removing it"));
	assert_non_null(strstr(ferry_said(), "saving works again"));
	assert_true(run_has("out/checkpoint-000005"));
	path_of(path, "out/checkpoint-000002");
	assert_int_equal(file_kind_of(path), FILE_NONE);
}

static void damage(const char *name)
{
	char path[700];
	int64_t len;
	int fd;
	char byte;

	path_of(path, name);
	fd = file_open_read(path, &len);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, len - 9), 1);
	close(fd);
	fd = open(path, O_WRONLY);
	byte ^= 1;
	assert_int_equal(pwrite(fd, &byte, 1, len - 9), 1);
	close(fd);
}

/* auto goes on with the newest that is good, says so, and the damaged ones are out of the way afterwards. In
 * small files opening finds the damage, in large ones loading does. */
static void test_auto_takes_the_newest_good_one(void **state)
{
	(void)state;
	write_file("wide.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":20000,\"hidden_size\":32,\"intermediate_size\":48,"
	        "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"max_position_embeddings\":128}");
	assert_ferry(0, NULL, "init config=%s/wide.json output_dir=%s/wide seed=1", work_dir, work_dir);
	for (int wide = 0; wide < 2; wide++) {
		remove_run("whole");
		remove_run("out");
		for (int i = 0; i < 2; i++)
			assert_ferry(0, NULL,
			        "train model=%s/%s data=%s output_dir=%s/%s max_steps=6 save_steps=2 "
			        "save_total_limit=0 %s",
			        work_dir, wide ? "wide" : "tiny", tiny.data, work_dir, i ? "out" : "whole",
			        common);
		damage("out/checkpoint-000006/rank-00000.safetensors");
		damage("out/checkpoint-000004/rank-00000.safetensors");
		assert_ferry(0, NULL, "train %s/out/config.yaml resume_from_checkpoint=auto", work_dir);
		assert_non_null(strstr(ferry_said(), "out/checkpoint-000006: "));
		assert_non_null(strstr(ferry_said(), "out/checkpoint-000004: "));
		assert_int_equal(count_of(ferry_said(), "skipping "), 2);
		assert_non_null(strstr(ferry_said(), "checkpoint-000002 at step 2"));
		assert_ferry(0, NULL, "verify %s/out/checkpoint-000006", work_dir);
		assert_same_runs("whole", "out", "resumed from the newest good checkpoint");
		/* by its path it is what was asked for, or nothing */
		damage("out/checkpoint-000006/rank-00000.safetensors");
		assert_ferry(2, NULL,
		        "train %s/out/config.yaml resume_from_checkpoint=%s/out/checkpoint-000006 "
		        "max_steps=7",
		        work_dir, work_dir);
	}
}

/* ---- the checkpoint that was resumed ---- */

static int opened_by(pid_t pid, const char *part)
{
	char dir[64], target[1000];
	struct dirent *entry;
	int count = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", pid);
	d = opendir(dir);
	while (d && (entry = readdir(d))) {
		char path[400];
		ssize_t len;

		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		len = readlink(path, target, sizeof(target) - 1);
		target[len > 0 ? len : 0] = 0;
		count += strstr(target, part) != NULL;
	}
	if (d)
		closedir(d);
	return count;
}

/* Once training goes on, no file of the checkpoint or of the model is open: rotation frees its place. */
static void test_files_are_closed_once_loaded(void **state)
{
	char command[2000], path[700];
	pid_t pid;

	(void)state;
	remove_run("out");
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/out max_steps=2 %s", tiny.dir, tiny.data,
	        work_dir, common);
	path_of(path, "out/metrics.jsonl");
	for (int fresh = 0; fresh < 2; fresh++) {
		int lines = fresh ? 0 : 2;

		if (fresh)
			remove_run("out");
		snprintf(command, sizeof(command),
		        "%s train model=%s data=%s output_dir=%s/out max_steps=1000000 save_steps=0 %s "
		        "lr_scheduler_type=constant resume_from_checkpoint=%s",
		        getenv("FERRY_BINARY"), tiny.dir, tiny.data, work_dir, common,
		        fresh ? "off" : "auto");
		pid = run_start(command);
		while (line_count(path) < lines + 2 && is_running(pid))
			sleep_ms(2);
		assert_int_equal(opened_by(pid, ".safetensors"), 0);
		assert_true(opened_by(pid, "metrics.jsonl") == 1);
		assert_int_equal(run_signal(pid, SIGTERM, "out", lines + 3, 0), 3);
	}
}

/* ---- real disks ---- */

/* A disk with room for three checkpoints and a model: save_total_limit=2 needs no more, resumed or not. */
static void test_rotation_on_a_small_disk(void **state)
{
	(void)state;
	if (!disk_mount(1200))
		skip();
	for (int part = 0; part < 3; part++)
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/disk/out max_steps=%d save_steps=1 "
		        "save_total_limit=2 "
		        "%s resume_from_checkpoint=%s",
		        tiny.dir, tiny.data, work_dir, 6 * (part + 1), common, part ? "auto" : "off");
	assert_null(strstr(ferry_said(), "saving failed"));
	assert_ferry(0, NULL, "verify %s/disk/out", work_dir);
	disk_unmount();
}

/* Before its first step, a run compares the bytes that it will write with the free room. */
static void test_room_is_known_before(void **state)
{
	(void)state;
	if (!disk_mount(160)) /* a checkpoint takes more */
		skip();
	assert_ferry(5, NULL, "train model=%s data=%s output_dir=%s/disk/out max_steps=6 %s", tiny.dir,
	        tiny.data, work_dir, common);
	assert_non_null(strstr(ferry_said(), "nothing could be saved"));
	assert_false(run_has("disk/out"));
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/disk/out max_steps=6 save_only_model=on %s", tiny.dir,
	        tiny.data, work_dir, common);
	assert_true(run_has("disk/out/model"));
	disk_unmount();
	if (!disk_mount(640)) /* one fits, three do not */
		skip();
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/disk/deep/er/out max_steps=6 save_steps=2 --dry-run %s",
	        tiny.dir, tiny.data, work_dir, common);
	assert_non_null(strstr(ferry_said(), "3 checkpoints of"));
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/disk/out max_steps=6 save_steps=0 %s",
	        tiny.dir, tiny.data, work_dir, common);
	assert_null(strstr(ferry_said(), "free;"));
	disk_unmount();
}

/* Full for a while: steps, rows and the checkpoint are all there in the end. */
static void test_full_for_a_while(void **state)
{
	char command[2000], path[700], fill[700], *numbers;
	pid_t pid;

	(void)state;
	if (!disk_mount(4096))
		skip();
	path_of(path, "disk/out/metrics.jsonl");
	path_of(fill, "disk/fill");
	snprintf(command, sizeof(command),
	        "%s train model=%s data=%s output_dir=%s/disk/out max_steps=1000000 save_steps=100 %s",
	        getenv("FERRY_BINARY"), tiny.dir, tiny.data, work_dir, common);
	pid = run_start(command);
	while (line_count(path) < 20 && is_running(pid))
		sleep_ms(2);
	fill_disk(pid, "disk/fill");
	kill(pid, SIGCONT);
	run_wait_for_words(pid, "metrics.jsonl: cannot be written: No space left");
	run_wait_for_words(pid, "saving failed and will be tried again");
	assert_int_equal(unlink(fill), 0);
	run_wait_for_words(pid, "metrics.jsonl: written again; 0 rows lost");
	run_wait_for_words(pid, "saving works again");
	assert_int_equal(run_signal(pid, SIGTERM, "disk/out", line_count(path) + 300, 0), 3);
	assert_int_equal(count_of(ferry_said(), "metrics.jsonl: cannot be written"), 1);
	assert_ferry(0, NULL, "verify %s/disk/out", work_dir);
	numbers = run_numbers("disk/out"); /* every line whole */
	for (int step = 1; step < 300; step++) {
		char row[32];

		snprintf(row, sizeof(row), " step %d ", step);
		if (!strstr(numbers, row))
			fail_msg("step %d is missing", step);
	}
	mem_free(numbers);
	disk_unmount();
}

/* ---- the last resort ---- */

/* No checkpoint can be written to its end: the last one and the result go to save_fallback_dir. */
static void test_fallback_at_the_end(void **state)
{
	char a[700], b[700];

	(void)state;
	remove_run("out");
	remove_run("spare");
	remove_run("straight");
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/straight max_steps=6 %s", tiny.dir,
	        tiny.data, work_dir, common);
	assert_int_equal(
	        run_hooked(bad_disk_hook, &(struct bad_disk){"/out/", FILE_CALL_SYNC, ENOSPC, 8, 1000000, 0},
	                "train model=%s data=%s output_dir=%s/out save_fallback_dir=%s/spare max_steps=6 "
	                "save_steps=2 %s",
	                tiny.dir, tiny.data, work_dir, work_dir, common),
	        0);
	assert_non_null(strstr(ferry_said(), "using save_fallback_dir="));
	assert_true(run_has("spare/out.1/checkpoint-000006"));
	assert_ferry(0, NULL, "verify %s/spare/out.1", work_dir);
	path_of(a, "straight/model/model.safetensors");
	path_of(b, "spare/out.1/model/model.safetensors");
	assert_same_files(a, b, "the result in save_fallback_dir");
	assert_false(run_has("out/checkpoint-000006"));
}

/* A failure that is certain at the end is reported at the start. */
static void test_fallback_that_cannot_be_made(void **state)
{
	char path[700];

	(void)state;
	remove_run("out");
	remove_run("spare");
	write_file("a_file", "x");
	assert_ferry(2, NULL,
	        "train model=%s data=%s output_dir=%s/out save_fallback_dir=%s/a_file/deep max_steps=2 %s",
	        tiny.dir, tiny.data, work_dir, work_dir, common);
	assert_non_null(strstr(ferry_said(), "a_file is not a directory"));
	path_of(path, "nowhere");
	assert_int_equal(symlink("missing", path), 0);
	assert_ferry(2, NULL,
	        "train model=%s data=%s output_dir=%s/out save_fallback_dir=%s/nowhere max_steps=2 %s",
	        tiny.dir, tiny.data, work_dir, work_dir, common);
	assert_non_null(strstr(ferry_said(), "nowhere is a broken symbolic link"));
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/out save_fallback_dir=%s/spare --dry-run max_steps=2 "
	        "%s",
	        tiny.dir, tiny.data, work_dir, work_dir, common);
	assert_false(run_has("spare"));
}

/* Full for good when a signal comes: the checkpoint is in save_fallback_dir, and the line that is printed
 * resumes it. Without the key the run says that nothing was saved. */
static void test_fallback_at_a_signal(void **state)
{
	char command[2000], path[700];

	(void)state;
	for (int has_fallback = 1; has_fallback >= 0; has_fallback--) {
		pid_t pid;

		remove_run("spare");
		if (!disk_mount(4096))
			skip();
		path_of(path, "disk/out/metrics.jsonl");
		snprintf(command, sizeof(command),
		        "%s train model=%s data=%s output_dir=%s/disk/out max_steps=1000000 save_steps=0 %s "
		        "%s%s%s",
		        getenv("FERRY_BINARY"), tiny.dir, tiny.data, work_dir, common,
		        has_fallback ? "save_fallback_dir=" : "", has_fallback ? work_dir : "",
		        has_fallback ? "/spare" : "");
		pid = run_start(command);
		while (line_count(path) < 5 && is_running(pid))
			sleep_ms(2);
		fill_disk(pid, "disk/fill");
		kill(pid, SIGTERM); /* which it gets when it goes on */
		assert_int_equal(run_signal(pid, SIGCONT, "disk/out", 0, 0), has_fallback ? 3 : 1);
		if (!has_fallback) {
			assert_non_null(strstr(ferry_said(), "No space left"));
			assert_non_null(strstr(ferry_said(), "no checkpoint was saved yet"));
			disk_unmount();
			break;
		}
		assert_non_null(strstr(last_line(), "/spare/out.1/config.yaml resume_from_checkpoint="));
		snprintf(command, sizeof(command), "%.1800s max_steps=%d", last_line(),
		        line_count(path) + 100);
		path_of(path, "disk/fill");
		assert_int_equal(unlink(path), 0);
		pid = run_start(command);
		assert_int_equal(run_wait(pid), 0);
		assert_non_null(strstr(ferry_said(), "resumed "));
		assert_true(run_has("disk/out/model/model.safetensors"));
		disk_unmount();
	}
}

/* ---- metrics ---- */

static struct metrics_step row_of(int64_t step)
{
	return (struct metrics_step){.step = step, .loss = 1};
}

/* A limit on file sizes acts like a full disk: lines are torn in the middle, and completed later. */
static void test_metrics_wait_for_room(void **state)
{
	struct rlimit before, limit;
	struct metrics *m;
	char path[700];

	(void)state;
	path_of(path, "late.jsonl");
	assert_int_equal(metrics_open(&m, path, -1), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, SIG_IGN);
	limit = before;
	limit.rlim_cur = 1000; /* in the middle of a line */
	for (int64_t step = 1; step <= 40; step++) {
		struct metrics_step row = row_of(step);

		if (step == 2)
			assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		if (step == 30)
			assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
		metrics_write_step(m, &row);
	}
	metrics_close(m);
	assert_int_equal(line_count(path), 40);
	assert_int_equal(metrics_open(&m, path, 40), 0); /* would remove a torn line */
	metrics_close(m);
	assert_int_equal(line_count(path), 40);
}

/* Only the end of a long file is read. */
static void test_metrics_longer_than_a_gigabyte(void **state)
{
	struct metrics *m;
	char path[700];
	FILE *f;

	(void)state;
	path_of(path, "long.jsonl");
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("{\"step\": 1}\n", f);
	assert_int_equal(fseeko(f, (off_t)3 << 30, SEEK_SET), 0); /* a hole */
	for (int step = 2; step <= 9; step++)
		fprintf(f, "\n{\"step\": %d}", step);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(metrics_open(&m, path, 5), 0);
	metrics_close(m);
	f = fopen(path, "r");
	assert_int_equal(fseeko(f, -13, SEEK_END), 0);
	for (const char *c = "\n{\"step\": 5}\n"; *c; c++)
		assert_int_equal(getc(f), *c);
	fclose(f);
	assert_int_equal(unlink(path), 0);
}

static int begin(void **state)
{
	(void)state;
	ferry_run_begin("run-disk");
	tiny_model(&tiny);
	return 0;
}

static int end(void **state)
{
	(void)state;
	disk_unmount();
	ferry_run_end();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_each_error_is_tried_again),
	        cmocka_unit_test(test_garbage_that_stays),
	        cmocka_unit_test(test_rows_are_lost),
	        cmocka_unit_test(test_damage_is_written_again),
	        cmocka_unit_test(test_auto_takes_the_newest_good_one),
	        cmocka_unit_test(test_files_are_closed_once_loaded),
	        cmocka_unit_test(test_rotation_on_a_small_disk),
	        cmocka_unit_test(test_room_is_known_before),
	        cmocka_unit_test(test_full_for_a_while),
	        cmocka_unit_test(test_fallback_at_the_end),
	        cmocka_unit_test(test_fallback_that_cannot_be_made),
	        cmocka_unit_test(test_fallback_at_a_signal),
	        cmocka_unit_test(test_metrics_wait_for_room),
	        cmocka_unit_test(test_metrics_longer_than_a_gigabyte),
	};

	/* mounts of these tests are seen by nobody else; without the right to that, they skip */
	if (!unshare(CLONE_NEWNS))
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
	return cmocka_run_group_tests(tests, begin, end);
}
