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
#include "train/run_branch.h"
#include "train/save_trouble.h"
#include "train/session.h"

/* Who runs it; called by the run's own thread. Set before train_execute. */
struct train_caller {
	void *context;
	/* A step that was logged, on rank 0. wait_share, 0 .. 1: of its time, what compute stood still. */
	void (*step)(void *context, const struct metrics_step *row, double wait_share);
	/* The signal that this rank got, or 0: the run saves and ends after its step. Asked before the first
	 * step and after each, with the steps that are left. */
	int (*signal)(int64_t steps_left);
};

struct trainer {
	const struct config *config;
	struct session session;
	struct checkpoint *checkpoint; /* to resume; NULL otherwise, and on ranks without files */
	json_t *resumed;               /* its training state; NULL: nothing is resumed */
	struct run_branch branch;      /* rank 0 */
	struct lr_schedule schedule;
	struct metrics *metrics;
	struct train_caller caller;
	int64_t step, total_steps; /* steps done; of the run */
	int64_t begin_step;        /* steps that were done before; 0 unless resumed */
	int64_t saved_step;        /* of the last committed checkpoint, -1 none */
	int is_elsewhere;          /* and that is not in output_dir */
	struct train_save *save;   /* under way beside the steps; NULL: none */
	struct save_trouble save_trouble;
	char *output_dir;         /* where this run writes: the configuration's, until it is moved or taken */
	char *saved_path;         /* its path; rank 0, NULL: this process saved none */
	char *fallback_dir;       /* of this run, in save_fallback_dir; NULL: not needed so far */
	int is_in_fallback;       /* the last checkpoint stands there */
	char *result_dir;         /* rank 0: where the model is, once it is exported */
	int64_t disk_wait_ns;     /* that the loop waited for a save, since the last step's row */
	int64_t snapshot_wait_ns; /* that updates did, up to that row */
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

/* ---- what a run goes on from, and where to (train/resume_check.c, train/room.c) ---- */

/* Is the model, of which the tensors are the checkpoint's, computed as there? By the config.json that lies in
 * the checkpoint. ERR_INPUT names what differs, with both values. Rank 0; once the side files are open. */
int train_check_model(const struct trainer *t);

/* The settings that change what is learned, as they go into a checkpoint: an object of keys and texts, NULL
 * when out of memory. And in a line each, which of them are others than in the checkpoint. */
json_t *train_settings(const struct trainer *t);
void train_tell_settings(const struct trainer *t);

/* Is there room on the disk, once the engine is planned? A warning where output_dir has none for all
 * checkpoints that will stand there at once and the result. ERR_FIT where it has none for a single
 * checkpoint, and there is no save_fallback_dir. Where the file system does not say, nothing is said. Rank 0.
 */
int train_check_room(const struct trainer *t);

/* ---- saving (train/save.c) ----
 *
 * A save begins between two steps and goes on beside the next ones; where a unit lives on the device, which
 * only the owning thread can read, it is made at once instead. One that fails is made anew
 * (train/save_trouble.h): the first three functions fail only where that is of no use. All are collective. */

/* A checkpoint of this step; waits for the one before, if that is still being written. */
int train_save_begin(struct trainer *t);

/* Between steps: commits what is written. */
int train_save_poll(struct trainer *t);

/* Returns when the one that is under way stands, or failed for the first time. */
int train_save_wait(struct trainer *t);

/* Returns when a checkpoint of this step stands, in output_dir or, where it cannot be written there however
 * often that is tried, in save_fallback_dir. A signal leaves less time than the end of a run. */
enum train_patience { TRAIN_PATIENCE_SIGNAL, TRAIN_PATIENCE_END };
int train_save_last(struct trainer *t, enum train_patience patience);

/* The run is over, with `rc`: a save that is under way is brought to its end where that can be. Returns rc,
 * or the save's error. */
int train_save_end(struct trainer *t, int rc);

/* The result as a HuggingFace directory in output_dir/model, in export_dtype; it is tried again and falls
 * back as a save. */
enum safetensors_dtype train_export_dtype(const struct trainer *t);
int train_export_model(struct trainer *t);

/* The last step's gradients as fp32 safetensors where dump_gradients says, by the checkpoint's names. A
 * resumed run leaves a file that is there as it is: it has those of the run that it goes on with. */
int train_dump_gradients(struct trainer *t);

#endif
