/* Draws axes, ticks and the grid of a chart. */
#include "report/chart_frame.h"

#include "report/html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { X_TICKS = 6, WIDE_X_TICKS = 11, Y_TICKS = 4, DECADES_MAX = 8, TICKS_MAX = 40 };

/* ---- numbers ---- */

void frame_number(struct str *out, double value, int digits)
{
	char text[40], *exponent;

	snprintf(text, sizeof(text), "%.*g", digits, value);
	exponent = strchr(text, 'e');
	if (exponent) { /* e-05 as e-5, e+06 as e6 */
		char *from = exponent + 1, *to = exponent + 1;

		if (*from == '-')
			to++;
		from++;
		from += strspn(from, "0");
		memmove(to, from, strlen(from) + 1);
	}
	str_add(out, text);
}

void frame_coordinate(struct str *out, double pixels)
{
	char text[40];
	size_t len;

	snprintf(text, sizeof(text), "%.1f", pixels);
	len = strlen(text);
	if (text[len - 1] == '0')
		text[len - 2] = 0;
	str_add(out, text);
}

void frame_coordinates(struct str *out, double x, double y)
{
	frame_coordinate(out, x);
	str_add_char(out, ' ');
	frame_coordinate(out, y);
}

/* ---- where things are ---- */

static int width_of(const struct frame *f)
{
	return f->is_wide ? CHART_WIDE_WIDTH : CHART_WIDTH;
}

static int height_of(const struct frame *f)
{
	return !f->is_wide ? CHART_HEIGHT : f->is_low ? CHART_LOW_HEIGHT : CHART_TALL_HEIGHT;
}

double frame_x(const struct frame *f, double step)
{
	return CHART_LEFT +
	       (step - f->first) / (f->last - f->first) * (width_of(f) - CHART_LEFT - CHART_RIGHT);
}

double frame_y(const struct frame *f, double value)
{
	const struct frame_axis *y = &f->y;
	double share =
	        y->is_log ? log(value / y->lo) / log(y->hi / y->lo) : (value - y->lo) / (y->hi - y->lo);

	return height_of(f) - CHART_BOTTOM - share * (height_of(f) - CHART_TOP - CHART_BOTTOM);
}

void frame_point(struct str *out, const struct frame *f, double step, double value)
{
	frame_coordinates(out, frame_x(f, step), frame_y(f, value));
}

/* ---- ticks ---- */

/* 1, 2 or 5 times a power of ten that cuts the range into about `count` parts. */
static double nice_step(double range, int count)
{
	double rough = range / count, power = pow(10, floor(log10(rough)));

	return power * (rough < 1.5 * power ? 1 : rough < 3.5 * power ? 2 : rough < 7.5 * power ? 5 : 10);
}

/* The largest unit of bytes up to the value. */
static double bytes_unit(double value, const char **name)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double unit = 1;
	int i = 0;

	while (value >= 1024 * unit && i < 4) {
		unit *= 1024;
		i++;
	}
	*name = names[i];
	return unit;
}

/* Appends a tick's text; `step` is the distance of ticks. */
static void add_tick_text(struct str *out, const struct frame *f, double value, double step)
{
	const char *name;

	if (value == 0 && f->unit != CHART_SHARE) {
		str_add_char(out, '0');
	} else if (f->unit == CHART_BYTES) {
		double unit = bytes_unit(f->y.hi, &name);

		frame_number(out, value / unit, 4);
		str_printf(out, " %s", name);
	} else if (f->unit == CHART_SHARE) {
		str_printf(out, "%.0f%%", 100 * value);
	} else if (f->unit == CHART_RATE && step >= 1000) {
		frame_number(out, value / 1000, 6);
		str_add_char(out, 'k');
	} else {
		frame_number(out, value, 6);
	}
}

/* Seconds in the unit of an axis of time; *name: its word. */
static double time_unit(const struct frame *f, const char **name)
{
	static const struct {
		double up_to, seconds;
		const char *name;
	} units[] = {{120, 1, "seconds"}, {7200, 60, "minutes"}, {172800, 3600, "hours"},
	        {INFINITY, 86400, "days"}};
	int i = 0;

	while (f->last > units[i].up_to)
		i++;
	if (name)
		*name = units[i].name;
	return units[i].seconds;
}

static void add_step_text(struct str *out, const struct frame *f, double value, double step)
{
	double unit = f->last >= 1e9 && step >= 1e7   ? 1e9
	              : f->last >= 1e6 && step >= 1e4 ? 1e6
	              : step >= 1e3                   ? 1e3
	                                              : 1;

	if (f->axis == CHART_TIME)
		unit = time_unit(f, NULL);
	frame_number(out, value / unit, f->axis == CHART_TIME ? 6 : 15);
	if (unit > 1 && value > 0 && f->axis != CHART_TIME)
		str_add_char(out, unit > 1e6 ? 'G' : unit > 1e3 ? 'M' : 'k');
}

/* The values of the ticks of y. */
struct ticks {
	double values[TICKS_MAX];
	int count;
	double step;
};

static void tick_add(struct ticks *t, double value)
{
	if (t->count < TICKS_MAX)
		t->values[t->count++] = value;
}

