/* links: data_source base */
/* Data files of every kind: records against those that pyarrow and Python wrote
 * (tests/golden/make_records.py), damaged copies, pipes, and messages for unreadable files. */
#include "tests/check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "data/source/files.h"
#include "data/source/records.h"

enum { RECORDS_MAX = 64, FILES_MAX = 64 };

static const char *const suffix = ".expected.jsonl";

/* Reads up to RECORDS_MAX records; returns how many, or the error. */
static int read_all(const char *path, json_t **records)
{
	struct records *r = NULL;
	int count = 0, rc = records_open(&r, path);

	while (rc >= 0 && count < RECORDS_MAX && (rc = records_next(r, &records[count])) > 0)
		count++;
	records_close(r);
	if (rc >= 0)
		return count;
	while (count > 0)
		json_decref(records[--count]);
	return rc;
}

static void free_all(json_t **records, int count)
{
	for (int i = 0; i < count; i++)
		json_decref(records[i]);
}

/* Calls `check` for every data file of tests/golden/records. */
static void each_file(void (*check)(const char *path, const char *expected, const char *dir), const char *dir)
{
	char *folder = mem_printf("%s/tests/golden/records", getenv("FERRY_SOURCE")), **names = NULL;
	size_t count = 0, checked = 0;

	assert_non_null(folder);
	check_ok(file_list_dir(folder, &names, &count));
	for (size_t i = 0; i < count; i++) {
		char *path, *expected;

		if (strstr(names[i], suffix))
			continue;
		path = file_join(folder, names[i]);
		expected = mem_printf("%s%s", path, suffix);
		check(path, expected, dir);
		checked++;
		mem_free(path);
		mem_free(expected);
	}
	assert_in_range(checked, 13, FILES_MAX);
	file_list_free(names, count);
	mem_free(folder);
}

static void golden_check(const char *path, const char *expected, const char *dir)
{
	json_t *got[RECORDS_MAX], *wanted[RECORDS_MAX];
	int got_count = read_all(path, got), wanted_count = read_all(expected, wanted);

	(void)dir;
	if (got_count < 0)
		fail_msg("%s", err_text());
	assert_true(wanted_count > 0);
	if (got_count != wanted_count)
		fail_msg("%s: %d records of %d", path, got_count, wanted_count);
	for (int i = 0; i < got_count; i++)
		if (!json_equal(got[i], wanted[i])) {
			char *text = json_dumps(got[i], JSON_SORT_KEYS);

			fail_msg("%s: record %d is %s", path, i, text);
		}
	free_all(got, got_count);
	free_all(wanted, wanted_count);
}

static void test_golden(void **state)
{
	(void)state;
	each_file(golden_check, NULL);
}

/* Without the fsync of file_write_all: thousands of these would take a minute. */
static void write_quickly(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "wb");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

/* A byte changed, or the file cut short: an error or records, within memory. */
static void damage_check(const char *path, const char *expected, const char *dir)
{
	char *bad = file_join(dir, strrchr(path, '/') + 1), *data = NULL;
	size_t len = 0;

	(void)expected;
	check_ok(file_read_all(path, 1 << 20, &data, &len));
	for (uint64_t i = 0; i < 300; i++) {
		json_t *records[RECORDS_MAX];
		size_t at = (size_t)rng_below(1, 0, i, len), end = i % 5 ? len : at;
		char old = data[at];

		data[at] = (char)rng_below(1, 1, i, 256);
		write_quickly(bad, data, end);
		free_all(records, read_all(bad, records));
		data[at] = old;
	}
	mem_free(data);
	mem_free(bad);
}

static void test_damage(void **state)
{
	each_file(damage_check, *state);
}

/* Every allocation fails once: an error and no leak (the sanitizer build sees those). Those of jansson come
 * through (base/json.c), so where one of them fails all records are there. */
static void memory_check(const char *path, const char *expected, const char *dir)
{
	json_t *records[RECORDS_MAX];
	int64_t requests;
	int all, failed = 0;

	(void)expected;
	(void)dir;
	mem_fault_arm(0, MEM_FAULT_ONCE);
	all = read_all(path, records);
	free_all(records, all);
	requests = mem_fault_arm(0, MEM_FAULT_ONCE);
	for (int64_t i = 1; i <= requests; i += i < 60 ? 1 : 7) {
		int rc;

		mem_fault_arm(i, MEM_FAULT_ONCE);
		rc = read_all(path, records);
		mem_fault_arm(0, MEM_FAULT_ONCE);
		if (rc < 0)
			assert_int_equal(rc, ERR_NOMEM);
		else
			assert_int_equal(rc, all);
		failed += rc < 0;
		free_all(records, rc);
	}
	assert_true(failed >= 5);
}

