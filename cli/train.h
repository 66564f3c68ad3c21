/* A training run in motion: what cmd_train.c (opening, ending) and train_loop.c (steps) share.
 *
 * The state that a checkpoint must bring back is small, because everything random is a pure function of the
 * step: the step itself, Adam's count, how many steps were skipped in a row. The planes are the engine's.
 */
#ifndef FERRY_CLI_TRAIN_H
#define FERRY_CLI_TRAIN_H

#include "cli/metrics.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "optim/schedule.h"

struct checkpoint;

struct trainer {
	const struct config *config;
	struct session session;
	struct checkpoint *checkpoint; /* to resume; NULL otherwise */
	struct lr_schedule schedule;
	struct metrics *metrics;
	struct progress *progress;
	int64_t step, total_steps; /* steps done; of the run */
	int64_t saved_step;        /* of the last committed checkpoint, -1 none */
	int64_t save_every, eval_every, sample_every, log_every; /* 0: not while running */
	int sample_at_ends; /* before the first step and after the last */
	int64_t skipped_in_row;
	struct device_stats before; /* at the end of the step before */
	int64_t trace_spans_left;   /* steps still to be traced */
	struct run_span *spans;
	json_t *trace;
	/* since the last logged step */
	double interval_seconds;
	int64_t interval_tokens;
};

/* Runs steps until the run's end, a signal (ERR_STOPPED after a checkpoint was committed), or an error. */
int train_run(struct trainer *t);

/* Where resume_from_checkpoint points: *path (mem_free) is NULL where `auto` found none, or nothing is to be
 * resumed. */
int train_find_checkpoint(const struct config *c, char **path);

/* Planes and state of t->checkpoint into the engine. */
int train_load_checkpoint(struct trainer *t);
int train_save_checkpoint(struct trainer *t);

/* The result as a HuggingFace directory in output_dir/model. */
int train_export_model(struct trainer *t);

/* The last step's gradients as fp32 safetensors where dump_gradients says, by the checkpoint's names. */
int train_dump_gradients(struct trainer *t);

#endif
