/* Puts the page of a report together. */
#include "report/page.h"

#include "report/chart.h"
#include "report/html.h"
#include "report/page_parts.h"

#include "base/mem.h"
#include "base/size.h"

#include <stdint.h>

const char page_marker[] = "<meta name=\"generator\" content=\"ferry report\"/>";

enum { METRICS_OF_CHART = 3, RUN_COLUMNS_MIN = 64 };

static const struct {
	const char *title;
	enum chart_unit unit;
	unsigned flags;
	int metric_count;
	enum report_metric metrics[METRICS_OF_CHART];
	const char *names[METRICS_OF_CHART];
	enum chart_axis axis;
} charts[] = {
        {"Loss", CHART_NUMBER, CHART_MAY_LOG | CHART_IS_WIDE | CHART_MARKS_SKIPPED, 2,
                {REPORT_LOSS, REPORT_EVAL_LOSS}, {"training", "evaluation"}, CHART_STEPS},
        {"Loss over tokens", CHART_NUMBER, CHART_MAY_LOG | CHART_NO_BAND, 2, {REPORT_LOSS, REPORT_EVAL_LOSS},
                {"training", "evaluation"}, CHART_TOKENS},
        {"Loss over time", CHART_NUMBER, CHART_MAY_LOG | CHART_NO_BAND, 2, {REPORT_LOSS, REPORT_EVAL_LOSS},
                {"training", "evaluation"}, CHART_TIME},
        {"Pairs right", CHART_SHARE, CHART_FROM_0, 2, {REPORT_ACCURACY, REPORT_EVAL_ACCURACY},
                {"training", "evaluation"}, CHART_STEPS},
        {"Reward margin", CHART_NUMBER, 0, 2, {REPORT_MARGIN, REPORT_EVAL_MARGIN}, {"training", "evaluation"},
                CHART_STEPS},
        {"Rewards", CHART_NUMBER, 0, 2, {REPORT_REWARD_CHOSEN, REPORT_REWARD_REJECTED},
                {"chosen", "rejected"}, CHART_STEPS},
        {"Gradient norm before clipping", CHART_NUMBER, CHART_MAY_LOG, 1, {REPORT_GRAD_NORM}, {"norm"},
                CHART_STEPS},
        {"Learning rate", CHART_NUMBER, CHART_FROM_0, 1, {REPORT_LEARNING_RATE}, {"rate"}, CHART_STEPS},
        {"Tokens per second", CHART_RATE, CHART_FROM_0, 1, {REPORT_TOKENS_PER_S}, {"tokens/s"}, CHART_STEPS},
        {"Peak memory so far", CHART_BYTES, CHART_FROM_0, 3,
                {REPORT_HOST_BYTES, REPORT_DEVICE_BYTES, REPORT_PINNED_BYTES}, {"host", "device", "pinned"},
                CHART_STEPS},
};

/* The runs of the page, and its x axis. */
struct page {
	const struct report_run *runs;
	int run_count;
	int64_t first_step, last_step;
};

/* An axis from 0, unless the runs begin late. */
static void axis_find(struct page *p)
{
	p->first_step = INT64_MAX;
	p->last_step = 0;
	for (int r = 0; r < p->run_count; r++) {
		const struct columns *c = &p->runs[r].columns;

		p->first_step = min_i64(p->first_step, c->items[0].first_step);
		p->last_step = max_i64(p->last_step, c->items[c->count - 1].last_step);
	}
	p->first_step = p->first_step <= p->last_step / 8 ? 0 : max_i64(p->first_step - 1, 0);
}

/* ---- legends ---- */

static void add_key(struct str *out, int colour, int dash, const char *name)
{
	if (colour < 0)
		str_printf(out, "<span class=\"k d%d\">", dash);
	else
		str_printf(out, "<span class=\"k c%d d%d\">", colour, dash);
	html_add(out, name);
	str_add(out, "</span>\n");
}

static int run_colour(int run)
{
	return run % PAGE_COLOURS;
}

/* ---- charts ---- */

enum { LINES_MAX = PAGE_RUNS_MAX * METRICS_OF_CHART };

/* Whether any run has values of the metric. */
static int has_metric(const struct page *p, int chart, int metric)
{
	for (int r = 0; r < p->run_count; r++) {
		struct chart_line line = {
		        .columns = &p->runs[r].columns, .metric = charts[chart].metrics[metric]};

		if (chart_has_values(&(struct chart){.lines = &line, .line_count = 1}))
			return 1;
	}
	return 0;
}

/* A line's name for the reader who points at it. */
static void line_name(struct str *out, const struct page *p, int run, const char *metric)
{
	if (p->run_count > 1)
		str_printf(out, "%s, ", p->runs[run].label);
	str_add(out, metric);
}

static void add_legend(struct str *out, const struct page *p, int chart)
{
	int kinds = 0;

	for (int r = 0; r < p->run_count && p->run_count > 1; r++)
		add_key(out, run_colour(r), 0, p->runs[r].label);
	for (int m = 0; m < charts[chart].metric_count; m++)
		kinds += has_metric(p, chart, m);
	for (int m = 0; m < charts[chart].metric_count && kinds > 1; m++)
		if (has_metric(p, chart, m))
			add_key(out, p->run_count > 1 ? -1 : m, m, charts[chart].names[m]);
}

