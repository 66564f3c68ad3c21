/* Checks, makes and empties the output directory. */
#include "train/run_dir/run_dir.h"

#include "train/inputs/paths.h"
#include "train/run_dir/run_inputs.h"
#include "train/run_dir/run_note.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/branch.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/hf/result_dir.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save.h"
#include "data/source/sets.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char config_file_name[] = "config.yaml";

/* ---- existing files ---- */

/* Recognises ferry's config.yaml by the first line of config_write_yaml. */
static int is_our_config(const char *dir)
{
	static const char line[] = "# Resolved configuration. ";
	char *path = file_join(dir, config_file_name), begin[sizeof(line) - 1];
	int fd = path && file_kind_of(path) == FILE_REGULAR ? file_open_read(path, NULL) : -1, ours = 0;

	if (fd >= 0) {
		ours = !file_read_at(fd, path, begin, sizeof(begin), 0) &&
		       !memcmp(begin, line, sizeof(begin));
		file_abandon(fd, path);
	}
	mem_free(path);
	return ours;
}

int run_dir_is_run(const char *dir)
{
	json_t *line = NULL;
	int found = is_our_config(dir) || (!branch_read(&line, dir) && line);

	json_decref(line);
	return found;
}

const char *const run_dir_results[] = {"model", "adapter", NULL};

static int is_result(const char *name)
{
	for (const char *const *result = run_dir_results; *result; result++)
		if (!strcmp(*result, name))
			return 1;
	return 0;
}

/* The files that a run writes into its directory. */
static const char *const file_names[] = {config_file_name, branch_file_name, "metrics.jsonl", "trace.json",
        REFERENCE_NAME, RUN_NOTE_NAME, EVENTS_NAME};

void run_dir_clean(const char *dir)
{
	file_clean_parts(dir, file_names, sizeof(file_names) / sizeof(*file_names));
}

/* Whether a run writes a file of this name. The contents show whether ferry wrote it. */
static int is_reserved(const char *name)
{
	for (size_t i = 0; i < sizeof(file_names) / sizeof(*file_names); i++)
		if (!strcmp(name, file_names[i]))
			return 1;
	return is_result(name) || checkpoint_step_of(name) >= 0 ||
	       !strncmp(name, ABANDONED, strlen(ABANDONED));
}

/* Whether ferry wrote all of DIR/NAME. A link and its target belong to the user. */
static int is_ours(const char *dir, const char *name)
{
	char *path = file_join(dir, name), **names = NULL;
	size_t count = 0;
	int ours = path && is_reserved(name) && !file_is_link(path);

	if (ours && is_result(name))
		ours = file_kind_of(path) == FILE_DIR && !result_dir_check(path);
	else if (ours && checkpoint_step_of(name) >= 0)
		ours = file_is_in(path, manifest_name) && !checkpoint_check_own(path);
	else if (ours && file_kind_of(path) == FILE_DIR) {
		ours = !strncmp(name, ABANDONED, strlen(ABANDONED)) && !file_list_dir(path, &names, &count);
		for (size_t i = 0; i < count && ours; i++)
			ours = is_ours(path, names[i]);
	} else if (ours)
		ours = strcmp(name, config_file_name) ? run_dir_is_run(dir) : is_our_config(dir);
	file_list_free(names, count);
	mem_free(path);
	return ours;
}

/* Whether overwriting output_dir would remove `path`. */
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
	return is_ours(c->output_dir, name);
}

/* Says why a checkpoint or a model is not one that ferry may remove: write-protected, or with a foreign file.
 */
static int refuse_foreign(const char *dir, const char *name)
{
	char *path = file_join(dir, name);
	int err = 0;

	if (path && checkpoint_step_of(name) >= 0 && file_is_in(path, manifest_name))
		err = checkpoint_check_own(path);
	else if (path && is_result(name) && file_kind_of(path) == FILE_DIR)
		err = result_dir_check(path);
	mem_free(path);
	if (err)
		return err_reword(err, "%s; move it away or choose another output_dir", err_text());
	return err_set(ERR_INPUT,
	        "output_dir=%s contains %s, which ferry did not write, or not all of it; move it away or "
	        "choose another output_dir",
	        dir, name);
}

