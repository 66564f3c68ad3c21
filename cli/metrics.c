#include "cli/metrics.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct metrics {
	int fd;
	char *path;
};

enum { FILE_BYTES_MAX = 1 << 30 };

/* ---- cutting off ---- */

/* 1 where the line is a whole row of a step up to after_step, 0 where it is not to be kept. */
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

static int cut(const char *path, int64_t after_step)
{
	struct str kept = {0};
	char *text = NULL;
	size_t len = 0, at = 0;
	int err = file_read_all(path, FILE_BYTES_MAX, &text, &len);

	while (!err && at < len) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t line = end ? (size_t)(end - text) - at : len - at;

		if (end && keep_line(path, text + at, line, after_step))
			str_add_bytes(&kept, text + at, line + 1);
		at += line + 1;
	}
	if (!err)
		err = str_check(&kept);
	if (!err && kept.len_bytes != len)
		err = file_write_all(path, kept.data ? kept.data : "", kept.len_bytes);
	str_free(&kept);
	mem_free(text);
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
		m->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
		if (m->fd < 0)
			err = err_set(ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
	}
	if (!err && flock(m->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		err = err_set(ERR_INPUT, "%s: another run is writing it", path);
	if (err) {
		metrics_close(m);
		return err;
	}
	*out = m;
	return 0;
}

static void add_real(json_t *row, const char *key, double value)
{
	json_object_set_new(row, key, isfinite(value) ? json_real(value) : json_null());
}

static void add_int(json_t *row, const char *key, int64_t value)
{
	json_object_set_new(row, key, json_integer(value));
}

int metrics_is_busy(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), busy;

	if (fd < 0)
		return 0;
	busy = flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
	close(fd);
	return busy;
}

/* One line, one write. Frees the row. */
static int append(struct metrics *m, json_t *row)
{
	char *text = row ? json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
	struct str line = {0};
	ssize_t done;
	int err = 0;

	json_decref(row);
	if (!text)
		return err_set(ERR_NOMEM, "out of memory for a row of metrics");
	str_add(&line, text);
	str_add_char(&line, '\n');
	free(text);
	err = str_check(&line);
	if (!err) {
		do
			done = write(m->fd, line.data, line.len_bytes);
		while (done < 0 && errno == EINTR);
		if (done != (ssize_t)line.len_bytes)
			err = err_set(ERR_IO, "%s: cannot be written: %s", m->path,
			        done < 0 ? strerror(errno) : "no space left");
	}
	str_free(&line);
	return err;
}

int metrics_write_step(struct metrics *m, const struct metrics_step *s)
{
	static const enum queue_kind queues[] = {QUEUE_H2D, QUEUE_D2H, QUEUE_COMM, QUEUE_CPU};
	json_t *row = json_object(), *wait = json_object();

	add_int(row, "step", s->step);
	add_real(row, "epoch", s->epoch);
	add_real(row, "loss", s->loss);
	add_real(row, "grad_norm", s->grad_norm);
	add_real(row, "learning_rate", s->learning_rate);
	add_int(row, "target_tokens", s->target_tokens);
	add_int(row, "tokens", s->tokens);
	add_real(row, "step_ms", s->step_ms);
	add_real(row, "tokens_per_s", s->tokens_per_s);
	add_int(row, "host_peak_bytes", s->host_peak_bytes);
	add_int(row, "pinned_bytes", s->pinned_bytes);
	add_int(row, "device_peak_bytes", s->device_peak_bytes);
	json_object_set_new(row, "skipped", json_boolean(s->skipped));
	for (size_t i = 0; i < sizeof(queues) / sizeof(*queues); i++)
		add_real(wait, queue_name(queues[i]), s->wait_ms[queues[i]]);
	add_real(wait, "disk", s->disk_wait_ms);
	json_object_set_new(row, "wait_ms", wait);
	return append(m, row);
}

int metrics_write_eval(struct metrics *m, const struct metrics_eval *e)
{
	json_t *row = json_object();

	add_int(row, "step", e->step);
	add_real(row, "epoch", e->epoch);
	add_real(row, "eval_loss", e->loss);
	add_real(row, "eval_perplexity", e->perplexity);
	add_int(row, "eval_tokens", e->tokens);
	return append(m, row);
}

int metrics_close(struct metrics *m)
{
	int err = 0;

	if (!m)
		return 0;
	if (m->fd >= 0) {
		err = file_sync(m->fd, m->path);
		close(m->fd);
	}
	mem_free(m->path);
	mem_free(m);
	return err;
}
