/* Reads the rows of metrics.jsonl into the columns and totals of a run. */
#include "report/rows.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/size.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 16, LINE_BYTES_MAX = 1 << 20, SAMPLE_MAX = 1 << 16 };

/* Larger numbers are taken as not finite, so that no sum overflows. */
static const double largest = 1e200;
static const int64_t largest_step = 1000000000000000; /* exact in a double */

/* Values for a median. If there are too many, every second one is dropped, and from then on only every
 * stride-th is kept. */
struct sample {
	double *values; /* [SAMPLE_MAX] */
	int64_t count, seen, stride;
};

struct rows {
	struct report_run *run;
	const char *path;
	struct sample speed;
	int64_t line, bad_count, bad_first;
	/* The last logged step. The first one may stand for steps before it; the second one tells how many.
	 */
	int64_t step;
	double first_ms, first_tokens;
};

void report_note(struct report_run *r, const char *fmt, ...)
{
	va_list ap;
	char text[1024];

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_warn("%s", text);
	str_printf(&r->notes, "%s\n", text);
}

/* ---- the median ---- */

static int sample_add(struct sample *s, double value)
{
	if (!s->values) {
		s->values = mem_alloc(SAMPLE_MAX, sizeof(*s->values));
		if (!s->values)
			return ERR_NOMEM;
		s->stride = 1;
	}
	if (s->seen++ % s->stride)
		return 0;
	if (s->count == SAMPLE_MAX) {
		for (int64_t i = 0; i < SAMPLE_MAX / 2; i++)
			s->values[i] = s->values[2 * i];
		s->count = SAMPLE_MAX / 2;
		s->stride *= 2;
	}
	s->values[s->count++] = value;
	return 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double sample_median(struct sample *s)
{
	if (!s->count)
		return NAN;
	qsort(s->values, (size_t)s->count, sizeof(*s->values), compare);
	return (s->values[(s->count - 1) / 2] + s->values[s->count / 2]) / 2;
}

/* ---- one row ---- */

static int is_usable(const json_t *value)
{
	return json_is_number(value) && fabs(json_number_value(value)) < largest;
}

/* The number, or 0 if there is none. */
static double number_or_0(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return is_usable(value) ? json_number_value(value) : 0;
}

/* Whether the object has the form of a row: a step, and a known metric. */
static int is_row(const json_t *row, int64_t *step)
{
	int known = 0;

	if (!json_is_object(row) || json_get_int(row, "", "step", step) != 1 || *step < 0 ||
	        *step > largest_step)
		return 0;
	for (int m = 0; m < REPORT_METRIC_COUNT; m++) {
		const json_t *value = json_object_get(row, report_metric_names[m]);

		if (value && !json_is_number(value) && !json_is_null(value))
			return 0;
		known += value != NULL;
	}
	return known > 0;
}

static void take_loss(double *last, double *best, double value)
{
	*last = value;
	*best = fmin(*best, value); /* fmin passes over NAN */
}

static void take_metric(struct report_totals *t, enum report_metric metric, double value)
{
	if (metric == REPORT_LOSS)
		take_loss(&t->loss, &t->best_loss, value);
	else if (metric == REPORT_EVAL_LOSS)
		take_loss(&t->eval_loss, &t->best_eval_loss, value);
	else if (metric == REPORT_HOST_BYTES)
		t->host_bytes = fmax(t->host_bytes, value);
	else if (metric == REPORT_PINNED_BYTES)
		t->pinned_bytes = fmax(t->pinned_bytes, value);
	else if (metric == REPORT_DEVICE_BYTES)
		t->device_bytes = fmax(t->device_bytes, value);
}

/* What a logged step adds to the totals, besides its metrics. */
static void take_step(struct rows *rows, struct column *column, const json_t *row, int64_t step)
{
	struct report_totals *t = &rows->run->totals;
	const json_t *waits = json_object_get(row, "wait_ms");
	double ms = number_or_0(row, "step_ms"), tokens = number_or_0(row, "tokens");
	int64_t gap = t->row_count ? max_i64(step - rows->step, 1) : 1;

	if (!t->row_count) {
		t->first_step = step;
		rows->first_ms = ms;
		rows->first_tokens = tokens;
	}
	if (t->row_count == 1 && gap > 1) { /* so many stand before the first, too */
		int64_t before = min_i64(gap, t->first_step) - 1;

		t->seconds += 1e-3 * rows->first_ms * (double)before;
		t->token_count += rows->first_tokens * (double)before;
	}
	t->is_sampled |= gap > 1;
	t->seconds += 1e-3 * ms * (double)gap;
	t->token_count += tokens * (double)gap;
	t->row_count++;
	t->last_step = max_i64(t->last_step, step);
	rows->step = step;
	t->step_ms += ms;
	column->step_ms += ms;
	for (int w = 0; w < REPORT_WAIT_COUNT; w++) {
		double wait = number_or_0(waits, report_wait_names[w]);

		t->wait_ms[w] += wait;
		column->wait_ms[w] += wait;
	}
	if (json_is_true(json_object_get(row, "skipped"))) {
		t->skipped_count++;
		column->skipped_count++;
	}
}

/* The last losses of each data set, where steps have rows of one. */
static int take_sets(struct report_run *run, const json_t *row)
{
	const char *name = json_string_value(json_object_get(row, "data_set"));
	json_t *set = name ? json_object_get(run->sets, name) : NULL;
	int failed = 0;

	if (name && !run->sets)
		run->sets = json_object();
	if (name && !set) {
		set = json_pack("{s:i,s:n,s:n}", "steps", 0, "loss", "eval_loss");
		failed = json_object_set_new(run->sets, name, set);
	}
	if (name && !failed) {
		failed = json_object_set_new(set, "steps",
		                 json_integer(json_integer_value(json_object_get(set, "steps")) + 1)) ||
		         json_object_set(set, "loss", json_object_get(row, "loss"));
		return failed ? ERR_NOMEM : 0;
	}
	json_object_foreach(run->sets, name, set)
	{
		char key[160];
		json_t *loss;

		snprintf(key, sizeof(key), "eval_%s_loss", name);
		loss = json_object_get(row, key);
		failed |= loss && json_object_set(set, "eval_loss", loss);
	}
	return failed ? ERR_NOMEM : 0;
}

static int take_row(struct rows *rows, const json_t *row, int64_t step)
{
	struct report_run *run = rows->run;
	struct column *column = columns_at(&run->columns, step);
	int err = column ? 0 : ERR_NOMEM;

	for (int m = 0; m < REPORT_METRIC_COUNT && !err; m++) {
		const json_t *value = json_object_get(row, report_metric_names[m]);

		if (!is_usable(value)) {
			column->values[m].null_count += value != NULL;
			continue;
		}
		column_value_add(&column->values[m], json_number_value(value));
		take_metric(&run->totals, m, json_number_value(value));
		if (m == REPORT_TOKENS_PER_S && !json_is_true(json_object_get(row, "skipped")))
			err = sample_add(&rows->speed, json_number_value(value));
	}
	err = err ? err : take_sets(run, row);
	if (!err && !json_object_get(row, report_metric_names[REPORT_EVAL_LOSS]))
		take_step(rows, column, row, step);
	if (!err) {
		column->tokens = fmax(column->tokens, run->totals.token_count);
		column->seconds = fmax(column->seconds, run->totals.seconds);
	}
	return err;
}

/* ---- lines ---- */

static int take_line(struct rows *rows, const struct str *line, int is_whole)
{
	json_t *row = NULL;
	int64_t step = 0;
	int err = line->len_bytes ? json_parse(&row, rows->path, line->data, line->len_bytes) : 0;

	rows->line++;
	if (err == ERR_NOMEM || !line->len_bytes)
		return err;
	if (!err && is_row(row, &step)) {
		err = take_row(rows, row, step);
		json_decref(row);
		return err;
	}
	json_decref(row);
	if (!is_whole) {
		log_info("%s:%" PRId64 ": the last line is not complete; left out", rows->path, rows->line);
		return 0;
	}
	if (!rows->bad_count++)
		rows->bad_first = rows->line;
	return 0;
}

/* Adds the next bytes of a line, unless it is too long for a row. */
static void extend(struct str *line, const char *bytes, size_t len)
{
	if (line->len_bytes <= LINE_BYTES_MAX)
		str_add_bytes(line, bytes, len);
}

static int read_lines(struct rows *rows, int fd, int64_t len)
{
	char *piece = mem_alloc(PIECE_BYTES, 1);
	struct str line = {0};
	int err = piece ? 0 : ERR_NOMEM;

	for (int64_t at = 0; at < len && !err; at += PIECE_BYTES) {
		size_t left = (size_t)min_i64(PIECE_BYTES, len - at);
		const char *begin = piece, *newline;

		err = file_read_at(fd, rows->path, piece, left, at);
		while (!err && (newline = memchr(begin, '\n', left))) {
			extend(&line, begin, (size_t)(newline - begin));
			err = str_check(&line);
			if (!err)
				err = take_line(rows, &line, 1);
			line.len_bytes = 0;
			left -= (size_t)(newline + 1 - begin);
			begin = newline + 1;
		}
		extend(&line, begin, left);
		err = err ? err : str_check(&line);
	}
	if (!err && line.len_bytes)
		err = take_line(rows, &line, 0);
	str_free(&line);
	mem_free(piece);
	return err;
}

int report_rows_read(struct report_run *r, const char *path)
{
	struct rows rows = {.run = r, .path = path};
	struct report_totals *t = &r->totals;
	int64_t len = 0;
	int fd = file_open_read(path, &len), err = fd < 0 ? fd : 0;

	*t = (struct report_totals){.loss = NAN,
	        .best_loss = NAN,
	        .eval_loss = NAN,
	        .best_eval_loss = NAN,
	        .host_bytes = NAN,
	        .pinned_bytes = NAN,
	        .device_bytes = NAN};
	if (!err) {
		err = read_lines(&rows, fd, len);
		file_abandon(fd, path);
	}
	t->tokens_per_s = sample_median(&rows.speed);
	mem_free(rows.speed.values);
	if (!err && rows.bad_count)
		report_note(r, "%s:%" PRId64 ": %" PRId64 " line%s no row%s of metrics; left out", path,
		        rows.bad_first, rows.bad_count, rows.bad_count == 1 ? " is" : "s are",
		        plural_s(rows.bad_count));
	if (!err && !r->columns.count)
		err = err_set(
		        ERR_INPUT, "%s has no row yet; ferry writes one every logging_steps steps", path);
	return err;
}
