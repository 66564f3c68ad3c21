/* A training run: train_open, train_start, train_execute, train_close.
 *
 * Nothing here prints: `caller` hears of each logged step. Functions are collective, and return the same code
 * on all ranks, unless they say otherwise.
 *
 * The state that a checkpoint must bring back is small, because everything random is a pure function of the
 * step: the step itself, Adam's count, how many steps were skipped in a row. The planes are the engine's.
 */
#ifndef FERRY_TRAIN_TRAIN_H
#define FERRY_TRAIN_TRAIN_H

#include "checkpoint/load.h"
#include "optim/schedule.h"
#include "train/metrics.h"
#include "train/session.h"

/* Who runs it; called by the run's own thread. Set before train_execute. */
struct train_caller {
	void *context;
	/* A step that was logged, on rank 0. wait_share, 0 .. 1: of its time, what compute stood still. */
	void (*step)(void *context, const struct metrics_step *row, double wait_share);
	/* The signal that this rank got, or 0: the run saves and ends after its step. */
	int (*signal)(void);
};

struct trainer {
	const struct config *config;
	struct session session;
	struct checkpoint *checkpoint; /* to resume; NULL otherwise, and on ranks without files */
	json_t *resumed;               /* its training state; NULL: nothing is resumed */
	struct lr_schedule schedule;
	struct metrics *metrics;
	struct train_caller caller;
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

/* With `config` set and all else 0. Opens model, rows and engine and plans; takes no memory of size yet and
 * writes nothing. */
int train_open(struct trainer *t);

/* Memory, weights (of a checkpoint, where one is resumed), and the output directory. */
int train_start(struct trainer *t);

/* Trains to the end and leaves a checkpoint and the model; errors as train_run. */
int train_execute(struct trainer *t);

void train_close(struct trainer *t); /* where world_can_free */

/* ---- parts of it ---- */

/* Runs steps until the run's end, a signal (ERR_STOPPED after a checkpoint was committed), or an error. */
int train_run(struct trainer *t);

/* Finds and opens what is to be resumed: checkpoint and resumed of t. */
int train_open_checkpoint(struct trainer *t);

/* Its planes and state into the engine. */
int train_load_checkpoint(struct trainer *t);

/* What a checkpoint must bring back besides planes; NULL when out of memory. */
json_t *train_state(const struct trainer *t);

/* ---- saving (train/save.c) ----
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
