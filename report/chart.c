/* Draws lines over steps as SVG. */
#include "report/chart.h"

#include "report/chart_frame.h"
#include "report/html.h"

#include "base/quantity.h"

#include <inttypes.h>
#include <math.h>

enum { MARKED_POINTS_MAX = 60 }; /* a line of so few columns shows its points */

/* From this ratio of the largest to the smallest value on a log scale shows more. A smaller value than
 * log_smallest has none, because the ratio would overflow. */
static const double log_ratio = 50, log_smallest = 1e-100;

/* ---- the values of a chart ---- */

static const struct column_value *value_of(const struct chart_line *line, int column)
{
	return &line->columns->items[column].values[line->metric];
}

/* Finds the smallest and the largest value; returns 0 if there is none. */
static int range_find(double *lo, double *hi, const struct chart *chart)
{
	int found = 0;

	for (int l = 0; l < chart->line_count; l++)
		for (int i = 0; i < chart->lines[l].columns->count; i++) {
			const struct column_value *v = value_of(&chart->lines[l], i);

			if (!v->count)
				continue;
			*lo = found ? fmin(*lo, v->min) : v->min;
			*hi = found ? fmax(*hi, v->max) : v->max;
			found = 1;
		}
	return found;
}

int chart_has_values(const struct chart *chart)
{
	double lo, hi;

	return range_find(&lo, &hi, chart);
}

void chart_value_text(struct str *out, enum chart_unit unit, double value)
{
	if (!isfinite(value))
		str_add(out, "\xe2\x80\x93"); /* a dash */
	else if (unit == CHART_BYTES)
		quantity_bytes(out, (int64_t)fmin(value, 0x1p62));
	else if (unit == CHART_RATE)
		quantity_count(out, value);
	else if (unit == CHART_SHARE)
		str_printf(out, value > 0 && value < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * value);
	else
		frame_number(out, value, 4);
}

/* ---- lines ---- */

/* Where a column stands on the x axis. */
static double place_of(const struct column *c, const struct frame *f)
{
	if (f->axis == CHART_TOKENS)
		return c->tokens;
	if (f->axis == CHART_TIME)
		return c->seconds;
	return ((double)c->first_step + (double)c->last_step) / 2;
}

/* Appends the line through the means. It breaks where all rows of a column have null. */
static void add_means(struct str *out, const struct frame *f, const struct chart_line *line)
{
	char command = 'M';

	for (int i = 0; i < line->columns->count; i++) {
		const struct column_value *v = value_of(line, i);

		if (!v->count) {
			command = v->null_count ? 'M' : command;
			continue;
		}
		str_add_char(out, command);
		frame_point(out, f, place_of(&line->columns->items[i], f), v->sum / (double)v->count);
		command = 'L';
	}
}

/* Appends the outline of the band from minimum to maximum between two columns, the end excluded. */
static void add_band_part(
        struct str *out, const struct frame *f, const struct chart_line *line, int begin, int end)
{
	char command = 'M';

	for (int i = begin; i < end; i++)
		if (value_of(line, i)->count) {
			str_add_char(out, command);
			frame_point(out, f, place_of(&line->columns->items[i], f), value_of(line, i)->max);
			command = 'L';
		}
	for (int i = end - 1; i >= begin; i--)
		if (value_of(line, i)->count) {
			str_add_char(out, 'L');
			frame_point(out, f, place_of(&line->columns->items[i], f), value_of(line, i)->min);
		}
	if (command == 'L')
		str_add_char(out, 'Z');
}

static void add_band(struct str *out, const struct frame *f, const struct chart_line *line)
{
	int begin = 0, is_wanted = 0;

	for (int i = 0; i < line->columns->count; i++)
		is_wanted |= value_of(line, i)->count && value_of(line, i)->min < value_of(line, i)->max;
	if (!is_wanted)
		return;
	str_printf(out, "<path class=\"b c%d\" d=\"", line->colour);
	for (int i = 0; i <= line->columns->count; i++)
		if (i == line->columns->count ||
		        (!value_of(line, i)->count && value_of(line, i)->null_count)) {
			add_band_part(out, f, line, begin, i);
			begin = i + 1;
		}
	str_add(out, "\"/>\n");
}