/* Before the narrow form of a wide chart. */
static const char narrow_begin[] = "<div class=\"narrow\">";

static void add_chart(struct str *out, const struct page *p, int chart)
{
	struct chart_line lines[LINES_MAX];
	struct str names[LINES_MAX] = {{0}}, svg = {0};
	struct chart c = {charts[chart].title, charts[chart].unit, charts[chart].flags, p->first_step,
	        p->last_step, lines, 0, charts[chart].axis};
	int is_log;

	for (int m = 0; m < charts[chart].metric_count; m++)
		for (int r = 0; r < p->run_count; r++) {
			struct str *name = &names[c.line_count];

			line_name(name, p, r, charts[chart].names[m]);
			lines[c.line_count++] = (struct chart_line){&p->runs[r].columns,
			        charts[chart].metrics[m], p->run_count > 1 ? run_colour(r) : m, m,
			        name->data ? name->data : ""};
		}
	chart_write(&svg, &c, &is_log);
	if (svg.data && c.flags & CHART_IS_WIDE) { /* a phone shows the other one */
		struct chart narrow = c;

		narrow.flags = (c.flags & ~(unsigned)CHART_IS_WIDE) | CHART_NO_BAND;
		str_add(&svg, narrow_begin);
		chart_write(&svg, &narrow, &is_log);
		str_add(&svg, "</div>\n");
	}
	if (svg.data) {
		str_printf(out, "<figure%s>\n<figcaption><b>%s</b>%s\n",
		        c.flags & CHART_IS_WIDE ? " class=\"wide\"" : "", c.title,
		        is_log ? " <i>log scale</i>" : "");
		add_legend(out, p, chart);
		str_printf(out, "</figcaption>\n%s</figure>\n", svg.data);
	}
	out->broken |= svg.broken;
	for (int l = 0; l < c.line_count; l++) {
		out->broken |= names[l].broken;
		str_free(&names[l]);
	}
	str_free(&svg);
}

/* ---- timelines ---- */

static void add_share(struct str *out, int layer, const char *name, double share)
{
	str_printf(out, "<span class=\"k w%d\">%s ", layer, name);
	chart_value_text(out, CHART_SHARE, share);
	str_add(out, "</span>\n");
}

static void add_timeline(struct str *out, const struct page *p, int run)
{
	const struct report_totals *t = &p->runs[run].totals;
	double whole = report_time_ms(t->step_ms, t->wait_ms), waits = 0;

	for (int w = 0; w < REPORT_WAIT_COUNT; w++)
		waits += t->wait_ms[w];
	if (!(whole > 0))
		return;
	str_add(out, "<figure class=\"wide\">\n<figcaption><b>Time of each step");
	if (p->run_count > 1) {
		str_add(out, ", ");
		html_add(out, p->runs[run].label);
	}
	str_add(out, "</b> <i>what compute waited for</i>\n");
	add_share(out, 0, "compute", 1 - waits / whole);
	for (int w = 0; w < REPORT_WAIT_COUNT; w++)
		if (t->wait_ms[w] > 0)
			add_share(out, w + 1, report_wait_meanings[w], t->wait_ms[w] / whole);
	str_add(out, "</figcaption>\n");
	chart_write_timeline(out, &p->runs[run].columns, p->first_step, p->last_step, CHART_IS_WIDE);
	str_add(out, narrow_begin);
	chart_write_timeline(out, &p->runs[run].columns, p->first_step, p->last_step, 0);
	str_add(out, "</div>\n</figure>\n");
}

/* ---- the page ---- */

static void add_head(struct str *out, const struct page *p)
{
	str_printf(out,
	        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
	        "<meta charset=\"utf-8\"/>\n%s\n"
	        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
	        page_marker);
	for (int r = 0; r < p->run_count; r++) {
		str_add(out, r ? ", " : "");
		html_add(out, p->runs[r].label);
	}
	str_printf(out, " \xe2\x80\x93 ferry report</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>",
	        page_style);
	if (p->run_count == 1)
		html_add(out, p->runs[0].label);
	else
		str_printf(out, "%d runs", p->run_count);
	str_add(out, "</h1>\n");
}

int page_write(struct str *out, struct report_run *runs, int run_count)
{
	struct page p = {.runs = runs, .run_count = run_count};
	struct report_keys keys = {0};
	int err = report_keys_find(&keys, runs, run_count);

	for (int r = 0; r < run_count; r++)
		columns_reduce(&runs[r].columns, (int)max_i64(RUN_COLUMNS_MIN, COLUMNS_MAX / run_count));
	axis_find(&p);
	add_head(out, &p);
	page_summary(out, runs, run_count, &keys);
	str_add(out, "<section class=\"charts\">\n");
	for (size_t c = 0; c < sizeof(charts) / sizeof(*charts); c++)
		add_chart(out, &p, (int)c);
	for (int r = 0; r < run_count; r++)
		add_timeline(out, &p, r);
	str_add(out, "</section>\n");
	page_configuration(out, runs, run_count, &keys);
	mem_free(keys.items);
	str_printf(out, "<footer>written by ferry %s</footer>\n<script>\n%s</script>\n</body>\n</html>\n",
	        FERRY_VERSION, page_script);
	return err ? err : str_check(out);
}
