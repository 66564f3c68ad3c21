/* Writes checkpoints while the steps go on. */
#include "train/adapters.h"
#include "train/fallback.h"
#include "train/place.h"
#include "train/ranks/collect.h"
#include "train/ranks/planes.h"
#include "train/ranks/world_hooks.h"
#include "train/run_dir/run_owner.h"
#include "train/train.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/hf/overlay.h"
#include "checkpoint/saver.h"
#include "comm/world.h"

#include <inttypes.h>

/* A save in progress, with the objects that it uses. */
struct train_save {
	struct checkpoint_save save;
	struct plane_source source;
	struct plane_range *ranges;
	struct checkpoint_saver *saver;
	int is_best; /* this checkpoint is the best one so far */
};

static void save_free(struct train_save *s)
{
	if (!s)
		return;
	checkpoint_saver_abandon(s->saver);
	json_decref(s->save.training);
	mem_free(s->ranges);
	mem_free(s);
}

/* Orders this rank's ranges by unit, in the order of the updates that would overwrite them. */
static int ranges_order(struct train_save *s, struct engine *engine)
{
	const struct unit_map *map = engine_units(engine);
	struct plane_range *held = NULL;
	int64_t count = 0, used = 0;
	int rc = planes_held(&held, &count, map, PLANES_WRITE);

	s->ranges = rc ? NULL : mem_alloc((size_t)count, sizeof(*s->ranges));
	if (!rc && !s->ranges)
		rc = ERR_NOMEM;
	for (int u = 0; u < map->unit_count && !rc; u++)
		for (int64_t i = 0; i < count; i++)
			if (unit_map_piece(map, held[i].tensor, held[i].first)->unit ==
			        snapshot_order(engine_snapshot(engine), u))
				s->ranges[used++] = held[i];
	mem_free(held);
	s->save.ranges = s->ranges;
	s->save.range_count = count;
	return rc;
}

