/* Writes what cannot wait: retries in output_dir, then uses save_fallback_dir. */
#include "train/fallback.h"

#include "train/place.h"
#include "train/reference.h"
#include "train/run_dir/run_owner.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/world.h"

static int place_find(struct trainer *t)
{
	int rc;

	if (t->fallback_dir)
		return 0;
	rc = world_agree(world_self()->rank ? 0 : run_owner_spare(&t->fallback_dir, t->config));
	if (!rc && (rc = train_place_share(&t->fallback_dir))) {
		mem_free(t->fallback_dir);
		t->fallback_dir = NULL;
	}
	return rc;
}

static int fall_back(struct trainer *t, const struct err *why, fallback_work *work)
{
	int rc;

	if (!t->config->save_fallback_dir)
		return err_give(why);
	if (!world_self()->rank)
		log_warn("output_dir=%s cannot be written (%s); using save_fallback_dir=%s", t->output_dir,
		        why->text, t->config->save_fallback_dir);
	rc = place_find(t);
	if (!rc)
		rc = world_agree(world_self()->rank ? 0 : reference_write(&t->session, t->fallback_dir));
	if (!rc)
		rc = work(t, t->fallback_dir);
	if (rc && !world_self()->rank)
		log_warn("save_fallback_dir: %s", err_text());
	return rc ? err_give(why) : 0;
}

int fallback_try(struct trainer *t, enum train_patience patience, fallback_work *work)
{
	static const int most[] = {[TRAIN_PATIENCE_SIGNAL] = 3, [TRAIN_PATIENCE_END] = 5};
	int tries = t->fallback_dir ? 1 : most[patience], rc = 0; /* output_dir had its retries before */
	struct err why = {0};

	for (int i = 0; i < tries; i++) {
		if (i)
			save_trouble_wait(i, t->caller.signal);
		rc = work(t, NULL);
		if (!rc)
			save_trouble_end(&t->save_trouble);
		if (!rc || save_trouble_take(&t->save_trouble, t->step, t->saved_step, rc))
			return rc;
	}
	err_take(&why, rc);
	t->save_trouble = (struct save_trouble){0};
	return fall_back(t, &why, work);
}
