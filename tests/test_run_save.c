/* links: cli */
/* also: usual */
/* Checkpoints written during a run: each is equal to the files of a run that ends there, for any
 * offloading and any speed of the disk. For slow or failing disks, the library runs in a child process
 * with a hook on its file operations. */
#include "tests/run_disks.h"

#include <dirent.h>
#include <errno.h>

static struct run_model model;

static const char common[] =
        "per_device_train_batch_size=2 gradient_accumulation_steps=2 threads=2 device=host "
        "lr_scheduler_type=constant learning_rate=1e-2 seed=3 logging_steps=1 vram_budget=off";

/* Its checkpoint of that step holds the files of `b`'s. */
static void assert_same_checkpoint(const char *a, const char *b, int step, const char *why)
{
	static const char file[] = "rank-00000.safetensors";
	char a_path[400], b_path[400];

	snprintf(a_path, sizeof(a_path), "%s/%s/checkpoint-%06d/%s", work_dir, a, step, file);
	snprintf(b_path, sizeof(b_path), "%s/%s/checkpoint-%06d/%s", work_dir, b, step, file);
	assert_same_files(a_path, b_path, why);
}

static void test_each_step_is_the_end_of_a_run(void **state)
{
	static const char *const settings[] = {
	        "compute_dtype=fp32",
	        "compute_dtype=bf16 optimizer_state=8bit",
	        "compute_dtype=fp32 max_grad_norm=0 skip_nonfinite=off",
	        "compute_dtype=bf16 schedule=micro_batch_major optimizer_state=bf16",
	        "compute_dtype=fp32 cpu_offload=off",
	        "compute_dtype=fp32 wrap_policy=none stream_delay_seed=3",
	};
	enum { STEPS = 5 };

	(void)state;
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		remove_run("all");
		assert_ferry(0, NULL,
		        "train model=%s data=%s output_dir=%s/all max_steps=%d save_steps=1 "
		        "save_total_limit=0 %s %s",
		        model.dir, model.data, work_dir, STEPS, common, settings[i]);
		for (int step = 1 + (int)i % 2; step <= STEPS; step += 2) {
			remove_run("one");
			assert_ferry(0, NULL,
			        "train model=%s data=%s output_dir=%s/one max_steps=%d save_steps=0 %s %s",
			        model.dir, model.data, work_dir, step, common, settings[i]);
			assert_same_checkpoint("all", "one", step, settings[i]);
		}
		assert_ferry(0, NULL, "verify %s/all", work_dir);
	}
}

/* ---- disks ---- */

struct disk {
	int sleep_ms;     /* before a shard's file is made, once the run waits for it */
	int failures;     /* of its fsync, the first so many */
	int kill_at_call; /* 0: not */
};

/* Do all other threads of this process sleep? */
static int others_sleep(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;
	int sleep = 1;

	assert_non_null(tasks);
	while (sleep && (entry = readdir(tasks))) {
		char path[300], text[300] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
		f = *entry->d_name == '.' || atoi(entry->d_name) == gettid() ? NULL : fopen(path, "r");
		if (!f)
			continue;
		if (fgets(text, sizeof(text), f) && strrchr(text, ')')) /* a name may hold blanks */
			sleep = strrchr(text, ')')[2] == 'S';
		fclose(f);
	}
	closedir(tasks);
	return sleep;
}

/* The steps have come as far as they can without this save, however fast or slow they are. */
static void wait_for_stillness(void)
{
	for (int looks = 0; looks < 5; looks = others_sleep() ? looks + 1 : 0)
		sleep_ms(10);
}

static int disk_hook(void *context, const struct file_call *call)
{
	struct disk *d = context;
	int is_shard = call->path && strstr(call->path, ".safetensors") && strstr(call->path, "step-");

	if (d->kill_at_call && !--d->kill_at_call)
		raise(SIGKILL);
	if (is_shard && call->kind == FILE_CALL_CREATE && d->sleep_ms) {
		wait_for_stillness();
		sleep_ms(d->sleep_ms);
	}
	if (is_shard && call->kind == FILE_CALL_SYNC && d->failures > 0) {
		d->failures--;
		return EIO;
	}
	return 0;
}

