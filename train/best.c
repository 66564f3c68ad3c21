/* Finds the best evaluation of a run, stops early, and loads the best checkpoint. */
#include "train/best.h"
#include "train/evaluate.h"

#include "train/ranks/ranks_load.h"
#include "train/train.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/size.h"
#include "comm/world.h"
#include "placement/options.h"
#include "placement/ranks.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- the keys ---- */

static int64_t patience(const struct trainer *t)
{
	return t->config->early_stopping_patience;
}

static int ends_with(const char *text, const char *end)
{
	size_t text_len = strlen(text), end_len = strlen(end);

	return text_len >= end_len && !strcmp(text + text_len - end_len, end);
}

/* The metrics of this run's evaluations. */
static json_t *metrics_sample(const struct trainer *t)
{
	struct evaluation e;
	struct metrics_eval row = {.objective = objective_of_config(t->config).type, .sets = &e};

	if (evaluate_names(&e, &t->session, &t->session.eval))
		return NULL;
	row.means.scores = e.scores;
	return metrics_eval_row(&row);
}

static int is_metric(const char *name)
{
	return !strncmp(name, "eval_", 5) && strcmp(name, "eval_tokens") != 0;
}

static int metric_unknown(const struct trainer *t, json_t *sample)
{
	struct str names = {0};
	const char *name;
	json_t *value;

	json_object_foreach(sample, name, value)
	{
		if (is_metric(name))
			str_printf(&names, "%s%s", names.len_bytes ? ", " : "", name);
	}
	err_set(ERR_INPUT, "%s=%s: this run does not measure it; it measures %s",
	        config_where(t->config, "metric_for_best_model"), t->config->metric_for_best_model,
	        names.data ? names.data : "");
	str_free(&names);
	return ERR_INPUT;
}

static int metric_open(struct trainer *t)
{
	const struct config *c = t->config;
	const char *name = c->metric_for_best_model ? c->metric_for_best_model : "loss";
	json_t *sample = metrics_sample(t);
	int rc = sample ? 0 : ERR_NOMEM;

	snprintf(t->best.metric, sizeof(t->best.metric), "%s%s", strncmp(name, "eval_", 5) ? "eval_" : "",
	        name);
	if (!rc && (!is_metric(t->best.metric) || !json_object_get(sample, t->best.metric)))
		rc = metric_unknown(t, sample);
	json_decref(sample);
	t->best.greater = c->greater_is_better != CONFIG_AUTO
	                          ? c->greater_is_better
	                          : !ends_with(name, "loss") && !ends_with(name, "perplexity") &&
	                                    !ends_with(name, "mse");
	return rc;
}

/* The key that asks for evaluations to be compared, as the user set it; NULL: none. */
static const char *asking(const struct config *c)
{
	return c->load_best_model_at_end             ? "load_best_model_at_end"
	       : c->early_stopping_patience > 0      ? "early_stopping_patience"
	       : c->save_steps == CONFIG_AT_THE_BEST ? "save_steps"
	                                             : NULL;
}

static int lacks(const struct config *c, const char *key, const char *what)
{
	return err_set(ERR_INPUT, "%s=%s %s", config_where(c, key), config_said(c, key), what);
}

static void idle_warn(const struct trainer *t, const char *key, const char *why)
{
	if (!config_is_default(t->config, key))
		log_warn("%s has no effect without %s", config_where(t->config, key), why);
}

/* Checkpoints must come at evaluations, or none of them could be the best. */
static int saves_check(const struct trainer *t)
{
	const struct config *c = t->config;
	int64_t next = t->eval_every * ((t->save_every + t->eval_every - 1) / t->eval_every);

	if (!c->load_best_model_at_end)
		return 0;
	if (c->save_only_model)
		return lacks(c, "load_best_model_at_end", "needs checkpoints; set save_only_model=off");
	if (c->save_steps == CONFIG_AT_THE_BEST)
		return 0;
	if (t->save_every % t->eval_every || !t->save_every)
		return err_set(ERR_INPUT,
		        "%s=on needs a checkpoint at evaluations, so save_steps, which is %" PRId64
		        " steps, must be a multiple of eval_steps, %" PRId64 "; set save_steps=%" PRId64
		        ", or save_steps=best",
		        config_where(c, "load_best_model_at_end"), t->save_every, t->eval_every,
		        max_i64(next, t->eval_every));
	if (t->save_every >= t->total_steps)
		log_warn(
		        "%s=on: a run of %" PRId64 " steps with save_steps=%" PRId64
		        " saves only the last step, so the result is that one; lower save_steps, for example "
		        "to %" PRId64,
		        config_where(c, "load_best_model_at_end"), t->total_steps, t->save_every,
		        t->eval_every);
	return 0;
}