/* Refuses files that a run would overwrite and ferry did not write. Follows links. */
static int check_foreign(const struct config *c, char **names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		char *path = file_join(c->output_dir, names[i]);
		int is_link = path && file_is_link(path);

		mem_free(path);
		if (is_reserved(names[i]) && !is_link && !is_ours(c->output_dir, names[i]))
			return refuse_foreign(c->output_dir, names[i]);
	}
	return 0;
}

/* Whether overwriting would remove one of a list of data sets. */
static int would_remove_set(const struct config *c, const char *list)
{
	struct data_sets sets = {0};
	int found = 0;

	if (list && strchr(list, ',') && !data_sets_parse(&sets, list))
		for (int i = 0; i < sets.count; i++)
			found |= would_remove(c, sets.sets[i].path);
	data_sets_free(&sets);
	return found;
}

static int check_overwrite(const struct config *c, char **names, size_t count)
{
	const struct {
		const char *key, *path;
	} reads[] = {{"model", c->model}, {"data", c->data}, {"eval_data", c->eval_data},
	        {"tokenizer", c->tokenizer}, {"checkpoint", c->checkpoint}, {"lora_adapter", c->lora_adapter},
	        {"chat_template", c->chat_template}, {"dataset_info", c->dataset_info}};
	int err;

	for (size_t i = 0; i < sizeof(reads) / sizeof(*reads); i++)
		if (would_remove(c, reads[i].path) || would_remove_set(c, reads[i].path))
			return err_set(ERR_INPUT,
			        "overwrite_output_dir would remove %s=%s, which this run reads; choose "
			        "another output_dir",
			        reads[i].key, reads[i].path);
	err = run_inputs_check_apart(c);
	return err ? err : check_foreign(c, names, count);
}

/* Refuses a broken link model/ now, not when the result is ready. */
static int check_model_link(const struct config *c)
{
	char *path = run_dir_model(c->output_dir);
	int leads_nowhere = path && file_is_link(path) && file_kind_of(path) == FILE_NONE;

	mem_free(path);
	return leads_nowhere ? err_set(ERR_INPUT,
	                               "output_dir: %s/model is a broken symbolic link; remove it, or create "
	                               "its target",
	                               c->output_dir)
	                     : 0;
}

/* export and init replace the whole directory, so it may contain only a model. They refuse a run with its
 * checkpoints, or a home directory. */
static int check_replace(const struct config *c, char **names, size_t count)
{
	const char *other = NULL;
	int err = run_inputs_check(c, c->output_dir, "output_dir", c->output_dir);

	if (err)
		return err;
	for (size_t i = 0; i < count; i++) {
		char *path = file_join(c->output_dir, names[i]);

		if (!path)
			return ERR_NOMEM;
		if (!other && !result_dir_owns(path, names[i]))
			other = names[i];
		mem_free(path);
	}
	if (!other && file_is_in(c->output_dir, "config.json"))
		return 0;
	return err_set(ERR_INPUT,
	        "output_dir=%s contains %s and is not a model directory that ferry wrote; overwriting would "
	        "remove all of it; choose another",
	        c->output_dir, other ? other : names[0]);
}

/* Refuses a config.yaml in a run's directory that was moved or copied: its output_dir still has the old
 * name. */
static int check_moved(const struct config *c)
{
	const char *set_at = config_set_at(c, "output_dir");
	char *file = set_at ? mem_printf("%s", set_at) : NULL, *colon = file ? strrchr(file, ':') : NULL;
	char *slash, *dir = NULL, *there = NULL, *here = NULL;
	json_t *line = NULL;
	int err = 0;

	if (!colon)
		goto out;
	*colon = 0;
	slash = strrchr(file, '/');
	dir = slash ? mem_printf("%.*s", (int)(slash - file), file) : mem_printf(".");
	if (!dir || strcmp(slash ? slash + 1 : file, config_file_name) || branch_read(&line, dir) || !line)
		goto out;
	there = realpath(*dir ? dir : "/", NULL);
	here = realpath(c->output_dir, NULL);
	if (there && (!here || strcmp(there, here)))
		err = err_set(ERR_INPUT,
		        "%s has output_dir=%s, but its run is in %s now (moved or copied); set output_dir=%s "
		        "to go on there, or choose another directory",
		        file, c->output_dir, dir, dir);
out:
	json_decref(line);
	free(there);
	free(here);
	mem_free(dir);
	mem_free(file);
	return err;
}

