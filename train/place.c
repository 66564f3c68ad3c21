/* Finds the directory of a run on rank 0 and gives it to all ranks. */
#include "train/place.h"

#include "train/reference.h"
#include "train/run_dir/run_dir.h"
#include "train/run_dir/run_note.h"
#include "train/run_dir/run_owner.h"

#include "base/err.h"
#include "base/mem.h"
#include "comm/world.h"

#include <string.h>

int train_place_share(char **path)
{
	int64_t bytes = world_self()->rank ? 0 : (int64_t)strlen(*path) + 1;
	char *copy = NULL;
	int rc = world_broadcast(&bytes, sizeof(bytes), 0);

	if (rc || world_self()->size == 1)
		return rc;
	copy = mem_alloc((size_t)bytes, 1);
	rc = world_agree(copy ? 0 : ERR_NOMEM);
	if (!rc && !world_self()->rank)
		memcpy(copy, *path, (size_t)bytes);
	if (!rc)
		rc = world_broadcast(copy, bytes, 0);
	if (rc) {
		mem_free(copy);
		return rc;
	}
	mem_free(*path);
	*path = copy;
	return 0;
}

/* Moves the metrics file to the run's directory, where waiting rows are written, and writes what a resumed
 * run reads there. */
static int files_follow(struct trainer *t)
{
	char *path = run_dir_metrics(t->output_dir);
	int rc = path ? metrics_move(t->metrics, path) : ERR_NOMEM;

	if (!rc)
		rc = events_move(t->events, t->output_dir, path);
	if (!rc)
		rc = run_note_write(t->note, t->output_dir);
	if (!rc)
		rc = reference_write(&t->session, t->output_dir);
	mem_free(path);
	return rc;
}

int train_place_keep(struct trainer *t)
{
	enum run_place found = RUN_PLACE_SAME;
	int place, rc = 0;

	if (!world_self()->rank) {
		rc = run_owner_keep(&found, &t->output_dir, t->config, &t->branch);
		if (!rc && found == RUN_PLACE_SAME)
			metrics_hold(t->metrics, 0);
		else if (!rc)
			rc = files_follow(t);
	}
	place = (int)found;
	rc = world_agree(rc);
	if (!rc)
		rc = world_broadcast(&place, sizeof(place), 0);
	if (!rc && place != RUN_PLACE_SAME)
		rc = train_place_share(&t->output_dir);
	if (!rc && place == RUN_PLACE_ANEW)
		t->saved_step = -1;
	return rc;
}
