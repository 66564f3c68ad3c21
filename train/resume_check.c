/* Compares a run with the checkpoint that it resumes. */
#include "train/inputs/chat_date.h"
#include "train/train.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/table.h"
#include "model/compare.h"
#include "model/families/open.h"

#include <limits.h>
#include <stdlib.h>
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

/* Gives the checkpoint's model the head that its run had. */
static int head_give(struct model *then, const struct trainer *t, const char *dir)
{
	const struct model *now = t->session.model;
	struct sentence_dir sentence;
	int rc = 0;

	if (t->config->objective && !then->config.is_classifier)
		return model_classify(then, now->config.is_classifier, now->config.labels);
	if (t->config->embedding_loss)
		rc = sentence_dir_read(&sentence, dir, then->config.C);
	if (!rc && t->config->embedding_loss)
		rc = model_pool(then, sentence.is_there ? &sentence.pooling : &now->config.pooling);
	if (t->config->embedding_loss)
		sentence_dir_free(&sentence);
	return rc;
}

static int compare(const struct trainer *t, const char *dir, const char *path)
{
	struct str what = {0};
	struct model *then = NULL;
	int rc = model_open_path(&then, path);

	if (!rc)
		rc = head_give(then, t, dir);
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
	if (path && file_kind_of(path) == FILE_REGULAR &&
	        (t->config->embedding_loss || !is_same_file(t, path)))
		rc = compare(t, dir, path);
	mem_free(dir);
	mem_free(path);
	return rc;
}

/* ---- settings ---- */

/* Keys that a checkpoint answers: a change of them is without effect. */
static const char settled[] = "model init_weights lora_adapter";

static const char embedders[] = "embedders and classifiers"; /* a group of keys */

/* Keys that make the rows or their order; paths are left out, as the same file may have another one. */
static int makes_rows(const struct config_key *key)
{
	if (config_name_in(key->name,
	            "seed batch_sampler multi_dataset_batch_sampler data_keys query_prompt document_prompt"))
		return 1;
	if (key->verbs >> VERB_TRAIN & 1 && !strcmp(key->group, embedders) &&
	        !strncmp(key->name, "field_", 6))
		return 1;
	return key->verbs >> VERB_TRAIN & 1 && !strcmp(key->group, "text") && key->path == CONFIG_PATH_NONE &&
	       !config_name_in(key->name, "data_memory eval_data_split");
}

/* Keys whose change is refused by what it does, and then named. */
static const char named[] = "freeze trainable eval_data_split";

/* These and keys of three groups. Excludes keys that change no number, and those with their own message. */
static int is_setting(const struct config_key *key)
{
	static const char *const groups[] = {"optimizer", "numbers", embedders};
	static const char except[] =
	        "optimizer_state nonfinite_limit export_dtype deterministic preference_reference";

	if (makes_rows(key) || config_name_in(key->name, settled) || config_name_in(key->name, named))
		return 1;
	for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
		if (!strcmp(key->group, groups[i]))
			return key->verbs >> VERB_TRAIN & 1 && !config_name_in(key->name, except);
	return 0;
}

/* The key's value; of a path its real one, since a run may name it by several. */
static const char *setting_of(char real[PATH_MAX], const struct trainer *t, const struct config_key *key)
{
	const char *text = config_text(t->config, key->name);

	return key->path != CONFIG_PATH_NONE && realpath(text, real) ? real : text;
}

json_t *train_settings(const struct trainer *t)
{
	json_t *settings = json_object();
	char real[PATH_MAX];

	for (int i = 0; i < config_key_count && settings; i++) {
		const struct config_key *key = &config_keys[i];

		if (is_setting(key) &&
		        json_object_set_new(settings, key->name, json_of_text(setting_of(real, t, key)))) {
			json_decref(settings);
			return NULL;
		}
	}
	return settings;
}

/* Runs whose template writes no date have none. */
static int is_no_date(const struct config_key *key, const char *value)
{
	return !*value && !strcmp(key->name, "chat_template_date");
}

/* What the checkpoint had; NULL: the same, or it does not say. */
static const char *other_value(const struct trainer *t, const struct config_key *key)
{
	const json_t *settings = json_object_get(t->resumed, "settings");
	const char *then = json_string_value(json_object_get(settings, key->name));
	char real[PATH_MAX];
	const char *now = is_setting(key) ? setting_of(real, t, key) : then;

	return then && strcmp(then, now) && !is_no_date(key, then) && !is_no_date(key, now) ? then : NULL;
}