/* Refuses an output_dir inside a folder of data, because ferry reads all files of such a folder. */
static int check_data(const struct config *c, const char *key, const char *list)
{
	char dir[PATH_MAX], folder[PATH_MAX];
	struct data_sets sets = {0};
	int err = 0;

	if (!list || !realpath(c->output_dir, dir) || data_sets_parse(&sets, list))
		goto out; /* reading it reports the error */
	for (int i = 0; i < sets.count && !err; i++) {
		size_t len = realpath(sets.sets[i].path, folder) ? strlen(folder) : 0;

		if (len && file_kind_of(folder) == FILE_DIR && !strncmp(dir, folder, len) &&
		        (!dir[len] || dir[len] == '/'))
			err = err_set(ERR_INPUT,
			        "output_dir=%s is inside %s=%s, so ferry would read the run's own files as "
			        "rows; choose another output_dir",
			        c->output_dir, key, sets.sets[i].path);
	}
out:
	data_sets_free(&sets);
	return err;
}

/* Reads the manifest, because other programs have files of that name too. */
static int is_checkpoint(const char *dir)
{
	struct manifest *m = NULL;
	int is_ferrys = file_is_in(dir, manifest_name) && !manifest_read(&m, dir);

	manifest_free(m);
	return is_ferrys;
}

/* Refuses an output_dir inside a checkpoint, because rotation would remove it. */
static int check_in_checkpoint(const struct config *c)
{
	char dir[PATH_MAX], *slash;
	char *at = mem_strdup(c->output_dir), *parent = NULL, *name = NULL;
	int err = at ? 0 : ERR_NOMEM;

	while (!err && !realpath(at, dir)) { /* it does not exist yet */
		err = temp_dir_split(&parent, &name, at);
		mem_free(at);
		mem_free(name);
		at = parent;
		if (!err && (!strcmp(at, "/") || !strcmp(at, ".")))
			break;
	}
	if (!err && realpath(at, dir))
		for (slash = dir + strlen(dir); !err && slash && slash != dir; slash = strrchr(dir, '/')) {
			*slash = 0;
			if (is_checkpoint(dir))
				err = err_set(ERR_INPUT,
				        "output_dir=%s is inside the checkpoint %s; choose another",
				        c->output_dir, dir);
		}
	mem_free(at);
	return err;
}

/* Refuses results of training in the place of what it reads. A result of this output_dir itself may be, as a
 * resumed run takes its weights from the checkpoint. */
static int check_results(const struct config *c)
{
	const char *const dirs[] = {c->output_dir, c->save_fallback_dir};
	int err = 0;

	for (const char *const *result = run_dir_results; *result; result++)
		for (int i = 0; i < 2 && !err; i++) {
			char *path = dirs[i] ? file_join(dirs[i], *result) : NULL;

			if (path && (i || file_is_link(path)))
				err = run_inputs_check(
				        c, path, i ? "save_fallback_dir" : "output_dir", dirs[i]);
			mem_free(path);
		}
	return err;
}

/* Where nothing says what to do with what stands there. */
static int check_unused(const struct config *c, char **names, size_t count)
{
	int has_run = 0;

	if (!count)
		return 0;
	if (c->verb != VERB_TRAIN)
		return err_set(ERR_INPUT,
		        "output_dir=%s is not empty; choose another or set overwrite_output_dir=on to "
		        "replace its contents",
		        c->output_dir);
	for (size_t i = 0; i < count && !has_run; i++)
		has_run = is_ours(c->output_dir, names[i]);
	if (!has_run)
		return err_set(ERR_INPUT,
		        "output_dir=%s is not empty and holds no ferry run; choose another directory",
		        c->output_dir);
	return err_set(ERR_INPUT,
	        "output_dir=%s is not empty; set resume_from_checkpoint=auto to resume its newest "
	        "checkpoint, or overwrite_output_dir=on to replace it",
	        c->output_dir);
}

