/* Writes a step's operations as Chrome's trace format. */
#include "train/trace.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#include <string.h>

int trace_add(json_t *events, const struct plan *plan, const struct run_span *spans)
{
	for (int i = 0; i < plan->op_count; i++) {
		const struct plan_op *op = &plan->ops[i];
		json_t *event;

		if (spans[i].begin_ns < 0)
			continue;
		event = json_pack("{s:s,s:s,s:f,s:f,s:i,s:i,s:{s:i,s:i,s:i,s:i}}", "name",
		        plan_op_name(op->kind), "ph", "X", "ts", 1e-3 * (double)spans[i].begin_ns, "dur",
		        1e-3 * (double)(spans[i].end_ns - spans[i].begin_ns), "pid", 0, "tid", (int)op->queue,
		        "args", "op", i, "unit", op->unit, "stage", op->stage, "micro", op->micro);
		if (!event || json_array_append_new(events, event))
			return err_set(ERR_NOMEM, "out of memory for the trace");
	}
	return 0;
}

int trace_write(json_t *events, const char *path)
{
	json_t *file = NULL;
	char *text = NULL;
	int rc = 0;

	for (int q = 0; q < QUEUE_COUNT && !rc; q++)
		if (json_array_append_new(events,
		            json_pack("{s:s,s:s,s:i,s:i,s:{s:s}}", "name", "thread_name", "ph", "M", "pid", 0,
		                    "tid", q, "args", "name", queue_name((enum queue_kind)q))))
			rc = err_set(ERR_NOMEM, "out of memory for the trace");
	if (!rc)
		file = json_pack("{s:O,s:s}", "traceEvents", events, "displayTimeUnit", "ms");
	rc = json_write(&text, file, JSON_COMPACT);
	file_clean_parts_of(path);
	if (!rc)
		rc = file_write_all(path, text, strlen(text));
	mem_free(text);
	json_decref(file);
	return rc;
}
