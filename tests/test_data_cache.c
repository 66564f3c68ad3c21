/* links: cli */
/* Rows beyond data_memory: the cache files have the same rows, later runs find them, and they are never
 * incomplete. */
#include "tests/run_fixture.h"
#include "tests/sparing.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/err.h"
#include "data/eval_split.h"
#include "data/rows/dataset.h"
#include "data/rows/row_cache.h"
#include "tests/dataset_rows.h"

enum { ROWS = 3000, MEMORY_BYTES = 100000 };

static struct run_model tiny;
static char data[400], cache[400];

static struct dataset_options options_of(int64_t memory_bytes)
{
	return (struct dataset_options){.path = data,
	        .vocab_count = 64,
	        .memory_bytes = memory_bytes,
	        .cache_dir = cache,
	        .recipe = "no tokenizer"};
}

static struct dataset *open_rows(int64_t memory_bytes)
{
	struct dataset_options o = options_of(memory_bytes);
	struct dataset *d = NULL;

	if (dataset_open(&d, &o))
		fail_msg("%s", err_text());
	return d;
}

static void assert_same_rows(const struct dataset *a, const struct dataset *b)
{
	uint64_t a_hash = 0, b_hash = 1;

	assert_int_equal(a->row_count, b->row_count);
	assert_int_equal(a->token_count, b->token_count);
	assert_int_equal(a->target_count, b->target_count);
	assert_memory_equal(&a->counts, &b->counts, sizeof(a->counts));
	assert_memory_equal(a->sets, b->sets, sizeof(a->sets));
	for (int64_t row = 0; row < a->row_count; row++) {
		int64_t count = dataset_row_tokens(a, row);
		int32_t ids[64], labels[64];

		assert_int_equal(count, dataset_row_tokens(b, row));
		assert_int_equal(dataset_row_targets(a, row), dataset_row_targets(b, row));
		for (int64_t t = 0; t < count; t++) {
			ids[t] = dataset_row_ids(a, row)[t];
			labels[t] = dataset_label(a, row, t);
		}
		for (int64_t t = 0; t < count; t++) {
			assert_int_equal(ids[t], dataset_row_ids(b, row)[t]);
			assert_int_equal(labels[t], dataset_label(b, row, t));
		}
	}
	assert_int_equal(dataset_hash(&a_hash, a), 0);
	assert_int_equal(dataset_hash(&b_hash, b), 0);
	assert_true(a_hash == b_hash);
	assert_int_equal(dataset_hash_labels(&a_hash, a), 0);
	assert_int_equal(dataset_hash_labels(&b_hash, b), 0);
	assert_true(a_hash == b_hash);
}

/* Files in the cache directory, and in *name the one that ends so. */
static int cache_files(char *path, const char *end)
{
	char **names = NULL;
	size_t count = 0;

	if (file_kind_of(cache) != FILE_DIR)
		return 0;
	assert_int_equal(file_list_dir(cache, &names, &count), 0);
	for (size_t i = 0; i < count && path; i++)
		if (strlen(names[i]) > strlen(end) && !strcmp(names[i] + strlen(names[i]) - strlen(end), end))
			snprintf(path, 600, "%s/%s", cache, names[i]);
	file_list_free(names, count);
	return (int)count;
}

static void forget(void)
{
	assert_int_equal(file_remove_tree(cache), 0);
}

/* ---- the same rows ---- */

