/* ferry verify: compares every byte of one or all checkpoints of a run with its checksums. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "checkpoint/file/temp_dir.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "train/reference.h"
#include "train/run_dir/run_dir.h"

#include <inttypes.h>
#include <string.h>

struct verifying {
	const struct config *c;
	json_t *rows;   /* one per checkpoint */
	json_t *damage; /* of the current checkpoint */
	int damaged_count;
	struct err first;
};

static void damaged(void *context, const char *file, const char *text)
{
	struct verifying *v = context;

	json_array_append_new(v->damage, json_pack("{s:s, s:o}", "file", file, "error", json_of_text(text)));
}

static void say_damaged(const struct verifying *v, const char *path)
{
	const json_t *one;
	size_t i;

	json_array_foreach(v->damage, i, one)
	        cli_say(v->c, "  %s\n", json_string_value(json_object_get(one, "error")));
	cli_say(v->c, "%s: damaged\n", path);
}

/* Adds step and size from the manifest. */
static void describe(json_t *row, const struct manifest *m, int64_t *bytes)
{
	*bytes = 0;
	for (int i = 0; i < m->file_count; i++)
		*bytes += m->files[i].len_bytes;
	json_object_set_new(row, "step", json_integer(m->step));
	json_object_set_new(row, "files", json_integer(m->file_count));
	json_object_set_new(row, "bytes", json_integer(*bytes));
}

/* Compares the file beside the checkpoint that resuming would read. A checkpoint that was copied without it
 * is whole. */
static int verify_reference(struct verifying *v, const struct manifest *m, const char *path)
{
	char *parent = NULL, *name = NULL;
	int err = temp_dir_split(&parent, &name, path);

	if (!err && (err = reference_verify(parent, m->training)) == ERR_INPUT) {
		if (!file_is_in(parent, REFERENCE_NAME) && !run_dir_is_run(parent)) {
			log_warn("%s", err_text());
			err = 0;
		} else {
			damaged(v, REFERENCE_NAME, err_text());
		}
	}
	mem_free(parent);
	mem_free(name);
	return err;
}

/* in_run: the checkpoint was found in a run's directory, and the run may remove it meanwhile. */
static int verify_one(struct verifying *v, const char *path, int in_run)
{
	json_t *row = json_pack("{s:o}", "path", json_of_text(path));
	struct manifest *m = NULL;
	struct str text = {0};
	int64_t bytes = 0;
	int err;

	v->damage = json_array();
	if (!row || !v->damage)
		return err_set(ERR_NOMEM, "out of memory for a report");
	err = manifest_read(&m, path);
	if (!err) {
		describe(row, m, &bytes);
		err = checkpoint_verify(path, damaged, v);
		err = err ? err : verify_reference(v, m, path);
	} else {
		damaged(v, manifest_name, err_text());
	}
	if (err && in_run && file_kind_of(path) == FILE_NONE) { /* its run rotated it away meanwhile */
		log_info("%s was removed by its run while it was read", path);
		manifest_free(m);
		json_decref(row);
		json_decref(v->damage);
		return 0;
	}
	quantity_bytes(&text, bytes);
	if (!err && !v->c->json)
		cli_say(v->c, "%s: step %" PRId64 ", %d files, %s: all bytes match their checksums\n", path,
		        m->step, m->file_count, text.data ? text.data : "");
	if (err && !v->c->json)
		say_damaged(v, path);
	str_free(&text);
	manifest_free(m);
	json_object_set_new(row, "ok", json_boolean(!err));
	json_object_set_new(row, "damage", v->damage);
	json_array_append_new(v->rows, row);
	v->damaged_count += err != 0;
	err_take(&v->first, err);
	return err == ERR_INPUT ? 0 : err;
}

/* Verifies the checkpoints of an output_dir in order. */
static int verify_all(struct verifying *v, const char *dir)
{
	char **names = NULL;
	size_t count = 0;
	int err = file_list_dir(dir, &names, &count), found = 0;

	for (size_t i = 0; i < count && !err; i++) {
		char *path;

		if (checkpoint_step_of(names[i]) < 0)
			continue;
		found = 1;
		path = file_join(dir, names[i]);
		err = path ? verify_one(v, path, 1) : ERR_NOMEM;
		mem_free(path);
	}
	file_list_free(names, count);
	if (!err && !found)
		return err_set(ERR_INPUT,
		        "%s is not a ferry checkpoint and contains none; other files have no checksums "
		        "(ferry inspect checks their layout)",
		        dir);
	return err;
}

static int is_checkpoint(const char *path)
{
	const char *slash = strrchr(path, '/');

	return file_is_in(path, manifest_name) || checkpoint_step_of(slash ? slash + 1 : path) >= 0;
}

int cli_verify(const struct config *c)
{
	struct verifying v = {.c = c, .rows = json_array()};
	json_t *object;
	int err;

	if (!v.rows)
		return err_set(ERR_NOMEM, "out of memory for a report");
	if (file_kind_of(c->path) != FILE_DIR)
		err = file_refuse_no_dir(NULL, c->path, "a checkpoint directory");
	else
		err = is_checkpoint(c->path) ? verify_one(&v, c->path, 0) : verify_all(&v, c->path);
	if (!err && c->json) {
		object = json_pack("{s:b, s:O}", "ok", !v.damaged_count, "checkpoints", v.rows);
		err = object ? cli_print_json(object) : err_set(ERR_NOMEM, "out of memory for JSON");
		json_decref(object);
	}
	json_decref(v.rows);
	return err ? err : err_give(&v.first);
}
