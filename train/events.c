/* Makes the event file of TensorBoard from metrics.jsonl. */
#include "train/events.h"
#include "train/run_dir/run_dir.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 << 10, LINE_BYTES_MAX = 1 << 20 };

struct events {
	char *path, *metrics;
	int64_t read_bytes;    /* of metrics.jsonl, whole lines that are in the file */
	int64_t written_bytes; /* of the file, that these lines give */
	double time;           /* of the last row */
	int is_cut;            /* 1: the file ends at written_bytes */
	int is_told;
	struct str out;
};

/* ---- records ---- */

/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), masked as TFRecord does. */
static uint32_t crc_masked(const char *data, size_t len_bytes)
{
	uint32_t crc = ~0u;

	for (size_t i = 0; i < len_bytes; i++) {
		crc ^= (unsigned char)data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	crc = ~crc;
	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void add_little_endian(struct str *out, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		str_add_char(out, (char)(value >> 8 * i));
}

static void add_record(struct str *out, const struct str *event)
{
	struct str length = {0};

	add_little_endian(&length, event->len_bytes, 8);
	if (length.broken || event->broken) {
		out->broken = 1;
	} else {
		str_add_bytes(out, length.data, length.len_bytes);
		add_little_endian(out, crc_masked(length.data, length.len_bytes), 4);
		str_add_bytes(out, event->data, event->len_bytes);
		add_little_endian(out, crc_masked(event->data, event->len_bytes), 4);
	}
	str_free(&length);
}

/* ---- messages, in the encoding of protocol buffers ---- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };

static void add_varint(struct str *out, uint64_t value)
{
	for (; value > 127; value >>= 7)
		str_add_char(out, (char)((value & 127) | 128));
	str_add_char(out, (char)value);
}

static void add_field(struct str *out, int field, enum wire wire)
{
	add_varint(out, (uint64_t)field << 3 | wire);
}

static void add_bytes(struct str *out, int field, const char *data, size_t len_bytes)
{
	add_field(out, field, WIRE_BYTES);
	add_varint(out, len_bytes);
	str_add_bytes(out, data, len_bytes);
}

static void add_time(struct str *out, double time)
{
	uint64_t bits;

	memcpy(&bits, &time, sizeof(bits));
	add_field(out, EVENT_TIME, WIRE_64);
	add_little_endian(out, bits, 8);
}

static void add_begin(struct str *out, double time)
{
	static const char version[] = "brain.Event:2";
	struct str event = {0};

	add_time(&event, time);
	add_bytes(&event, EVENT_VERSION, version, strlen(version));
	add_record(out, &event);
	str_free(&event);
}

static void add_scalar(struct str *summary, const char *tag, double value)
{
	struct str message = {0};
	float narrow = (float)value;
	uint32_t bits;

	memcpy(&bits, &narrow, sizeof(bits));
	add_bytes(&message, VALUE_TAG, tag, strlen(tag));
	add_field(&message, VALUE_SIMPLE, WIRE_32);
	add_little_endian(&message, bits, 4);
	if (message.broken)
		summary->broken = 1;
	else
		add_bytes(summary, SUMMARY_VALUE, message.data, message.len_bytes);
	str_free(&message);
}

/* Adds the numbers of an object, and of the objects in it. */
static void add_numbers(struct str *summary, const char *before, const json_t *object)
{
	json_t *value;
	const char *key;

	json_object_foreach((json_t *)object, key, value)
	{
		int is_eval = strncmp(key, "eval_", 5) == 0;
		char tag[200];

		if (!before && (!strcmp(key, "step") || !strcmp(key, "time")))
			continue;
		snprintf(tag, sizeof(tag), "%s/%s",
		        before    ? before
		        : is_eval ? "eval"
		                  : "train",
		        !before && is_eval ? key + 5 : key);
		if (json_is_number(value))
			add_scalar(summary, tag, json_number_value(value));
		else if (json_is_object(value) && !before)
			add_numbers(summary, tag, value);
	}
}

void events_add_row(struct str *out, const json_t *row, double *time, int is_first)
{
	const json_t *when = json_object_get(row, "time");
	struct str event = {0}, summary = {0};

	*time = json_is_number(when) ? json_number_value(when) : *time;
	if (is_first)
		add_begin(out, *time);
	add_numbers(&summary, NULL, row);
	add_time(&event, *time);
	add_field(&event, EVENT_STEP, WIRE_VARINT);
	add_varint(&event, (uint64_t)json_integer_value(json_object_get(row, "step")));
	if (summary.broken)
		event.broken = 1;
	else if (summary.len_bytes)
		add_bytes(&event, EVENT_SUMMARY, summary.data, summary.len_bytes);
	add_record(out, &event);
	str_free(&summary);
	str_free(&event);
}

/* ---- the file ---- */

/* Whether the file has these bytes at written_bytes. */
static int has_bytes(const struct events *e, const struct str *bytes)
{
	int64_t len = 0;
	int fd = file_kind_of(e->path) == FILE_REGULAR ? file_open_read(e->path, &len) : -1, same = 0;
	char *there = mem_alloc(bytes->len_bytes + 1, 1);

	if (fd >= 0 && there && len - e->written_bytes >= (int64_t)bytes->len_bytes)
		same = !file_read_at(fd, e->path, there, bytes->len_bytes, e->written_bytes) &&
		       !memcmp(there, bytes->data, bytes->len_bytes);
	if (fd >= 0)
		file_abandon(fd, e->path);
	mem_free(there);
	return same;
}

/* Cuts the file off behind what is known of it. */
static int cut(struct events *e)
{
	if (!e->is_cut && file_kind_of(e->path) != FILE_NONE && truncate(e->path, e->written_bytes))
		return err_set(ERR_IO, "%s: cannot be truncated: %s", e->path, strerror(errno));
	e->is_cut = 1;
	return 0;
}

static int append(struct events *e, const struct str *bytes)
{
	size_t done = 0;
	int fd, rc = cut(e), error = 0;

	if (rc)
		return rc;
	fd = file_open_append(e->path);
	if (fd < 0)
		return fd;
	while (done < bytes->len_bytes && !error) {
		ssize_t put = file_append(fd, e->path, bytes->data + done, bytes->len_bytes - done);

		if (put > 0)
			done += (size_t)put;
		else if (!put || errno != EINTR)
			error = put ? errno : ENOSPC;
	}
	rc = file_close(fd, e->path);
	return error ? err_set(ERR_IO, "%s: cannot be written: %s", e->path, strerror(error)) : rc;
}

static int put(struct events *e)
{
	int rc = str_check(&e->out);

	if (!rc && (e->is_cut || !has_bytes(e, &e->out)))
		rc = append(e, &e->out);
	if (!rc)
		e->written_bytes += (int64_t)e->out.len_bytes;
	return rc;
}

/* Takes the whole lines of a piece of metrics.jsonl; *taken: their bytes. */
static int lines_take(struct events *e, const char *text, size_t len_bytes, size_t *taken)
{
	const char *at = text, *end;

	*taken = 0;
	e->out.len_bytes = 0;
	while ((end = memchr(at, '\n', len_bytes - (size_t)(at - text)))) {
		json_t *row = NULL;
		int rc = json_parse(&row, e->metrics, at, (size_t)(end - at));

		if (rc == ERR_NOMEM)
			return rc;
		if (json_is_object(row))
			events_add_row(&e->out, row, &e->time, !e->written_bytes && !e->out.len_bytes);
		json_decref(row);
		at = end + 1;
	}
	*taken = (size_t)(at - text);
	return e->out.len_bytes ? put(e) : 0;
}

/* Takes one piece of the rows that are new; *is_end: there are no more. */
static int piece_take(struct events *e, int *is_end)
{
	int64_t len = 0;
	size_t taken = 0;
	int fd = file_open_read(e->metrics, &len), rc = fd < 0 ? fd : 0;
	int64_t bytes = min_i64(len - e->read_bytes, PIECE_BYTES + LINE_BYTES_MAX);
	char *piece = bytes > 0 ? mem_alloc((size_t)bytes, 1) : NULL;

	*is_end = 1;
	if (!rc && bytes > 0 && !piece)
		rc = ERR_NOMEM;
	if (!rc && bytes > 0)
		rc = file_read_at(fd, e->metrics, piece, (size_t)bytes, e->read_bytes);
	if (fd >= 0)
		file_abandon(fd, e->metrics);
	if (!rc && bytes > 0)
		rc = lines_take(e, piece, (size_t)bytes, &taken);
	mem_free(piece);
	if (!rc)
		e->read_bytes += (int64_t)taken;
	*is_end = !taken;
	return rc;
}

static void forget(struct events *e)
{
	e->read_bytes = e->written_bytes = 0;
	e->time = 0;
	e->is_cut = 0;
}

void events_follow(struct events *e)
{
	int rc = 0, is_end = 0;

	if (!e || file_kind_of(e->metrics) != FILE_REGULAR)
		return;
	while (!rc && !is_end)
		rc = piece_take(e, &is_end);
	if (!rc)
		rc = cut(e);
	if (rc)
		forget(e); /* the next call looks at all of it */
	if (rc && !e->is_told)
		log_warn("%s; training goes on, and ferry writes the events later", err_text());
	e->is_told = rc != 0;
}

static int paths_set(struct events *e, const char *dir, const char *metrics)
{
	char *path = file_join(dir, EVENTS_NAME), *rows = mem_strdup(metrics);

	if (!path || !rows) {
		mem_free(path);
		mem_free(rows);
		return ERR_NOMEM;
	}
	mem_free(e->path);
	mem_free(e->metrics);
	e->path = path;
	e->metrics = rows;
	forget(e);
	return 0;
}

struct events *events_open(const char *dir, const char *metrics)
{
	struct events *e = mem_alloc(1, sizeof(*e));

	if (e && paths_set(e, dir, metrics)) {
		mem_free(e);
		return NULL;
	}
	return e;
}

int events_move(struct events *e, const char *dir, const char *metrics)
{
	return e ? paths_set(e, dir, metrics) : 0;
}

void events_close(struct events *e)
{
	if (!e)
		return;
	str_free(&e->out);
	mem_free(e->path);
	mem_free(e->metrics);
	mem_free(e);
}
