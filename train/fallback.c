/* What must be written now: tried again, then elsewhere. */
#include "train/fallback.h"

#include "train/run_dir.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/temp_dir.h"
#include "comm/world.h"

#include <inttypes.h>

static char *place_of(const struct config *c, uint64_t number)
{
	char *parent = NULL, *name = NULL, *dir = NULL, *path = NULL;

	if (!temp_dir_place(&parent, &name, c->output_dir))
		dir = mem_printf("%s.%" PRIu64, name, number);
	if (dir)
		path = file_join(c->save_fallback_dir, dir);
	mem_free(parent);
	mem_free(name);
	mem_free(dir);
	return path;
}

/* Rank 0 makes it, and tells its number. */
static int place_make(const struct config *c, uint64_t *number)
{
	int rc = file_make_dir(c->save_fallback_dir);

	for (*number = 1; !rc; ++*number) {
		char *path = place_of(c, *number);
		int is_free = path && file_kind_of(path) == FILE_NONE && !file_is_link(path);

		rc = path ? 0 : ERR_NOMEM;
		if (is_free) {
			rc = file_make_dir(path);
			rc = rc ? rc : run_dir_write_config(c, path);
		}
		mem_free(path);
		if (is_free)
			break;
	}
	return rc;
}

static int place_find(struct trainer *t)
{
	uint64_t number = 0;
	int rc;

	if (t->fallback_dir)
		return 0;
	rc = world_agree(world_self()->rank ? 0 : place_make(t->config, &number));
	if (!rc)
		rc = world_broadcast(&number, sizeof(number), 0);
	if (rc)
		return rc;
	t->fallback_dir = place_of(t->config, number);
	return world_agree(t->fallback_dir ? 0 : ERR_NOMEM);
}

static int fall_back(struct trainer *t, const struct err *why, fallback_work *work)
{
	int rc;

	if (!t->config->save_fallback_dir)
		return err_give(why);
	if (!world_self()->rank)
		log_warn("output_dir=%s cannot be written (%s); using save_fallback_dir=%s",
		        t->config->output_dir, why->text, t->config->save_fallback_dir);
	rc = place_find(t);
	if (!rc)
		rc = work(t, t->fallback_dir);
	if (rc && !world_self()->rank)
		log_warn("save_fallback_dir: %s", err_text());
	return rc ? err_give(why) : 0;
}

int fallback_try(struct trainer *t, enum train_patience patience, fallback_work *work)
{
	static const int most[] = {[TRAIN_PATIENCE_SIGNAL] = 3, [TRAIN_PATIENCE_END] = 5};
	int tries = t->fallback_dir ? 1 : most[patience], rc = 0; /* it was waited for already */
	struct err why = {0};

	for (int i = 0; i < tries; i++) {
		if (i)
			save_trouble_wait(i, t->caller.signal);
		rc = work(t, NULL);
		if (!rc)
			save_trouble_end(&t->save_trouble);
		if (!rc || save_trouble_take(&t->save_trouble, t->step, rc))
			return rc;
	}
	err_take(&why, rc);
	t->save_trouble = (struct save_trouble){0};
	return fall_back(t, &why, work);
}
