/* Reads an event file of TensorBoard: checks its lengths and checksums, and gives its scalars. Written
 * apart from train/events.c, with a table for the checksums. */
#ifndef FERRY_TESTS_EVENT_FILE_H
#define FERRY_TESTS_EVENT_FILE_H

#include "tests/ferry_run.h"

static inline uint32_t event_crc(const unsigned char *data, size_t len)
{
	static uint32_t table[256];
	uint32_t crc = 0xffffffffu;

	for (uint32_t i = 0; i < 256 && !table[255]; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? 0x82f63b78u ^ c >> 1 : c >> 1;
		table[i] = c;
	}
	for (size_t i = 0; i < len; i++)
		crc = table[(crc ^ data[i]) & 255] ^ crc >> 8;
	crc ^= 0xffffffffu;
	return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static inline uint64_t event_varint(const unsigned char **at)
{
	uint64_t value = 0;

	for (int shift = 0; shift < 64; shift += 7) {
		unsigned char byte = *(*at)++;

		value |= (uint64_t)(byte & 127) << shift;
		if (byte < 128)
			break;
	}
	return value;
}

/* Appends "STEP TAG VALUE\n" for each scalar of a message. */
static inline void event_scalars(
        struct str *out, const unsigned char *at, const unsigned char *end, double *time)
{
	uint64_t step = 0;

	while (at < end) {
		uint64_t key = event_varint(&at), len;

		if (key == (1 << 3 | 1)) {
			memcpy(time, at, 8);
			at += 8;
		} else if (key == 2 << 3) {
			step = event_varint(&at);
		} else {
			const unsigned char *value, *stop;

			assert_int_equal(key & 7, 2);
			len = event_varint(&at);
			assert_true(len <= (size_t)(end - at));
			stop = at + len;
			for (value = at; key >> 3 == 5 && value < stop;) {
				const unsigned char *tag, *next;
				size_t tag_len;
				float number;

				assert_int_equal(event_varint(&value), 1 << 3 | 2);
				len = event_varint(&value);
				next = value + len;
				assert_int_equal(event_varint(&value), 1 << 3 | 2);
				tag_len = event_varint(&value);
				tag = value;
				value += tag_len;
				assert_int_equal(event_varint(&value), 2 << 3 | 5);
				memcpy(&number, value, 4);
				assert_ptr_equal(value + 4, next);
				value = next;
				str_printf(out, "%d %.*s %.9g\n", (int)step, (int)tag_len, (const char *)tag,
				        (double)number);
			}
			at = stop;
		}
	}
}

/* The scalars of the file, a line each; fails the test if a record is damaged. */
static inline char *event_file_read(const char *path)
{
	struct str out = {0};
	char *data = NULL;
	size_t len = 0, at = 0;
	double time = 0, before = 0;

	assert_int_equal(file_read_all(path, 1 << 26, &data, &len), 0);
	str_add(&out, "");
	while (at < len) {
		const unsigned char *record = (const unsigned char *)data + at;
		uint64_t bytes;
		uint32_t crc;

		assert_true(len - at >= 16);
		memcpy(&bytes, record, 8);
		memcpy(&crc, record + 8, 4);
		assert_int_equal(crc, event_crc(record, 8));
		assert_true(bytes <= len - at - 16);
		memcpy(&crc, record + 12 + bytes, 4);
		assert_int_equal(crc, event_crc(record + 12, bytes));
		if (!at)
			assert_memory_equal(record + 12 + 9,
			        "\x1a\x0d"
			        "brain.Event:2",
			        15);
		event_scalars(&out, record + 12, record + 12 + bytes, &time);
		assert_true(time >= before);
		before = time;
		at += 16 + bytes;
	}
	free(data);
	return str_take(&out);
}

static inline void event_numbers(struct str *out, int step, const char *before, const json_t *object)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)object, key, value)
	{
		char tag[200];

		if (!before && !strncmp(key, "eval_", 5))
			snprintf(tag, sizeof(tag), "eval/%.150s", key + 5);
		else
			snprintf(tag, sizeof(tag), "%.40s/%.150s", before ? before : "train", key);
		if (json_is_object(value))
			event_numbers(out, step, tag, value);
		else if (json_is_number(value) && strcmp(tag, "train/step") != 0 &&
		         strcmp(tag, "train/time") != 0)
			str_printf(out, "%d %s %.9g\n", step, tag, (double)(float)json_number_value(value));
	}
}

/* The scalars that the file of a run must have, by its metrics.jsonl. */
static inline char *event_file_expected(const char *metrics)
{
	char *data = NULL, *line, *rest;
	struct str out = {0};
	size_t len = 0;

	assert_int_equal(file_read_all(metrics, 1 << 26, &data, &len), 0);
	str_add(&out, "");
	for (rest = data; (line = strsep(&rest, "\n")) && *line;) {
		json_t *row;

		assert_int_equal(json_parse(&row, metrics, line, strlen(line)), 0);
		event_numbers(&out, (int)json_integer_value(json_object_get(row, "step")), NULL, row);
		json_decref(row);
	}
	free(data);
	return str_take(&out);
}

/* Compares the event file in this directory with its metrics.jsonl. */
static inline void assert_events(const char *dir, const char *why)
{
	char path[600], *got, *want;

	snprintf(path, sizeof(path), "%s/events.out.tfevents.ferry", dir);
	got = event_file_read(path);
	snprintf(path, sizeof(path), "%s/metrics.jsonl", dir);
	want = event_file_expected(path);
	if (strcmp(got, want))
		fail_msg("%s: events:\n%s\ninstead of\n%s", why, got, want);
	free(got);
	free(want);
}

#endif
