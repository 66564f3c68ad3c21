/* Runs that take the bytes of the device that plans say. */
#ifndef FERRY_TESTS_PLANNED_BYTES_H
#define FERRY_TESTS_PLANNED_BYTES_H

#include "tests/run_fixture.h"

/* The most memory of the device that a run took, on any rank. */
static inline int64_t device_peak(const char *run)
{
	char path[400], *text, *at;
	int64_t most = 0;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, run);
	at = text = read_file(path, &len);
	while ((at = strstr(at, "\"device_peak_bytes\":"))) {
		at += strlen("\"device_peak_bytes\":");
		most = strtoll(at, NULL, 10) > most ? strtoll(at, NULL, 10) : most;
	}
	mem_free(text);
	return most;
}

static inline void assert_planned_bytes(const struct run_model *m, const char *settings)
{
	json_t *plan;
	const json_t *planned;

	assert_ferry(0, NULL, "train model=%s data=%s output_dir=%s/run overwrite_output_dir=on %s", m->dir,
	        m->data, work_dir, settings);
	assert_ferry_json(&plan, "plan model=%s data=%s %s --json", m->dir, m->data, settings);
	planned = json_object_get(plan, "device_bytes");
	assert_true(json_is_integer(planned));
	if (device_peak("run") != json_integer_value(planned))
		fail_msg("%s, %s: %lld bytes, planned %lld", m->dir, settings, (long long)device_peak("run"),
		        (long long)json_integer_value(planned));
	json_decref(plan);
}

/* Gives a model rows whose tokens are all targets. */
static inline void target_rows_write(struct run_model *m)
{
	struct str rows = {0};

	for (int row = 0; row < 8; row++) {
		str_add(&rows, "{\"input_ids\":[1");
		for (int i = 1; i < 5 + 7 * row % 23; i++)
			str_printf(&rows, ",%d", (i * i + row) % 64);
		str_add(&rows, "]}\n");
	}
	write_file("all.jsonl", "%s", rows.data);
	str_free(&rows);
	snprintf(m->data, sizeof(m->data), "%s/all.jsonl", work_dir);
}

#endif
