/* Writes metrics.jsonl. */
#include "train/metrics.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
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

int metrics_is_busy(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), busy;

	if (fd < 0)
		return 0;
	busy = flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
	close(fd);
	return busy;
}

/* One line, one write. Frees the row; NULL is out of memory. */
static int append(struct metrics *m, json_t *row)
{
	struct str line = {0};
	char *text;
	ssize_t done;
	int err = json_write(&text, row, JSON_COMPACT | JSON_REAL_PRECISION(17));

	json_decref(row);
	if (err)
		return err;
	str_add(&line, text);
	str_add_char(&line, '\n');
	mem_free(text);
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

/* What is not finite has no JSON. NULL: out of memory, which json_pack passes on. */
static json_t *real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static json_t *wait_object(const struct metrics_step *s)
{
	return json_pack("{s:o,s:o,s:o,s:o,s:o}", queue_name(QUEUE_H2D), real(s->wait_ms[QUEUE_H2D]),
	        queue_name(QUEUE_D2H), real(s->wait_ms[QUEUE_D2H]), queue_name(QUEUE_COMM),
	        real(s->wait_ms[QUEUE_COMM]), queue_name(QUEUE_CPU), real(s->wait_ms[QUEUE_CPU]), "disk",
	        real(s->disk_wait_ms));
}

int metrics_write_step(struct metrics *m, const struct metrics_step *s)
{
	json_t *row = json_pack("{s:I,s:o,s:o,s:o,s:o,s:I,s:I,s:o,s:o,s:I,s:I,s:I,s:b,s:o}", "step",
	        (json_int_t)s->step, "epoch", real(s->epoch), "loss", real(s->loss), "grad_norm",
	        real(s->grad_norm), "learning_rate", real(s->learning_rate), "target_tokens",
	        (json_int_t)s->target_tokens, "tokens", (json_int_t)s->tokens, "step_ms", real(s->step_ms),
	        "tokens_per_s", real(s->tokens_per_s), "host_peak_bytes", (json_int_t)s->host_peak_bytes,
	        "pinned_bytes", (json_int_t)s->pinned_bytes, "device_peak_bytes",
	        (json_int_t)s->device_peak_bytes, "skipped", s->skipped, "wait_ms", wait_object(s));

	if (row && (s->sent_node_bytes || s->sent_network_bytes) &&
	        (json_object_set_new(row, "sent_node_bytes", json_integer(s->sent_node_bytes)) ||
	                json_object_set_new(
	                        row, "sent_network_bytes", json_integer(s->sent_network_bytes)))) {
		json_decref(row);
		row = NULL;
	}
	return append(m, row);
}

int metrics_write_eval(struct metrics *m, const struct metrics_eval *e)
{
	return append(m, json_pack("{s:I,s:o,s:o,s:o,s:I}", "step", (json_int_t)e->step, "epoch",
	                         real(e->epoch), "eval_loss", real(e->loss), "eval_perplexity",
	                         real(e->perplexity), "eval_tokens", (json_int_t)e->tokens));
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
