/* Checks the room on the disk against the plan's bytes. */
#include "train/adapters.h"
#include "train/ranks/planes.h"
#include "train/train.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/size.h"
#include "base/str.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/save.h"

#include <inttypes.h>
#include <string.h>

struct need {
	int64_t checkpoint_bytes, result_bytes, free_bytes;
	int64_t count;    /* checkpoints to come that exist at the same time */
	int64_t standing; /* existing checkpoints */
};

int64_t train_result_bytes(const struct trainer *t)
{
	const struct hf_layout *layout = t->config->export_text_only ? NULL : session_layout(&t->session);

	return t->session.model->parameter_count * safetensors_dtype_bits(train_export_dtype(t)) / 8 +
	       (layout ? layout->carried_bytes : 0);
}

int64_t train_checkpoint_bytes(const struct trainer *t)
{
	enum adamw_state state = planes_state(t->config);
	const struct checkpoint_save save = {.model = t->session.model,
	        .planes = planes_of(state),
	        .state = state,
	        .leaves_frozen = session_leaves_base(&t->session)};
	int64_t bytes = checkpoint_save_bytes(&save);

	return t->config->state_dict_type == CONFIG_STATE_DICT_FULL ? bytes + train_result_bytes(t) : bytes;
}

/* Counts checkpoints in output_dir and remains of unfinished saves. New ones replace them, or overwriting
 * removes them. */
static int64_t standing_count(const struct config *c)
{
	char **names = NULL;
	size_t count = 0;
	int64_t found = 0;

	if (file_kind_of(c->output_dir) == FILE_DIR && !file_list_dir(c->output_dir, &names, &count))
		for (size_t i = 0; i < count; i++)
			found += checkpoint_step_of(names[i]) >= 0 || !strncmp(names[i], "step-", 5);
	file_list_free(names, count);
	return found;
}

/* Counts one more than save_total_limit, because an older checkpoint is removed only after the new one is
 * complete. */
static int64_t coming_count(const struct trainer *t, int64_t standing)
{
	int64_t limit = t->config->save_total_limit, left = t->total_steps;
	int64_t every = t->config->save_steps == CONFIG_AT_THE_BEST ? t->eval_every : t->save_every;
	int64_t saves = every > 0 ? (left + every - 1) / every : 1;

	if (limit == 1 && *t->best.metric) /* the newest and the best */
		limit = 2;
	saves = limit > 0 ? min_i64(saves, limit + 1) : saves;
	return max_i64(saves - standing, 1);
}

/* Free bytes of the directory, or of the nearest existing one above it. */
static int find_free(int64_t *bytes, const char *dir)
{
	char *at;
	int err = temp_dir_nearest(&at, dir);

	if (!err)
		err = file_space(at, bytes);
	mem_free(at);
	return err;
}

/* The smallest thing that a run can leave: a checkpoint, or the model where no checkpoint is saved. */
static int64_t least_bytes(const struct need *n)
{
	return n->checkpoint_bytes ? n->checkpoint_bytes : n->result_bytes;
}

static void warn_tight(
        const struct config *c, const struct need *n, const char *left, const char *one, const char *whole)
{
	if (n->checkpoint_bytes)
		log_warn("output_dir=%s has %s free; %" PRId64
		         " checkpoint%s of %s each and the result take %s: "
		         "free space, or lower save_total_limit",
		        c->output_dir, left, n->count, plural_s(n->count), one, whole);
	else
		log_warn("output_dir=%s has %s free, and the model takes %s: free space", c->output_dir, left,
		        whole);
}

static int judge(const struct need *n, const struct config *c)
{
	int64_t all = n->count * n->checkpoint_bytes + n->result_bytes;
	struct str one = {0}, whole = {0}, left = {0};
	int rc = 0;

	quantity_bytes(&one, least_bytes(n));
	quantity_bytes(&whole, all);
	quantity_bytes(&left, n->free_bytes);
	if (str_check(&one) || str_check(&whole) || str_check(&left))
		rc = ERR_NOMEM;
	else if (n->free_bytes < least_bytes(n) && !n->standing && !c->save_fallback_dir)
		rc = err_set(ERR_FIT,
		        "output_dir=%s has %s free, and %s takes %s: nothing could be saved; free space, "
		        "choose another output_dir, or set save_fallback_dir",
		        c->output_dir, left.data, n->checkpoint_bytes ? "a checkpoint" : "the model",
		        one.data);
	else if (n->free_bytes < all)
		warn_tight(c, n, left.data, one.data, whole.data);
	str_free(&one);
	str_free(&whole);
	str_free(&left);
	return rc;
}

int train_check_room(const struct trainer *t)
{
	int saves = !t->config->save_only_model;
	struct need n = {.checkpoint_bytes = saves ? train_checkpoint_bytes(t) : 0,
	        .result_bytes = train_result_bytes(t)};
	int rc = find_free(&n.free_bytes, t->config->output_dir);

	if (rc == ERR_NOMEM)
		return rc;
	n.standing = standing_count(t->config);
	n.count = coming_count(t, n.standing);
	return rc ? 0 : judge(&n, t->config);
}
