/* links: cli */
/* Runs that start again or go on: killed before their first checkpoint, without the adapter that they began
 * with; the reference of preference training goes with the run, and neither damage nor another run's file is
 * taken. */
#include "tests/run_disks.h"

#include <glob.h>

static struct run_model tiny;
static char speaker[400], pairs[400];

#define KEYS                                                                                                 \
	"train model=%s data=%s output_dir=%s/%s preference_loss=sigmoid learning_rate=1e-2 threads=1 "      \
	"device=host logging_steps=1 per_device_train_batch_size=2 lr_scheduler_type=constant "              \
	"export_dtype=fp32 "

static void write_pairs(void)
{
	struct str text = {0};

	for (int i = 0; i < 12; i++)
		str_printf(&text,
		        "{\"prompt\":\"ask %d\",\"chosen\":\" the %d ship\",\"rejected\":\" no\"}\n", i, i);
	write_file("pairs.jsonl", "%s", text.data);
	str_free(&text);
}

static void train(const char *out, const char *more)
{
	remove_run(out);
	assert_ferry(0, NULL, KEYS "%s", speaker, pairs, work_dir, out, more);
}

static int resume(const char *out, const char *more)
{
	return ferry_run(NULL, "train %s/%s/config.yaml resume_from_checkpoint=auto %s", work_dir, out, more);
}

static void assert_says(const char *words)
{
	if (!strstr(ferry_said(), words))
		fail_msg("no \"%s\" in: %s", words, ferry_said());
}

/* ---- killed before the first checkpoint ---- */

/* The same command goes on, whatever the killed run and an older ferry left. */
static void test_starts_again(void **state)
{
	static const char *const more[] = {"", "eval_split=3 dump_gradients=GRADIENTS", "lora_rank=2"};
	char command[3000], a[400], b[400], keys[600];

	(void)state;
	for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++) {
		int dumps = strstr(more[i], "GRADIENTS") != NULL;

		remove_run("killed");
		path_of(a, "whole.st");
		path_of(b, "killed.st");
		unlink(a);
		unlink(b);
		snprintf(keys, sizeof(keys), "%.*s%s", dumps ? 28 : 100, more[i], dumps ? a : "");
		snprintf(keys + strlen(keys), 100, " max_steps=4");
		train("whole", keys);
		snprintf(keys, sizeof(keys), "%.*s%s", dumps ? 28 : 100, more[i], dumps ? b : "");
		snprintf(command, sizeof(command),
		        "%s " KEYS "%s max_steps=100000 save_steps=0 resume_from_checkpoint=auto",
		        getenv("FERRY_BINARY"), speaker, pairs, work_dir, "killed", keys);
		assert_int_equal(run_signal(run_start(command), SIGKILL, "killed", 2, 0), 128 + SIGKILL);
		assert_true(run_has("killed/reference.safetensors"));
		assert_int_equal(run_has("killed.st"), dumps);
		if (!i) /* an older ferry wrote under the name itself */
			write_file("killed/reference.safetensors", "{cut");
		write_file("killed/reference.safetensors.tmp-1-0", "{cut");
		assert_ferry(0, NULL, KEYS "%s max_steps=4 resume_from_checkpoint=auto", speaker, pairs,
		        work_dir, "killed", keys);
		assert_same_runs("whole", "killed", more[i]);
		assert_false(run_has("killed/reference.safetensors.tmp-1-0"));
		if (dumps)
			assert_same_files(a, b, "the gradients of the first step");
		path_of(a, "whole/reference.safetensors");
		path_of(b, "killed/reference.safetensors");
		assert_same_files(a, b, "the reference");
	}
}

/* A file of that name that ferry did not write stays. */
static void test_foreign_gradients(void **state)
{
	char path[400];

	(void)state;
	remove_run("out");
	path_of(path, "mine.txt");
	write_file("mine.txt", "mine");
	assert_ferry(2, NULL, KEYS "max_steps=1 resume_from_checkpoint=auto dump_gradients=%s", speaker,
	        pairs, work_dir, "out", path);
	assert_says("mine.txt exists and is not a file of gradients that ferry wrote; remove it");
	assert_false(run_has("out/config.yaml"));
}

/* ---- what is not taken ---- */

static void put_back(const char *data, size_t len)
{
	char path[400];

	path_of(path, "out/reference.safetensors");
	assert_int_equal(file_write_all(path, data, len), 0);
}

