/* The progress of a run: on a terminal a line that updates, in a log one plain line for each call.
 *
 * On a terminal a line stays when it is KEPT_S seconds younger than the last one that stayed. So the losses
 * of slow steps are all there, and fast ones do not flood the screen. A line that is too long for the
 * terminal leaves out the sensors and causes, then memory, then rates. Between these calls a thread of its
 * own shows what the process is at (base/work.h): loading, or how far a step is and the time that it will
 * take. A log gets such a line after 10 s, then every 30 s.
 *
 * The line has the step, loss, gradient norm, learning rate, tokens per second, remaining time, memory, the
 * share of time that compute waited and for what, the step's time beside the plan's, and the GPU's sensors.
 * The remaining time is estimated from the steps of this process since its first call. A log line
 * (cli_log_start) takes the place of the updating line, which is then drawn again below it. Only one progress
 * may be open at a time; any thread may log.
 */
#ifndef FERRY_CLI_PROGRESS_H
#define FERRY_CLI_PROGRESS_H

#include "base/str.h"
#include "base/work.h"
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
	/* Its time, the plan's time (0: none), how long compute waited for each queue, and the GPU's sensors;
	 * NULL: not known. */
	const struct metrics_step *row;
};

enum progress_style { PROGRESS_STYLE_AUTO, PROGRESS_STYLE_LINES, PROGRESS_STYLE_UPDATE };

/* Borrows `to`. AUTO updates if `to` is a terminal. */
int progress_open(struct progress **p, FILE *to, int64_t total_steps, enum progress_style style);

/* The steps begin after first_step, which was done before; the remaining time is counted from here. */
void progress_begin(struct progress *p, int64_t first_step);

void progress_show(struct progress *p, const struct progress_step *step);

/* Leaves the last line on the terminal. NULL is allowed. */
void progress_close(struct progress *p);

/* Writes a whole line to stderr without disturbing the updating line. */
void progress_log(const char *line);

/* Appends what the process is at. step: steps done; step_s: the time of a step so far, 0 = unknown. */
void progress_work_format(
        struct str *out, const struct work_state *work, int64_t step, int64_t total_steps, double step_s);

/* Appends the text of the line; eta_s below 0 = unknown. */
void progress_format(struct str *out, const struct progress_step *step, int64_t total_steps, double eta_s);

#endif
