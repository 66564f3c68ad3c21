/* Chooses the line that a run continues, and moves abandoned files away. */
#include "train/run_dir/run_branch.h"

#include "train/run_dir/run_dir.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"
#include "checkpoint/branch.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The inputs of the choice. */
struct decision {
	const struct config *config;
	const char *checkpoint;
	int64_t step;
	json_t *resumed, *in_force; /* lines of the checkpoint, and of the directory (NULL: none) */
};

/* ---- same run or another ---- */

static int is_inside(const char *path, const char *dir)
{
	char real[PATH_MAX], real_dir[PATH_MAX];
	size_t len;

	if (!realpath(path, real) || !realpath(dir, real_dir))
		return 0;
	len = strlen(real_dir);
	return !strncmp(real, real_dir, len) && real[len] == '/';
}

static int holds_run(const char *dir, char **names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (checkpoint_step_of(names[i]) >= 0)
			return 1;
	return file_is_in(dir, branch_file_name) || file_is_in(dir, "metrics.jsonl");
}

/* Old lines do not identify their run. But a line that began in this directory at exactly this step has no
 * earlier checkpoints there, so nothing can be mixed. */
static int is_same_run(const struct decision *d)
{
	int64_t common = d->in_force ? branch_common(d->resumed, d->in_force) : -1;

	if (is_inside(d->checkpoint, d->config->output_dir))
		return 1;
	return branch_is_old(d->resumed) ? common == d->step : common >= 0;
}

static int check_same_run(const struct decision *d)
{
	if (is_same_run(d))
		return 0;
	return err_set(ERR_INPUT,
	        "output_dir=%s holds another run than resume_from_checkpoint=%s; choose another output_dir",
	        d->config->output_dir, d->checkpoint);
}

/* ---- abandoned files ---- */

static int abandon(struct run_branch *b, const char *name)
{
	char **grown = mem_resize(b->abandoned, (size_t)b->abandoned_count + 1, sizeof(*grown));

	if (!grown)
		return ERR_NOMEM;
	b->abandoned = grown;
	grown[b->abandoned_count] = mem_strdup(name);
	return grown[b->abandoned_count++] ? 0 : ERR_NOMEM;
}

/* Reads line and step of a checkpoint. *line is NULL if it cannot be read. */
static int line_of(json_t **line, int64_t *step, const char *path)
{
	struct manifest *m = NULL;
	int err = manifest_read(&m, path);

	*line = NULL;
	if (!err) {
		*step = m->step;
		err = branch_of_training(line, m->training, path);
	}
	manifest_free(m);
	return err == ERR_NOMEM || err == ERR_IO ? err : 0;
}

/* Abandons a checkpoint that is not in the past of the resumed one. If it is on the current line, the run
 * begins a branch. A checkpoint that cannot be read, or has another step, is abandoned only if the step of
 * its name is still to come. */
static int judge(struct run_branch *b, const struct decision *d, const char *name)
{
	char *path = file_join(d->config->output_dir, name);
	int64_t named = checkpoint_step_of(name), step = named;
	json_t *line = NULL;
	int err = path ? line_of(&line, &step, path) : ERR_NOMEM, is_past;

	if (err)
		goto out;
	is_past = step <= d->step && (!line || branch_common(line, d->resumed) >= step);
	if (!is_past)
		b->is_fork |= line && branch_common(line, d->in_force) >= step;
	if (!is_past || named > d->step)
		err = abandon(b, name);
out:
	json_decref(line);
	mem_free(path);
	return err;
}

/* Beside a checkpoint in abandoned-N are the metrics of its whole past. */
static int find_metrics(struct run_branch *b, const struct decision *d)
{
	char *parent = NULL, *name = NULL, *grandparent = NULL, *dir = NULL, *path = NULL;
	int err = temp_dir_place(&parent, &name, d->checkpoint);

	if (!err)
		err = temp_dir_split(&grandparent, &dir, parent);
	if (!err && !strncmp(dir, ABANDONED, strlen(ABANDONED))) {
		path = file_join(parent, "metrics.jsonl");
		err = path ? 0 : ERR_NOMEM;
	}
	if (path && file_kind_of(path) == FILE_REGULAR) {
		b->metrics_from = path;
		path = NULL;
	}
	mem_free(path);
	mem_free(dir);
	mem_free(grandparent);
	mem_free(name);
	mem_free(parent);
	return err;
}

static int decide(struct run_branch *b, struct decision *d, char **names, size_t count)
{
	int64_t common;
	int err = 0;

	if (!holds_run(d->config->output_dir, names, count)) {
		b->metrics_steps = d->step;
		b->line = branch_fork(d->resumed, d->step);
		return b->line ? 0 : ERR_NOMEM;
	}
	err = check_same_run(d);
	if (!err && !d->in_force)
		d->in_force = json_incref(d->resumed);
	for (size_t i = 0; i < count && !err; i++)
		if (checkpoint_step_of(names[i]) >= 0)
			err = judge(b, d, names[i]);
	if (err)
		return err;
	common = branch_common(d->resumed, d->in_force);
	err = is_inside(d->checkpoint, d->config->output_dir) ? find_metrics(b, d) : 0;
	if (err)
		return err;
	b->metrics_steps = b->metrics_from ? d->step : min_i64(common, d->step);
	b->is_fork |= common < d->step || d->step < branch_begin(d->in_force);
	for (const char *const *result = run_dir_results; *result && b->is_fork && !err; result++)
		if (file_is_in(d->config->output_dir, *result))
			err = abandon(b, *result); /* of the abandoned steps */
	b->line = b->is_fork ? branch_fork(d->resumed, d->step) : json_incref(d->in_force);
	return err ? err : b->line ? 0 : ERR_NOMEM;
}

