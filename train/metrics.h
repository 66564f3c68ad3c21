/* metrics.jsonl: the metrics of each logged step, for programs.
 *
 * One JSON object a line, each line written by one append. So a killed run leaves at most one torn line, and
 * the resumed run drops it. A number that is not finite becomes null. A run that resumes at a step removes
 * later rows, so no step appears twice. It reads only the end of the file.
 */
#ifndef FERRY_TRAIN_METRICS_H
#define FERRY_TRAIN_METRICS_H

#include "base/json.h"
#include "base/str.h"
#include "device/device.h"
#include "objective/objective.h"

#include <stdint.h>

struct metrics;
struct evaluation; /* train/evaluate.h */

struct metrics_step {
	int64_t step;
	double epoch;
	double loss; /* mean over the step's targets, or what else the objective has, and coefficient * aux_loss */
	double grad_norm; /* before clipping */
	double learning_rate;
	int64_t target_tokens, tokens;
	double step_ms, tokens_per_s;
	int64_t host_peak_bytes, pinned_bytes, device_peak_bytes;
	int skipped;
	/* With several ranks: bytes that rank 0's collectives sent in the step; 0: one rank, not written. */
	int64_t sent_node_bytes, sent_network_bytes;
	double wait_ms
	        [QUEUE_COUNT]; /* time that compute waited for each queue; [QUEUE_COMPUTE] is not written */
	const struct objective *objective; /* its metrics are written; NULL: none */
	struct objective_means means;
	const char *data_set; /* whose rows the step has; NULL: those of all, not written */
	/* Of a model with experts: the loss of even use without its coefficient, and struct engine_result's
	 * numbers; 0: not written. */
	double aux_loss, expert_load, experts_used;
	double disk_wait_ms; /* time that updates, and the loop before the step, waited for a save */
	double planned_ms;   /* time of a step by the plan; 0: nothing was simulated, not written */
	int has_condition;   /* 1: the GPU has sensors */
	struct device_condition condition;
};

struct metrics_eval {
	int64_t step;
	double epoch, loss, perplexity;
	int64_t tokens; /* targets */
	const struct objective
	        *objective; /* its metrics are written; without an entropy no perplexity; NULL: none */
	struct objective_means means;
	const struct evaluation *sets; /* numbers of each of its data sets are written too; NULL: none */
};

/* Opens `path` to append. First removes rows after after_step and torn lines; all rows if after_step is below
 * 0. ERR_IO, ERR_NOMEM. */
int metrics_open(struct metrics **m, const char *path, int64_t after_step);
/* A failed write does not end the run. The row waits and is written with the next one, up to 16 MiB. One
 * warning reports the failure, and one line reports when writing works again. */
void metrics_write_step(struct metrics *m, const struct metrics_step *row);
void metrics_write_eval(struct metrics *m, const struct metrics_eval *row);

/* Adds the objective's numbers under their names behind `prefix`. ERR_NOMEM. */
int metrics_means_add(
        json_t *row, const char *prefix, const struct objective *o, const struct objective_means *means);

/* Adds the numbers of each set: PREFIX, its name, "_loss" and so on. ERR_NOMEM. */
int metrics_sets_add(json_t *row, const char *prefix, const struct objective *o, const struct evaluation *e);

/* Appends what slowed the GPU: "power limit, heat"; nothing if nothing did. */
void metrics_slowed(struct str *out, const struct device_condition *condition);

/* The object of an evaluation as it is written; NULL: out of memory. */
json_t *metrics_eval_row(const struct metrics_eval *row);

/* Fsyncs the rows so far; a failure is a warning. NULL is allowed. */
void metrics_sync(struct metrics *m);

/* Holds rows back as if writing failed, because the file may belong to another run by now. */
void metrics_hold(struct metrics *m, int is_held);

/* Writes all further rows to `path`, waiting ones first. `path` may be the same file under another name. A
 * torn line is not continued in another file. ERR_IO, ERR_NOMEM: rows stay held. */
int metrics_move(struct metrics *m, const char *path);

void metrics_close(struct metrics *m); /* fsyncs; NULL is allowed */

#endif