/* Extends lo to hi to whole ticks. */
static void ticks_linear(struct ticks *t, struct frame *f, double lo, double hi)
{
	const char *name;
	double unit = f->unit == CHART_BYTES ? bytes_unit(hi, &name) : 1;

	if (hi - lo <= 1e-9 * fmax(fabs(hi), fabs(lo))) { /* one value: in the middle, or 0 at the bottom */
		double room = hi == 0 ? 1 : fabs(hi) / 2;

		lo = lo == 0 ? 0 : lo - room;
		hi += room;
	}
	t->step = nice_step((hi - lo) / unit, Y_TICKS) * unit;
	f->y.lo = floor(lo / t->step + 1e-9) * t->step;
	f->y.hi = ceil(hi / t->step - 1e-9) * t->step;
	for (int i = 0; f->y.lo + i * t->step <= f->y.hi + t->step / 2; i++)
		tick_add(t, i || f->y.lo != 0 ? f->y.lo + i * t->step : 0);
}

static void ticks_log(struct ticks *t, struct frame *f, double lo, double hi)
{
	static const double parts[] = {1, 2, 5};
	double room = pow(hi / lo, 0.03);
	int first, last, stride;

	f->y.lo = lo / room;
	f->y.hi = hi * room;
	first = (int)floor(log10(f->y.lo));
	last = (int)ceil(log10(f->y.hi));
	stride = (last - first) / DECADES_MAX + 1;
	for (int decade = first; decade <= last; decade += stride)
		for (int i = 0; i < (last - first <= 3 ? 3 : 1); i++) {
			double value = parts[i] * pow(10, decade);

			if (value >= f->y.lo && value <= f->y.hi)
				tick_add(t, value);
		}
}

/* ---- the frame ---- */

static void add_y_axis(struct str *out, const struct frame *f, const struct ticks *t)
{
	str_add(out, "<path class=\"g\" d=\"");
	for (int i = 0; i < t->count; i++) {
		str_add_char(out, 'M');
		frame_coordinates(out, CHART_LEFT, frame_y(f, t->values[i]));
		str_printf(out, "H%d", width_of(f) - CHART_RIGHT);
	}
	str_add(out, "\"/>\n<g class=\"t\" text-anchor=\"end\">");
	for (int i = 0; i < t->count; i++) {
		str_printf(out, "<text x=\"%d\" y=\"", CHART_LEFT - 8);
		frame_coordinate(out, frame_y(f, t->values[i]) + 4);
		str_add(out, "\">");
		/* a rounding error is no value */
		add_tick_text(out, f, fabs(t->values[i]) < t->step * 1e-9 ? 0 : t->values[i], t->step);
		str_add(out, "</text>");
	}
	str_add(out, "</g>\n");
}

static void add_x_axis(struct str *out, const struct frame *f)
{
	int bottom = height_of(f) - CHART_BOTTOM;
	const char *name = f->axis == CHART_TOKENS ? "tokens" : "step";
	double unit = f->axis == CHART_TIME ? time_unit(f, &name) : 1;
	double step = unit * nice_step((f->last - f->first) / unit, f->is_wide ? WIDE_X_TICKS : X_TICKS);
	double first;

	if (f->axis != CHART_TIME)
		step = fmax(1, step);
	first = ceil(f->first / step) * step;
	str_printf(out, "<path class=\"a\" d=\"M%d %dH%d", CHART_LEFT, bottom, width_of(f) - CHART_RIGHT);
	for (double at = first; at <= f->last; at += step) {
		str_add_char(out, 'M');
		frame_coordinates(out, frame_x(f, at), bottom);
		str_add(out, "v4");
	}
	str_add(out, "\"/>\n<g class=\"t\" text-anchor=\"middle\">");
	for (double at = first; at <= f->last; at += step) {
		str_add(out, "<text x=\"");
		frame_coordinate(out, frame_x(f, at));
		str_printf(out, "\" y=\"%d\">", bottom + 17);
		add_step_text(out, f, at, step);
		str_add(out, "</text>");
	}
	str_printf(out, "<text x=\"%d\" y=\"%d\">%s</text></g>\n",
	        (CHART_LEFT + width_of(f) - CHART_RIGHT) / 2, bottom + 34, name);
}

void frame_open(struct str *out, struct frame *f, double lo, double hi, const char *title)
{
	struct ticks t = {0};

	if (f->last <= f->first)
		f->last = f->first + 1;
	if (f->y.is_log)
		ticks_log(&t, f, lo, hi);
	else
		ticks_linear(&t, f, lo, hi);
	str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", width_of(f), height_of(f));
	html_add(out, title);
	str_printf(out,
	        "\" data-x=\"%.17g %.17g %d %d\" data-y=\"%.17g %.17g %d %d %d\" data-unit=\"%d\" "
	        "data-axis=\"%s\">\n",
	        f->first, f->last, CHART_LEFT, width_of(f) - CHART_RIGHT, f->y.lo, f->y.hi,
	        height_of(f) - CHART_BOTTOM, CHART_TOP, f->y.is_log, (int)f->unit,
	        f->axis == CHART_TOKENS ? "tokens"
	        : f->axis == CHART_TIME ? "seconds"
	                                : "step");
	add_y_axis(out, f, &t);
	add_x_axis(out, f);
}

void frame_close(struct str *out)
{
	str_add(out, "</svg>\n");
}
