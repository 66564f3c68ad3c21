/* Prints the progress of a run. */
#include "cli/progress.h"

#include "cli/screen.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/thread.h"

#include <math.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

enum {
	KEPT_S = 5,
	WORK_TERMINAL_S = 1,
	WORK_LOG_S = 10,
	WORK_LOG_EVERY_S = 30,
	TICK_MS = 250,
	COLUMNS_DEFAULT = 80
};

struct progress {
	FILE *to;
	int updates;
	int64_t first_step, total_steps, step;
	double start_s; /* time at which first_step was done */
	struct str line;
	int is_shown;  /* 1: the line has been on the terminal */
	double kept_s; /* when a line stayed last */
	double said_s; /* when the log got a line last */
	int drawn;
	pthread_t ticker;
	pthread_cond_t end;
	int is_ending, has_ticker;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct progress *current;

/* How much of a line is written. */
enum detail { DETAIL_LOSS, DETAIL_RATES, DETAIL_MEMORY, DETAIL_ALL };

/* The queues that compute waited for, those that matter. */
static void causes_format(struct str *out, const struct metrics_step *row)
{
	const char *before = " (";
	int any = 0;

	for (int q = 0; q < QUEUE_COUNT; q++) {
		if (q == QUEUE_COMPUTE || row->wait_ms[q] < fmax(0.5, 0.005 * row->step_ms))
			continue;
		str_printf(out, "%s%s %.0f", before, queue_name((enum queue_kind)q), row->wait_ms[q]);
		before = ", ";
		any = 1;
	}
	str_add(out, any ? " ms)" : "");
}

static void row_format(struct str *out, const struct metrics_step *row)
{
	const struct device_condition *c = &row->condition;
	const struct {
		double value; /* 0: the card has no such sensor */
		const char *unit;
	} sensors[] = {{c->sm_mhz, "MHz"}, {c->watts, "W"}, {c->celsius, "C"}};
	struct str slowed = {0};

	if (row->planned_ms > 0)
		str_printf(out, "  step %.0f ms, planned %.0f ms", row->step_ms, row->planned_ms);
	if (!row->has_condition)
		return;
	str_add(out, "  gpu");
	for (int i = 0; i < 3; i++)
		if (sensors[i].value > 0)
			str_printf(out, " %.0f %s", sensors[i].value, sensors[i].unit);
	metrics_slowed(&slowed, c);
	if (slowed.data)
		str_printf(out, ", slowed by %s", slowed.data);
	str_free(&slowed);
}

static void line_format(struct str *out, const struct progress_step *step, int64_t total_steps, double eta_s,
        enum detail detail)
{
	str_printf(out, "step %lld/%lld", (long long)step->step, (long long)total_steps);
	if (isfinite(step->loss))
		str_printf(out, "  loss %.4f", step->loss);
	if (step->row && step->row->data_set)
		str_printf(out, " (%s)", step->row->data_set);
	if (step->objective && step->objective->say_step)
		step->objective->say_step(out, step->means);
	if (isfinite(step->grad_norm) && detail >= DETAIL_RATES)
		str_printf(out, "  grad %.3g", step->grad_norm);
	if (step->skipped)
		str_printf(out, "  skipped: %s", step->skipped);
	if (isfinite(step->learning_rate) && detail >= DETAIL_RATES)
		str_printf(out, "  lr %.2e", step->learning_rate);
	if (isfinite(step->tokens_per_s)) {
		str_add(out, "  ");
		quantity_count(out, step->tokens_per_s);
		str_add(out, " tok/s");
	}
	if (eta_s >= 0) {
		str_add(out, "  eta ");
		quantity_seconds(out, eta_s);
	}
	if (step->device_bytes >= 0 && detail >= DETAIL_MEMORY) {
		str_add(out, "  device ");
		quantity_bytes(out, step->device_bytes);
	}
	if (step->host_bytes >= 0 && detail >= DETAIL_MEMORY) {
		str_add(out, "  host ");
		quantity_bytes(out, step->host_bytes);
	}
	if (isfinite(step->wait_share) && detail >= DETAIL_MEMORY)
		str_printf(out, "  wait %.0f%%", step->wait_share * 100);
	if (!step->row || detail < DETAIL_ALL)
		return;
	causes_format(out, step->row);
	row_format(out, step->row);
}

void progress_format(struct str *out, const struct progress_step *step, int64_t total_steps, double eta_s)
{
	line_format(out, step, total_steps, eta_s, DETAIL_ALL);
}

void progress_work_format(
        struct str *out, const struct work_state *work, int64_t step, int64_t total_steps, double step_s)
{
	double share = work->total > 0 ? (double)work->done / (double)work->total : 0;
	int is_step = work->what == work_step;
	double whole_s = is_step && step_s > 0 ? step_s : share > 0.02 ? work->seconds / share : 0;