static int save_prepare(struct train_save **out, const struct trainer *t, const char *fallback)
{
	enum adamw_state state = planes_state(t->config);
	struct train_save *s = mem_alloc(1, sizeof(*s));
	int rc;

	*out = NULL;
	if (!s)
		return ERR_NOMEM;
	s->is_best = !fallback && best_is_due(t);
	metrics_sync(t->metrics); /* a checkpoint stands for the rows before it */
	s->save = (struct checkpoint_save){
	        .output_dir = fallback ? fallback : t->output_dir,
	        .total_limit = fallback ? 0 : (int)t->config->save_total_limit, /* nothing is removed there */
	        .best_step = s->is_best ? t->step : t->best.saved_step,
	        .step = t->step,
	        .model = t->session.model,
	        .source = &s->source,
	        .planes = planes_of(state),
	        .state = state,
	        .leaves_frozen = session_leaves_base(&t->session),
	        .side = &t->session.side,
	        .training = train_state(t),
	        .world = world_for_checkpoint(),
	        .may_appear = fallback ? NULL : run_owner_check,
	};
	rc = s->save.training ? ranges_order(s, t->session.engine) : ERR_NOMEM;
	if (rc) {
		save_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

/* path: NULL on ranks other than 0, for a full checkpoint. */
static void saved(struct trainer *t, int64_t step, int is_best, char *path)
{
	t->saved_step = step;
	if (is_best)
		t->best.saved_step = step;
	t->is_elsewhere = 0;
	save_trouble_end(&t->save_trouble);
	if (path)
		log_info("saved %s", path);
	mem_free(t->saved_path);
	t->saved_path = path;
}

/* ---- a save at once ---- */

struct full_save {
	const struct trainer *trainer;
	const struct checkpoint_save *save;
	char **path;
};

static int is_full(const struct trainer *t)
{
	return t->config->state_dict_type == CONFIG_STATE_DICT_FULL;
}

/* Writes the planes of all ranks on rank 0, and the weights as a HuggingFace directory. */
static int save_full(void *context, const struct plane_source *source)
{
	const struct full_save *full = context;
	const struct session *s = &full->trainer->session;
	const struct hf_export weights = {.dtype = train_export_dtype(full->trainer),
	        .layout = session_layout(s),
	        .shard_bytes = full->trainer->config->max_shard_bytes};
	struct checkpoint_save save = *full->save;
	struct overlay overlay;
	int rc = session_check_files(s);

	if (rc)
		return rc;
	save.source = source;
	save.weights_source = adapters_exact(&overlay, s, source);
	save.ranges = NULL;
	save.range_count = 0;
	save.weights = &weights;
	save.world = (struct checkpoint_world){.size = 1};
	return checkpoint_save(&save, full->path);
}

static int save_at_once(struct trainer *t, const char *fallback)
{
	struct train_save *s = NULL;
	char *path = NULL;
	int is_best = 0, rc = world_agree(engine_flush(t->session.engine));

	if (!rc && !fallback)
		rc = train_place_keep(t);
	if (!rc)
		rc = world_agree(save_prepare(&s, t, fallback));
	if (!rc && is_full(t)) {
		rc = collect_planes(t->session.engine, planes_state(t->config), save_full,
		        &(struct full_save){t, &s->save, &path});
	} else if (!rc) {
		planes_source(&s->source, t->session.engine);
		rc = checkpoint_save(&s->save, &path);
	}
	is_best = s && s->is_best;
	save_free(s);
	if (!rc)
		saved(t, t->step, is_best, path);
	return rc;
}

static int stands(const struct trainer *t)
{
	return t->saved_step == t->step && !t->is_elsewhere;
}

static int save_into(struct trainer *t, const char *fallback)
{
	int rc = save_at_once(t, fallback);

	t->is_in_fallback = !rc && fallback;
	return rc;
}

int train_save_last(struct trainer *t, enum train_patience patience)
{
	int rc = train_save_wait(t);

	return rc || stands(t) ? rc : fallback_try(t, patience, save_into);
}

/* ---- a save beside the steps ---- */

static int is_lost(void)
{
	return !world_self()->rank && !run_owner_is_there();
}

/* Gives up a save, because output_dir was moved or taken meanwhile and the checkpoint must not appear
 * there. */
static int save_give_up(struct trainer *t)
{
	int64_t step = t->save->save.step;

	snapshot_cancel(engine_snapshot(t->session.engine));
	save_free(t->save);
	t->save = NULL;
	return save_trouble_take(&t->save_trouble, step, t->saved_step,
	        err_set(ERR_IO, "output_dir=%s was moved or removed, or belongs to another run",
	                t->output_dir));
}

/* Finishes the save in progress. */
static int save_finish(struct trainer *t)
{
	struct train_save *s = t->save;
	int64_t step = s->save.step;
	char *path = NULL;
	int is_best = s->is_best, rc = checkpoint_saver_finish(s->saver, &path);

	s->saver = NULL;
	t->save = NULL;
	save_free(s);
	if (rc)
		return save_trouble_take(&t->save_trouble, step, t->saved_step, rc);
	saved(t, step, is_best, path);
	return 0;
}

static int save_start(struct trainer *t)
{
	struct train_save *s = NULL;
	int rc = train_place_keep(t);

	if (!rc)
		rc = world_agree(save_prepare(&s, t, NULL));
	if (!rc) {
		planes_snapshot_source(&s->source, t->session.engine);
		engine_snapshot_begin(t->session.engine);
		rc = checkpoint_saver_start(&s->saver, &s->save);
		if (rc)
			snapshot_end(engine_snapshot(t->session.engine));
	}
	if (rc) {
		save_free(s);
		return save_trouble_take(&t->save_trouble, t->step, t->saved_step, rc);
	}
	t->save = s;
	return 0;
}

int train_save_begin(struct trainer *t)
{
	int is_beside = snapshot_is_possible(engine_snapshot(t->session.engine)) && !is_full(t);
	int64_t begin = clock_now_ns();
	int rc = train_save_wait(t);

	if (!rc && !is_beside && !stands(t)) {
		rc = save_at_once(t, NULL);
		if (rc)
			rc = save_trouble_take(&t->save_trouble, t->step, t->saved_step, rc);
	}
	t->disk_wait_ns += clock_now_ns() - begin;
	return rc || !is_beside || t->saved_step == t->step ? rc : save_start(t);
}

/* If the threads of all ranks are ready, runs the next collective part. */
static int save_advance(struct trainer *t)
{
	enum checkpoint_saver_state state;
	double found[2] = {!checkpoint_saver_is_ready(t->save->saver), is_lost()};
	int rc = world_sum(found, 2);

	if (!rc && found[1] > 0)
		return save_give_up(t);
	if (rc || found[0] > 0)
		return rc;
	if (!checkpoint_saver_advance(t->save->saver, &state) && state == CHECKPOINT_SAVER_RUNS)
		return 0;
	return save_finish(t);
}

int train_save_poll(struct trainer *t)
{
	int rc = t->save ? save_advance(t) : 0;

	if (rc || t->save || t->step == t->total_steps)
		return rc;
	rc = save_trouble_is_due(&t->save_trouble);
	return rc > 0 ? train_save_begin(t) : rc;
}

int train_save_wait(struct trainer *t)
{
	int rc = t->save ? engine_snapshot_settle(t->session.engine) : 0;
	double lost = is_lost();

	if (rc || !t->save)
		return rc;
	rc = world_sum(&lost, 1);
	return rc ? rc : lost > 0 ? save_give_up(t) : save_finish(t);
}

int train_save_end(struct trainer *t, int rc)
{
	struct err why = {0};

	if (!t->save)
		return rc;
	err_take(&why, rc);
	if (world_self()->size == 1 || !rc) {
		rc = train_save_wait(t);
		if (rc && why.code)
			log_warn("the last save failed: %s", err_text());
	}
	if (t->save) /* its updates, or another rank, will not come */
		snapshot_cancel(engine_snapshot(t->session.engine));
	save_free(t->save);
	t->save = NULL;
	return why.code ? err_give(&why) : rc;
}
