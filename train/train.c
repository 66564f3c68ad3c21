/* Runs a training run from its opening to its results. */
#include "train/train.h"

#include "train/adapters.h"
#include "train/inputs/chat_date.h"
#include "train/inputs/data_config.h"
#include "train/memory_report.h"
#include "train/ranks/ranks_compare.h"
#include "train/ranks/ranks_share.h"
#include "train/reference.h"
#include "train/run_dir/run_dir.h"
#include "train/run_dir/run_note.h"
#include "train/run_dir/run_owner.h"
#include "train/sample.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/work.h"
#include "checkpoint/branch.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "comm/world.h"

#include <inttypes.h>
#include <math.h>
#include <sys/vfs.h>
#include <time.h>

static int64_t warmup_steps(const struct config *c, int64_t total_steps)
{
	return c->warmup_steps > 0 ? config_steps(c->warmup_steps, total_steps, 0)
	                           : (int64_t)ceil(c->warmup_ratio * (double)total_steps);
}

static int schedule_set(struct trainer *t)
{
	const struct config *c = t->config;
	int64_t epoch_steps = t->session.train.source.sampler.steps_per_epoch;

	t->total_steps = t->session.train.step_count;
	t->schedule = (struct lr_schedule){
	        .kind = (enum schedule_kind)c->lr_scheduler_type,
	        .learning_rate = c->learning_rate,
	        .min_lr_rate = c->min_lr_rate,
	        .warmup_steps = warmup_steps(c, t->total_steps),
	        .total_steps = t->total_steps,
	};
	if (!(c->learning_rate > 0))
		log_warn("%s=0: no weight changes; set it above 0", config_where(c, "learning_rate"));
	if (t->schedule.kind == SCHEDULE_CONSTANT && t->schedule.warmup_steps)
		log_warn("%s has no effect with lr_scheduler_type=constant; use constant_with_warmup",
		        config_where(c, c->warmup_steps > 0 ? "warmup_steps" : "warmup_ratio"));
	else if (t->schedule.warmup_steps >= t->total_steps && t->total_steps > 1)
		log_warn("the warm-up of %" PRId64 " steps is as long as the run or longer (%" PRId64
		         " steps); learning_rate is never reached; lower %s",
		        t->schedule.warmup_steps, t->total_steps,
		        c->warmup_steps > 0 ? "warmup_steps" : "warmup_ratio");
	if (c->per_device_train_batch_size > t->session.train.source.sampler.row_count)
		log_warn("%s=%" PRId64 " exceeds the %" PRId64
		         " %s of the data; a micro-batch has no more than these",
		        config_where(c, "per_device_train_batch_size"), c->per_device_train_batch_size,
		        t->session.train.source.sampler.row_count,
		        data_config_drawn(t->session.train.data, t->session.train.packing));
	t->save_every = c->save_only_model ? 0 : config_steps(c->save_steps, t->total_steps, epoch_steps);
	if (c->save_only_model && c->save_steps != 0 && !config_is_default(c, "save_steps"))
		log_warn("%s has no effect with save_only_model=on, which writes no checkpoints",
		        config_where(c, "save_steps"));
	t->eval_every = config_steps(c->eval_steps, t->total_steps, epoch_steps);
	t->log_every = config_steps(c->logging_steps, t->total_steps, epoch_steps);
	t->sample_every = c->sample_prompt ? config_steps(c->sample_steps, t->total_steps, epoch_steps) : 0;
	t->sample_at_ends = c->sample_prompt && !t->sample_every;
	return best_open(t);
}

static int trace_prepare(struct trainer *t)
{
	if (t->config->trace <= 0)
		return 0;
	t->trace_spans_left = t->config->trace < t->total_steps ? t->config->trace : t->total_steps;
	t->spans = mem_alloc((size_t)engine_plan(t->session.engine, PLAN_TRAIN)->op_count, sizeof(*t->spans));
	t->trace = json_array();
	return t->spans && t->trace ? 0 : ERR_NOMEM;
}

/* Rows have the date of the run's begin, which a resumed run finds in its checkpoint. */
static int date_take(struct trainer *t)
{
	const char *date = chat_date_of_run(t->config, t->resumed);

	t->date = date ? mem_strdup(date) : NULL;
	t->own = *t->config;
	t->own.chat_template_date = t->date;
	t->config = &t->own;
	return date && !t->date ? ERR_NOMEM : 0;
}