static void assert_refused(const char *why)
{
	char config[400], *before, *after;
	size_t before_len, after_len;

	path_of(config, "out/config.yaml");
	before = read_file(config, &before_len);
	if (resume("out", "max_steps=3") != 2)
		fail_msg("%s: taken: %s", why, ferry_said());
	assert_says("reference.safetensors");
	if (ferry_run(NULL, "verify %s/out", work_dir) != 2)
		fail_msg("%s: verify: %s", why, ferry_said());
	after = read_file(config, &after_len);
	assert_int_equal(before_len, after_len);
	assert_memory_equal(before, after, before_len);
	mem_free(before);
	mem_free(after);
}

/* Each bit counts: of the values, and of what the file says of them. */
static void test_damage(void **state)
{
	char path[400], *data, *bad;
	size_t len, other_len;

	(void)state;
	train("out", "max_steps=2 eval_split=3 eval_steps=1");
	assert_ferry(0, NULL, "verify %s/out", work_dir);
	path_of(path, "out/reference.safetensors");
	data = read_file(path, &len);
	bad = malloc(len);
	for (int i = 0; i < 40; i++) {
		size_t at = (size_t)rng_below(5, 1, (uint64_t)i, len);

		memcpy(bad, data, len);
		bad[at] ^= (char)(1 << rng_below(5, 2, (uint64_t)i, 8));
		put_back(bad, len);
		if (ferry_run(NULL, "verify %s/out", work_dir) != 2)
			fail_msg("byte %zu of %zu: %s", at, len, ferry_said());
		if (i < 4)
			assert_refused("a bit");
	}
	memcpy(bad, data, len); /* the values one row further */
	memcpy(bad + len - 40, data + len - 32, 32);
	memcpy(bad + len - 8, data + len - 40, 8);
	put_back(bad, len);
	assert_refused("rotated");
	assert_says("damaged");
	put_back(data, len - 8);
	assert_refused("cut");

	/* whole, but of other runs over the same rows */
	train("first", "max_steps=1");
	for (int i = 0; i < 2; i++) {
		char *other;

		remove_run("other");
		snprintf(path, sizeof(path), "%s/first/model", work_dir);
		assert_ferry(0, NULL, KEYS "max_steps=1 eval_split=3 %s", i ? speaker : path, pairs, work_dir,
		        "other", i ? "compute_dtype=fp32" : "");
		path_of(path, "other/reference.safetensors");
		other = read_file(path, &other_len);
		put_back(other, other_len);
		mem_free(other);
		assert_refused(i ? "another dtype" : "another model");
		assert_int_equal(resume("out", "max_steps=3"), 2);
		assert_says("belongs to another run than the checkpoint; put the run's own file back");
	}
	put_back(data, len);
	assert_int_equal(resume("out", "max_steps=3"), 0);
	free(bad);
	mem_free(data);
}

/* Settings that the reference depends on. */
static void test_settings(void **state)
{
	(void)state;
	train("first", "max_steps=2 lora_rank=2");
	train("out", "max_steps=2");
	assert_int_equal(resume("out", "max_steps=3 compute_dtype=fp32"), 0);
	assert_says("compute_dtype=fp32, but the reference was computed in bf16");
	remove_run("out");
	assert_ferry(0, NULL, KEYS "max_steps=2 lora_adapter=%s/first/adapter", speaker, pairs, work_dir,
	        "out", work_dir);
	assert_int_equal(resume("out", "max_steps=3 preference_reference=base"), 2);
	assert_says("this run's reference is preference_reference=start");
	assert_null(strstr(ferry_said(), "from here on"));
	train("out", "max_steps=2 preference_loss=simpo");
	assert_int_equal(resume("out", "max_steps=3 preference_loss=sigmoid"), 2);
	assert_says("the run began with preference_loss=simpo, which has no reference");
}

/* ---- where the run goes ---- */

static int full_hook(void *context, const struct file_call *call)
{
	(void)context;
	if (!call->path || !strstr(call->path, "/out/step-"))
		return 0;
	return call->kind == FILE_CALL_MKDIR ? ENOSPC : 0;
}

/* save_fallback_dir, a directory that is removed while the run goes on, and abandoned steps: the reference is
 * beside the checkpoint there too. */
