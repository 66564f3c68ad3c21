/* What a report tells of one run, read from its output_dir.
 *
 * metrics.jsonl is read in one pass: memory does not grow with its length. config.yaml may be absent or
 * damaged; the report then goes without it. Each thing that is left out is a warning, and a line of
 * `notes` for the page.
 */
#ifndef FERRY_REPORT_RUN_H
#define FERRY_REPORT_RUN_H

#include "base/json.h"
#include "base/str.h"
#include "base/yaml.h"
#include "report/columns.h"

/* NAN: no row has the number. */
struct report_totals {
	int64_t row_count;             /* logged steps */
	int64_t first_step, last_step; /* of these */
	int64_t skipped_count;         /* steps that updated nothing */
	double loss, best_loss;        /* last and lowest */
	double eval_loss, best_eval_loss;
	double tokens_per_s;                           /* median */
	double token_count, seconds;                   /* of training; estimates if is_sampled */
	double host_bytes, pinned_bytes, device_bytes; /* highest */
	double step_ms, wait_ms[REPORT_WAIT_COUNT];    /* of logged steps */
	int is_sampled; /* not every step was logged; one stands for those before it */
};

struct report_run {
	char *path;  /* without a slash at its end */
	char *label; /* a short name; set by the caller of report_run_read if it is not unique */
	struct columns columns;
	struct report_totals totals;
	json_t *sets; /* of data sets that have steps of their own, by name: {"steps", "loss", "eval_loss"}, the last
	                 losses; NULL: none */
	struct yaml_doc config; /* empty: not there */
	char **checkpoints;     /* names, oldest first */
	int checkpoint_count;
	const char *result; /* name of what the run exported in the directory; NULL: none */
	int has_trace;
	struct str notes; /* lines about what was left out */
};

/* Reads a run; *r needs report_run_free also after an error. ERR_INPUT: no directory of a run, or no row in
 * metrics.jsonl; ERR_IO, ERR_NOMEM. */
int report_run_read(struct report_run *r, const char *path);
void report_run_free(struct report_run *r);

/* The value of a key in config.yaml; NULL: none. */
const char *report_run_setting(const struct report_run *r, const char *key);

/* The totals as an object, for programs. ERR_NOMEM. */
int report_run_json(json_t **object, const struct report_run *r);

#endif
