/* A run from its opening to its results. */
#include "train/train.h"

#include "train/memory_report.h"
#include "train/ranks_compare.h"
#include "train/ranks_share.h"
#include "train/run_dir.h"
#include "train/sample.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "checkpoint/load.h"
#include "comm/world.h"
#include "placement/ranks.h"

static void schedule_set(struct trainer *t)
{
	const struct config *c = t->config;

	t->total_steps = t->session.train.step_count;
	t->schedule = (struct lr_schedule){
	        .kind = (enum schedule_kind)c->lr_scheduler_type,
	        .learning_rate = c->learning_rate,
	        .min_lr_rate = c->min_lr_rate,
	        .warmup_steps = config_steps(c->warmup_steps, t->total_steps),
	        .total_steps = t->total_steps,
	};
	t->save_every = config_steps(c->save_steps, t->total_steps);
	t->eval_every = config_steps(c->eval_steps, t->total_steps);
	t->log_every = max_i64(config_steps(c->logging_steps, t->total_steps), 1);
	t->sample_every = c->sample_prompt ? config_steps(c->sample_steps, t->total_steps) : 0;
	t->sample_at_ends = c->sample_prompt && !t->sample_every;
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

static int inputs_open(struct trainer *t)
{
	struct session *s = &t->session;
	int rc = train_open_checkpoint(t);

	if (!rc)
		rc = session_open_model(
		        s, t->config, t->checkpoint ? SESSION_WEIGHTS_ELSEWHERE : SESSION_WEIGHTS_MODEL);
	if (!rc && t->checkpoint)
		rc = checkpoint_match(t->checkpoint, s->model);
	if (!rc)
		rc = ranks_share_model(t->config, &s->model);
	if (!rc)
		rc = session_freeze(s);
	if (!rc && t->checkpoint)
		rc = checkpoint_match_trained(t->checkpoint, s->model);
	if (!rc)
		rc = ranks_share_formats(t->config, s->model);
	return rc ? rc : session_open_rows(s);
}

static int engine_prepare(struct trainer *t)
{
	struct session *s = &t->session;
	struct engine_options o;
	int rc = session_open_device(s, NULL);

	if (rc)
		return rc;
	schedule_set(t);
	session_engine_options(s, &o);
	rc = sample_run_sizes(s, &o);
	if (!rc)
		rc = session_open_engine(s, &o);
	return rc ? rc : trace_prepare(t);
}

int train_open(struct trainer *t)
{
	int rc = inputs_open(t);

	rc = ranks_check_inputs(t->config, &t->session, t->checkpoint, rc);
	return rc ? rc : world_agree(engine_prepare(t));
}

void train_close(struct trainer *t)
{
	metrics_close(t->metrics);
	mem_free(t->spans);
	json_decref(t->trace);
	json_decref(t->resumed);
	checkpoint_close(t->checkpoint);
	session_close(&t->session);
}

/* Each rank writes its part of a sharded checkpoint: a rank that sees none of rank 0's files is told now. */
static int output_dir_check(const struct config *c)
{
	if (ranks_reads_files(c, world_self()) || c->state_dict_type == CONFIG_STATE_DICT_FULL ||
	        file_kind_of(c->output_dir) == FILE_DIR)
		return 0;
	return err_set(ERR_INPUT,
	        "output_dir=%s does not exist for this rank, and each rank writes its part of a checkpoint; "
	        "set state_dict_type=FULL_STATE_DICT (rank 0 writes all) or choose an output_dir that all "
	        "ranks see",
	        c->output_dir);
}

static int outputs_open(struct trainer *t)
{
	char *path;
	int rc;

	if (world_self()->rank)
		return 0;
	path = run_dir_metrics(t->config);
	rc = path ? run_dir_open(t->config) : ERR_NOMEM;
	if (!rc)
		rc = metrics_open(&t->metrics, path, t->step ? t->step : -1);
	mem_free(path);
	return rc;
}

int train_start(struct trainer *t)
{
	int rc = world_agree(session_start_engine(&t->session));

	world_set_phase("loading", HEARTBEAT_PATIENT);
	if (!rc)
		rc = t->resumed ? train_load_checkpoint(t) : session_load_weights(&t->session);
	if (!rc)
		rc = world_agree(outputs_open(t));
	return rc ? rc : world_agree(output_dir_check(t->config));
}

int train_execute(struct trainer *t)
{
	int rc = train_save_end(t, train_run(t));

	world_set_phase("saving", HEARTBEAT_PATIENT);
	if (!rc)
		memory_report(t->session.engine, t->session.pool);
	if (!rc)
		rc = train_save_now(t);
	return rc ? rc : train_export_model(t);
}
