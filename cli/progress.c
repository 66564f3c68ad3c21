#include "cli/progress.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct progress {
	FILE *to;
	int updates;
	int64_t first_step, total_steps;
	double start_s; /* when first_step was done, as far as we know */
	struct str line;
	int drawn;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct progress *current;

/* ---- texts ---- */

void progress_bytes(struct str *out, int64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	int unit = 0;

	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	str_printf(out, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, units[unit]);
}

void progress_ms(struct str *out, double ms)
{
	str_printf(out, ms > 0 && ms < 0.95 ? "%.2g ms" : "%.1f ms", ms);
}

void progress_seconds(struct str *out, double seconds)
{
	int64_t s = (int64_t)(seconds + 0.5);

	if (s >= 86400)
		str_printf(out, "%lldd %lld:%02lld:%02lld", (long long)(s / 86400),
		        (long long)(s / 3600 % 24), (long long)(s / 60 % 60), (long long)(s % 60));
	else if (s >= 3600)
		str_printf(out, "%lld:%02lld:%02lld", (long long)(s / 3600), (long long)(s / 60 % 60),
		        (long long)(s % 60));
	else
		str_printf(out, "%lld:%02lld", (long long)(s / 60), (long long)(s % 60));
}

void progress_count(struct str *out, double count)
{
	static const char *const units[] = {"", "k", "M", "B", "T"};
	int unit = 0;

	while (count >= (unit ? 999.5 : 9999.5) && unit < 4) {
		count /= 1000;
		unit++;
	}
	if (!unit)
		str_printf(out, count < 99.95 && count != floor(count) ? "%.1f" : "%.0f", count);
	else
		str_printf(out, "%.*f%s", count < 9.995 ? 2 : count < 99.95 ? 1 : 0, count, units[unit]);
}

void progress_format(struct str *out, const struct progress_step *step, int64_t total_steps, double eta_s)
{
	str_printf(out, "step %lld/%lld", (long long)step->step, (long long)total_steps);
	if (isfinite(step->loss))
		str_printf(out, "  loss %.4f", step->loss);
	if (isfinite(step->grad_norm))
		str_printf(out, "  grad %.3g", step->grad_norm);
	if (step->skipped)
		str_add(out, "  skipped: not finite");
	if (isfinite(step->learning_rate))
		str_printf(out, "  lr %.2e", step->learning_rate);
	if (isfinite(step->tokens_per_s)) {
		str_add(out, "  ");
		progress_count(out, step->tokens_per_s);
		str_add(out, " tok/s");
	}
	if (eta_s >= 0) {
		str_add(out, "  eta ");
		progress_seconds(out, eta_s);
	}
	if (step->device_bytes >= 0) {
		str_add(out, "  device ");
		progress_bytes(out, step->device_bytes);
	}
	if (step->host_bytes >= 0) {
		str_add(out, "  host ");
		progress_bytes(out, step->host_bytes);
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

/* Called with the lock held. */
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