int run_dir_check(const struct config *c)
{
	enum file_kind kind = file_kind_of(c->output_dir);
	char **names = NULL;
	size_t count = 0;
	int err = check_in_checkpoint(c);

	if (!err && c->verb == VERB_TRAIN)
		err = check_moved(c);
	if (!err && c->verb == VERB_TRAIN)
		err = check_data(c, "data", c->data);
	if (!err && c->verb == VERB_TRAIN)
		err = check_data(c, "eval_data", c->eval_data);
	if (!err && c->verb == VERB_TRAIN)
		err = check_results(c);
	if (err)
		return err;
	if (kind == FILE_NONE)
		return 0;
	if (kind != FILE_DIR)
		return file_refuse_no_dir("output_dir", c->output_dir, "a directory");
	err = temp_dir_list(c->output_dir, &names, &count);
	if (err)
		return err_note(err, "output_dir");
	if (count && c->overwrite_output_dir && c->verb == VERB_TRAIN)
		err = check_overwrite(c, names, count);
	else if (count && c->overwrite_output_dir)
		err = check_replace(c, names, count);
	else if (c->resume_from_checkpoint && !run_dir_is_run(c->output_dir))
		err = check_foreign(c, names, count);
	if (!err && c->verb == VERB_TRAIN)
		err = check_model_link(c);
	if (!err && !c->resume_from_checkpoint && !c->overwrite_output_dir)
		err = check_unused(c, names, count);
	file_list_free(names, count);
	return err;
}

static int remove_one(const char *dir, const char *name)
{
	char *path = file_join(dir, name);
	int err = ERR_NOMEM;

	if (path) /* in one step, because half a directory would not be recognised */
		err = file_kind_of(path) == FILE_DIR ? temp_dir_remove(path, "step-")
		                                     : file_remove_tree(path);
	mem_free(path);
	return err;
}

/* Removes config.yaml last. It identifies the directory, so the same command works again if the run is killed
 * here. */
static int remove_ours(const char *dir)
{
	char **names = NULL;
	size_t count = 0;
	int err = temp_dir_clean(dir, "step-", TEMP_DIR_NUMBERED), removed = 0;

	for (const char *const *result = run_dir_results; *result && !err; result++)
		err = temp_dir_clean(dir, *result, TEMP_DIR_WHOLE);
	if (!err)
		err = file_list_dir(dir, &names, &count);
	for (size_t i = 0; i < count && !err; i++) {
		if (!strcmp(names[i], config_file_name) || !is_ours(dir, names[i]))
			continue;
		removed += checkpoint_step_of(names[i]) >= 0;
		err = remove_one(dir, names[i]);
	}
	if (!err && is_our_config(dir)) {
		log_info("%s: removed the run that was there, with %d checkpoint%s", dir, removed,
		        removed == 1 ? "" : "s");
		err = remove_one(dir, config_file_name);
	}
	file_list_free(names, count);
	return err;
}

int run_dir_write_config(const struct config *c, const char *dir, const char *output_dir)
{
	char *path = file_join(dir, config_file_name);
	struct config written = *c;
	struct str text = {0};
	int err = path ? 0 : ERR_NOMEM;

	written.output_dir = (char *)output_dir; /* only read */
	if (!err)
		err = paths_write_yaml(&text, &written);
	if (!err)
		err = file_write_all(path, text.data, text.len_bytes);
	str_free(&text);
	mem_free(path);
	return err;
}

int run_dir_open(const struct config *c, const struct run_branch *branch)
{
	int err = file_make_dir(c->output_dir);

	if (!err && c->overwrite_output_dir)
		err = remove_ours(c->output_dir);
	if (!err)
		err = run_branch_begin(branch, c);
	if (!err)
		err = run_dir_write_config(c, c->output_dir, c->output_dir);
	return err;
}

char *run_dir_metrics(const char *dir)
{
	return file_join(dir, "metrics.jsonl");
}

char *run_dir_model(const char *dir)
{
	return file_join(dir, "model");
}