static void test_memory(void **state)
{
	(void)state;
	each_file(memory_check, NULL);
}

/* A pipe has no end to look at first, and can be read once. */
static void test_pipe(void **state)
{
	static const char text[] = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
	char *path = file_join(*state, "pipe");
	json_t *records[RECORDS_MAX];
	pid_t child;

	assert_int_equal(mkfifo(path, 0600), 0);
	child = fork();
	if (child == 0) {
		int fd = open(path, O_WRONLY);

		_exit(write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1 ? 0 : 1);
	}
	assert_int_equal(read_all(path, records), 2);
	assert_string_equal(json_string_value(json_object_get(records[1], "text")), "b");
	free_all(records, 2);
	mem_free(path);
}

static int refused(void **state, const char *name, const char *bytes, size_t len)
{
	char *path = file_join(*state, name);
	json_t *records[RECORDS_MAX];
	int rc;

	check_ok(file_write_all(path, bytes, len));
	rc = read_all(path, records);
	mem_free(path);
	return rc;
}

static void test_refused(void **state)
{
	static const struct {
		const char *name, *bytes;
		int code;
		const char *text;
	} cases[] = {
	        {"a.xyz", "neither", ERR_INPUT, "a.xyz: neither JSON"},
	        {"a.jsonl.bz2", "BZh91AY", ERR_UNSUPPORTED, "bunzip2"},
	        {"a.zip", "PK\3\4____", ERR_UNSUPPORTED, "unzip"},
	        {"a.parquet", "PAR1", ERR_INPUT, "a.parquet: "},
	        {"b.parquet", "PAR1________________", ERR_INPUT, "was the copy complete"},
	        {"c.parquet", "PAR1____________PARE", ERR_UNSUPPORTED, "encrypted"},
	        {"a.csv", "a,b\n1,2\n1,2,3\n", ERR_INPUT, "a.csv:3: 3 fields, but the header line has 2"},
	        {"b.csv", "a,a\n1,2\n", ERR_INPUT, "b.csv:1: column 2 has the name of another"},
	        {"c.csv", "a,b\n1,\"x\n\n", ERR_INPUT, "c.csv:2: the file ends inside a quoted field"},
	        {"d.csv", "a,b\n1,\"x\" y\n", ERR_INPUT, "write a quote twice"},
	        {"e.csv", "a\n\xff\n", ERR_INPUT, "e.csv:2: column \"a\" is not UTF-8"},
	        {"a.json", "[{\"a\": 1}", ERR_INPUT,
	                "a.json: element 1 (line 1): the file ends inside the array"},
	        {"a.jsonl", "{\"a\": 1}\n{\"a\": }\n", ERR_INPUT, "a.jsonl:2:"},
	        {"b.json", "text", ERR_INPUT, "b.json:1: a JSON object begins with '{'"},
	        {"a.jsonl.gz", "\x1f\x8b\x08____", ERR_INPUT, "damaged gzip data"},
	        {"a.jsonl.zst", "\x28\xb5\x2f\xfd____", ERR_INPUT, "damaged zstd data"},
	        {"utf16.jsonl", "\xff\xfe{", ERR_INPUT, "utf16.jsonl: "},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_fails(refused(state, cases[i].name, cases[i].bytes, strlen(cases[i].bytes)),
		        cases[i].code, cases[i].text);
	assert_int_equal(refused(state, "empty.jsonl", "", 0), 0);
	assert_int_equal(refused(state, "empty.csv", "", 0), 0);
	assert_int_equal(refused(state, "header.csv", "a,b\n", 4), 0);
}

/* A packed file that is cut short is an error, not a shorter file. */
static void test_cut_short(void **state)
{
	static const char *const names[] = {"members.jsonl.gz", "frames.jsonl.zst"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *path = mem_printf("%s/tests/golden/records/%s", getenv("FERRY_SOURCE"), names[i]),
		     *data = NULL;
		size_t len = 0;

		check_ok(file_read_all(path, 1 << 20, &data, &len));
		check_fails(refused(state, names[i], data, len - 3), ERR_INPUT, "the file ends too early");
		mem_free(data);
		mem_free(path);
	}
}

/* ---- files ---- */

static void make_file(const char *dir, const char *name)
{
	char *path = mem_printf("%s/%s", dir, name), *slash;

	assert_non_null(path);
	slash = strrchr(path, '/');
	*slash = 0;
	check_ok(file_make_dir(path));
	*slash = '/';
	write_quickly(path, "", 0);
	mem_free(path);
}

/* The files found, relative to the folder, joined by blanks. */
static void check_found(const char *dir, const char *spec, const char *split, const char *wanted)
{
	struct files f = {0};
	char *full = mem_printf("%s%s%s", dir, *spec ? "/" : "", spec), found[2000] = "";

	check_ok(files_find(
	        &f, full, split ? split : "train", split ? FILES_SPLIT_ASKED : FILES_SPLIT_DEFAULT));
	for (size_t i = 0; i < f.count; i++) {
		strcat(found, *found ? " " : "");
		strcat(found, f.paths[i] + strlen(dir) + 1);
	}
	assert_string_equal(found, wanted);
	files_free(&f);
	mem_free(full);
}

static void test_files(void **state)
{
	char *hub = file_join(*state, "hub"), *plain = file_join(*state, "plain"),
	     *folders = file_join(*state, "folders"), *empty = file_join(*state, "no-data");
	struct files f = {0};

	make_file(hub, "README.md");
	make_file(hub, ".gitattributes");
	make_file(hub, "dataset_info.json");
	make_file(hub, "data/train-00001-of-00002.parquet");
	make_file(hub, "data/train-00000-of-00002.parquet");
	make_file(hub, "data/validation-00000-of-00001.parquet");
	make_file(hub, "data/eval.jsonl.zst");
	check_found(hub, "", NULL, "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet");
	check_found(hub, "", "validation", "data/validation-00000-of-00001.parquet");
	check_found(hub, "", "dev", "data/validation-00000-of-00001.parquet");
	check_found(hub, "data", "test", "data/eval.jsonl.zst");
	check_found(hub, "data/train-*", NULL,
	        "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet");
	make_file(plain, "b.csv");
	make_file(plain, "a.JSONL.gz");
	make_file(plain, "trainer.py");
	make_file(plain, "c/d.md");
	check_found(plain, "", NULL, "a.JSONL.gz b.csv c/d.md");
	check_found(plain, "nothere.jsonl", NULL, "nothere.jsonl");
	make_file(plain, "c[1]/e/f.csv");
	make_file(plain, "c[1]/g.csv");
	check_found(plain, "**/*.csv", NULL, "b.csv c[1]/g.csv c[1]/e/f.csv");
	check_found(plain, "**/e/*.csv", NULL, "c[1]/e/f.csv");
	for (size_t i = 0; i < 4; i++) {
		static const char *const specs[] = {"/**", "/**.csv", "/*/**/*.csv", "/**/**/*.csv"};
		char *spec = mem_printf("%s%s", plain, specs[i]);

		check_fails(files_find(&f, spec, "train", FILES_SPLIT_DEFAULT), ERR_INPUT,
		        "write ** once, between slashes");
		mem_free(spec);
	}
	check_fails(files_find(&f, plain, "test", FILES_SPLIT_ASKED), ERR_INPUT,
	        "has no files of the split test; no file name there");
	check_fails(files_find(&f, plain, "tset", FILES_SPLIT_ASKED), ERR_INPUT,
	        "unknown split \"tset\"; supported: train, validation, test");
	make_file(folders, "train/x.jsonl");
	make_file(folders, "test/train-y.jsonl");
	make_file(folders, "test/z.jsonl");
	check_found(folders, "", "train", "test/train-y.jsonl train/x.jsonl");
	check_fails(files_find(&f, folders, "validation", FILES_SPLIT_ASKED), ERR_INPUT,
	        "has no files of the split validation; there are train, test");
	make_file(empty, "notes.py");
	check_fails(files_find(&f, empty, "train", FILES_SPLIT_DEFAULT), ERR_INPUT,
	        "is a directory without data files");
	check_fails(files_find(&f, "/nothere/*.jsonl", "train", FILES_SPLIT_DEFAULT), ERR_INPUT,
	        "/nothere/*.jsonl: no file matches");
	assert_int_equal(f.count, 0);
	files_free(&f);
	assert_true(file_is_text("a/b.TXT.gz") && file_is_text("b.md") && !file_is_text("a.md/b.json"));
	mem_free(hub);
	mem_free(plain);
	mem_free(folders);
	mem_free(empty);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_golden),
	        cmocka_unit_test(test_damage),
	        cmocka_unit_test(test_memory),
	        cmocka_unit_test(test_pipe),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_cut_short),
	        cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, check_dir_make, check_dir_remove);
}
