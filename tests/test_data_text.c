/* links: data */
/* Datasets of text: alpaca against recorded rows, and what is appended, masked, cut and refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/dataset.h"
#include "data/tokenizer.h"

static void skip_absent(const char *name)
{
	print_message("SKIPPED %s: ../shared absent\n", name);
	skip();
}

/* "$FERRY_SHARED/<name>", or NULL where there is no such place. Free with mem_free. */
static char *shared_path(const char *name)
{
	const char *shared = getenv("FERRY_SHARED");
	char *path = shared ? mem_printf("%s/%s", shared, name) : NULL;

	if (path && file_kind_of(path) == FILE_NONE) {
		mem_free(path);
		path = NULL;
	}
	return path;
}

static void check_alpaca_row(const struct dataset *d, const json_t *golden, const char *name)
{
	int64_t row = json_integer_value(json_object_get(golden, "index"));
	const json_t *want = json_object_get(json_object_get(golden, name), "separate");
	const json_t *ids = json_object_get(want, "input_ids"), *labels = json_object_get(want, "labels");

	assert_int_equal(dataset_row_tokens(d, row), json_array_size(ids));
	for (int64_t t = 0; t < dataset_row_tokens(d, row); t++) {
		assert_int_equal(
		        dataset_row_ids(d, row)[t], json_integer_value(json_array_get(ids, (size_t)t)));
		assert_int_equal(
		        dataset_label(d, row, t), json_integer_value(json_array_get(labels, (size_t)t)));
	}
}

static void check_alpaca(const char *name)
{
	char *dir = mem_printf("%s/tokenizers/%s", getenv("FERRY_SHARED"), name), *line = NULL;
	char *data = shared_path("data/alpaca_1k.json"), *golden = shared_path("data/alpaca_golden.jsonl");
	struct tokenizer *t = NULL;
	struct dataset *d = NULL;
	size_t cap = 0;
	int64_t rows = 0;
	FILE *f;

	assert_int_equal(tokenizer_open(&t, dir), 0);
	struct dataset_options options = {.path = data, .tokenizer = t};

	if (dataset_open(&d, &options) < 0)
		fail_msg("%s", err_text());
	assert_int_equal(d->format, DATASET_FORMAT_ALPACA);
	assert_int_equal(d->row_count, 1000);
	f = fopen(golden, "r");
	assert_non_null(f);
	for (ssize_t len; (len = getline(&line, &cap, f)) > 0; rows++) {
		json_t *row = NULL;

		assert_int_equal(json_parse(&row, golden, line, (size_t)len), 0);
		check_alpaca_row(d, row, name);
		json_decref(row);
	}
	assert_int_equal(rows, 50);
	fclose(f);
	free(line);
	dataset_close(d);
	tokenizer_close(t);
	mem_free(golden);
	mem_free(data);
	mem_free(dir);
}

static void test_alpaca_golden(void **state)
{
	char *golden = shared_path("data/alpaca_golden.jsonl");

	(void)state;
	if (!golden)
		skip_absent("test_alpaca_golden");
	mem_free(golden);
	check_alpaca("gpt2");
	check_alpaca("llama-3");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_alpaca_golden),
	};

	return cmocka_run_group_tests_name("data_text", tests, NULL, NULL);
}