/* Whether the run reads the model's files: not if its checkpoint has all that it needs. */
static enum session_weights weights_of(const struct trainer *t)
{
	int takes_more = session_keeps_whole(t->config) && json_object_get(t->resumed, SESSION_CARRIED);

	return t->checkpoint && !checkpoint_leaves_frozen(t->checkpoint) && !takes_more
	               ? SESSION_WEIGHTS_ELSEWHERE
	               : SESSION_WEIGHTS_MODEL;
}

static int inputs_open(struct trainer *t)
{
	struct session *s = &t->session;
	int rc = train_open_checkpoint(t);

	if (!rc)
		rc = date_take(t);
	if (!rc)
		rc = train_check_gradients(t);
	s->adapter_then = json_incref(json_object_get(t->resumed, "adapter"));
	if (!rc)
		rc = session_open_model(s, t->config, weights_of(t));
	if (!rc)
		rc = adapters_check_base(s, t->resumed);
	if (!rc)
		rc = session_find_files(s, t->resumed);
	if (!rc && t->checkpoint)
		rc = train_explain_match(t, checkpoint_match(t->checkpoint, s->model));
	if (!rc)
		rc = ranks_share_model(t->config, &s->model);
	if (!rc)
		rc = session_freeze(s);
	if (!rc && t->checkpoint)
		rc = train_explain_match(t, checkpoint_match_trained(t->checkpoint, s->model));
	if (!rc)
		rc = ranks_share_formats(t->config, s->model);
	if (!rc)
		rc = session_open_rows(s);
	if (!s->writes_date) /* a date in the run's files would say nothing */
		t->own.chat_template_date = NULL;
	if (!rc)
		rc = session_open_side(s);
	return rc || world_self()->rank ? rc : train_check_model(t);
}

static int engine_prepare(struct trainer *t)
{
	struct session *s = &t->session;
	struct engine_options o;
	int rc = session_open_device(s, NULL);

	if (rc)
		return rc;
	rc = schedule_set(t);
	if (rc)
		return rc;
	session_engine_options(s, &o);
	rc = sample_run_sizes(s, &o);
	if (!rc)
		rc = session_open_engine(s, &o);
	if (!rc && !world_self()->rank)
		rc = train_check_room(t);
	return rc ? rc : trace_prepare(t);
}

int train_open(struct trainer *t)
{
	struct ranks_inputs inputs;
	int rc;

	t->output_dir = mem_strdup(t->config->output_dir);
	rc = t->output_dir ? inputs_open(t) : ERR_NOMEM;
	inputs = session_inputs(&t->session, t->checkpoint);
	rc = ranks_check_inputs(t->config, &inputs, rc);
	return rc ? rc : world_agree(engine_prepare(t));
}

void train_close(struct trainer *t)
{
	metrics_close(t->metrics);
	if (run_owner_is_there())
		events_follow(t->events); /* rows that waited until now */
	events_close(t->events);
	json_decref(t->note);
	mem_free(t->spans);
	json_decref(t->trace);
	json_decref(t->resumed);
	run_branch_close(&t->branch);
	checkpoint_close(t->checkpoint);
	mem_free(t->date);
	mem_free(t->output_dir);
	mem_free(t->saved_path);
	mem_free(t->fallback_dir);
	mem_free(t->result_dir);
	mem_free(t->adapter_dir);
	session_close(&t->session);
}

static int is_nfs(const char *dir)
{
	enum { NFS_MAGIC = 0x6969 }; /* linux/magic.h */
	struct statfs fs;

	return !statfs(dir, &fs) && fs.f_type == NFS_MAGIC;
}

/* Checks that each rank sees the branch.json that rank 0 has just written, because each writes its part of a
 * sharded checkpoint beside it. A network file system may show it a little later. */
static int output_dir_check(const struct trainer *t)
{
	const struct timespec pause = {.tv_nsec = 20000000};
	const struct config *c = t->config;
	uint64_t id = t->branch.process, found;
	int rc = world_broadcast(&id, sizeof(id), 0);
	int patience = is_nfs(t->output_dir) ? 3000 : 100; /* it may keep "no such name" for half a minute */

	if (rc || !world_self()->rank || c->state_dict_type == CONFIG_STATE_DICT_FULL)
		return rc;
	for (int i = 0; i < patience; i++) {
		if (!branch_read_process(&found, t->output_dir) && found == id)
			return 0;
		nanosleep(&pause, NULL);
	}
	return err_set(ERR_INPUT,
	        "output_dir=%s: this rank does not see what rank 0 writes there; set "
	        "state_dict_type=FULL_STATE_DICT or use a shared directory",
	        t->output_dir);
}

