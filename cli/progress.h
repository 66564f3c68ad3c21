/* The progress of a run: on a terminal one line that updates, in a log one plain line for each call.
 *
 * The line has the step, loss, gradient norm, learning rate, tokens per second, remaining time, memory, and
 * the share of time that compute waited. The remaining time is estimated from the steps of this process since
 * its first call. A log line (cli_log_start) takes the place of the updating line, which is then drawn again
 * below it. Only one progress may be open at a time; any thread may log.
 */
#ifndef FERRY_CLI_PROGRESS_H
#define FERRY_CLI_PROGRESS_H

#include "base/str.h"
#include "train/metrics.h"

#include <stdint.h>
#include <stdio.h>

struct progress;

/* The figures of one step. NaN and negative numbers of bytes are left out. */
struct progress_step {
	int64_t step;
	double loss, grad_norm, learning_rate;
	double tokens_per_s;
	int64_t host_bytes, device_bytes;
	double wait_share;                 /* 0 .. 1 */
	const struct objective *objective; /* has more to say of its means; NULL: none */
	const struct objective_means *means;
	const char *skipped; /* reason if the step was skipped; else NULL */
};

enum progress_style { PROGRESS_STYLE_AUTO, PROGRESS_STYLE_LINES, PROGRESS_STYLE_UPDATE };

/* Borrows `to`. AUTO updates if `to` is a terminal. first_step: the last step done before this process. */
int progress_open(
        struct progress **p, FILE *to, int64_t first_step, int64_t total_steps, enum progress_style style);

void progress_show(struct progress *p, const struct progress_step *step);

/* Leaves the last line on the terminal. NULL is allowed. */
void progress_close(struct progress *p);

/* Writes a whole line to stderr without disturbing the updating line. */
void progress_log(const char *line);

/* Appends the text of the line; eta_s below 0 = unknown. */
void progress_format(struct str *out, const struct progress_step *step, int64_t total_steps, double eta_s);

#endif
