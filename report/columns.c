/* Reduces the rows of a run to columns. */
#include "report/columns.h"

#include "base/mem.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

const char *const report_metric_names[REPORT_METRIC_COUNT] = {
#define ROW(id, name) [REPORT_##id] = name,
        REPORT_METRICS(ROW)
#undef ROW
};

const char *const report_wait_names[REPORT_WAIT_COUNT] = {
#define ROW(id, name, meaning) [REPORT_WAIT_##id] = name,
        REPORT_WAITS(ROW)
#undef ROW
};

const char *const report_wait_meanings[REPORT_WAIT_COUNT] = {
#define ROW(id, name, meaning) [REPORT_WAIT_##id] = meaning,
        REPORT_WAITS(ROW)
#undef ROW
};

static void value_merge(struct column_value *into, const struct column_value *v)
{
	into->null_count += v->null_count;
	if (!v->count)
		return;
	if (!into->count || v->min < into->min)
		into->min = v->min;
	if (!into->count || v->max > into->max)
		into->max = v->max;
	into->sum += v->sum;
	into->count += v->count;
}

void column_value_add(struct column_value *v, double value)
{
	value_merge(v, &(struct column_value){value, value, value, 1, 0});
}

static void column_merge(struct column *into, const struct column *c)
{
	if (!c->row_count)
		return;
	if (!into->row_count) {
		*into = *c;
		return;
	}
	into->row_count += c->row_count;
	into->first_step = min_i64(into->first_step, c->first_step);
	into->last_step = max_i64(into->last_step, c->last_step);
	into->skipped_count += c->skipped_count;
	for (int m = 0; m < REPORT_METRIC_COUNT; m++)
		value_merge(&into->values[m], &c->values[m]);
	into->step_ms += c->step_ms;
	into->tokens = fmax(into->tokens, c->tokens);
	into->seconds = fmax(into->seconds, c->seconds);
	for (int w = 0; w < REPORT_WAIT_COUNT; w++)
		into->wait_ms[w] += c->wait_ms[w];
}

/* Doubles the width. */
static void halve(struct columns *c)
{
	for (int i = 0; i < c->count; i++) {
		struct column one = c->items[i];

		memset(&c->items[i], 0, sizeof(one));
		column_merge(&c->items[i / 2], &one);
	}
	c->count = (c->count + 1) / 2;
	c->width_steps *= 2;
}

void columns_reduce(struct columns *c, int count_max)
{
	while (c->count > count_max)
		halve(c);
}

struct column *columns_at(struct columns *c, int64_t step)
{
	int64_t offset;
	struct column *column;

	if (!c->items) {
		c->items = mem_alloc(COLUMNS_MAX, sizeof(*c->items));
		if (!c->items)
			return NULL;
		c->origin_step = step;
		c->width_steps = 1;
	}
	offset = max_i64(step - c->origin_step, 0);
	while (offset / c->width_steps >= COLUMNS_MAX)
		halve(c);
	column = &c->items[offset / c->width_steps];
	if (!column->row_count++)
		column->first_step = column->last_step = step;
	column->first_step = min_i64(column->first_step, step);
	column->last_step = max_i64(column->last_step, step);
	c->count = (int)max_i64(c->count, column - c->items + 1);
	return column;
}

double report_time_ms(double step_ms, const double *wait_ms)
{
	double waits = 0;

	for (int w = 0; w < REPORT_WAIT_COUNT; w++)
		waits += w == REPORT_WAIT_DISK ? 0 : wait_ms[w];
	return fmax(step_ms, waits) + wait_ms[REPORT_WAIT_DISK];
}

void columns_free(struct columns *c)
{
	mem_free(c->items);
	memset(c, 0, sizeof(*c));
}