static void test_goes_with_the_run(void **state)
{
	char command[3000], path[400];
	pid_t pid;

	(void)state;
	train("whole", "max_steps=4");
	remove_run("out");
	remove_run("spare");
	assert_int_equal(run_hooked(full_hook, NULL, KEYS "max_steps=2 save_fallback_dir=%s/spare", speaker,
	                         pairs, work_dir, "out", work_dir),
	        0);
	assert_ferry(0, NULL, "verify %s/spare/out.1", work_dir);
	assert_ferry(0, NULL,
	        "train %s/spare/out.1/config.yaml resume_from_checkpoint=%s/spare/out.1/checkpoint-000002 "
	        "max_steps=4 output_dir=%s/back",
	        work_dir, work_dir, work_dir);
	path_of(path, "whole/model/model.safetensors");
	snprintf(command, sizeof(command), "%s/back/model/model.safetensors", work_dir);
	assert_same_files(path, command, "after the fallback");

	remove_run("out");
	snprintf(command, sizeof(command), "%s " KEYS "max_steps=100000 save_steps=0 host_copy_gbps=0.01",
	        getenv("FERRY_BINARY"), speaker, pairs, work_dir, "out");
	pid = run_start(command);
	path_of(path, "out/metrics.jsonl");
	while (line_count(path) < 1 && is_running(pid))
		sleep_ms(2);
	run_halt(pid);
	path_of(path, "out");
	assert_int_equal(file_remove_tree(path), 0);
	kill(pid, SIGCONT);
	run_wait_for_words(pid, "makes it again");
	kill(pid, SIGTERM);
	assert_int_equal(run_wait(pid), 3);
	assert_ferry(0, NULL, "verify %s/out", work_dir);

	train("out", "max_steps=4 save_steps=1 save_total_limit=all");
	assert_int_equal(ferry_run(NULL,
	                         "train %s/out/config.yaml max_steps=4 "
	                         "resume_from_checkpoint=%s/out/checkpoint-000002",
	                         work_dir, work_dir),
	        0);
	assert_int_equal(ferry_run(NULL,
	                         "train %s/out/config.yaml max_steps=4 "
	                         "resume_from_checkpoint=%s/out/abandoned-1/checkpoint-000003",
	                         work_dir, work_dir),
	        0);
	assert_same_runs("whole", "out", "back to what was abandoned");
}

/* ---- the adapter that a run began with ---- */

/* Its checkpoint has all of it: the directory may be gone, or be another. */
static void test_adapter_is_gone(void **state)
{
	static const char *const more[] = {
	        "preference_reference=base", "preference_loss=simpo optimizer_state=8bit"};
	char keys[600], path[400];

	(void)state;
	for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++) {
		train("first", "max_steps=2 lora_rank=2");
		path_of(path, "first/adapter");
		snprintf(keys, sizeof(keys), "lora_adapter=%s max_steps=4 %s", path, more[i]);
		train("whole", keys);
		snprintf(keys, sizeof(keys), "lora_adapter=%s max_steps=2 %s", path, more[i]);
		train("out", keys);
		assert_int_equal(file_remove_tree(path), 0);
		if (resume("out", "max_steps=4"))
			fail_msg("%s", ferry_said());
		assert_says("first/adapter is not there; the checkpoint has the adapter");
		assert_same_runs("whole", "out", more[i]);
	}
	train("first", "max_steps=1 lora_rank=2");
	train("second", "max_steps=1 lora_rank=2");
	snprintf(keys, sizeof(keys), "lora_adapter=%s/first/adapter max_steps=1", work_dir);
	train("out", keys);
	snprintf(keys, sizeof(keys), "lora_adapter=%s/second/adapter max_steps=2", work_dir);
	assert_int_equal(resume("out", keys), 0);
	assert_says("second/adapter is not what the run began with");
	snprintf(
	        keys, sizeof(keys), "max_steps=1 lora_adapter=%s/nothing", work_dir); /* a new run needs it */
	assert_ferry(2, NULL, KEYS "%s resume_from_checkpoint=auto", speaker, pairs, work_dir, "new", keys);
}

/* ---- a damaged data_cache ---- */

/* A bit flips in the file of rows, or it is cut, before the run, or while it is halted: the rows are made
 * again and the result is the same. If the data are gone meanwhile the run ends, and goes on once they are
 * back. */
