/* The frame of a chart: its plot area, axes, ticks and grid; and where a value is in it. For report/chart.c.
 */
#ifndef FERRY_REPORT_CHART_FRAME_H
#define FERRY_REPORT_CHART_FRAME_H

#include "report/chart.h"

struct frame_axis {
	double lo, hi;
	int is_log; /* set by the caller */
};

struct frame {
	int is_wide, is_low;
	enum chart_axis axis;
	double first, last; /* steps, tokens or seconds */
	enum chart_unit unit;
	struct frame_axis y; /* lo and hi are set by frame_open */
};

/* Chooses the range of y so that it holds lo to hi, and appends the beginning of the <svg> with grid and
 * ticks. */
void frame_open(struct str *out, struct frame *f, double lo, double hi, const char *title);
void frame_close(struct str *out);

/* Pixels from the left and from the top. */
double frame_x(const struct frame *f, double step);
double frame_y(const struct frame *f, double value);

/* Appends "X Y" of a point, of pixels, or one coordinate; one digit after the point. */
void frame_point(struct str *out, const struct frame *f, double step, double value);
void frame_coordinates(struct str *out, double x, double y);
void frame_coordinate(struct str *out, double pixels);

/* Appends a number in the shortest usual form, as 2e-5. */
void frame_number(struct str *out, double value, int digits);

#endif
