/* Writes metrics.jsonl. */
#include "train/metrics.h"
#include "train/evaluate.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct metrics {
	int fd;
	char *path;
	struct str late; /* lines, or the rest of one, not written yet */
	int64_t lost_lines;
	int is_told, is_held;
	int is_torn; /* 1: `late` begins within a line */
};

enum { PIECE_BYTES = 64 << 10, LINE_BYTES_MAX = 1 << 20, LATE_BYTES_MAX = 16 << 20 };

/* ---- removing later rows ---- */

/* 1 if the line is a complete row of a step up to after_step. */
static int keep_line(const char *path, const char *line, size_t len, int64_t after_step)
{
	json_t *row = NULL;
	int64_t step = 0;
	int keep = 0;

	if (!json_parse(&row, path, line, len) && json_get_int(row, path, "step", &step) == 1)
		keep = step <= after_step;
	json_decref(row);
	return keep;
}

/* Begin of the line that ends before `end`; -1 if it is too long for a line. */
static int64_t line_begin(const char *path, int fd, int64_t end, int *err)
{
	char piece[PIECE_BYTES];

	for (int64_t at = end; at > 0 && end - at < LINE_BYTES_MAX;) {
		int64_t len = at < PIECE_BYTES ? at : PIECE_BYTES;
		const char *newline;

		*err = file_read_at(fd, path, piece, (size_t)len, at - len);
		if (*err)
			return -1;
		newline = memrchr(piece, '\n', (size_t)len);
		if (newline)
			return at - len + (newline - piece) + 1;
		at -= len;
	}
	return end < LINE_BYTES_MAX ? 0 : -1;
}

/* Whether the line from `begin` to `end`, with its newline, stays. */
static int is_kept(const char *path, int fd, int64_t begin, int64_t end, int64_t after_step, int *err)
{
	size_t len = (size_t)(end - begin);
	char *line = begin < 0 ? NULL : mem_alloc(len + 1, 1);
	int keep = 0;

	if (begin >= 0 && !line)
		*err = ERR_NOMEM;
	if (line)
		*err = file_read_at(fd, path, line, len, begin);
	if (line && !*err && line[len - 1] == '\n')
		keep = keep_line(path, line, len - 1, after_step);
	mem_free(line);
	return keep;
}

/* Cuts rows off the end. Rows are in the order of steps, so only the end of a long file is read. */
static int cut(const char *path, int64_t after_step)
{
	int64_t len = 0, end;
	int fd = file_open_read(path, &len), err = fd < 0 ? fd : 0;

	for (end = len; !err && end > 0;) {
		int64_t begin = line_begin(path, fd, end - 1, &err);

		if (err || is_kept(path, fd, begin, end, after_step, &err))
			break;
		end = begin < 0 ? end - LINE_BYTES_MAX : begin;
	}
	if (fd >= 0)
		file_abandon(fd, path);
	if (!err && end != len && truncate(path, end))
		err = err_set(ERR_IO, "%s: cannot be truncated: %s", path, strerror(errno));
	return err;
}

/* ---- rows ---- */

int metrics_open(struct metrics **out, const char *path, int64_t after_step)
{
	struct metrics *m = mem_alloc(1, sizeof(*m));
	int err = m ? 0 : ERR_NOMEM;

	*out = NULL;
	if (err)
		return err;
	m->fd = -1;
	if (file_kind_of(path) != FILE_NONE)
		err = cut(path, after_step);
	if (!err) {
		m->path = mem_strdup(path);
		err = m->path ? 0 : ERR_NOMEM;
	}
	if (!err) {
		m->fd = file_open_append(path);
		err = m->fd < 0 ? m->fd : 0;
	}
	if (err) {
		metrics_close(m);
		return err;
	}
	*out = m;
	return 0;
}

/* Writes the waiting lines. Returns errno, or 0 if none are left. */
static int flush(struct metrics *m)
{
	size_t done = 0;
	int error = 0;

	while (done < m->late.len_bytes && !error) {
		ssize_t put = file_append(m->fd, m->path, m->late.data + done, m->late.len_bytes - done);

		if (put > 0)
			done += (size_t)put;
		else if (!put || errno != EINTR)
			error = put ? errno : ENOSPC;
	}
	if (done)
		m->is_torn = m->late.data[done - 1] != '\n';
	if (done)
		memmove(m->late.data, m->late.data + done, m->late.len_bytes - done);
	m->late.len_bytes -= done;
	return error;
}

/* Reopens the file, because a restarted NFS server does not know the old descriptor. */
static void reopen(struct metrics *m)
{
	int fd = open(m->path, O_WRONLY | O_APPEND | O_CLOEXEC);

	if (fd < 0)
		return;
	close(m->fd);
	m->fd = fd;
}

static void tell(struct metrics *m, int error)
{
	if (error == ESTALE)
		reopen(m);
	if (error && !m->is_told)
		log_warn("%s: cannot be written: %s; training goes on, and ferry writes the rows later",
		        m->path, strerror(error));
	else if (!error && m->is_told)
		log_info("%s: written again; %" PRId64 " row%s lost", m->path, m->lost_lines,
		        plural_s(m->lost_lines));
	m->is_told = error != 0;
}

