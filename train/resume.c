/* Writes and restores the training state of checkpoints. */
#include "train/adapters.h"
#include "train/ranks/planes.h"
#include "train/ranks/ranks_load.h"
#include "train/ranks/ranks_share.h"
#include "train/state_convert.h"
#include "train/train.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/hf/hf_import.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "comm/world.h"
#include "placement/ranks.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- training state ---- */

json_t *train_state(const struct trainer *t)
{
	char rows[32];

	snprintf(rows, sizeof(rows), "%016" PRIx64, t->session.train.hash);
	return json_pack("{s:I,s:I,s:I,s:I,s:s,s:I,s:I,s:O*,s:O*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*}", "step",
	        (json_int_t)t->step, "update_count", (json_int_t)engine_update_count(t->session.engine),
	        "skipped_in_row", (json_int_t)t->skipped_in_row, "total_steps", (json_int_t)t->total_steps,
	        "rows", rows, "step_rows", (json_int_t)t->session.train.source.sampler.step_rows,
	        "shuffle_version", (json_int_t)SHUFFLE_VERSION, "branch", t->branch.line, "adapter",
	        t->session.adapter.json, "settings", train_settings(t), "base",
	        *t->session.base ? json_string(t->session.base) : NULL, SESSION_CARRIED,
	        *t->session.carried ? json_string(t->session.carried) : NULL, "reference",
	        *t->session.reference.checksum ? json_string(t->session.reference.checksum) : NULL,
	        "evaluation_due", t->evaluation_due ? json_true() : NULL, "best", best_state(t));
}

/* Explains other rows. The most likely reason is another number of ranks, which one key can compensate. */
static int other_rows(const struct trainer *t, const json_t *state, const char *where)
{
	const struct sampler *now = &t->session.train.source.sampler;
	int64_t of_a_micro = now->batch_rows * now->world_size;
	int64_t then = json_integer_value(json_object_get(state, "step_rows")); /* 0: an older checkpoint */
	char advice[80] = "keep their product";

	if (then <= 0 || then == now->step_rows)
		return train_refuse_rows(t, where);
	if (then % of_a_micro == 0)
		snprintf(advice, sizeof(advice), "set gradient_accumulation_steps=%" PRId64,
		        then / of_a_micro);
	return err_set(ERR_INPUT,
	        "%s used %" PRId64 " rows a step, this run %" PRId64 " (gradient_accumulation_steps %" PRId64
	        " x per_device_train_batch_size %" PRId64 " x %d ranks); %s",
	        where, then, now->step_rows, now->accumulation, now->batch_rows, now->world_size, advice);
}

int train_check_rows(const struct trainer *t, const char *where)
{
	const char *rows = "";
	char now[32];
	int rc = json_get_str(t->resumed, where, "rows", &rows);

	snprintf(now, sizeof(now), "%016" PRIx64, t->session.train.hash);
	return rc < 0 ? rc : strcmp(now, rows) ? other_rows(t, t->resumed, where) : 0;
}

static int training_state_restore(struct trainer *t, const json_t *state, const char *where)
{
	int64_t step = -1, update_count = -1, total_steps = t->total_steps;
	int rc;

	if ((rc = json_get_int(state, where, "step", &step)) < 0 ||
	        (rc = json_get_int(state, where, "update_count", &update_count)) < 0 ||
	        (rc = json_get_int(state, where, "skipped_in_row", &t->skipped_in_row)) < 0 ||
	        (rc = json_get_int(state, where, "total_steps", &total_steps)) < 0)
		return rc;
	if (step < 0 || update_count < 0 || update_count > step)
		return err_set(ERR_INPUT,
		        "%s: its training state is inconsistent (step %" PRId64 ", %" PRId64 " updates)",
		        where, step, update_count);
	rc = train_check_rows(t, where);
	if (rc)
		return rc;
	if (step > t->total_steps)
		return err_set(ERR_INPUT,
		        "%s is from step %" PRId64 ", but the run has only %" PRId64
		        "; raise max_steps or num_train_epochs",
		        where, step, t->total_steps);
	if (step == t->total_steps)
		log_info("%s is from the last step; ferry only writes the results", where);
	if (total_steps != t->total_steps)
		log_warn("the run had %" PRId64 " steps and now has %" PRId64
		         "; the learning rate follows the new number",
		        total_steps, t->total_steps);
	t->step = t->saved_step = step;
	t->evaluation_due = json_is_true(json_object_get(state, "evaluation_due"));
	engine_set_update_count(t->session.engine, update_count);
	return best_restore(t, state, where);
}

/* ---- checkpoints ---- */

/* Refuses to start over if all checkpoints are damaged, because that would overwrite files that may still be
 * repaired, or if a run without checkpoints has ended. */
