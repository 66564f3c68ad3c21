/* Charts of reduced runs as inline SVG.
 *
 * A chart has one y axis and any number of lines over steps, tokens or time. A line of a column that holds
 * several steps is their mean, with a band from minimum to maximum behind it. Colours and strokes are
 * classes that the page's style defines: c0, c1 ... for a run, d0, d1 ... for a kind of line. The
 * attributes data-x and data-y let the page's script turn points back into values; without the script they
 * do nothing.
 *
 */
#ifndef FERRY_REPORT_CHART_H
#define FERRY_REPORT_CHART_H

#include "base/str.h"
#include "report/columns.h"

enum chart_unit { CHART_NUMBER, CHART_RATE, CHART_BYTES, CHART_SHARE };

/* The x axis: steps, or what the run had trained by then. */
enum chart_axis { CHART_STEPS, CHART_TOKENS, CHART_TIME };

enum { CHART_MAY_LOG = 1, CHART_FROM_0 = 2, CHART_IS_WIDE = 4, CHART_MARKS_SKIPPED = 8, CHART_NO_BAND = 16 };

struct chart_line {
	const struct columns *columns;
	enum report_metric metric;
	int colour, dash;
	const char *name; /* for the script */
};

struct chart {
	const char *title;
	enum chart_unit unit;
	unsigned flags;
	int64_t first_step, last_step; /* the x axis of steps, of all charts of a page */
	const struct chart_line *lines;
	int line_count;
	enum chart_axis axis; /* tokens and seconds begin at 0 */
};

/* Pixels: the size of a chart, and its plot's distance to each side. */
enum {
	CHART_WIDTH = 560,
	CHART_WIDE_WIDTH = 1150,
	CHART_HEIGHT = 240,
	CHART_LOW_HEIGHT = 180,
	CHART_TALL_HEIGHT = 320,
	CHART_LEFT = 64,
	CHART_RIGHT = 22,
	CHART_TOP = 12,
	CHART_BOTTOM = 40
};

/* Whether some line has a value. */
int chart_has_values(const struct chart *chart);

/* Appends the chart as <svg>, nothing if no line has a value. *is_log (may be NULL): it got a log scale. */
void chart_write(struct str *out, const struct chart *chart, int *is_log);

/* Appends, as <svg>, for each column the shares of time that compute worked and waited, stacked. flags:
 * CHART_IS_WIDE. */
void chart_write_timeline(struct str *out, const struct columns *columns, int64_t first_step,
        int64_t last_step, unsigned flags);

/* Appends a value in the form of the unit, for a person. */
void chart_value_text(struct str *out, enum chart_unit unit, double value);

#endif