	if (is_step)
		str_printf(out, "step %lld/%lld: ", (long long)step + 1, (long long)total_steps);
	else
		str_printf(out, "%s: ", work->what);
	if (is_step && work->micro_count)
		str_add(out, work->is_backward ? "backward, " : "forward, ");
	if (is_step && work->layer)
		str_printf(out, "layer %d/%d, ", work->layer, work->layer_count);
	if (is_step && work->micro_count > 1)
		str_printf(out, "micro-batch %d/%d, ", work->micro, work->micro_count);
	if (work->total > 0)
		str_printf(out, "%.0f%%, ", 100 * share);
	quantity_seconds(out, work->seconds);
	if (whole_s > work->seconds) {
		str_add(out, " of about ");
		quantity_seconds(out, whole_s);
	}
}

/* ---- the line ---- */

static int columns(FILE *to)
{
	int count = screen_columns(to);

	return count ? count : COLUMNS_DEFAULT;
}

/* Call with the lock held. */
static void erase(struct progress *p)
{
	if (p->drawn)
		fputs("\r\033[K", p->to);
	p->drawn = 0;
}

static void draw(struct progress *p)
{
	if (!p->line.len_bytes)
		return;
	fprintf(p->to, "\r\033[K%.*s", screen_cut(p->line.data, columns(p->to) - 1), p->line.data);
	fflush(p->to);
	p->drawn = 1;
}

/* ---- what the process is at ---- */

static double step_seconds(const struct progress *p)
{
	int64_t done = p->step - p->first_step;

	return done > 0 ? (clock_now_s() - p->start_s) / (double)done : 0;
}

/* Call with the lock held. */
static void work_draw(struct progress *p)
{
	struct work_state work;
	struct str text = {0};
	double now = clock_now_s();

	if (!work_now(&work) || work.seconds < (p->updates ? WORK_TERMINAL_S : WORK_LOG_S) ||
	        (!p->updates && now - p->said_s < WORK_LOG_EVERY_S))
		return;
	progress_work_format(&text, &work, p->step, p->total_steps, step_seconds(p));
	if (text.data && p->updates) {
		if (p->drawn && p->is_shown) /* the last losses stay */
			fputc('\n', p->to);
		p->is_shown = 0;
		fprintf(p->to, "\r\033[K%.*s", columns(p->to) - 1, text.data);
		p->drawn = 1;
	} else if (text.data) {
		fprintf(p->to, "%s\n", text.data);
		p->said_s = now;
	}
	fflush(p->to);
	str_free(&text);
}

static void *ticker_run(void *context)
{
	struct progress *p = context;

	pthread_mutex_lock(&lock);
	while (!p->is_ending) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += TICK_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&p->end, &lock, &until);
		if (!p->is_ending)
			work_draw(p);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* ---- open, show, close ---- */

int progress_open(struct progress **out, FILE *to, int64_t total_steps, enum progress_style style)
{
	struct progress *p = mem_alloc(1, sizeof(*p));

	*out = NULL;
	if (!p)
		return ERR_NOMEM;
	p->to = to;
	p->updates = style == PROGRESS_STYLE_UPDATE || (style == PROGRESS_STYLE_AUTO && isatty(fileno(to)));
	p->total_steps = total_steps;
	p->start_s = clock_now_s();
	p->kept_s = p->start_s;
	p->said_s = p->start_s - WORK_LOG_EVERY_S;
	pthread_cond_init(&p->end, NULL);
	pthread_mutex_lock(&lock);
	current = p;
	pthread_mutex_unlock(&lock);
	p->has_ticker = !thread_start(&p->ticker, ticker_run, p); /* without it there is less to see */
	*out = p;
	return 0;
}

void progress_begin(struct progress *p, int64_t first_step)
{
	pthread_mutex_lock(&lock);
	p->first_step = p->step = first_step;
	p->start_s = clock_now_s();
	pthread_mutex_unlock(&lock);
}

/* The longest form that fits the terminal. */
static void line_set(struct progress *p, const struct progress_step *step, double eta_s)
{
	int width = p->updates ? columns(p->to) - 1 : 0;

	for (int detail = DETAIL_ALL; detail >= DETAIL_LOSS; detail--) {
		str_free(&p->line);
		line_format(&p->line, step, p->total_steps, eta_s, (enum detail)detail);
		if (!p->updates || p->line.len_bytes <= (size_t)width)
			break;
	}
}

void progress_show(struct progress *p, const struct progress_step *step)
{
	int64_t done = step->step - p->first_step;
	double now = clock_now_s(), eta_s = -1;

	if (done > 0 && step->step < p->total_steps)
		eta_s = (now - p->start_s) / (double)done * (double)(p->total_steps - step->step);
	pthread_mutex_lock(&lock);
	p->step = step->step;
	p->said_s = now;
	if (p->drawn && p->is_shown && now - p->kept_s >= KEPT_S) { /* the line before stays */
		fputc('\n', p->to);
		p->drawn = 0;
		p->kept_s = now;
	}
	line_set(p, step, eta_s);
	p->is_shown = 1;
	if (p->updates)
		draw(p);
	else if (p->line.data)
		fprintf(p->to, "%s\n", p->line.data);
	pthread_mutex_unlock(&lock);
}

void progress_log(const char *line)
{
	pthread_mutex_lock(&lock);
	if (current && current->updates)
		erase(current);
	fprintf(stderr, "%s\n", line);
	if (current)
		current->said_s = clock_now_s();
	if (current && current->updates && current->is_shown)
		draw(current);
	pthread_mutex_unlock(&lock);
}

void progress_close(struct progress *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&lock);
	p->is_ending = 1;
	pthread_cond_signal(&p->end);
	if (p->drawn && p->is_shown)
		fputc('\n', p->to);
	else
		erase(p);
	p->drawn = 0;
	if (current == p)
		current = NULL;
	pthread_mutex_unlock(&lock);
	if (p->has_ticker)
		pthread_join(p->ticker, NULL);
	pthread_cond_destroy(&p->end);
	str_free(&p->line);
	mem_free(p);
}