static int none_check(const char *output_dir)
{
	char **names = NULL;
	size_t count = 0;
	int rc = file_kind_of(output_dir) == FILE_DIR ? file_list_dir(output_dir, &names, &count) : 0;

	for (size_t i = 0; i < count && !rc; i++)
		if (checkpoint_step_of(names[i]) >= 0)
			rc = err_set(ERR_INPUT,
			        "no checkpoint in output_dir=%s can be resumed; to start over, remove "
			        "resume_from_checkpoint and set overwrite_output_dir=on",
			        output_dir);
		else if (!strcmp(names[i], "model"))
			rc = err_set(ERR_INPUT,
			        "output_dir=%s has no checkpoint to resume, but the model of a run that "
			        "ended; to train it further set model=%s/model and another output_dir, to "
			        "start over set overwrite_output_dir=on instead of resume_from_checkpoint",
			        output_dir, output_dir);
	file_list_free(names, count);
	return rc;
}

static int is_auto(const struct config *c)
{
	return c->resume_from_checkpoint && !strcmp(c->resume_from_checkpoint, "auto");
}

/* Finds the checkpoint to resume; with auto the newest before step `before`. */
static int find_checkpoint(const struct config *c, char **path, int64_t before)
{
	int rc;

	*path = NULL;
	if (!c->resume_from_checkpoint)
		return 0;
	if (is_auto(c)) {
		rc = checkpoint_find_newest(path, c->output_dir, before);
		if (!rc && !*path)
			rc = none_check(c->output_dir);
		if (!rc && !*path)
			log_info("output_dir=%s has no checkpoint to resume; starting at step 0",
			        c->output_dir);
		return rc;
	}
	*path = mem_strdup(c->resume_from_checkpoint);
	return *path ? 0 : ERR_NOMEM;
}

static int own_checkpoint_open(struct trainer *t, int64_t before)
{
	const struct manifest *m;
	char *path = NULL;
	int rc = find_checkpoint(t->config, &path, before);

	if (!rc && path)
		rc = checkpoint_open(&t->checkpoint, path);
	mem_free(path);
	if (!rc && t->checkpoint)
		rc = checkpoint_check_name(t->checkpoint);
	if (rc || !t->checkpoint)
		return rc;
	m = checkpoint_manifest(t->checkpoint);
	t->resumed = json_incref(m->training);
	if ((m->planes & planes_of(m->state)) != planes_of(m->state))
		return err_set(ERR_INPUT, "%s has no optimizer state; use it as a model, not to resume",
		        checkpoint_path(t->checkpoint));
	return 0;
}

/* Gives the training state to ranks without files. */
static int resumed_share(struct trainer *t)
{
	int64_t len_bytes = 0;
	char *text = NULL;
	int rc = t->resumed ? json_write(&text, t->resumed, JSON_COMPACT) : 0;

	if (!rc && text)
		len_bytes = (int64_t)strlen(text);
	if (!rc)
		rc = ranks_share_block(t->config, &text, &len_bytes);
	if (!rc && text && !t->resumed)
		rc = json_parse(&t->resumed, "rank 0's checkpoint", text, (size_t)len_bytes);
	mem_free(text);
	return rc;
}

static int shuffle_check(struct trainer *t)
{
	int64_t version = 0;
	int rc = t->resumed ? json_get_int(t->resumed, "the checkpoint's training state", "shuffle_version",
	                              &version)
	                    : 0;

	if (rc < 0 || !t->resumed || version == SHUFFLE_VERSION)
		return rc < 0 ? rc : 0;
	return err_set(ERR_UNSUPPORTED,
	        "the checkpoint's rows are in shuffle_version %" PRId64
	        ", but this ferry knows %d; resume with the ferry that began the run",
	        version, SHUFFLE_VERSION);
}

static int checkpoint_find_and_open(struct trainer *t, int64_t before)
{
	int rc = ranks_reads_files(t->config, world_self()) ? own_checkpoint_open(t, before) : 0;

	if (!rc && !world_self()->rank)
		rc = run_branch_open(&t->branch, t->config,
		        t->checkpoint ? checkpoint_path(t->checkpoint) : NULL, t->resumed);
	return rc ? rc : resumed_share(t);
}

int train_open_checkpoint(struct trainer *t)
{
	int rc = checkpoint_find_and_open(t, INT64_MAX);

	return rc ? rc : shuffle_check(t);
}

/* Reads the ranges that the checkpoint leaves to the model's files. */
static int frozen_fill(struct trainer *t, const struct plane_sink *sink, const struct plane_range *ranges,
        int64_t range_count)
{
	const struct manifest *m = checkpoint_manifest(t->checkpoint);
	struct plane_range *left = mem_alloc((size_t)range_count + 1, sizeof(*left));
	int64_t count = 0;
	int rc = left ? 0 : ERR_NOMEM;

	for (int64_t i = 0; i < range_count && !rc; i++)
		if (!m->tensors[ranges[i].tensor].planes)
			left[count++] = ranges[i];
	if (!rc && count)
		rc = hf_import_load(t->session.import, sink, left, count, t->session.pool);
	mem_free(left);
	return rc;
}