static void damage(const char *ending, int cuts)
{
	char pattern[400];
	glob_t found;
	char byte;
	int fd;

	snprintf(pattern, sizeof(pattern), "%s/cache/*%s", work_dir, ending);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_int_equal(found.gl_pathc, 1);
	fd = open(found.gl_pathv[0], O_RDWR);
	assert_true(fd >= 0);
	globfree(&found);
	if (cuts)
		assert_int_equal(ftruncate(fd, cuts == 1 ? 5000 : 0), 0);
	/* a flipped bit in each of many rows */
	for (off_t at = 600; !cuts && pread(fd, &byte, 1, at) == 1; at += 700) {
		byte ^= 4;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	close(fd);
}

#define CACHED                                                                                               \
	"train model=%s/tiny data=%s/long.jsonl data_memory=1MiB data_cache=%s/cache output_dir=%s/%s "      \
	"per_device_train_batch_size=2 threads=1 device=host logging_steps=1 learning_rate=1e-3 "            \
	"lr_scheduler_type=constant export_dtype=fp32 "

static void cached(const char *out, const char *more)
{
	remove_run(out);
	assert_ferry(0, NULL, CACHED "%s", work_dir, work_dir, work_dir, work_dir, out, more);
}

static void write_long(void)
{
	struct str text = {0};

	for (int row = 0; row < 6000; row++) {
		str_add(&text, "{\"input_ids\":[1");
		for (int i = 0; i < 60; i++)
			str_printf(&text, ",%d", 1 + (row + i) % 20);
		str_add(&text, "]}\n");
	}
	write_file("long.jsonl", "%s", text.data);
	str_free(&text);
}

static void test_damaged_rows(void **state)
{
	static const char *const more[] = {"max_steps=6 save_steps=2", "max_steps=6 save_steps=2 ranks=2",
	        "max_steps=6 packing=bfd eval_split=100 eval_steps=3"};
	char command[3000], a[400], b[400];
	pid_t pid;

	(void)state;
	write_long();
	for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++) {
		remove_run("cache");
		cached("whole", more[i]);
		damage(".rows", 0);
		cached("out", more[i]);
		assert_says(".rows is damaged; making the rows of ");
		assert_same_runs("whole", "out", more[i]);
		cached("out", more[i]); /* once */
		assert_null(strstr(ferry_said(), "damaged"));
	}

	for (int cuts = 0; cuts < 3; cuts++) { /* while the run goes on */
		snprintf(command, sizeof(command),
		        "%s " CACHED "max_steps=60 save_steps=0 cpu_offload=on host_copy_gbps=0.002",
		        getenv("FERRY_BINARY"), work_dir, work_dir, work_dir, work_dir, "live");
		if (!cuts)
			cached("whole", "max_steps=60 save_steps=0");
		remove_run("live");
		pid = run_start(command);
		path_of(a, "live/metrics.jsonl");
		while (line_count(a) < 2 && is_running(pid))
			sleep_ms(2);
		run_halt(pid);
		damage(".rows", cuts);
		damage(".index", cuts);
		kill(pid, SIGCONT);
		if (run_wait(pid))
			fail_msg("%s", ferry_said());
		assert_says("making the rows of ");
		assert_same_runs("whole", "live", "damaged while it ran");
	}

	/* without the data: the same exit code in the first and in a resumed run, and no step is lost */
	cached("whole", "max_steps=4 save_steps=2");
	for (int again = 0; again < 2; again++) {
		cached("out", "max_steps=2 save_steps=2");
		snprintf(command, sizeof(command),
		        "%s " CACHED "max_steps=%d cpu_offload=on "
		        "host_copy_gbps=0.0005 %s",
		        getenv("FERRY_BINARY"), work_dir, work_dir, work_dir, work_dir, "out",
		        again ? 40 : 2000, again ? "resume_from_checkpoint=auto" : "overwrite_output_dir=on");
		pid = run_start(command);
		path_of(a, "out/metrics.jsonl");
		while (line_count(a) < 3 && is_running(pid))
			sleep_ms(2);
		run_halt(pid);
		damage(".rows", 2);
		path_of(a, "long.jsonl");
		path_of(b, "away.jsonl");
		assert_int_equal(rename(a, b), 0);
		kill(pid, SIGCONT);
		assert_int_equal(run_wait(pid), 1);
		assert_says("the last checkpoint is of step ");
		assert_int_equal(rename(b, a), 0);
		assert_int_equal(resume("out", "max_steps=60 host_copy_gbps=off"), 0);
	}
}

/* ---- a signal before the first step ---- */

/* Sends itself a signal at its call number `at`; another thread ends the process. */
struct early {
	int at, seen, signal;
};

static int early_hook(void *context, const struct file_call *call)
{
	struct early *e = context;

	if (call->path && strstr(call->path, "metrics.jsonl"))
		e->at = -1; /* the steps begin */
	if (e->seen++ == e->at) {
		kill(getpid(), e->signal);
		sleep_ms(100); /* it cannot use files while this call waits */
	}
	return 0;
}

static int early_run(int at, int signal, const char *more)
{
	remove_run("early");
	return run_hooked(early_hook, &(struct early){at, 0, signal}, KEYS "max_steps=2 %s", speaker, pairs,
	        work_dir, "early", more);
}

