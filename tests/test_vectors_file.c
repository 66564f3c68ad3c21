/* links: cli */
/* Files of vectors: their bytes, calls that fail, and processes that are killed. */
#include "cli/vectors_file.h"
#include "tests/check.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/source/parquet_vectors.h"
#include "data/source/records.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

static char *dir;

static const char *const suffixes[] = {".npy", ".jsonl", ".parquet", ".PARQUET"};
enum { SUFFIXES = 4 };

/* The formula of golden/check_vectors.py. */
static float value_at(int64_t row, int64_t width, int64_t i)
{
	return (float)((row * width + i) * 37 % 1009 - 504) / 64;
}

static void row_make(float *to, int64_t row, int64_t width)
{
	for (int64_t i = 0; i < width; i++)
		to[i] = value_at(row, width, i);
}

static int file_make(const char *path, int64_t rows, int64_t width)
{
	float *row = mem_alloc((size_t)width, sizeof(*row));
	struct vectors_file *f = NULL;
	int rc = row ? vectors_file_open(&f, path, rows, width) : ERR_NOMEM;

	for (int64_t n = 0; n < rows && !rc; n++) {
		row_make(row, n, width);
		rc = vectors_file_add(f, row);
	}
	if (!rc)
		rc = vectors_file_end(f);
	vectors_file_close(f);
	mem_free(row);
	return rc;
}

static uint64_t file_hash(const char *path)
{
	char *text = NULL;
	size_t len = 0;
	uint64_t hash;

	check_ok(file_read_all(path, 1 << 30, &text, &len));
	hash = XXH3_64bits(text, len);
	mem_free(text);
	return hash;
}

static void assert_no_parts(const char *after)
{
	char **names;
	size_t count;

	check_ok(file_list_dir(dir, &names, &count));
	for (size_t i = 0; i < count; i++)
		if (strstr(names[i], ".tmp-"))
			fail_msg("%s: left %s", after, names[i]);
	file_list_free(names, count);
}

/* ---- bytes ---- */

static int hash_put(void *context, const void *bytes, size_t len_bytes)
{
	XXH3_64bits_update(context, bytes, len_bytes);
	return 0;
}

/* Files that golden/check_vectors.py reads with pyarrow, pandas and datasets: of one page, of several pages,
 * of several groups, of one number a row, and of rows larger than a page. */
static void test_bytes(void **state)
{
	static const struct {
		int64_t rows, width;
		uint64_t hash;
	} golden[] = {{3, 5, 0xc17fa21276863801}, {20000, 48, 0x918decde31555efa},
	        {70000, 257, 0x8aab0e82fa700d8d}, {300, 1, 0x350ed95190bc1640},
	        {3, 300000, 0x1d62d3e83806785d}};

	(void)state;
	for (size_t n = 0; n < sizeof(golden) / sizeof(*golden); n++) {
		XXH3_state_t *hash = XXH3_createState();
		float *row = mem_alloc((size_t)golden[n].width, sizeof(*row));
		struct parquet_vectors *w;

		XXH3_64bits_reset(hash);
		check_ok(parquet_vectors_open(&w, golden[n].width, hash_put, hash));
		for (int64_t i = 0; i < golden[n].rows; i++) {
			row_make(row, i, golden[n].width);
			check_ok(parquet_vectors_add(w, row));
		}
		check_ok(parquet_vectors_end(w));
		parquet_vectors_close(w);
		if (XXH3_64bits_digest(hash) != golden[n].hash)
			fail_msg("%" PRId64 " rows of %" PRId64 " numbers have the digest %#" PRIx64,
			        golden[n].rows, golden[n].width, (uint64_t)XXH3_64bits_digest(hash));
		XXH3_freeState(hash);
		mem_free(row);
	}
}

/* ferry reads its own files; all forms have the same numbers. */
static void test_reading(void **state)
{
	enum { ROWS = 3000, WIDTH = 100 };

	(void)state;
	for (int s = 1; s < SUFFIXES; s++) {
		char *path = mem_printf("%s/read%s", dir, suffixes[s]);
		struct records *records;
		json_t *record;
		int64_t rows = 0;

		check_ok(file_make(path, ROWS, WIDTH));
		check_ok(records_open(&records, path));
		while (records_next(records, &record) == 1) {
			const json_t *list = json_object_get(record, "embedding");

			assert_int_equal(json_array_size(list), WIDTH);
			for (int i = 0; i < WIDTH; i++)
				assert_true(json_number_value(json_array_get(list, (size_t)i)) ==
				            (double)value_at(rows, WIDTH, i));
			json_decref(record);
			rows++;
		}
		assert_int_equal(rows, ROWS);
		records_close(records);
		mem_free(path);
	}
}