static int planes_fill(
        void *context, const struct plane_sink *sink, const struct plane_range *ranges, int64_t range_count)
{
	struct trainer *t = context;
	enum adamw_state state = planes_state(t->config);
	int rc = checkpoint_manifest(t->checkpoint)->state == state
	                 ? checkpoint_load(t->checkpoint, sink, ranges, range_count, t->session.pool)
	                 : state_convert_planes(t->checkpoint, sink, state, ranges, range_count);

	if (rc || !checkpoint_leaves_frozen(t->checkpoint))
		return rc;
	return frozen_fill(t, sink, ranges, range_count);
}

/* Whether the checkpoint is outside the run's directory. The run then saves one even if no step is left. */
static int is_elsewhere(const struct trainer *t)
{
	char dir[PATH_MAX], output_dir[PATH_MAX], *parent = NULL, *name = NULL;
	int is_here;

	if (!t->checkpoint)
		return 0; /* only rank 0 knows */
	is_here = !temp_dir_split(&parent, &name, checkpoint_path(t->checkpoint)) && realpath(parent, dir) &&
	          realpath(t->config->output_dir, output_dir) && !strcmp(dir, output_dir);
	mem_free(parent);
	mem_free(name);
	return !is_here;
}

/* ---- the checkpoint before it ---- */

/* Closes the checkpoint. Planes that it has loaded stay; another load overwrites them. */
static void checkpoint_leave(struct trainer *t)
{
	checkpoint_close(t->checkpoint);
	t->checkpoint = NULL;
	json_decref(t->resumed);
	t->resumed = NULL;
	run_branch_close(&t->branch);
}

static int older_check(struct trainer *t)
{
	int rc = shuffle_check(t);

	if (!rc && t->checkpoint)
		rc = train_explain_match(t, checkpoint_match(t->checkpoint, t->session.model));
	if (!rc && t->checkpoint)
		rc = train_explain_match(t, checkpoint_match_trained(t->checkpoint, t->session.model));
	if (!rc && !world_self()->rank)
		rc = train_check_model(t);
	return rc;
}

/* The newest one opens and cannot be read to its end: auto goes on with the one before it. Collective. */
static int older_open(struct trainer *t, int damage)
{
	int64_t step = t->step;
	int rc;

	if (!world_self()->rank)
		checkpoint_warn_skipped(checkpoint_path(t->checkpoint), damage);
	checkpoint_leave(t);
	rc = world_agree(checkpoint_find_and_open(t, step));
	if (!rc && !t->resumed)
		rc = err_set(ERR_INPUT,
		        "output_dir=%s has no older checkpoint; to start anew, set "
		        "overwrite_output_dir=on instead of resume_from_checkpoint",
		        t->config->output_dir);
	return world_agree(rc ? rc : older_check(t));
}

/* Loads its state and planes. *is_damaged: reading planes failed. Collective. */
static int checkpoint_load_once(struct trainer *t, int *is_damaged)
{
	const char *path = t->checkpoint ? checkpoint_path(t->checkpoint) : "rank 0's checkpoint";
	int rc = training_state_restore(t, t->resumed, path);

	rc = world_agree(rc); /* before any rank begins to send */
	if (!rc && (rc = ranks_load(t->session.engine, t->config, planes_fill, t)))
		*is_damaged = rc == ERR_INPUT || rc == ERR_IO;
	return rc;
}

int train_load_checkpoint(struct trainer *t)
{
	enum adamw_state state = planes_state(t->config), saved;
	int is_damaged = 0, rc = checkpoint_load_once(t, &is_damaged);

	while (is_damaged && is_auto(t->config)) {
		is_damaged = 0;
		rc = older_open(t, rc);
		if (!rc)
			rc = checkpoint_load_once(t, &is_damaged);
	}
	t->is_elsewhere = is_elsewhere(t);
	if (!rc)
		rc = world_broadcast(&t->is_elsewhere, sizeof(t->is_elsewhere), 0);
	if (!rc)
		best_warn_elsewhere(t);
	if (rc || !t->checkpoint)
		return rc;
	saved = checkpoint_manifest(t->checkpoint)->state;
	if (saved != state)
		log_warn("%s has optimizer_state=%s: converted to %s; losses will differ slightly",
		        checkpoint_path(t->checkpoint), adamw_state_name(saved), adamw_state_name(state));
	log_info("resumed %s at step %" PRId64, checkpoint_path(t->checkpoint), t->step);
	if (!world_self()->rank)
		train_tell_settings(t);
	checkpoint_close(
	        t->checkpoint); /* an open file keeps its disk space, and on NFS its name, after rotation */
	t->checkpoint = NULL;
	return 0;
}