int best_open(struct trainer *t)
{
	const struct config *c = t->config;
	const char *key = asking(c);
	int rc;

	t->best = (struct best){.step = -1, .saved_step = -1};
	if (c->early_stopping_patience <= 0)
		idle_warn(t, "early_stopping_threshold", "early_stopping_patience");
	if (!key && !c->metric_for_best_model) {
		idle_warn(t, "greater_is_better", "metric_for_best_model");
		return 0;
	}
	if (!t->session.eval.data) {
		if (key)
			return lacks(c, key, "needs rows to evaluate on; set eval_data or eval_split");
		idle_warn(t, "metric_for_best_model", "rows to evaluate on; set eval_data or eval_split");
		return 0;
	}
	rc = metric_open(t);
	if (!rc && key && !t->eval_every)
		rc = lacks(c, key, "needs evaluations during the run; set eval_steps");
	return rc || !key ? rc : saves_check(t);
}

/* ---- evaluations ---- */

static int is_better(const struct best *b, double value)
{
	return b->greater ? value > b->value : value < b->value;
}

static int save_is_due(const struct trainer *t)
{
	return t->config->save_steps == CONFIG_AT_THE_BEST || t->step == t->total_steps ||
	       (t->save_every > 0 && t->step % t->save_every == 0) ||
	       (t->step == 1 && t->config->save_first_step);
}

int best_is_due(const struct trainer *t)
{
	return *t->best.metric && t->best.step == t->step && save_is_due(t);
}

int best_saves(const struct trainer *t)
{
	return t->config->save_steps == CONFIG_AT_THE_BEST && best_is_due(t);
}

static void stop_say(const struct trainer *t)
{
	const struct best *b = &t->best;

	if (b->step >= 0)
		log_info("step %" PRId64 ": stopping, because %s has not improved for %" PRId64
		         " evaluation%s (early_stopping_patience); the best is %.6g, of step %" PRId64,
		        t->step, b->metric, b->misses, plural_s(b->misses), b->value, b->step);
	else
		log_info("step %" PRId64 ": stopping, because %s was not a number in %" PRId64
		         " evaluation%s (early_stopping_patience)",
		        t->step, b->metric, b->misses, plural_s(b->misses));
}

int best_take(struct trainer *t, const struct metrics_eval *row)
{
	struct best *b = &t->best;
	json_t *object = *b->metric ? metrics_eval_row(row) : NULL;
	const json_t *found = json_object_get(object, b->metric);
	double value = json_is_number(found) ? json_number_value(found) : NAN;
	int improves;

	if (!*b->metric)
		return 0;
	json_decref(object);
	if (!object)
		return ERR_NOMEM;
	improves = !b->is_seen ||
	           (is_better(b, value) && fabs(value - b->value) > t->config->early_stopping_threshold);
	b->misses = improves ? 0 : b->misses + 1;
	if (!b->is_seen)
		b->value = b->greater ? -INFINITY : INFINITY;
	b->is_seen = 1;
	if (is_better(b, value)) {
		b->value = value;
		b->step = t->step;
		if (save_is_due(t) && t->saved_step == t->step && !t->is_elsewhere) /* a signal saved it */
			b->saved_step = t->step;
	}
	if (best_ends_run(t) && t->step < t->total_steps && !world_self()->rank)
		stop_say(t);
	return 0;
}

int best_ends_run(const struct trainer *t)
{
	return *t->best.metric && patience(t) > 0 && t->best.misses >= patience(t);
}

/* ---- in checkpoints ---- */

json_t *best_state(const struct trainer *t)
{
	const struct best *b = &t->best;

	if (!*b->metric || !b->is_seen)
		return NULL;
	return json_pack("{s:s,s:b,s:o,s:I,s:I,s:I}", "metric", b->metric, "greater", b->greater, "value",
	        json_finite(b->value), "step", (json_int_t)b->step, "saved_step",
	        (json_int_t)(best_is_due(t) ? t->step : b->saved_step), "misses", (json_int_t)b->misses);
}

