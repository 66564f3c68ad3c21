/* Compares a run with the checkpoint that it resumes. */
#include "train/train.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/table.h"
#include "model/compare.h"
#include "model/families/open.h"

#include <string.h>

/* ---- the model ---- */

/* Whether the file's bytes are equal, the usual case. */
static int is_same_file(const struct trainer *t, const char *path)
{
	const struct side_file *now = side_files_find(&t->session.side, "config.json");
	char *then = NULL;
	size_t len = 0;
	int same = now && !file_read_all(path, 16 << 20, &then, &len) && len == now->len_bytes &&
	           !memcmp(then, now->data, len);

	mem_free(then);
	return same;
}

static int compare(const struct trainer *t, const char *path)
{
	struct str what = {0};
	struct model *then = NULL;
	int rc = model_open_path(&then, path);

	if (!rc && !model_compare(&what, &t->session.model->config, &then->config))
		rc = str_check(&what) ? ERR_NOMEM
		                      : err_set(ERR_INPUT,
		                                "model=%s has %s as in %s, so training would not go on from "
		                                "the same model; resume with the checkpoint's config.json, "
		                                "or start a new run from its exported model",
		                                t->config->model, what.data, path);
	str_free(&what);
	model_close(then);
	return rc;
}

int train_check_model(const struct trainer *t)
{
	char *dir = t->checkpoint ? checkpoint_model_dir(t->checkpoint) : NULL;
	char *path = dir ? file_join(dir, "config.json") : NULL;
	int rc = 0;

	if (t->checkpoint && !path)
		rc = ERR_NOMEM;
	if (path && file_kind_of(path) == FILE_REGULAR && !is_same_file(t, path))
		rc = compare(t, path);
	mem_free(dir);
	mem_free(path);
	return rc;
}

/* ---- settings ---- */

/* Keys that a checkpoint answers: a change of them is without effect. */
static const char settled[] = "model init_weights";

/* Keys of these groups, but for some that change no number, or of which a change is said elsewhere. */
static int is_setting(const struct config_key *key)
{
	static const char *const groups[] = {"optimizer", "numbers"};
	static const char except[] =
	        "optimizer_state nonfinite_limit export_dtype deterministic warmup_ratio";

	if (config_name_in(key->name, settled))
		return 1;
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		if (!strcmp(key->group, groups[i]))
			return key->verbs >> VERB_TRAIN & 1 && !config_name_in(key->name, except);
	return 0;
}

json_t *train_settings(const struct trainer *t)
{
	json_t *settings = json_object();

	for (int i = 0; i < config_key_count && settings; i++) {
		const struct config_key *key = &config_keys[i];

		if (is_setting(key) && json_object_set_new(settings, key->name,
		                               json_of_text(config_text(t->config, key->name)))) {
			json_decref(settings);
			return NULL;
		}
	}
	return settings;
}

void train_tell_settings(const struct trainer *t)
{
	const json_t *settings = json_object_get(t->resumed, "settings");

	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		const char *then = json_string_value(json_object_get(settings, key->name));
		const char *now = is_setting(key) ? config_text(t->config, key->name) : NULL;

		if (!then || !now || !strcmp(then, now))
			continue;
		if (config_name_in(key->name, settled))
			log_warn("%s=%s is not what the run began with (%s); the weights come from the "
			         "checkpoint all the same",
			        config_where(t->config, key->name), now, then);
		else
			log_info("%s is %s from here on; the checkpoint had %s", key->name, now, then);
	}
}