/* Seconds since 1970, to the millisecond; NULL: out of memory. */
static json_t *now_make(void)
{
	struct timespec now = {0};

	clock_gettime(CLOCK_REALTIME, &now);
	return json_real((double)(now.tv_sec * 1000 + now.tv_nsec / 1000000) / 1000);
}

/* Appends a row, with the time, and frees it; NULL means out of memory. A row that cannot be written waits
 * for the next one. */
static void append(struct metrics *m, json_t *row)
{
	struct str line = {0};
	char *text = NULL;

	if (!row || json_object_set_new(row, "time", now_make()))
		m->lost_lines++;
	else if (!json_write(&text, row, JSON_COMPACT | JSON_REAL_PRECISION(17)))
		str_printf(&line, "%s\n", text);
	if (line.len_bytes && !line.broken && m->late.len_bytes + line.len_bytes <= LATE_BYTES_MAX)
		str_add_bytes(&m->late, line.data, line.len_bytes);
	else if (text)
		m->lost_lines++;
	m->lost_lines += m->late.broken;
	m->late.broken = 0;
	str_free(&line);
	mem_free(text);
	json_decref(row);
	if (!m->is_held)
		tell(m, flush(m));
}

static json_t *wait_object(const struct metrics_step *s)
{
	return json_pack("{s:o,s:o,s:o,s:o,s:o}", queue_name(QUEUE_H2D), json_finite(s->wait_ms[QUEUE_H2D]),
	        queue_name(QUEUE_D2H), json_finite(s->wait_ms[QUEUE_D2H]), queue_name(QUEUE_COMM),
	        json_finite(s->wait_ms[QUEUE_COMM]), queue_name(QUEUE_CPU),
	        json_finite(s->wait_ms[QUEUE_CPU]), "disk", json_finite(s->disk_wait_ms));
}

int metrics_means_add(
        json_t *row, const char *prefix, const struct objective *o, const struct objective_means *means)
{
	char name[160];

	for (int i = 0; o && i < OBJECTIVE_METRICS_MAX && o->metrics[i]; i++) {
		snprintf(name, sizeof(name), "%s%s", prefix, o->metrics[i]);
		if (json_object_set_new(row, name, json_finite(means->metric[i])))
			return ERR_NOMEM;
	}
	for (int i = 0; i < means->scores.count; i++) {
		snprintf(name, sizeof(name), "%s%s", prefix, means->scores.of[i].name);
		if (json_object_set_new(row, name, json_finite(means->scores.of[i].value)))
			return ERR_NOMEM;
	}
	return 0;
}

int metrics_sets_add(json_t *row, const char *prefix, const struct objective *o, const struct evaluation *e)
{
	struct str name = {0};
	int rc = 0;

	for (int i = 0; i < e->set_count && !rc; i++) {
		const struct evaluated_set *set = &e->sets[i];
		struct objective_means means = objective_means_of(o, set->sums, set->units, set->units);

		means.scores = set->scores;
		str_free(&name);
		str_printf(&name, "%s%s_", prefix, set->name);
		rc = str_check(&name);
		rc = rc ? rc : metrics_means_add(row, name.data, o, &means);
		str_add(&name, "loss");
		if (!rc && json_object_set_new(row, name.data, json_finite(means.loss)))
			rc = ERR_NOMEM;
	}
	str_free(&name);
	return rc;
}

/* ERR_NOMEM. */
static int experts_add(json_t *row, const struct metrics_step *s)
{
	const struct {
		const char *name;
		double value;
	} numbers[] = {{"aux_loss", s->aux_loss}, {"expert_load", s->expert_load},
	        {"experts_used", s->experts_used}};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (numbers[i].value != 0 &&
		        json_object_set_new(row, numbers[i].name, json_finite(numbers[i].value)))
			return ERR_NOMEM;
	return 0;
}

/* ERR_NOMEM. */
static int gpu_add(json_t *row, const struct metrics_step *s)
{
	const struct device_condition *c = &s->condition;
	const struct {
		const char *name;
		double value; /* 0: the card has no such sensor */
	} sensors[] = {{"sm_mhz", c->sm_mhz}, {"memory_mhz", c->memory_mhz}, {"watts", c->watts},
	        {"celsius", c->celsius}};
	struct str slowed = {0};
	json_t *gpu;
	int rc = 0;

	if (s->planned_ms > 0 && json_object_set_new(row, "planned_ms", json_finite(s->planned_ms)))
		return ERR_NOMEM;
	if (!s->has_condition)
		return 0;
	metrics_slowed(&slowed, c);
	gpu = json_object();
	for (size_t i = 0; i < sizeof(sensors) / sizeof(*sensors); i++)
		if (sensors[i].value > 0)
			rc |= json_object_set_new(gpu, sensors[i].name, json_real(sensors[i].value));
	rc |= json_object_set_new(gpu, "slowed", json_string(slowed.data ? slowed.data : ""));
	rc |= json_object_set_new(row, "gpu", gpu);
	str_free(&slowed);
	return rc ? ERR_NOMEM : 0;
}