int best_restore(struct trainer *t, const json_t *state, const char *where)
{
	struct best *b = &t->best;
	struct best then = {.value = NAN, .step = -1, .saved_step = -1, .is_seen = 1};
	json_t *object = NULL;
	const char *metric = "";
	int rc = json_get_object(state, where, "best", &object);

	if (rc <= 0 || !*b->metric)
		return rc < 0 ? rc : 0;
	if ((rc = json_get_str(object, where, "metric", &metric)) < 0 ||
	        (rc = json_get_bool(object, where, "greater", &then.greater)) < 0 ||
	        (rc = json_get_num(object, where, "value", &then.value)) < 0 ||
	        (rc = json_get_int(object, where, "step", &then.step)) < 0 ||
	        (rc = json_get_int(object, where, "saved_step", &then.saved_step)) < 0 ||
	        (rc = json_get_int(object, where, "misses", &then.misses)) < 0)
		return rc;
	if (strcmp(metric, b->metric) || then.greater != b->greater) {
		if (!world_self()->rank)
			log_warn("the run compared its evaluations by %s, %s is better; the best so far is "
			         "forgotten",
			        metric, then.greater ? "higher" : "lower");
		return 0;
	}
	if (isnan(then.value))
		then.value = b->greater ? -INFINITY : INFINITY;
	memcpy(then.metric, b->metric, sizeof(then.metric));
	*b = then;
	if (best_ends_run(t) && t->step < t->total_steps && !world_self()->rank)
		log_info("the run stopped early at step %" PRId64
		         "; ferry only writes the results; to train on, raise early_stopping_patience",
		        t->step);
	return 0;
}

void best_warn_elsewhere(const struct trainer *t)
{
	if (t->config->load_best_model_at_end && t->is_elsewhere && t->best.saved_step >= 0 &&
	        !world_self()->rank)
		log_warn("the best checkpoint so far, of step %" PRId64
		         ", is not in output_dir; if no later one is better, the result is the last model",
		        t->best.saved_step);
}

/* ---- the result ---- */

static int best_fill(
        void *context, const struct plane_sink *sink, const struct plane_range *ranges, int64_t range_count)
{
	struct trainer *t = context;

	return checkpoint_load(t->checkpoint, sink, ranges, range_count, t->session.pool);
}

static char *best_path(const struct trainer *t)
{
	char name[64];

	snprintf(name, sizeof(name), "checkpoint-%06" PRId64, t->best.saved_step);
	return file_join(t->output_dir, name);
}

static int best_checkpoint_open(struct trainer *t)
{
	char *path = best_path(t);
	int rc = path ? 0 : ERR_NOMEM;

	if (!rc && ranks_reads_files(t->config, world_self()))
		rc = checkpoint_open(&t->checkpoint, path);
	mem_free(path);
	return world_agree(rc);
}

int best_load(struct trainer *t)
{
	const struct best *b = &t->best;
	int rc;

	if (!t->config->load_best_model_at_end || b->saved_step == t->step)
		return 0;
	if (b->saved_step < 0) {
		if (!world_self()->rank)
			log_warn("load_best_model_at_end=on: no checkpoint was the best one; the result is "
			         "the "
			         "last model, of step %" PRId64,
			        t->step);
		return 0;
	}
	rc = best_checkpoint_open(t);
	if (rc && rc != ERR_INPUT && rc != ERR_IO)
		return rc;
	if (rc) { /* nothing was read: the last model is whole */
		if (!world_self()->rank)
			log_warn("the best checkpoint, of step %" PRId64
			         ", cannot be opened: %s; the result is the last model, of step %" PRId64,
			        b->saved_step, err_text(), t->step);
		return 0;
	}
	rc = world_agree(engine_flush(t->session.engine));
	if (!rc)
		rc = ranks_load(t->session.engine, t->config, best_fill, t);
	checkpoint_close(t->checkpoint);
	t->checkpoint = NULL;
	if (rc)
		return err_note(rc, "the best checkpoint, of step %" PRId64, b->saved_step);
	if (!world_self()->rank)
		log_info("the result is that of step %" PRId64 ", the best checkpoint: %s %.6g",
		        b->saved_step, b->metric, b->value);
	return 0;
}

json_t *best_report(const struct trainer *t)
{
	const struct best *b = &t->best;

	if (!*b->metric || !b->is_seen)
		return NULL;
	return json_pack("{s:s,s:o,s:o,s:o,s:b}", "metric", b->metric, "value", json_finite(b->value), "step",
	        b->step < 0 ? json_null() : json_integer(b->step), "checkpoint_step",
	        b->saved_step < 0 ? json_null() : json_integer(b->saved_step), "stopped_early",
	        best_ends_run(t) && t->step < t->total_steps);
}
