/* Prints the progress of a run. */
#include "cli/progress.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/quantity.h"

#include <math.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct progress {
	FILE *to;
	int updates;
	int64_t first_step, total_steps;
	double start_s; /* estimated time at which first_step was done */
	struct str line;
	int drawn;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct progress *current;

void progress_format(struct str *out, const struct progress_step *step, int64_t total_steps, double eta_s)
{
	str_printf(out, "step %lld/%lld", (long long)step->step, (long long)total_steps);
	if (isfinite(step->loss))
		str_printf(out, "  loss %.4f", step->loss);
	if (step->objective && step->objective->say_step)
		step->objective->say_step(out, step->means);
	if (isfinite(step->grad_norm))
		str_printf(out, "  grad %.3g", step->grad_norm);
	if (step->skipped)
		str_printf(out, "  skipped: %s", step->skipped);
	if (isfinite(step->learning_rate))
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
	if (step->device_bytes >= 0) {
		str_add(out, "  device ");
		quantity_bytes(out, step->device_bytes);
	}
	if (step->host_bytes >= 0) {
		str_add(out, "  host ");
		quantity_bytes(out, step->host_bytes);
	}
	if (isfinite(step->wait_share))
		str_printf(out, "  wait %.0f%%", step->wait_share * 100);
}

/* ---- the line ---- */

static int columns(FILE *to)
{
	struct winsize size;

	if (ioctl(fileno(to), TIOCGWINSZ, &size) || size.ws_col < 20)
		return 80;
	return size.ws_col;
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
	fprintf(p->to, "\r\033[K%.*s", columns(p->to) - 1, p->line.data);
	fflush(p->to);
	p->drawn = 1;
}

int progress_open(
        struct progress **out, FILE *to, int64_t first_step, int64_t total_steps, enum progress_style style)
{
	struct progress *p = mem_alloc(1, sizeof(*p));

	*out = NULL;
	if (!p)
		return ERR_NOMEM;
	p->to = to;
	p->updates = style == PROGRESS_STYLE_UPDATE || (style == PROGRESS_STYLE_AUTO && isatty(fileno(to)));
	p->first_step = first_step;
	p->total_steps = total_steps;
	p->start_s = clock_now_s();
	pthread_mutex_lock(&lock);
	current = p;
	pthread_mutex_unlock(&lock);
	*out = p;
	return 0;
}

void progress_show(struct progress *p, const struct progress_step *step)
{
	int64_t done = step->step - p->first_step;
	double eta_s = -1;

	if (done > 0 && step->step < p->total_steps)
		eta_s = (clock_now_s() - p->start_s) / (double)done * (double)(p->total_steps - step->step);
	pthread_mutex_lock(&lock);
	str_free(&p->line);
	progress_format(&p->line, step, p->total_steps, eta_s);
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
	if (current && current->updates)
		draw(current);
	pthread_mutex_unlock(&lock);
}

void progress_close(struct progress *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&lock);
	if (p->drawn)
		fputc('\n', p->to);
	if (current == p)
		current = NULL;
	pthread_mutex_unlock(&lock);
	str_free(&p->line);
	mem_free(p);
}