void metrics_slowed(struct str *out, const struct device_condition *c)
{
	for (int i = 0; i < DEVICE_SLOW_COUNT; i++)
		if (c->slowed >> i & 1)
			str_printf(out, "%s%s", out->len_bytes ? ", " : "",
			        device_slow_name((enum device_slow)i));
}

void metrics_write_step(struct metrics *m, const struct metrics_step *s)
{
	json_t *row = json_pack("{s:I,s:o,s:o,s:o,s:o,s:I,s:I,s:o,s:o,s:I,s:I,s:I,s:b,s:o}", "step",
	        (json_int_t)s->step, "epoch", json_finite(s->epoch), "loss", json_finite(s->loss),
	        "grad_norm", json_finite(s->grad_norm), "learning_rate", json_finite(s->learning_rate),
	        "target_tokens", (json_int_t)s->target_tokens, "tokens", (json_int_t)s->tokens, "step_ms",
	        json_finite(s->step_ms), "tokens_per_s", json_finite(s->tokens_per_s), "host_peak_bytes",
	        (json_int_t)s->host_peak_bytes, "pinned_bytes", (json_int_t)s->pinned_bytes,
	        "device_peak_bytes", (json_int_t)s->device_peak_bytes, "skipped", s->skipped, "wait_ms",
	        wait_object(s));

	if (row && s->data_set && json_object_set_new(row, "data_set", json_of_text(s->data_set))) {
		json_decref(row);
		row = NULL;
	}
	if (row && (s->sent_node_bytes || s->sent_network_bytes) &&
	        (json_object_set_new(row, "sent_node_bytes", json_integer(s->sent_node_bytes)) ||
	                json_object_set_new(
	                        row, "sent_network_bytes", json_integer(s->sent_network_bytes)))) {
		json_decref(row);
		row = NULL;
	}
	if (row && (metrics_means_add(row, "", s->objective, &s->means) || experts_add(row, s) ||
	                   gpu_add(row, s))) {
		json_decref(row);
		row = NULL;
	}
	append(m, row);
}

json_t *metrics_eval_row(const struct metrics_eval *e)
{
	int has_perplexity = !e->objective || e->objective->is_mean_of_entropy;
	json_t *row = json_pack("{s:I,s:o,s:o,s:o*,s:I}", "step", (json_int_t)e->step, "epoch",
	        json_finite(e->epoch), "eval_loss", json_finite(e->loss), "eval_perplexity",
	        has_perplexity ? json_finite(e->perplexity) : NULL, "eval_tokens", (json_int_t)e->tokens);

	if (row && (metrics_means_add(row, "eval_", e->objective, &e->means) ||
	                   (e->sets && metrics_sets_add(row, "eval_", e->objective, e->sets)))) {
		json_decref(row);
		row = NULL;
	}
	return row;
}

void metrics_write_eval(struct metrics *m, const struct metrics_eval *e)
{
	append(m, metrics_eval_row(e));
}

void metrics_sync(struct metrics *m)
{
	if (m && !m->is_held && !m->late.len_bytes && file_sync(m->fd, m->path))
		log_warn("%s", err_text());
}

void metrics_hold(struct metrics *m, int is_held)
{
	m->is_held = is_held;
}

static int is_same_file(int a, int b)
{
	struct stat one, two;

	return !fstat(a, &one) && !fstat(b, &two) && one.st_ino == two.st_ino && one.st_dev == two.st_dev;
}

int metrics_move(struct metrics *m, const char *path)
{
	char *own = mem_strdup(path),
	     *newline = m->is_torn ? memchr(m->late.data, '\n', m->late.len_bytes) : NULL;
	int fd = own ? file_open_append(path) : ERR_NOMEM;

	m->is_held = 1;
	if (fd < 0) {
		mem_free(own);
		return fd;
	}
	if (newline && !is_same_file(fd, m->fd)) {
		size_t rest = (size_t)(newline + 1 - m->late.data);

		m->late.len_bytes -= rest;
		memmove(m->late.data, newline + 1, m->late.len_bytes);
		m->lost_lines++;
		m->is_torn = 0;
	}
	close(m->fd);
	mem_free(m->path);
	m->fd = fd;
	m->path = own;
	m->is_held = 0;
	tell(m, flush(m));
	return 0;
}

void metrics_close(struct metrics *m)
{
	int error;

	if (!m)
		return;
	if (m->fd >= 0) {
		error = m->is_held ? ESTALE : flush(m);
		if (error && m->late.len_bytes)
			log_warn("%s: the last rows could not be written: %s", m->path, strerror(error));
		if (file_sync(m->fd, m->path))
			log_warn("%s", err_text());
		close(m->fd);
	}
	str_free(&m->late);
	mem_free(m->path);
	mem_free(m);
}