static void add_points(struct str *out, const struct frame *f, const struct chart_line *line)
{
	int count = 0;

	for (int i = 0; i < line->columns->count; i++)
		count += value_of(line, i)->count > 0;
	if (!count || count > MARKED_POINTS_MAX)
		return;
	str_printf(out, "<path class=\"p c%d d%d\" d=\"", line->colour, line->dash);
	for (int i = 0; i < line->columns->count; i++) {
		const struct column_value *v = value_of(line, i);

		if (!v->count)
			continue;
		str_add_char(out, 'M');
		frame_point(out, f, place_of(&line->columns->items[i], f), v->sum / (double)v->count);
		str_add(out, "h0");
	}
	str_add(out, "\"/>\n");
}

/* Appends a triangle at the upper edge for each column with a skipped step. */
static void add_skips(struct str *out, const struct frame *f, const struct chart_line *line)
{
	int64_t skipped = 0;

	for (int i = 0; i < line->columns->count; i++) {
		const struct column *c = &line->columns->items[i];

		if (!c->skipped_count)
			continue;
		if (!skipped)
			str_printf(out, "<path class=\"s c%d\" d=\"", line->colour);
		skipped += c->skipped_count;
		str_add_char(out, 'M');
		frame_coordinates(out, frame_x(f, place_of(c, f)) - 4, CHART_TOP);
		str_add(out, "h8l-4 7z");
	}
	if (skipped)
		str_printf(out, "\"><title>%" PRId64 " step%s skipped</title></path>\n", skipped,
		        plural_s(skipped));
}

static void add_line(struct str *out, const struct frame *f, const struct chart_line *line)
{
	str_printf(out, "<path class=\"l c%d d%d\" data-name=\"", line->colour, line->dash);
	html_add(out, line->name);
	str_add(out, "\" d=\"");
	add_means(out, f, line);
	str_add(out, "\"/>\n");
	add_points(out, f, line);
}

/* The end of an axis that begins at 0. */
static double axis_end(const struct chart *chart, const struct frame *f)
{
	double end = 0;

	for (int l = 0; l < chart->line_count; l++)
		for (int i = 0; i < chart->lines[l].columns->count; i++)
			end = fmax(end, place_of(&chart->lines[l].columns->items[i], f));
	return end;
}

void chart_write(struct str *out, const struct chart *chart, int *is_log)
{
	struct frame f = {.is_wide = (chart->flags & CHART_IS_WIDE) != 0,
	        .first = (double)chart->first_step,
	        .last = (double)chart->last_step,
	        .unit = chart->unit,
	        .axis = chart->axis};
	double lo, hi;

	if (is_log)
		*is_log = 0;
	if (f.axis != CHART_STEPS) {
		f.first = 0;
		f.last = axis_end(chart, &f);
	}
	if (f.axis != CHART_STEPS && !(f.last > 0)) /* no row has them */
		return;
	if (!range_find(&lo, &hi, chart))
		return;
	if (chart->flags & CHART_FROM_0)
		lo = fmin(lo, 0);
	f.y.is_log = chart->flags & CHART_MAY_LOG && lo > log_smallest && hi / lo >= log_ratio;
	if (is_log)
		*is_log = f.y.is_log;
	frame_open(out, &f, lo, hi, chart->title);
	for (int l = 0; l < chart->line_count && !(chart->flags & CHART_NO_BAND); l++)
		add_band(out, &f, &chart->lines[l]);
	for (int l = 0; l < chart->line_count; l++)
		add_line(out, &f, &chart->lines[l]);
	for (int l = 0; l < chart->line_count && chart->flags & CHART_MARKS_SKIPPED; l++)
		if (chart->lines[l].metric == REPORT_LOSS)
			add_skips(out, &f, &chart->lines[l]);
	frame_close(out);
}