static void test_same_rows(void **state)
{
	struct dataset *memory = open_rows(0), *made, *found, *memory_eval, *found_eval;
	struct stat before, after;
	char rows[600];

	(void)state;
	forget();
	made = open_rows(MEMORY_BYTES);
	assert_null(made->store->memory);
	assert_true(dataset_memory_bytes(memory) > MEMORY_BYTES);
	assert_true(dataset_memory_bytes(made) < dataset_memory_bytes(memory) / 4); /* the index */
	assert_same_rows(memory, made);
	assert_int_equal(cache_files(rows, ".rows"), 2);
	assert_int_equal(stat(rows, &before), 0);
	found = open_rows(MEMORY_BYTES);
	assert_same_rows(memory, found);
	assert_int_equal(stat(rows, &after), 0);
	assert_true(before.st_ino == after.st_ino && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
	assert_int_equal(dataset_split(&memory_eval, memory, 0.1, 3), 0);
	assert_int_equal(dataset_split(&found_eval, found, 0.1, 3), 0);
	assert_same_rows(memory, found);
	assert_same_rows(memory_eval, found_eval);
	dataset_close(memory);
	dataset_close(made);
	dataset_close(found);
	assert_true(dataset_row_ids(found_eval, 0)[0] == dataset_row_ids(memory_eval, 0)[0]);
	dataset_close(memory_eval);
	dataset_close(found_eval);
}

/* Small data stay in memory; one row that is larger than the limit is still a row. */
static void test_small(void **state)
{
	struct dataset *d;

	(void)state;
	forget();
	d = open_rows(1 << 30);
	assert_non_null(d->store->memory);
	assert_int_equal(cache_files(NULL, ""), 0);
	dataset_close(d);
	d = open_rows(1);
	assert_int_equal(d->row_count, ROWS);
	assert_int_equal(cache_files(NULL, ""), 2);
	dataset_close(d);
}

/* ---- when it is made anew ---- */

static void test_changed(void **state)
{
	struct dataset_options o = options_of(MEMORY_BYTES);
	struct timespec times[2] = {{1000, 0}, {1000, 0}};
	struct dataset *d;

	(void)state;
	forget();
	dataset_close(open_rows(MEMORY_BYTES));
	assert_int_equal(cache_files(NULL, ""), 2);
	o.max_length_tokens = 16;
	assert_int_equal(dataset_open(&d, &o), 0);
	dataset_close(d);
	assert_int_equal(cache_files(NULL, ""), 4);
	o.recipe = "another tokenizer";
	assert_int_equal(dataset_open(&d, &o), 0);
	dataset_close(d);
	assert_int_equal(cache_files(NULL, ""), 6);
	assert_int_equal(utimensat(AT_FDCWD, data, times, 0), 0);
	dataset_close(open_rows(MEMORY_BYTES));
	assert_int_equal(cache_files(NULL, ""), 8);
	write_rows("many.jsonl", ROWS, 7); /* as it was */
}

static void set_all_ages(int days)
{
	struct timespec then = {time(NULL) - days * 86400L, 0}, times[2] = {then, then};
	char **names = NULL;
	size_t count = 0;

	assert_int_equal(file_list_dir(cache, &names, &count), 0);
	for (size_t i = 0; i < count; i++) {
		char *path = file_join(cache, names[i]);

		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
		mem_free(path);
	}
	file_list_free(names, count);
}

/* Data sets that no run used for 30 days are removed when other rows are written; other files stay. */
static void test_old(void **state)
{
	struct dataset_options o = options_of(MEMORY_BYTES);
	struct row_cache_use use;
	struct dataset *d;

	(void)state;
	forget();
	dataset_close(open_rows(MEMORY_BYTES));
	write_file("cache/0123.index", "x");
	write_file("cache/notes", "x");
	assert_int_equal(row_cache_tidy(&use, cache), 0);
	assert_int_equal(use.count, 1);
	assert_int_equal(use.removed, 0);
	assert_true(use.bytes > MEMORY_BYTES);
	o.max_length_tokens = 16;
	set_all_ages(31);
	dataset_close(open_rows(MEMORY_BYTES)); /* used again */
	assert_int_equal(dataset_open(&d, &o), 0);
	dataset_close(d);
	assert_int_equal(cache_files(NULL, ""), 6);
	set_all_ages(31);
	o.max_length_tokens = 17;
	assert_int_equal(dataset_open(&d, &o), 0);
	dataset_close(d);
	assert_int_equal(cache_files(NULL, ""), 4);
}

static void flip(const char *path, int64_t at)
{
	int fd = open(path, O_RDWR);
	char byte = 0;

	assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
	byte = (char)(byte ^ 4);
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* A damaged index, or rows of another length, are written again. A damaged row is an error when it is
 * read, once: the file is given up then, and written again. */
static void test_damaged(void **state)
{
	struct dataset *memory = open_rows(0), *d;
	struct row_buffer buffer = {0};
	struct row_view v;
	struct stat st;
	char path[600];
	int failed = 0;

	(void)state;
	forget();
	dataset_close(open_rows(MEMORY_BYTES));
	cache_files(path, ".index");
	assert_int_equal(stat(path, &st), 0);
	for (int64_t at = 0; at < st.st_size;
	        at += at < 600 ? 27 * sparing(4) : st.st_size / 10 * sparing(2)) {
		flip(path, at);
		d = open_rows(MEMORY_BYTES);
		assert_same_rows(memory, d);
		dataset_close(d);
	}
	assert_int_equal(truncate(path, st.st_size - 16), 0);
	d = open_rows(MEMORY_BYTES);
	assert_same_rows(memory, d);
	dataset_close(d);
	cache_files(path, ".rows");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(truncate(path, st.st_size - 4), 0);
	d = open_rows(MEMORY_BYTES);
	assert_same_rows(memory, d);
	dataset_close(d);
	flip(path, st.st_size / 2);
	d = open_rows(MEMORY_BYTES);
	for (int64_t row = 0; row < d->row_count; row++)
		if (dataset_row_read(&v, &buffer, d, row)) {
			assert_non_null(strstr(err_text(), ".rows is damaged; ferry makes it again"));
			failed++;
		}
	assert_int_equal(failed, 1);
	dataset_close(d);
	d = open_rows(MEMORY_BYTES);
	assert_same_rows(memory, d);

	/* cut while it is in use: the index is in memory, and reading rows says so */
	cache_files(path, ".index");
	assert_int_equal(truncate(path, 0), 0);
	assert_same_rows(memory, d);
	cache_files(path, ".rows");
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(dataset_row_read(&v, &buffer, d, 0), ERR_IO);
	assert_non_null(strstr(err_text(), "ferry makes it again"));
	row_buffer_free(&buffer);
	dataset_close(d);
	d = open_rows(MEMORY_BYTES);
	assert_same_rows(memory, d);
	dataset_close(d);
	dataset_close(memory);
}

/* ---- failures ---- */

struct failing {
	int at, seen, error;
};

static int fail_call(void *context, const struct file_call *call)
{
	struct failing *f = context;

	if (call->kind != FILE_CALL_WRITE && call->kind != FILE_CALL_SYNC && call->kind != FILE_CALL_RENAME &&
	        call->kind != FILE_CALL_CREATE)
		return 0;
	if (++f->seen != f->at)
		return 0;
	if (!f->error)
		_exit(7);
	return f->error;
}

/* Each call on the files fails once: an error that says what to set, and no half cache. */
static void test_full_disk(void **state)
{
	struct dataset *memory = open_rows(0);
	int calls = 0;

	(void)state;
	for (int at = 1; at < 1000; at += at < 4 ? 1 : 2 * sparing(3)) {
		struct dataset_options o = options_of(MEMORY_BYTES);
		struct failing f = {at, 0, ENOSPC};
		struct dataset *d = NULL;
		int rc;

		forget();
		file_hook_set(fail_call, &f);
		rc = dataset_open(&d, &o);
		file_hook_set(NULL, NULL);
		if (!rc) {
			assert_same_rows(memory, d);
			dataset_close(d);
		}
		if (f.seen < at)
			break;
		calls++;
		if (rc && (!strstr(err_text(), "data_cache") || !strstr(err_text(), "No space left")))
			fail_msg("call %d: %s", at, err_text());
		d = open_rows(MEMORY_BYTES);
		assert_same_rows(memory, d);
		dataset_close(d);
	}
	assert_true(calls > 5);
	dataset_close(memory);
}

/* The process ends at any call: the next one makes the cache, and leaves nothing else. */
static void test_killed(void **state)
{
	struct dataset *memory = open_rows(0);
	int killed = 0;

	(void)state;
	for (int at = 1; at < 1000; at += at < 4 ? 1 : 2 * sparing(3)) {
		struct failing f = {at, 0, 0};
		struct dataset *d;
		char left[600];
		pid_t child;
		int status;

		forget();
		child = fork();
		if (!child) {
			struct dataset_options o = options_of(MEMORY_BYTES);

			file_hook_set(fail_call, &f);
			_exit(dataset_open(&d, &o) ? 1 : 0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		d = open_rows(MEMORY_BYTES);
		assert_same_rows(memory, d);
		dataset_close(d);
		*left = 0;
		assert_in_range(cache_files(left, ".tmp"), 2, 3); /* a free lock may stay */
		assert_string_equal(left, "");
		if (WEXITSTATUS(status) == 0)
			break;
		assert_int_equal(WEXITSTATUS(status), 7);
		killed++;
	}
	assert_true(killed > 5);
	dataset_close(memory);
}

/* Several at once: one writes, all have the same rows. */
static void test_at_once(void **state)
{
	struct dataset *memory = open_rows(0);

	(void)state;
	for (int round = 0; round < 5; round++) {
		pid_t children[6];

		forget();
		for (int i = 0; i < 6; i++) {
			children[i] = fork();
			if (!children[i]) {
				struct dataset *d = open_rows(MEMORY_BYTES);
				uint64_t ours, theirs;
				int rc = dataset_hash(&ours, d);

				d->content_hash = 0; /* as it is read */
				_exit(rc || dataset_hash(&ours, d) || dataset_hash(&theirs, memory) ||
				        ours != theirs);
			}
		}
		for (int i = 0; i < 6; i++) {
			int status;

			assert_int_equal(waitpid(children[i], &status, 0), children[i]);
			assert_int_equal(status, 0);
		}
		assert_int_equal(cache_files(NULL, ""), 2);
	}
	dataset_close(memory);
}

static void test_no_place(void **state)
{
	struct dataset_options o = options_of(MEMORY_BYTES);
	struct dataset *d = NULL;

	(void)state;
	o.cache_dir = NULL;
	assert_int_equal(dataset_open(&d, &o), ERR_INPUT);
	assert_non_null(strstr(err_text(), "set data_cache, or raise data_memory"));
	o.cache_dir = "/proc/no/such";
	assert_true(dataset_open(&d, &o) < 0);
	assert_non_null(strstr(err_text(), "set data_cache to a directory"));
}

/* ---- runs ---- */

static const char settings[] =
        "per_device_train_batch_size=2 max_steps=6 learning_rate=0.01 save_total_limit=99";

static void train(const char *out, const char *more)
{
	assert_ferry(0, NULL, "train model=%s data=%s/large.jsonl output_dir=%s/%s data_cache=%s %s %s",
	        tiny.dir, work_dir, work_dir, out, cache, settings, more);
}

/* A run that began with rows in memory goes on with rows in files, and the other way round. */
static void test_runs(void **state)
{
	static const char *const kinds[] = {"", "packing=bfd max_length=64", "eval_split=0.002 eval_steps=3"};
	char more[300];

	(void)state;
	write_rows("large.jsonl", 20000, 8);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i += (size_t)sparing(2)) {
		forget();
		remove_run("memory");
		remove_run("files");
		snprintf(more, sizeof(more), "%s data_memory=off save_steps=3", kinds[i]);
		train("memory", more);
		assert_int_equal(cache_files(NULL, ""), 0);
		snprintf(more, sizeof(more), "%s data_memory=1MiB save_steps=3", kinds[i]);
		train("files", more);
		assert_non_null(strstr(ferry_said(), "take more than data_memory=1.0 MiB"));
		assert_int_equal(cache_files(NULL, ""), 2);
		assert_same_runs("memory", "files", "rows in files");
		remove_run("files/checkpoint-000006");
		snprintf(more, sizeof(more), "%s data_memory=off save_steps=3 resume_from_checkpoint=auto",
		        kinds[i]);
		train("files", more);
		assert_same_runs("memory", "files", "rows in files, then in memory");
		remove_run("memory/checkpoint-000006");
		snprintf(more, sizeof(more), "%s data_memory=1MiB save_steps=3 resume_from_checkpoint=auto",
		        kinds[i]);
		train("memory", more);
		assert_non_null(strstr(ferry_said(), "tokenized rows of an earlier run"));
		assert_same_runs("memory", "files", "rows in memory, then in files");
	}
}

/* A pipe is read once: its rows are in files without names. */
static void test_pipe(void **state)
{
	struct str out = {0};

	(void)state;
	forget();
	assert_ferry(0, &out,
	        "data show model=%s data=- rows=1 data_memory=1MiB data_cache=%s < %s/large.jsonl", tiny.dir,
	        cache, work_dir);
	assert_non_null(strstr(out.data, "20000 rows"));
	assert_non_null(strstr(ferry_said(), "until this run ends"));
	assert_int_equal(cache_files(NULL, ""), 0);
	str_free(&out);
}

/* Memory of the process at its highest, in bytes. */
static int64_t most_memory(const char *memory)
{
	const char *binary = getenv("FERRY_BINARY");
	char path[400], data_key[420], cache_key[420], memory_key[64], model_key[640];
	struct rusage used;
	int status;
	pid_t child;

	snprintf(path, sizeof(path), "%s/wide.jsonl", work_dir);
	snprintf(data_key, sizeof(data_key), "data=%s", path);
	snprintf(cache_key, sizeof(cache_key), "data_cache=%s", cache);
	snprintf(memory_key, sizeof(memory_key), "data_memory=%s", memory);
	snprintf(model_key, sizeof(model_key), "model=%s", tiny.dir);
	child = fork();
	if (!child) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, 1);
		dup2(null, 2);
		execl(binary ? binary : "build/ferry", "ferry", "data", "show", model_key, data_key,
		        cache_key, memory_key, "max_length=off", "rows=0", (char *)NULL);
		_exit(99);
	}
	assert_int_equal(wait4(child, &status, 0, &used), child);
	assert_int_equal(status, 0);
	return used.ru_maxrss * 1024;
}

static void test_memory_is_bounded(void **state)
{
	enum { WIDE_ROWS = 2000, WIDE_TOKENS = 4000 }; /* 32 MB of ids */
	char path[400];
	int64_t small, large;
	FILE *f;

	(void)state;
	if (SANITIZED)
		skip(); /* it keeps memory that was given back */
	forget();
	snprintf(path, sizeof(path), "%s/wide.jsonl", work_dir);
	f = fopen(path, "w");
	assert_non_null(f);
	for (int row = 0; row < WIDE_ROWS; row++) {
		fputs("{\"input_ids\":[", f);
		for (int i = 0; i < WIDE_TOKENS; i++)
			fprintf(f, "%s%d", i ? "," : "", (row + i) % 10);
		fputs("]}\n", f);
	}
	assert_int_equal(fclose(f), 0);
	large = most_memory("off");
	small = most_memory("4MiB");
	if (!(large > 40000000 && small < 30000000))
		fail_msg("%lld bytes with all rows in memory, %lld with 4 MiB", (long long)large,
		        (long long)small);
	assert_int_equal(unlink(path), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_same_rows),
	        cmocka_unit_test(test_small),
	        cmocka_unit_test(test_changed),
	        cmocka_unit_test(test_old),
	        cmocka_unit_test(test_damaged),
	        cmocka_unit_test(test_full_disk),
	        cmocka_unit_test(test_killed),
	        cmocka_unit_test(test_at_once),
	        cmocka_unit_test(test_no_place),
	        cmocka_unit_test(test_runs),
	        cmocka_unit_test(test_pipe),
	        cmocka_unit_test(test_memory_is_bounded),
	};
	int failed;

	ferry_run_begin("cache");
	tiny_model(&tiny);
	write_rows("many.jsonl", ROWS, 7);
	snprintf(data, sizeof(data), "%s/many.jsonl", work_dir);
	snprintf(cache, sizeof(cache), "%s/cache", work_dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
