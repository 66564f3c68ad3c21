/* The best evaluation of a run: early stopping, and the checkpoint that the result is taken from.
 *
 * Meaning and order are those of transformers' Trainer with EarlyStoppingCallback. At an evaluation the
 * evaluations without an improvement are counted first, against the best before it and the threshold. Then
 * the best is set, without a threshold. A checkpoint is the best one if its step was the best when it was
 * due. So an evaluation between two saves can be the best without a checkpoint. The record is a part of a
 * checkpoint's training state, and all ranks have the same one.
 */
#ifndef FERRY_TRAIN_BEST_H
#define FERRY_TRAIN_BEST_H

#include "base/json.h"

#include <stdint.h>

struct trainer;
struct metrics_eval;

struct best {
	char metric[64];    /* "eval_loss"; empty: nothing is compared */
	int greater;        /* 1: higher is better */
	int is_seen;        /* 1: an evaluation was compared */
	double value;       /* of the best; infinite while none was a number */
	int64_t step;       /* of the best; -1: none */
	int64_t saved_step; /* of the best checkpoint; -1: none */
	int64_t misses;     /* evaluations in a row without an improvement */
};

/* Reads the keys and checks them against the run's steps and rows. ERR_INPUT. Call when t->save_every and
 * t->eval_every are set. */
int best_open(struct trainer *t);

/* Takes an evaluation of step t->step. ERR_NOMEM. */
int best_take(struct trainer *t, const struct metrics_eval *row);

/* Whether early stopping ends the run here. */
int best_ends_run(const struct trainer *t);

/* Whether the checkpoint of step t->step, which was the best, is due: it counts as the best one. */
int best_is_due(const struct trainer *t);

/* 1 if save_steps=best asks for a checkpoint at this step. */
int best_saves(const struct trainer *t);

/* The record as a part of the training state of a checkpoint of this step; NULL: none, or out of memory. */
json_t *best_state(const struct trainer *t);
/* The record of a resumed checkpoint. ERR_INPUT. */
int best_restore(struct trainer *t, const json_t *state, const char *where);
/* Warns if the best checkpoint is not in output_dir, because the run was resumed from another directory. */
void best_warn_elsewhere(const struct trainer *t);

/* With load_best_model_at_end: loads the best checkpoint's planes into the engine. Collective. After an error
 * while reading it the planes are undefined. */
int best_load(struct trainer *t);

/* {metric, value, step, checkpoint_step, stopped_early} for the report of a run; NULL: nothing is
 * compared. */
json_t *best_report(const struct trainer *t);

#endif