/* ---- trouble ---- */

struct trouble {
	int64_t countdown;
	int answer; /* an errno, FILE_HOOK_SHORT, or 0: the process is killed */
};

static int trouble_hook(void *context, const struct file_call *call)
{
	struct trouble *t = context;

	(void)call;
	if (--t->countdown)
		return 0;
	if (!t->answer)
		raise(SIGKILL);
	return t->answer;
}

/* More than one write of each form. */
enum { MANY = 600, WIDE = 120 };

static int file_make_in_trouble(const char *path, struct trouble *trouble)
{
	int rc;

	file_hook_set(trouble_hook, trouble);
	rc = file_make(path, MANY, WIDE);
	file_hook_set(NULL, NULL);
	return rc;
}

/* A call that fails is an error that names the file, and leaves nothing; a short one is made again. */
static void test_faults(void **state)
{
	static const int answers[] = {ENOSPC, EIO, FILE_HOOK_SHORT};

	(void)state;
	for (int s = 0; s < SUFFIXES; s++) {
		char *path = mem_printf("%s/fault%s", dir, suffixes[s]);
		uint64_t whole;
		int64_t n, failed = 0;

		check_ok(file_make(path, MANY, WIDE));
		whole = file_hash(path);
		assert_int_equal(remove(path), 0);
		for (int a = 0; a < 3; a++)
			for (n = 1;; n++) {
				struct trouble trouble = {n, answers[a]};
				int rc = file_make_in_trouble(path, &trouble),
				    is_over = trouble.countdown > 0;

				failed += rc != 0;
				if (rc && !strstr(err_text(), dir))
					fail_msg("the error names no file: %s", err_text());
				assert_no_parts(suffixes[s]);
				if (file_kind_of(path) == FILE_REGULAR) {
					assert_true(file_hash(path) == whole);
					assert_int_equal(remove(path), 0);
				} else {
					assert_true(rc != 0);
				}
				if (is_over)
					break;
			}
		assert_true(failed > 8);
		mem_free(path);
	}
}

/* A killed process leaves the whole file or none; the next one removes its part. */
static void test_kills(void **state)
{
	(void)state;
	for (int s = 0; s < SUFFIXES; s++) {
		char *path = mem_printf("%s/kill%s", dir, suffixes[s]);
		int64_t killed = 0;
		uint64_t whole;

		check_ok(file_make(path, MANY, WIDE));
		whole = file_hash(path);
		assert_int_equal(remove(path), 0);
		for (int64_t n = 1;; n++) {
			int status;
			pid_t pid = fork();

			if (!pid) {
				struct trouble trouble = {n, 0};

				_exit(file_make_in_trouble(path, &trouble) != 0);
			}
			assert_int_equal(waitpid(pid, &status, 0), pid);
			if (file_kind_of(path) == FILE_REGULAR) {
				assert_true(file_hash(path) == whole);
				assert_int_equal(remove(path), 0);
			}
			if (WIFEXITED(status)) {
				assert_int_equal(WEXITSTATUS(status), 0);
				break;
			}
			killed++;
			check_ok(file_make(path, MANY, WIDE));
			assert_true(file_hash(path) == whole);
			assert_int_equal(remove(path), 0);
			assert_no_parts("after a kill");
		}
		assert_true(killed > 5);
		mem_free(path);
	}
}

static int setup(void **state)
{
	int rc = check_dir_make(state);

	dir = *state;
	return rc;
}

int main(int count, char **words)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes), cmocka_unit_test(test_reading),
	        cmocka_unit_test(test_faults), cmocka_unit_test(test_kills)};

	if (count == 4) /* PATH ROWS WIDTH: for golden/check_vectors.py */
		return file_make(words[1], strtoll(words[2], NULL, 10), strtoll(words[3], NULL, 10)) != 0;
	return cmocka_run_group_tests(tests, setup, check_dir_remove);
}
