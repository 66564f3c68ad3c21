/* The output directory: checked, made, emptied. */
#include "train/run_dir.h"

#include "train/metrics.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/save.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Whether a name in an output directory is a run's: what overwriting removes. */
static int is_ours(const char *name)
{
	static const char *const names[] = {
	        "config.yaml", "metrics.jsonl", "model", "report.html", "trace.json", "latest"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(name, names[i]))
			return 1;
	return checkpoint_step_of(name) >= 0 || !strncmp(name, "model.tmp", 9);
}

/* Whether `path` lies in one of the parts of output_dir that overwriting removes. */
static int would_remove(const struct config *c, const char *path)
{
	char dir[PATH_MAX], file[PATH_MAX];
	const char *rest, *end;
	char name[256];
	size_t len;

	if (!path || !realpath(c->output_dir, dir) || !realpath(path, file))
		return 0;
	len = strlen(dir);
	if (strncmp(dir, file, len) || file[len] != '/')
		return 0;
	rest = file + len + 1;
	end = strchrnul(rest, '/');
	if ((size_t)(end - rest) >= sizeof(name))
		return 0;
	memcpy(name, rest, (size_t)(end - rest));
	name[end - rest] = 0;
	return is_ours(name);
}

static int check_overwrite(const struct config *c)
{
	const struct {
		const char *key, *path;
	} reads[] = {{"model", c->model}, {"data", c->data}, {"eval_data", c->eval_data},
	        {"tokenizer", c->tokenizer}, {"checkpoint", c->checkpoint}};

	for (size_t i = 0; i < sizeof(reads) / sizeof(*reads); i++)
		if (would_remove(c, reads[i].path))
			return err_set(ERR_INPUT,
			        "overwrite_output_dir would remove %s=%s, which this run reads; choose "
			        "another output_dir",
			        reads[i].key, reads[i].path);
	return 0;
}

/* export and init put a model in the place of the whole directory: of one that holds a model and nothing
 * else. A run with its checkpoints is no such thing, and neither is somebody's home. */
static int check_replace(const struct config *c, char **names, size_t count)
{
	const char *other = NULL;
	int has_config = 0;

	for (size_t i = 0; i < count; i++) {
		char *path = file_join(c->output_dir, names[i]);

		if (!path)
			return ERR_NOMEM;
		has_config |= !strcmp(names[i], "config.json");
		if (file_kind_of(path) != FILE_REGULAR)
			other = names[i];
		mem_free(path);
	}
	if (has_config && !other)
		return 0;
	return err_set(ERR_INPUT,
	        "output_dir=%s contains %s and is not a model directory; overwriting would remove all of it; "
	        "choose another",
	        c->output_dir, other ? other : names[0]);
}

static int is_busy(const struct config *c)
{
	char *path = run_dir_metrics(c);
	int busy = path && metrics_is_busy(path);

	mem_free(path);
	return busy;
}

int run_dir_check(const struct config *c)
{
	enum file_kind kind = file_kind_of(c->output_dir);
	char **names = NULL;
	size_t count = 0;
	int err;

	if (kind == FILE_NONE)
		return 0;
	if (kind != FILE_DIR)
		return err_set(ERR_INPUT, "output_dir=%s is a file; expected a directory", c->output_dir);
	err = file_list_dir(c->output_dir, &names, &count);
	if (err)
		return err_note(err, "output_dir");
	if (count && c->verb != VERB_TRAIN && c->overwrite_output_dir)
		err = check_replace(c, names, count);
	file_list_free(names, count);
	if (err)
		return err;
	if (c->verb == VERB_TRAIN && is_busy(c))
		return err_set(ERR_INPUT,
		        "output_dir=%s: another run is writing there; wait or choose another", c->output_dir);
	if (!count || c->resume_from_checkpoint)
		return 0;
	if (c->overwrite_output_dir)
		return check_overwrite(c);
	if (c->verb != VERB_TRAIN)
		return err_set(ERR_INPUT,
		        "output_dir=%s is not empty; choose another or set overwrite_output_dir=on to "
		        "replace its contents",
		        c->output_dir);
	return err_set(ERR_INPUT,
	        "output_dir=%s is not empty; set resume_from_checkpoint=auto to resume its newest "
	        "checkpoint, or overwrite_output_dir=on to replace it",
	        c->output_dir);
}

static int remove_ours(const char *dir)
{
	char **names = NULL;
	size_t count = 0;
	int err = file_list_dir(dir, &names, &count);

	for (size_t i = 0; i < count && !err; i++) {
		char *path;

		if (!is_ours(names[i]))
			continue;
		path = file_join(dir, names[i]);
		err = path ? file_remove_tree(path) : ERR_NOMEM;
		mem_free(path);
	}
	file_list_free(names, count);
	return err;
}

static int write_config(const struct config *c)
{
	char *path = file_join(c->output_dir, "config.yaml");
	struct str text = {0};
	int err = path ? 0 : ERR_NOMEM;

	config_write_yaml(&text, c);
	if (!err)
		err = str_check(&text);
	if (!err)
		err = file_write_all(path, text.data, text.len_bytes);
	str_free(&text);
	mem_free(path);
	return err;
}

int run_dir_open(const struct config *c)
{
	int err = file_make_dir(c->output_dir);

	if (!err && c->overwrite_output_dir)
		err = remove_ours(c->output_dir);
	if (!err)
		err = write_config(c);
	return err;
}

char *run_dir_metrics(const struct config *c)
{
	return file_join(c->output_dir, "metrics.jsonl");
}

char *run_dir_model(const struct config *c)
{
	return file_join(c->output_dir, "model");
}
