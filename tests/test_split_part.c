/* links: data */
/* Parts of splits: the ranges that HuggingFace's datasets takes, and the rows of data that lie in them. */
#include <inttypes.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "data/rows/dataset.h"
#include "data/source/split_part.h"
#include "tests/check.h"
#include "tests/dataset_rows.h"

/* Ranges by ReadInstruction.from_spec(spec).to_absolute() of datasets 5.2. */
static const struct {
	const char *spec;
	int64_t count, first, end;
} ranges[] = {
        {"train", 10, 0, 10},
        {"train[:20%]", 10, 0, 2},
        {"train[:20%]", 1001, 0, 200},
        {"train[10%:20%]", 25, 2, 5},
        {"train[10%:20%]", 150, 15, 30},
        {"train[-5%:]", 10, 0, 10}, /* half a row is none */
        {"train[-5%:]", 25, 24, 25},
        {"train[-5%:]", 150, 142, 150},
        {"train[:5]", 10, 0, 5},
        {"train[3:8]", 25, 3, 8},
        {"train[-4:]", 10, 6, 10},
        {"train[:-2]", 150, 0, 148},
        {"train[50%:]", 1001, 500, 1001},
        {"train[:1%]", 10, 0, 0},
        {"train[:1%]", 150, 0, 2},
        {"train[99:]", 25, 25, 25},
        {"train[8:3]", 25, 8, 3},
        {"train[-100:]", 25, 0, 25},
        {"train[25%:75%]", 10, 2, 8}, /* halves go to the even number */
        {"train[25%:75%]", 150, 38, 112},
        {"train[:]", 7, 0, 7},
};

static void test_ranges(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		char name[SPLIT_NAME_BYTES];
		struct split_part part;
		int64_t first, end;

		check_ok(split_part_parse(name, &part, ranges[i].spec));
		assert_string_equal(name, "train");
		split_part_range(&first, &end, &part, ranges[i].count);
		if (first != ranges[i].first || end != ranges[i].end)
			fail_msg("%s of %" PRId64 ": %" PRId64 " to %" PRId64, ranges[i].spec,
			        ranges[i].count, first, end);
	}
}

static void test_refused(void **state)
{
	static const char *const bad[] = {"train[", "train[:5", "train[5]", "train[a:]", "train[:5%%]",
	        "train[:200%]", "train[1:2:3]", "train[:5]x", "train[:99999999999999999999]",
	        "train[ :5]+test"};
	char name[SPLIT_NAME_BYTES];
	struct split_part part;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (split_part_parse(name, &part, bad[i]) != ERR_INPUT)
			fail_msg("%s is taken", bad[i]);
}

/* Row i of 30 has the ids i and 100 + i, in two files of 20 and 10 rows. */
static void test_rows(void **state)
{
	static const struct {
		const char *split;
		int64_t max_samples, count, first;
	} cases[] = {{"train", 0, 30, 0}, {"train[:10%]", 0, 3, 0}, {"train[18:23]", 0, 5, 18},
	        {"train[-4:]", 0, 4, 26}, {"train[25:99]", 0, 5, 25}, {"train[5:20]", 4, 4, 5},
	        {"train[:21]", 0, 21, 0}};
	char dir[] = "/tmp/ferry_split_XXXXXX", path[64];
	struct dataset *d;

	(void)state;
	assert_non_null(mkdtemp(dir));
	for (int file = 0; file < 2; file++) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/train-%d.jsonl", dir, file);
		f = fopen(path, "w");
		assert_non_null(f);
		for (int i = file * 20; i < (file ? 30 : 20); i++)
			fprintf(f, "{\"input_ids\": [%d, %d]}\n", i, 100 + i);
		fclose(f);
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct dataset_options o = {.path = dir,
		        .split = cases[i].split,
		        .vocab_count = 1000,
		        .max_samples = cases[i].max_samples};

		check_ok(dataset_open(&d, &o));
		if (d->row_count != cases[i].count)
			fail_msg("%s: %" PRId64 " rows", cases[i].split, d->row_count);
		for (int64_t row = 0; row < cases[i].count; row++)
			assert_int_equal(dataset_row_ids(d, row)[0], cases[i].first + row);
		dataset_close(d);
	}
	assert_int_equal(
	        dataset_open(&d,
	                &(struct dataset_options){.path = dir, .split = "train[30:]", .vocab_count = 999}),
	        ERR_INPUT);
	assert_non_null(strstr(err_text(), "no row lies in train[30:]"));
	for (int file = 0; file < 2; file++) {
		snprintf(path, sizeof(path), "%s/train-%d.jsonl", dir, file);
		unlink(path);
	}
	rmdir(dir);
}

static char logged[512];

static void log_take(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	snprintf(logged + strlen(logged), sizeof(logged) - strlen(logged), "%s\n", line);
}

/* One file has all rows, whatever split is asked for. */
static void test_one_file(void **state)
{
	char path[] = "/tmp/ferry_split_XXXXXX.jsonl";
	int fd = mkstemps(path, 6);
	struct dataset *d;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "{\"input_ids\": [1, 2]}\n", 22), 22);
	close(fd);
	log_set_sink(log_take, NULL);
	for (int asked = 0; asked < 2; asked++) {
		struct dataset_options o = {.path = path,
		        .split = asked ? "test" : "train",
		        .split_want = FILES_SPLIT_ASKED,
		        .vocab_count = 9};

		logged[0] = 0;
		check_ok(dataset_open(&d, &o));
		assert_int_equal(d->row_count, 1);
		if ((strstr(logged, "it has no split test") != NULL) != asked)
			fail_msg("split %s: %s", o.split, logged);
		dataset_close(d);
	}
	log_set_sink(NULL, NULL);
	unlink(path);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranges),
	        cmocka_unit_test(test_refused), cmocka_unit_test(test_rows), cmocka_unit_test(test_one_file)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