int run_branch_open(
        struct run_branch *b, const struct config *c, const char *checkpoint, const json_t *training)
{
	struct decision d = {.config = c, .checkpoint = checkpoint};
	char **names = NULL;
	size_t count = 0;
	int err;

	*b = (struct run_branch){.metrics_steps = -1, .process = temp_dir_id()};
	if (!checkpoint) {
		b->line = branch_new();
		return b->line ? 0 : ERR_NOMEM;
	}
	err = json_get_int(training, checkpoint, "step", &d.step);
	err = err < 0 ? err : branch_of_training(&d.resumed, training, checkpoint);
	if (!err)
		err = branch_read(&d.in_force, c->output_dir);
	if (!err && file_kind_of(c->output_dir) == FILE_DIR)
		err = file_list_dir(c->output_dir, &names, &count);
	if (!err)
		err = decide(b, &d, names, count);
	json_decref(d.resumed);
	json_decref(d.in_force);
	file_list_free(names, count);
	return err;
}

/* ---- writing the branch ---- */

/* Whether something was moved there; a run that was killed before that leaves copies of files only. */
static int is_used(const char *dir)
{
	char **names = NULL;
	size_t count = 0;
	int used = file_list_dir(dir, &names, &count) != 0;

	for (size_t i = 0; i < count && !used; i++) {
		char *path = file_join(dir, names[i]);

		used = !path || file_kind_of(path) != FILE_REGULAR;
		mem_free(path);
	}
	file_list_free(names, count);
	return used;
}

static char *free_dir(const char *output_dir)
{
	for (int n = 1;; n++) {
		char *dir = mem_printf("%s/" ABANDONED "%d", output_dir, n);

		if (!dir || file_kind_of(dir) == FILE_NONE ||
		        (file_kind_of(dir) == FILE_DIR && !is_used(dir)))
			return dir;
		mem_free(dir);
	}
}

/* Copies a file that describes the abandoned steps, such as their metrics and settings. */
static int copy_into(const char *dir, const char *output_dir, const char *name)
{
	char *from = file_join(output_dir, name), *to = file_join(dir, name);
	int err = from && to ? 0 : ERR_NOMEM;

	if (!err && file_kind_of(from) == FILE_REGULAR)
		err = file_copy(from, to);
	mem_free(from);
	mem_free(to);
	return err;
}

static int move_into(const char *dir, const char *output_dir, const char *name)
{
	char *from = file_join(output_dir, name), *to = file_join(dir, name);
	int err = from && to ? file_rename(from, to) : ERR_NOMEM;

	mem_free(from);
	mem_free(to);
	return err;
}

static void tell(const struct run_branch *b, const char *dir)
{
	struct str names = {0};

	for (int i = 0; i < b->abandoned_count; i++)
		str_printf(&names, "%s%s", i ? ", " : "", b->abandoned[i]);
	log_warn(
	        "moved to %s, because this run starts from an older checkpoint: %s; to return to one, resume "
	        "it by its path",
	        dir, names.data ? names.data : "");
	str_free(&names);
}

static int move_abandoned(const struct run_branch *b, const char *output_dir)
{
	char *dir = free_dir(output_dir);
	int err = dir ? file_make_dir(dir) : ERR_NOMEM;

	if (!err)
		run_dir_clean(dir);
	if (!err)
		err = copy_into(dir, output_dir, "metrics.jsonl");
	if (!err)
		err = copy_into(dir, output_dir, "config.yaml");
	if (!err) /* without it, who returns there could not go on */
		err = copy_into(dir, output_dir, REFERENCE_NAME);
	for (int i = b->abandoned_count - 1; i >= 0 && !err; i--) /* newest first */
		err = move_into(dir, output_dir, b->abandoned[i]);
	if (!err)
		err = file_sync_dir(dir);
	if (!err)
		err = file_sync_dir(output_dir);
	if (!err)
		tell(b, dir);
	mem_free(dir);
	return err;
}

static int bring_metrics(const struct run_branch *b, const char *output_dir)
{
	char *to = file_join(output_dir, "metrics.jsonl");
	int err = to ? file_copy(b->metrics_from, to) : ERR_NOMEM;

	mem_free(to);
	return err;
}

int run_branch_begin(const struct run_branch *b, const struct config *c)
{
	int err = branch_write(b->line, b->process, c->output_dir);

	if (!err && b->abandoned_count)
		err = move_abandoned(b, c->output_dir);
	if (!err && b->metrics_from)
		err = bring_metrics(b, c->output_dir);
	return err;
}

void run_branch_close(struct run_branch *b)
{
	json_decref(b->line);
	mem_free(b->metrics_from);
	file_list_free(b->abandoned, (size_t)b->abandoned_count);
	*b = (struct run_branch){0};
}