static const char *shown(const char *value)
{
	return *value ? value : "not set";
}

/* Appends " KEY=VALUE" to what to set again, or " KEY" to what the run did not have. */
static void add_remedy(struct str *set, struct str *removed, const char *key, const char *then)
{
	if (*then)
		str_printf(set, "%s %s=%s", set->len_bytes ? "" : "set", key, then);
	else
		str_printf(removed, "%s %s", removed->len_bytes ? "" : "remove", key);
}

/* ---- adapters ---- */

/* The value of PEFT's key as ferry's key has it: a text, a list of texts or numbers, or JSON. */
static int adapter_value(struct str *out, const json_t *adapter, const char *key)
{
	const json_t *value = json_object_get(adapter, key), *item;
	char *text = NULL;
	size_t i;
	int rc = 0;

	if (json_is_string(value))
		str_add(out, json_string_value(value));
	json_array_foreach(value, i, item)
	{
		str_add(out, i ? "," : "");
		if (json_is_string(item))
			str_add(out, json_string_value(item));
		else
			str_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(item));
	}
	if (value && !json_is_null(value) && !json_is_string(value) && !json_is_array(value)) {
		rc = json_write(&text, value, JSON_COMPACT | JSON_ENCODE_ANY);
		str_add(out, text ? text : "");
		mem_free(text);
	}
	return rc ? rc : str_check(out);
}

static int refuse_key(
        const struct trainer *t, const char *key, const char *then, const char *now, const char *what)
{
	struct str remedy = {0};
	int rc;

	add_remedy(&remedy, &remedy, key, then);
	rc = str_check(&remedy);
	if (!rc)
		rc = err_set(ERR_INPUT,
		        "%s: %s was %s in this run and is %s, so %s; %s, or begin a new run with another "
		        "output_dir",
		        checkpoint_path(t->checkpoint), key, shown(then), shown(now), what, remedy.data);
	str_free(&remedy);
	return rc;
}

/* Names freeze or trainable if one is another. */
static int explain_freeze(const struct trainer *t, struct err *why)
{
	static const char *const keys[] = {"freeze", "trainable"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		const char *then = other_value(t, config_key_find(keys[i]));

		if (then)
			return refuse_key(
			        t, keys[i], then, config_text(t->config, keys[i]), "it trains other tensors");
	}
	return err_give(why);
}

int train_explain_match(const struct trainer *t, int rc)
{
	static const char *const keys[][2] = {{"r", "lora_rank"}, {"target_modules", "lora_target_modules"},
	        {"target_parameters", "lora_target_parameters"}, {"exclude_modules", "lora_exclude_modules"},
	        {"layers_to_transform", "lora_layers"}, {"layers_pattern", "lora_layers_pattern"},
	        {"modules_to_save", "lora_modules_to_save"}, {"rank_pattern", "lora_rank_pattern"}};
	const json_t *then = json_object_get(t->resumed, "adapter"), *now = t->session.adapter.json;
	struct err why = {0};

	if (rc != ERR_INPUT)
		return rc;
	err_take(&why, rc);
	if (!json_is_object(then) && !now)
		return explain_freeze(t, &why);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		struct str old = {0}, new = {0};
		int differs;

		rc = json_is_object(then) ? adapter_value(&old, then, keys[i][0]) : 0;
		if (!rc && now)
			rc = adapter_value(&new, now, keys[i][0]);
		if (!json_is_object(then) || !now) /* without adapters, on either side */
			str_add(now ? &old : &new, "0");
		differs = !rc && strcmp(old.data ? old.data : "", new.data ? new.data : "") != 0;
		if (differs)
			rc = refuse_key(t, keys[i][1], old.data ? old.data : "", new.data ? new.data : "",
			        "its adapters are others");
		str_free(&old);
		str_free(&new);
		if (rc)
			return rc;
	}
	return explain_freeze(t, &why);
}

/* NULL or "": not set. */
static void tell(const char *key, int is_of_adapter, const char *now, const char *then)
{
	int was_set = then && *then;

	(is_of_adapter ? log_warn : log_info)("%s%s is %s from here on; %s%s", key,
	        is_of_adapter ? " of the adapters" : "", now ? shown(now) : "not set",
	        was_set ? "the checkpoint had " : "it was not set before", was_set ? then : "");
}

