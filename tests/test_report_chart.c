/* links: report */
/* Charts of reports: rows reduced to columns, points of lines and bars, escaped text. */
#include "tests/report_check.h"

#include "base/mem.h"
#include "report/chart.h"
#include "report/html.h"

#include <stdlib.h>

/* ---- columns ---- */

/* A run of any length keeps its extremes, its counts and its sums. */
static void test_spike_stays(void **state)
{
	enum { STEPS = 100000, SPIKE = 61234 };
	struct columns c = {0};
	int64_t rows = 0;
	double high = 0, sum = 0;

	(void)state;
	for (int64_t i = 1; i <= STEPS; i++) {
		struct column *column = columns_at(&c, i);

		assert_non_null(column);
		column_value_add(&column->values[REPORT_LOSS], i == SPIKE ? 99 : 1);
	}
	assert_true(c.count > COLUMNS_MAX / 2 - 1 && c.count <= COLUMNS_MAX);
	columns_reduce(&c, 100);
	assert_true(c.count > 49 && c.count <= 100);
	for (int i = 0; i < c.count; i++) {
		const struct column_value *v = &c.items[i].values[REPORT_LOSS];

		assert_int_equal(c.items[i].last_step - c.items[i].first_step + 1, c.items[i].row_count);
		assert_true(v->count == c.items[i].row_count && v->min == 1);
		if (v->max > 1)
			assert_true(c.items[i].first_step <= SPIKE && c.items[i].last_step >= SPIKE);
		high = fmax(high, v->max);
		sum += v->sum;
		rows += c.items[i].row_count;
	}
	assert_near(high, 99);
	assert_near(sum, STEPS + 98);
	assert_int_equal(rows, STEPS);
	columns_free(&c);
}

/* ---- charts ---- */

static void add_value(struct columns *c, int64_t step, double value)
{
	column_value_add(&columns_at(c, step)->values[REPORT_LOSS], value);
}

/* The chart of one line over steps 0 to 100. */
static char *chart_of(const struct columns *c, unsigned flags, int *is_log)
{
	struct chart_line line = {c, REPORT_LOSS, 0, 0, "a<b"};
	struct chart chart = {"Loss", CHART_NUMBER, flags, 0, 100, &line, 1, CHART_STEPS};
	struct str out = {0};

	chart_write(&out, &chart, is_log);
	check_ok(str_check(&out));
	if (out.data)
		xml_check(out.data);
	return str_take(&out);
}

/* The plot is 474 pixels wide from 64, and 188 high from 12 to 200. */
static void test_points(void **state)
{
	struct columns c = {0};
	char *svg;
	int is_log;

	(void)state;
	add_value(&c, 0, 0);
	add_value(&c, 50, 1);
	add_value(&c, 100, 4);
	svg = chart_of(&c, CHART_FROM_0, &is_log);
	assert_has(svg, "data-name=\"a&lt;b\" d=\"M64 200L301 153L538 12\"");
	assert_has(svg, "class=\"p c0 d0\" d=\"M64 200h0M301 153h0M538 12h0\"");
	assert_has(svg, "<text x=\"56\" y=\"204\">0</text><text x=\"56\" y=\"157\">1</text>");
	assert_has(svg, "<text x=\"253.6\" y=\"217\">40</text>"); /* a step under its tick */
	assert_null(strstr(svg, "class=\"b"));
	assert_int_equal(is_log, 0);
	mem_free(svg);
	columns_free(&c);
	/* a value that is not finite breaks the line; a step that was not logged does not */
	add_value(&c, 0, 4);
	add_value(&c, 25, 4);
	columns_at(&c, 50)->values[REPORT_LOSS].null_count++;
	columns_at(&c, 60)->skipped_count++;
	add_value(&c, 75, 4);
	add_value(&c, 100, 0);
	svg = chart_of(&c, CHART_FROM_0 | CHART_MARKS_SKIPPED, NULL);
	assert_has(svg, "d=\"M64 12L182.5 12M419.5 12L538 200\"");
	assert_has(svg, "<path class=\"s c0\" d=\"M344.4 12h8l-4 7z\"><title>1 step skipped");
	mem_free(svg);
	columns_free(&c);
	svg = chart_of(&c, 0, NULL);
	assert_string_equal(svg, "");
	mem_free(svg);
}

/* A reduced column is its mean, in a band from minimum to maximum. */
static void test_band(void **state)
{
	struct columns c = {0};
	char *svg;

	(void)state;
	add_value(&c, 0, 1);
	add_value(&c, 99, 1);
	add_value(&c, 49, 0);
	add_value(&c, 50, 4);
	add_value(&c, 51, 2);
	while (c.width_steps < 4)
		columns_reduce(&c, c.count - 1);
	svg = chart_of(&c, CHART_FROM_0, NULL);
	assert_has(svg, "<path class=\"b c0\" d=\"M64 153L301 12L533.3 153L533.3 153L301 200L64 153Z\"/>");
	assert_has(svg, "d=\"M64 153L301 106L533.3 153\"");
	mem_free(svg);
	columns_free(&c);
}

static void test_log(void **state)
{
	struct columns c = {0};
	char *svg;
	int is_log;

	(void)state;
	add_value(&c, 0, 1);
	add_value(&c, 50, 0.01);
	add_value(&c, 100, 0.0001);
	svg = chart_of(&c, CHART_MAY_LOG, &is_log);
	assert_int_equal(is_log, 1);
	assert_has(svg, "L301 106L"); /* the middle of the decades */
	assert_has(svg, ">0.001</text>");
	mem_free(svg);
	add_value(&c, 60, 0); /* 0 is on no log scale */
	svg = chart_of(&c, CHART_MAY_LOG, &is_log);
	assert_int_equal(is_log, 0);
	mem_free(svg);
	columns_free(&c);
}

