/* A training run: train_open, train_start, train_execute, train_close.
 *
 * Nothing here prints; `caller` is called for each logged step. Functions are collective and return the same
 * code on all ranks unless they say otherwise.
 *
 * A checkpoint stores little state besides the planes, because everything random is a pure function of the
 * step: the step, Adam's count, and the number of steps skipped in a row.
 */
#ifndef FERRY_TRAIN_TRAIN_H
#define FERRY_TRAIN_TRAIN_H

#include "checkpoint/load.h"
#include "optim/schedule.h"
#include "train/best.h"
#include "train/events.h"
#include "train/metrics.h"
#include "train/run_dir/run_branch.h"
#include "train/save_trouble.h"
#include "train/session.h"

/* Callbacks on the run's own thread. Set before train_execute. */
struct train_caller {
	void *context;
	/* A logged step, on rank 0. wait_share, 0 .. 1: the part of its time that compute waited. */
	void (*step)(void *context, const struct metrics_step *row, double wait_share);
	/* Returns the signal that this rank got, or 0. After a signal the run saves and ends after its step.
	 * Called before the first step and after each, with the number of steps left. */
	int (*signal)(int64_t steps_left);
};

struct trainer {
	const struct config *config;
	const char *command; /* that started the run, for run.json; NULL: unknown */
	struct session session;
	struct checkpoint *checkpoint; /* to resume; NULL otherwise, and on ranks without files */
	json_t *resumed;               /* its training state; NULL: no resume */
	struct config own; /* the caller's with `date`; config points to it once the checkpoint is open */
	char *date;        /* of the run's chats: train/inputs/chat_date.h */
	struct run_branch branch; /* rank 0 */
	struct lr_schedule schedule;
	struct metrics *metrics;
	struct events *events; /* with report_to=tensorboard, on rank 0 */
	json_t *note;          /* run.json; rank 0 */
	struct train_caller caller;
	int64_t step, total_steps; /* steps done; steps of the run */
	int64_t begin_step;        /* steps done before; 0 unless resumed */
	int64_t saved_step;        /* step of the last committed checkpoint; -1: none */
	int is_elsewhere;          /* 1: that checkpoint is not in output_dir */
	struct train_save *save;   /* save in progress beside the steps; NULL: none */
	struct save_trouble save_trouble;
	char *output_dir;         /* directory of this run: the configuration's, until it is moved or taken */
	char *saved_path;         /* path of that checkpoint; rank 0; NULL: this process saved none */
	char *fallback_dir;       /* this run's directory in save_fallback_dir; NULL: not needed yet */
	int is_in_fallback;       /* 1: the last checkpoint is there */
	char *result_dir;         /* directory of the exported model; NULL: there is none */
	char *adapter_dir;        /* of the adapter alone, on the rank that wrote it; NULL: there is none */
	int64_t disk_wait_ns;     /* time that the loop waited for a save, since the last step's row */
	int64_t snapshot_wait_ns; /* time that updates waited, up to that row */
	int64_t save_every, eval_every, sample_every, log_every; /* 0: never during the run */
	struct best best;
	int evaluation_due; /* 1: a signal ended that of this step; who resumes makes it */
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

/* Call with `config` set and all else 0. Opens model, rows, engine and plans; allocates nothing large and
 * writes nothing. */
int train_open(struct trainer *t);

/* Allocates memory, loads weights (of the resumed checkpoint, if any), and opens the output directory. */
int train_start(struct trainer *t);

/* Trains to the end and writes a checkpoint and the model; errors as train_run. */
int train_execute(struct trainer *t);

void train_close(struct trainer *t); /* call only if world_can_free */

/* ---- parts of a run ---- */

/* Runs steps until the run's end, a signal (ERR_STOPPED after a checkpoint was committed), or an error. */
int train_run(struct trainer *t);

/* Finds and opens the checkpoint to resume: sets checkpoint and resumed of t. */
int train_open_checkpoint(struct trainer *t);

/* Loads its planes and state into the engine. */
int train_load_checkpoint(struct trainer *t);

/* ERR_INPUT: the rows or their order are not those of the checkpoint `where`. */
int train_check_rows(const struct trainer *t, const char *where);

/* The state that a checkpoint stores besides planes; NULL if out of memory. */
json_t *train_state(const struct trainer *t);

/* ---- checks of a resumed run and of the disk (train/resume_check.c, train/room.c) ---- */

/* Compares the model's settings with the config.json in the checkpoint; the tensors must be equal already.
 * ERR_INPUT names the difference with both values. Rank 0, after the side files are open. */
int train_check_model(const struct trainer *t);

/* Names the key if the checkpoint's tensors do not match because the run had other adapters, freeze or
 * trainable. rc: what checkpoint_match or checkpoint_match_trained gave; any other error than ERR_INPUT is
 * returned as it is. */
int train_explain_match(const struct trainer *t, int rc);

/* train_settings returns the settings that change the training result, for a checkpoint: an object of keys
 * and texts, NULL if out of memory. train_tell_settings logs one line for each that differs from the
 * checkpoint. train_refuse_rows is for rows that differ: ERR_INPUT, and the text names the settings that
 * differ, or the data. where: the checkpoint. */
json_t *train_settings(const struct trainer *t);
void train_tell_settings(const struct trainer *t);
int train_refuse_rows(const struct trainer *t, const char *where);

/* Checks the room on the disk after the engine is planned. Warns if output_dir lacks room for the result and
 * the checkpoints that exist at once. ERR_FIT if it lacks room for one checkpoint and there is no
 * save_fallback_dir; with save_only_model the model counts alone. Silent if the file system does not report
 * its room. Rank 0. */
int train_check_room(const struct trainer *t);

/* On the disk. */
int64_t train_checkpoint_bytes(const struct trainer *t);
int64_t train_result_bytes(const struct trainer *t);

/* ---- saving (train/save.c) ----
 *
 * A save begins between two steps and continues beside the next ones. If a unit is on the device, which only
 * the owning thread can read, the save runs at once instead. A failed save is repeated
 * (train/save_trouble.h), so the first three functions fail only if that is useless. All are collective.
 */

/* Begins a checkpoint of this step; waits for the previous one if it is still being written. */
int train_save_begin(struct trainer *t);

/* Call between steps: commits a save that is written. */
int train_save_poll(struct trainer *t);

/* Waits until the save in progress is complete or failed for the first time. */
int train_save_wait(struct trainer *t);

/* Waits until a checkpoint of this step is complete, in output_dir or, after several failures there, in
 * save_fallback_dir. A signal leaves less time than the end of a run. */
enum train_patience { TRAIN_PATIENCE_SIGNAL, TRAIN_PATIENCE_END };
int train_save_last(struct trainer *t, enum train_patience patience);

/* Call at the end of a run with its `rc`: finishes a save in progress if possible. Returns rc, or the save's
 * error. */
int train_save_end(struct trainer *t, int rc);

/* Writes the result as a HuggingFace directory in output_dir/model, in export_dtype. Retries and falls back
 * like a save. */
enum safetensors_dtype train_export_dtype(const struct trainer *t);
int train_export_model(struct trainer *t);

/* Writes the last step's gradients as fp32 safetensors to dump_gradients, under the checkpoint's names. A
 * resumed run keeps an existing file, which has the gradients of the run that it continues. One that starts
 * again replaces it. train_check_gradients refuses another file of that name, before anything is written. */
int train_dump_gradients(struct trainer *t);
int train_check_gradients(const struct trainer *t);

#endif
