/* links: cli */
/* Tables of benchmarks: columns where they fit in 100 columns, else a line for each key. */
#include "tests/check.h"

#include "base/json.h"
#include "cli/bench_table.h"

#include <string.h>

static int widest(const char *text)
{
	int most = 0;

	for (; *text; text += strcspn(text, "\n") + 1)
		most = (int)strcspn(text, "\n") > most ? (int)strcspn(text, "\n") : most;
	return most;
}

/* A table of so many rows and columns; the first column names the row. */
static void table_of(struct str *out, int rows, int columns)
{
	json_t *list = json_array(), *result = json_pack("{s:O}", "rows", list);

	for (int r = 0; r < rows; r++) {
		json_t *row = json_pack("{s:o}", "way", json_sprintf("way-%d", r));

		for (int c = 0; c < columns; c++) {
			char key[40];

			snprintf(key, sizeof(key), "figure_%d", c);
			json_object_set_new(row, key, json_integer(100 * r + c));
		}
		json_array_append_new(list, row);
	}
	bench_table_write(out, result);
	check_ok(str_check(out));
	json_decref(list);
	json_decref(result);
}

static void test_narrow(void **state)
{
	struct str out = {0};

	(void)state;
	table_of(&out, 2, 2);
	assert_string_equal(out.data, "rows\n  way    figure_0  figure_1\n  way-0         0         1\n"
	                              "  way-1       100       101\n");
	str_free(&out);
}

static void test_wide(void **state)
{
	struct str out = {0};

	(void)state;
	table_of(&out, 2, 20);
	assert_true(widest(out.data) <= 100);
	assert_non_null(strstr(out.data, "\n  way        way-0  way-1\n"));
	assert_non_null(strstr(out.data, "\n  figure_19     19    119\n"));
	str_free(&out);
	table_of(&out, 40, 20); /* more rows than lie beside each other: all of them, in groups */
	assert_true(widest(out.data) <= 100);
	assert_non_null(strstr(out.data, "way-0 "));
	assert_non_null(strstr(out.data, "way-39\n"));
	assert_non_null(strstr(out.data, "3919\n"));
	str_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_narrow),
	        cmocka_unit_test(test_wide),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