/* Any range of values gets few ticks that stand in the chart. */
static void test_ranges(void **state)
{
	static const double ranges[][2] = {{0, 0}, {1, 1}, {-3, -3}, {1e-300, 1e-300}, {1e199, 1e199},
	        {-1e199, 1e199}, {1, 1 + 1e-12}, {1e15, 1e15 + 1}, {0, 1e-320}, {1e-320, 1}, {1e-99, 1e199},
	        {2e-5, 0}, {0.1, 0.3}, {-1, 7}, {9.99, 10.01}};

	(void)state;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		for (unsigned flags = 0; flags <= (CHART_MAY_LOG | CHART_FROM_0); flags++) {
			struct columns c = {0};
			const char *at;
			char *svg;
			int ticks = 0;

			add_value(&c, 1, ranges[i][0]);
			add_value(&c, 2, ranges[i][1]);
			svg = chart_of(&c, flags, NULL);
			for (at = svg; (at = strstr(at, "<text x=\"56\" y=\"")); at++) {
				double y = atof(at + 16);

				assert_true(y >= 15.9 && y <= 204.1);
				ticks++;
			}
			if (ticks < 2 || ticks > 12)
				fail_msg("range %zu, flags %u: %d ticks", i, flags, ticks);
			assert_null(strstr(svg, "nan"));
			assert_null(strstr(svg, "inf"));
			mem_free(svg);
			columns_free(&c);
		}
}

/* Tokens and time begin at 0, and time has the unit that fits. */
static void test_other_axes(void **state)
{
	struct columns c = {0};
	struct chart_line line = {&c, REPORT_LOSS, 0, 0, "a"};
	struct chart chart = {"Loss", CHART_NUMBER, CHART_FROM_0, 0, 100, &line, 1, CHART_TOKENS};
	struct str out = {0};

	(void)state;
	add_value(&c, 50, 1);
	add_value(&c, 100, 4);
	chart_write(&out, &chart, NULL);
	assert_null(out.data); /* no row has tokens */
	c.items[0].tokens = 1e6;
	c.items[50].tokens = 4e6;
	c.items[0].seconds = 1800;
	c.items[50].seconds = 3600;
	chart_write(&out, &chart, NULL);
	xml_check(out.data);
	assert_has(out.data, "d=\"M182.5 153L538 12\"");
	assert_has(out.data, ">4M</text>");
	assert_has(out.data, ">tokens</text>");
	str_free(&out);
	chart.axis = CHART_TIME;
	chart_write(&out, &chart, NULL);
	assert_has(out.data, "d=\"M301 153L538 12\"");
	assert_has(out.data, ">60</text>");
	assert_has(out.data, ">minutes</text>");
	str_free(&out);
	columns_free(&c);
}

/* The plot is 1064 pixels wide from 64, and 128 high from 12 to 140. The wait for a checkpoint is beside the
 * step: here 200 ms in all, of which 75 are compute. */
static void test_timeline(void **state)
{
	struct columns c = {0};
	struct str out = {0};
	struct column *column = columns_at(&c, 1);

	(void)state;
	column->step_ms = 100;
	column->wait_ms[REPORT_WAIT_H2D] = 25;
	column->wait_ms[REPORT_WAIT_DISK] = 100;
	columns_at(&c, 2)->step_ms = 10;
	chart_write_timeline(&out, &c, 0, 2, CHART_IS_WIDE);
	check_ok(str_check(&out));
	xml_check(out.data);
	assert_has(out.data,
	        "<path class=\"w w0\" d=\"M64 92H596V12H1128L1128 140H596V140H64Z\"><title>compute");
	assert_has(out.data,
	        "<path class=\"w w1\" d=\"M64 76H596V12H1128L1128 12H596V92H64Z\"><title>copies to");
	assert_has(out.data,
	        "<path class=\"w w5\" d=\"M64 12H596V12H1128L1128 12H596V76H64Z\"><title>checkpoint");
	assert_null(strstr(out.data, "w w2"));
	str_free(&out);
	columns_free(&c);
	columns_at(&c, 1); /* without times there is nothing to show */
	chart_write_timeline(&out, &c, 0, 1, CHART_IS_WIDE);
	assert_null(out.data);
	columns_free(&c);
}

/* ---- text ---- */

static void test_escape(void **state)
{
	struct str out = {0};

	(void)state;
	html_add(&out, "<a href=\"x\">&amp;</a>\n\t\x01\x7f\xff ok \xc3\xa9 \xef\xbf\xbf \xed\xa0\x80 "
	               "\xf0\x9f\x98\x80 \xc3");
	assert_string_equal(out.data,
	        "&lt;a href=&quot;x&quot;&gt;&amp;amp;&lt;/a&gt;\n\t\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd ok "
	        "\xc3\xa9 \xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xf0\x9f\x98\x80 \xef\xbf\xbd");
	str_free(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_spike_stays),
	        cmocka_unit_test(test_points),
	        cmocka_unit_test(test_other_axes),
	        cmocka_unit_test(test_band),
	        cmocka_unit_test(test_log),
	        cmocka_unit_test(test_ranges),
	        cmocka_unit_test(test_timeline),
	        cmocka_unit_test(test_escape),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
