/* Writes a step's operations in Chrome's trace format, for ui.perfetto.dev and chrome://tracing. Each queue
 * is a row. Each operation is a box with its number in the plan (ferry plan --explain), unit, stage and
 * micro-batch. It serves real steps (train, trace=N) and simulated ones (plan, trace_file=FILE). */
#ifndef FERRY_TRAIN_TRACE_H
#define FERRY_TRAIN_TRACE_H

#include "base/json.h"
#include "offload/run.h"

/* Adds one execution; skips operations that did not run (begin -1). ERR_NOMEM. */
int trace_add(json_t *events, const struct plan *plan, const struct run_span *spans);

/* Writes all events and the names of rows into one file; adds the names to `events`. ERR_NOMEM, ERR_IO. */
int trace_write(json_t *events, const char *path);

#endif