/* What the adapters compute. Another rank or other modules are other tensors, which are refused. */
static void tell_adapter(const struct trainer *t)
{
	static const char *const keys[][2] = {{"lora_alpha", "lora_alpha"}, {"use_rslora", "use_rslora"},
	        {"use_dora", "use_dora"}, {"alpha_pattern", "lora_alpha_pattern"}};
	const json_t *then = json_object_get(t->resumed, "adapter"), *now = t->session.adapter.json;

	for (size_t i = 0; then && now && i < sizeof(keys) / sizeof(*keys); i++) {
		const json_t *had = json_object_get(then, keys[i][0]),
		             *has = json_object_get(now, keys[i][0]);
		char *old = NULL, *new = NULL;

		if (json_equal(had, has) || (!had && !has))
			continue;
		if (!(had && json_write(&old, had, JSON_COMPACT | JSON_ENCODE_ANY)) &&
		        !(has && json_write(&new, has, JSON_COMPACT | JSON_ENCODE_ANY)))
			tell(keys[i][1], 1, new, old);
		mem_free(old);
		mem_free(new);
	}
}

void train_tell_settings(const struct trainer *t)
{
	tell_adapter(t);
	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		const char *then = other_value(t, key);

		/* with adapters another name of the same model is only a name */
		if (then && config_name_in(key->name, settled) &&
		        (!*t->session.base || strcmp(key->name, "model") != 0))
			log_warn("%s=%s is not what the run began with (%s); the weights come from the "
			         "checkpoint all the same",
			        config_where(t->config, key->name), config_said(t->config, key->name),
			        shown(then));
		else if (then)
			tell(key->name, 0, config_text(t->config, key->name), then);
	}
}

/* Other data are another run, which begins with the weights of this one. */
static int refuse_data(const struct trainer *t, const char *where)
{
	/* an older ferry kept no date */
	const char *date =
	        t->session.writes_date && !chat_date_of_checkpoint(t->resumed)
	                ? "the chat template writes the date, and the checkpoint does not say which: "
	                  "set chat_template_date=YYYY-MM-DD, the day on which the run began; or "
	                : "";
	char *model = file_join(t->output_dir, "model");
	int is_there = model && file_kind_of(model) == FILE_DIR;

	if (is_there)
		err_set(ERR_INPUT,
		        "%s was trained on other rows: %sdata=%s, the tokenizer or the chat template has "
		        "changed; "
		        "to go on with new data: model=%s output_dir=NEW",
		        where, date, t->config->data, model);
	else
		err_set(ERR_INPUT,
		        "%s was trained on other rows: %sdata=%s, the tokenizer or the chat template has "
		        "changed; "
		        "to go on with new data: ferry export %s output_dir=MODEL, then model=MODEL "
		        "output_dir=NEW",
		        where, date, t->config->data, where);
	mem_free(model);
	return ERR_INPUT;
}

int train_refuse_rows(const struct trainer *t, const char *where)
{
	struct str changed = {0}, set = {0}, removed = {0};
	int rc;

	for (int i = 0; i < config_key_count; i++) {
		const struct config_key *key = &config_keys[i];
		const char *then = makes_rows(key) ? other_value(t, key) : NULL;

		if (!then)
			continue;
		str_printf(&changed, "%s%s was %s and is %s", changed.len_bytes ? ", " : "", key->name,
		        shown(then), shown(config_text(t->config, key->name)));
		add_remedy(&set, &removed, key->name, then);
	}
	if (set.len_bytes && removed.len_bytes)
		str_add(&set, ", ");
	if (removed.len_bytes)
		str_add(&set, removed.data);
	rc = str_check(&changed) || str_check(&set) ? ERR_NOMEM : 0;
	if (!rc && changed.len_bytes)
		rc = err_set(ERR_INPUT, "%s was trained on other rows or in another order: %s; %s", where,
		        changed.data, set.data);
	else if (!rc && json_object_get(json_object_get(t->resumed, "settings"), "max_length"))
		rc = refuse_data(t, where);
	else if (!rc) /* older checkpoints do not say with what rows were made */
		rc = err_set(ERR_INPUT,
		        "%s was trained on other rows or in another order; data, max_length, packing, "
		        "shuffle, seed and rows per step must stay the same",
		        where);
	str_free(&changed);
	str_free(&set);
	str_free(&removed);
	return rc;
}