/* Wherever it comes, the exit code is that of a run to be queued again, and the last line does it. */
static void test_early_signal(void **state)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGUSR1};
	char command[3000], path[400], *said;
	int code = 3, places = 0;
	size_t len;
	pid_t pid;

	(void)state;
	train("whole", "max_steps=2");
	for (int at = 0; code == 3; at += 7, places++) {
		code = early_run(at, signals[places % 3], "");
		if (code && code != 3)
			fail_msg("place %d: exit code %d: %s", at, code, ferry_said());
		if (code != 3)
			break;
		assert_says(places % 3 == 1 ? "stopped by SIGINT before the first step"
		                            : "before the first step, so nothing is lost; to start again:");
		assert_int_equal(strstr(last_line(), " resume_from_checkpoint=auto") != NULL, at > 0);
		if (places % 4)
			continue;
		snprintf(command, sizeof(command), "%s %s", getenv("FERRY_BINARY"), strchr(last_line(), ' '));
		assert_int_equal(run_wait(run_start(command)), 0);
		assert_same_runs("whole", "early", command);
	}
	assert_true(places > 10);

	/* in the pass of the reference, which calls nothing; one rank, and two of which one is told */
	for (int ranks = 1; ranks <= 2; ranks++) {
		remove_run("early");
		snprintf(command, sizeof(command),
		        "%s " KEYS
		        "max_steps=2 cpu_offload=on host_copy_gbps=0.0001 ranks=%d --json >%s/early.json",
		        getenv("FERRY_BINARY"), speaker, pairs, work_dir, "early", ranks, work_dir);
		pid = run_start(command);
		sleep_ms(1500); /* it takes ten seconds */
		kill(pid, SIGTERM);
		if (run_wait(pid) != 3)
			fail_msg("%s", ferry_said());
		assert_int_equal(count_of(ferry_said(), "stopped by SIGTERM before the first step"), 1);
		assert_false(run_has("early/metrics.jsonl"));
		path_of(path, "early.json");
		said = read_file(path, &len);
		assert_non_null(strstr(said, "{\"error\": \"stopped by SIGTERM before the first step"));
		assert_non_null(strstr(said, " resume_from_checkpoint=auto\"}"));
		mem_free(said);
	}
}

/* A signal during an evaluation does not wait for its end: who resumes makes it. */
static void test_signal_in_an_evaluation(void **state)
{
	static const char *const more[] = {"max_steps=3 eval_steps=1", "max_steps=1 eval_steps=1",
	        "max_steps=1 eval_steps=0", "max_steps=3 eval_steps=1 ranks=2"};
	char command[3000], path[400];
	pid_t pid;

	(void)state;
	for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++) {
		remove_run("early");
		snprintf(command, sizeof(command),
		        "%s " KEYS
		        "%s eval_split=8 per_device_eval_batch_size=1 preference_loss=simpo cpu_offload=on "
		        "host_copy_gbps=0.0001",
		        getenv("FERRY_BINARY"), speaker, pairs, work_dir, "early", more[i]);
		pid = run_start(command);
		path_of(path, "early/metrics.jsonl");
		while (line_count(path) < 1 && is_running(pid))
			sleep_ms(2);
		sleep_ms(300);
		kill(pid, SIGTERM);
		if (run_wait(pid) != 3)
			fail_msg("%s: %s", more[i], ferry_said());
		assert_int_equal(line_count(path), 1); /* the step's row alone */
		assert_says("stopped by SIGTERM after step 1, with a checkpoint; to resume:");
		if (resume("early", "host_copy_gbps=off"))
			fail_msg("%s: %s", more[i], ferry_said());
		snprintf(command, sizeof(command),
		        "%s eval_split=8 per_device_eval_batch_size=1 preference_loss=simpo", more[i]);
		train("whole", command);
		assert_same_runs("whole", "early", more[i]);
	}
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_starts_again),
	        cmocka_unit_test(test_foreign_gradients),
	        cmocka_unit_test(test_damage),
	        cmocka_unit_test(test_settings),
	        cmocka_unit_test(test_goes_with_the_run),
	        cmocka_unit_test(test_adapter_is_gone),
	        cmocka_unit_test(test_damaged_rows),
	        cmocka_unit_test(test_early_signal),
	        cmocka_unit_test(test_signal_in_an_evaluation),
	};
	int failed;

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	ferry_run_begin("again");
	speaker_make();
	tiny_model(&tiny);
	path_of(speaker, "speaker");
	path_of(pairs, "pairs.jsonl");
	write_pairs();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
