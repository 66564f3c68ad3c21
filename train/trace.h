/* A step's operations in Chrome's trace format, which ui.perfetto.dev and chrome://tracing open: one row for
 * each queue, one box for each operation, with its number in the plan (ferry plan --explain), unit, stage and
 * micro-batch. Of real steps (train, trace=N) and of simulated ones (plan, trace_file=FILE). */
#ifndef FERRY_TRAIN_TRACE_H
#define FERRY_TRAIN_TRACE_H

#include "base/json.h"
#include "offload/run.h"

/* Adds one execution; operations that did not run (begin -1) are left out. ERR_NOMEM. */
int trace_add(json_t *events, const struct plan *plan, const struct run_span *spans);

/* All that was added, with the rows' names, as one file; `events` gets those too. ERR_NOMEM, ERR_IO. */
int trace_write(json_t *events, const char *path);

#endif