/* ---- the timeline ---- */

enum { LAYER_COUNT = REPORT_WAIT_COUNT + 1 }; /* compute, then the waits on top of it */

/* The share of time up to the top of a layer. */
static double layer_top(const struct column *c, int layer)
{
	double above = 0, whole = report_time_ms(c->step_ms, c->wait_ms);

	for (int w = layer; w < REPORT_WAIT_COUNT; w++)
		above += c->wait_ms[w];
	return whole > 0 ? 1 - above / whole : 1;
}

static int has_time(const struct column *c)
{
	return report_time_ms(c->step_ms, c->wait_ms) > 0;
}

/* Where the first column begins: as many steps before its row as there are up to the next one. */
static double first_edge(const struct columns *columns, int first, const struct frame *f)
{
	const struct column *c = &columns->items[first];

	for (int i = first + 1; i < columns->count; i++)
		if (has_time(&columns->items[i])) {
			double gap = (double)columns->items[i].first_step - (double)c->last_step;

			return fmax(f->first, (double)c->first_step - fmax(gap, 1));
		}
	return fmax(f->first, (double)c->first_step - 1);
}

/* Appends the upper edge of a layer from left to right, or the lower edge from right to left. */
static void add_edge(struct str *out, const struct frame *f, const struct columns *columns, int layer,
        double left, int is_upper)
{
	int last = -1, count = columns->count;

	for (int k = 0; k < count; k++) {
		int i = is_upper ? k : count - 1 - k;
		const struct column *c = &columns->items[i];
		double y = layer < 0 ? 0 : layer_top(c, layer);

		if (!has_time(c))
			continue;
		if (last < 0) {
			str_add_char(out, is_upper ? 'M' : 'L');
			frame_point(out, f, is_upper ? left : (double)c->last_step, y);
		} else {
			/* the border of two columns is the last step of the left one */
			double border =
			        is_upper ? (double)columns->items[last].last_step : (double)c->last_step;

			str_add_char(out, 'H');
			frame_coordinate(out, frame_x(f, border));
			str_add_char(out, 'V');
			frame_coordinate(out, frame_y(f, y));
		}
		last = i;
	}
	str_add_char(out, 'H');
	frame_coordinate(out, frame_x(f, is_upper ? (double)columns->items[last].last_step : left));
}

void chart_write_timeline(
        struct str *out, const struct columns *columns, int64_t first_step, int64_t last_step, unsigned flags)
{
	struct frame f = {.is_wide = (flags & CHART_IS_WIDE) != 0,
	        .is_low = 1,
	        .first = (double)first_step,
	        .last = (double)last_step,
	        .unit = CHART_SHARE};
	double left;
	int first = 0;

	while (first < columns->count && !has_time(&columns->items[first]))
		first++;
	if (first == columns->count)
		return;
	left = first_edge(columns, first, &f);
	frame_open(out, &f, 0, 1, "timeline");
	for (int layer = 0; layer < LAYER_COUNT; layer++) {
		double largest = 0;

		for (int i = 0; i < columns->count; i++)
			if (has_time(&columns->items[i]))
				largest = fmax(largest,
				        layer_top(&columns->items[i], layer) -
				                (layer ? layer_top(&columns->items[i], layer - 1) : 0));
		if (!(largest > 0))
			continue;
		str_printf(out, "<path class=\"w w%d\" d=\"", layer);
		add_edge(out, &f, columns, layer, left, 1);
		add_edge(out, &f, columns, layer - 1, left, 0);
		str_printf(out, "Z\"><title>%s</title></path>\n",
		        layer ? report_wait_meanings[layer - 1] : "compute");
	}
	frame_close(out);
}