/* The files beside metrics.jsonl. */
static int notes_open(struct trainer *t, const char *metrics)
{
	const struct session *s = &t->session;
	const struct run_facts facts = {
	        .device = s->device_memory.is_host ? "host (CPU)" : device_name(s->device),
	        .command = t->command,
	        .ranks = world_self()->size,
	        .data_hash = s->train.hash,
	        .step = t->resumed ? t->step : -1};

	t->note = run_note_make(&facts, t->output_dir);
	if (!t->note)
		return ERR_NOMEM;
	if (t->config->report_to == CONFIG_REPORT_TO_TENSORBOARD) {
		t->events = events_open(t->output_dir, metrics);
		if (!t->events)
			return ERR_NOMEM;
		events_follow(t->events);
	}
	return run_note_write(t->note, t->output_dir);
}

static int outputs_open(struct trainer *t)
{
	char *path;
	int rc;

	if (world_self()->rank)
		return 0;
	path = run_dir_metrics(t->output_dir);
	rc = path ? 0 : ERR_NOMEM;
	if (!rc && !run_owner_is_there())
		rc = err_set(ERR_IO,
		        "output_dir=%s was moved or removed, or another run took it, while this run loaded; "
		        "start it again",
		        t->output_dir);
	if (!rc)
		rc = run_dir_open(t->config, &t->branch);
	if (!rc && t->resumed && !t->is_elsewhere)
		rc = checkpoint_rotate(
		        t->config->output_dir, t->step, t->best.saved_step, (int)t->config->save_total_limit);
	if (!rc)
		rc = metrics_open(&t->metrics, path, t->step ? t->branch.metrics_steps : -1);
	if (!rc)
		rc = notes_open(t, path);
	if (!rc && (!t->resumed || t->is_elsewhere))
		rc = reference_write(&t->session, t->output_dir);
	mem_free(path);
	return rc;
}

/* Reads what lies beside the checkpoint, before its planes take time. */
static int resumed_read(struct trainer *t)
{
	char *dir = NULL;
	int rc = 0;

	if (t->checkpoint) {
		dir = file_dir_of(checkpoint_path(t->checkpoint));
		rc = dir ? 0 : ERR_NOMEM;
	}
	rc = world_agree(rc);
	if (!rc) /* before files that belong to other rows */
		rc = world_agree(train_check_rows(
		        t, t->checkpoint ? checkpoint_path(t->checkpoint) : "rank 0's checkpoint"));
	if (!rc)
		rc = reference_read(&t->session, t->resumed, dir);
	mem_free(dir);
	return rc;
}

int train_start(struct trainer *t)
{
	int rc = t->resumed ? resumed_read(t) : 0;

	work_begin("allocating and pinning host memory", 0);
	if (!rc)
		rc = world_agree(session_start_engine(&t->session));
	work_end();
	world_set_phase("loading", HEARTBEAT_PATIENT);
	if (!rc)
		rc = t->resumed ? train_load_checkpoint(t) : session_load_weights(&t->session);
	if (!rc && !t->resumed) /* before anything is written: it takes time, and may fail */
		rc = reference_compute(&t->session);
	if (!rc)
		rc = world_agree(outputs_open(t));
	return rc ? rc : world_agree(output_dir_check(t));
}

int train_execute(struct trainer *t)
{
	struct err why = {0};
	int rc = train_save_end(t, train_run(t));

	world_set_phase("saving", HEARTBEAT_PATIENT);
	if (!rc)
		memory_report(t->session.engine, t->session.pool);
	if (rc)
		return rc;
	rc = t->config->save_only_model ? 0 : train_save_last(t, TRAIN_PATIENCE_END);
	err_take(&why, rc);
	if (!save_trouble_is_lasting(rc)) /* the model is smaller than a checkpoint and may fit */
		rc = best_load(t);
	if (!rc && !save_trouble_is_lasting(why.code))
		rc = train_export_model(t);
	if (!rc && t->config->save_only_model)
		log_info("save_only_model=on: no checkpoint of step %" PRId64
		         " was saved, so this run cannot go on; a new one can start from model=%s",
		        t->step, t->result_dir ? t->result_dir : "");
	return why.code ? err_give(&why) : rc;
}
