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
	struct checkpoint *checkpoint; /* to resume; NULL otherwise, and on ranks without files */
	json_t *resumed;               /* its training state; NULL: nothing is resumed */
	struct lr_schedule schedule;
	struct metrics *metrics;
	struct progress *progress;
	int64_t step, total_steps; /* steps done; of the run */
	int64_t begin_step;        /* steps that were done before; 0 unless resumed */
	int64_t saved_step;        /* of the last committed checkpoint, -1 none */
	int is_elsewhere;          /* and that is not in output_dir */
	struct train_save *save;   /* under way beside the steps; NULL: none */
	int save_failures;         /* in a row */
	int64_t disk_wait_ns;      /* that the loop waited for a save, since the last step's row */
	int64_t snapshot_wait_ns;  /* that updates did, up to that row */
	int64_t save_every, eval_every, sample_every, log_every; /* 0: not while running */
	int sample_at_ends; /* before the first step and after the last */
	int64_t skipped_in_row;
	struct device_stats before; /* at the end of the step before */
	struct {
		int64_t node_bytes, network_bytes;    /* by this rank's collectives: in the last step */
		int64_t node_sum, network_sum, steps; /* since the run began */
	} sent;
	int64_t trace_spans_left; /* steps still to be traced */
	struct run_span *spans;
	json_t *trace;
	/* since the last logged step */
	double interval_seconds;
	int64_t interval_tokens;
};

/* Runs steps until the run's end, a signal (ERR_STOPPED after a checkpoint was committed), or an error. */
int train_run(struct trainer *t);

/* Finds and opens what is to be resumed: checkpoint and resumed of t. */
int train_open_checkpoint(struct trainer *t);

/* Its planes and state into the engine. */
int train_load_checkpoint(struct trainer *t);

/* What a checkpoint must bring back besides planes; NULL when out of memory. */
json_t *train_state(const struct trainer *t);

/* ---- saving (cli/train_saver.c) ----
 *
 * A save begins between two steps and goes on beside the next ones; where a unit lives on the device, which
 * only the owning thread can read, it is made at once instead. One that fails is tried once more, with the
 * planes of the step at which that was seen. All functions are collective. */

/* A checkpoint of this step; waits for the one before, if that is still being written. */
int train_save_begin(struct trainer *t);

/* Between steps: commits what is written. */
int train_save_poll(struct trainer *t);

/* Returns when the one that is under way stands, or failed for the first time. */
int train_save_wait(struct trainer *t);

/* Returns when a checkpoint of this step stands. */
int train_save_now(struct trainer *t);

/* The run is over, with `rc`: a save that is under way is brought to its end where that can be. Returns rc,
 * or the save's error. */
int train_save_end(struct trainer *t, int rc);

/* The result as a HuggingFace directory in output_dir/model, in export_dtype. */
enum safetensors_dtype train_export_dtype(const struct trainer *t);
int train_export_model(struct trainer *t);

/* The last step's gradients as fp32 safetensors where dump_gradients says, by the checkpoint's names. A
 * resumed run leaves a file that is there as it is: it has those of the run that it goes on with. */
int train_dump_gradients(struct trainer *t);

#endif