/* Sum of wait_ms.disk over the rows of a run. */
static double disk_wait(const char *name)
{
	char path[400], *text, *at, *end;
	double sum = 0;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, name);
	text = at = read_file(path, &len);
	while ((end = memchr(at, '\n', len - (size_t)(at - text)))) {
		json_t *row;

		assert_int_equal(json_parse(&row, path, at, (size_t)(end - at)), 0);
		sum += json_number_value(json_object_get(json_object_get(row, "wait_ms"), "disk"));
		json_decref(row);
		at = end + 1;
	}
	mem_free(text);
	return sum;
}

static void test_a_slow_disk(void **state)
{
	(void)state;
	remove_run("fast");
	remove_run("slow");
	assert_ferry(0, NULL,
	        "train model=%s data=%s output_dir=%s/fast max_steps=9 save_steps=4 save_total_limit=0 %s "
	        "logging_steps=2",
	        model.dir, model.data, work_dir, common);
	assert_int_equal(run_hooked(disk_hook, &(struct disk){.sleep_ms = 300},
	                         "train model=%s data=%s output_dir=%s/slow max_steps=9 save_steps=4 "
	                         "save_total_limit=0 %s logging_steps=2", /* row 5 would wait in the hook */
	                         model.dir, model.data, work_dir, common),
	        0);
	for (int step = 4; step <= 8; step += 4)
		assert_same_checkpoint("fast", "slow", step, "a slow disk");
	assert_same_runs("fast", "slow", "a slow disk");
	assert_true(disk_wait("slow") >= 300); /* the second UPDATE after the save waits for it */
}

/* However often a save fails, the run goes on; the checkpoint is that of a later step. */
static void test_a_failing_disk(void **state)
{
	static const int failures[] = {1, 2, 5};

	(void)state;
	for (size_t i = 0; i < sizeof(failures) / sizeof(*failures); i++) {
		const char *said, *first;

		remove_run("bad");
		assert_int_equal(run_hooked(disk_hook, &(struct disk){.failures = failures[i]},
		                         "train model=%s data=%s output_dir=%s/bad max_steps=9 save_steps=4 "
		                         "save_total_limit=0 %s",
		                         model.dir, model.data, work_dir, common),
		        0);
		said = ferry_said();
		first = strstr(said, "saving failed and will be tried again");
		assert_non_null(first);
		assert_non_null(strstr(first, "flush to disk"));
		assert_null(strstr(first + 1, "saving failed")); /* once, however often */
		assert_non_null(strstr(said, "saving works again"));
		assert_true(run_has("bad/checkpoint-000009"));
		assert_false(run_has("bad/checkpoint-000004"));
		assert_true(run_has("bad/model/model.safetensors"));
	}
}

/* Killed before any file operation: existing checkpoints are complete. A run that continues from there
 * ends like an uninterrupted one. */
static void test_killed_while_saving(void **state)
{
	(void)state;
	remove_run("whole");
	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/whole max_steps=6 save_steps=1 %s",
	        model.dir, model.data, work_dir, common);
	for (int i = 0; i < 6; i++) {
		int call = 150 + 37 * i, code;

		remove_run("killed");
		code = run_hooked(disk_hook, &(struct disk){.kill_at_call = call},
		        "train model=%s data=%s output_dir=%s/killed max_steps=6 save_steps=1 %s", model.dir,
		        model.data, work_dir, common);
		assert_true(code == 128 + SIGKILL || !code);
		if (!run_has("killed/config.yaml"))
			continue;
		assert_ferry(0, NULL, "train %s/killed/config.yaml resume_from_checkpoint=auto", work_dir);
		assert_same_runs("whole", "killed", "killed while saving");
		assert_ferry(0, NULL, "verify %s/killed", work_dir);
	}
}

static int begin(void **state)
{
	(void)state;
	ferry_run_begin("run-save");
	tiny_model(&model);
	return 0;
}

static int end(void **state)
{
	(void)state;
	ferry_run_end();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_each_step_is_the_end_of_a_run),
	        cmocka_unit_test(test_a_slow_disk),
	        cmocka_unit_test(test_a_failing_disk),
	        cmocka_unit_test(test_killed_while_saving),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
