/* Finds the family of a config.json and opens a model from it. */
#include "model/families/open.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/families/families.h"
#include "model/families/text_part.h"

#include <string.h>

enum { CONFIG_MAX_BYTES = 16 << 20 };

#define FAMILY_ADDRESS(name) &family_##name,
static const struct model_family *const families[] = {FAMILY_LIST(FAMILY_ADDRESS)};
#undef FAMILY_ADDRESS

static int is_named(const char *const *names, const char *name)
{
	for (; names && *names; names++)
		if (!strcmp(*names, name))
			return 1;
	return 0;
}

const struct model_family *family_find(const char *model_type)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
		if (!strcmp(families[i]->model_type, model_type) ||
		        is_named(families[i]->older_types, model_type))
			return families[i];
	return NULL;
}

/* Refuses a model_type, or NULL: none. */
static int type_refuse(const char *where, const char *type)
{
	struct str names = {0};
	int err;

	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
		str_printf(&names, "%s%s", i ? ", " : "", families[i]->model_type);
	err = str_check(&names);
	if (!err && type)
		err = err_set(ERR_UNSUPPORTED, "%s: model_type \"%.60s\" is not supported; supported: %s",
		        where, type, names.data);
	else if (!err)
		err = err_set(ERR_INPUT, "%s: model_type is missing; supported: %s", where, names.data);
	str_free(&names);
	return err;
}

int families_have_head(const char *name)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
		if (family_is_head(families[i], name))
			return 1;
	return 0;
}

/* Reads the dtype that config.json states for the files. The files replace it when they are read. */
static void read_storage(struct model *model, const json_t *config)
{
	const char *dtype = json_string_value(json_object_get(config, "dtype"));

	if (!dtype)
		dtype = json_string_value(json_object_get(config, "torch_dtype"));
	if (!dtype || !format_of_torch_name(&model->storage, dtype))
		model->storage = FORMAT_COUNT;
	for (int t = 0; t < model->tensor_count && model->storage != FORMAT_COUNT; t++)
		model->tensors[t].storage = model->storage;
}

static int open_text(struct model **model, const json_t *config, const char *where)
{
	const struct model_family *family;
	struct model_config read;
	const char *type = NULL;
	int err = json_get_str(config, where, "model_type", &type);

	if (err < 0)
		return err;
	if (!err)
		return type_refuse(where, NULL);
	family = family_find(type);
	if (!family)
		return type_refuse(where, type);
	if (strcmp(family->model_type, type) != 0)
		log_warn("%s: model_type \"%s\" is an older name of \"%s\"; transformers loads the result "
		         "only with "
		         "the model's own code",
		        where, type, family->model_type);
	err = model_config_read(&read, family, config, where);
	if (!err)
		err = model_build(model, family, &read);
	if (!err)
		read_storage(*model, config);
	return err;
}

int model_open(struct model **model, const json_t *config, const char *where)
{
	const char *whole = NULL;
	char inside[512];
	json_t *text = NULL;
	int err;

	*model = NULL;
	if (!json_is_object(config))
		return err_set(ERR_INPUT, "%s: not an object", where);
	err = text_part_config(&text, &whole, config, where);
	snprintf(inside, sizeof(inside), "%s: text_config", where);
	if (!err)
		err = open_text(
		        model, text, whole && json_object_get(config, "text_config") ? inside : where);
	if (!err) {
		(*model)->whole = whole;
		err = text_part_replaced((*model)->replaced, whole, config, where);
	}
	if (err) {
		model_close(*model);
		*model = NULL;
	}
	json_decref(text);
	return err == ERR_RANGE ? err_note(ERR_INPUT, "%s", where) : err;
}

static int read_generation_config(struct model *model, const char *dir)
{
	json_t *config = NULL;
	char *file = file_join(dir, "generation_config.json");
	struct config_reader r = {.where = file};

	if (!file)
		return ERR_NOMEM;
	if (file_kind_of(file) != FILE_NONE)
		r.err = json_read_file(&config, file, CONFIG_MAX_BYTES);
	r.object = config;
	if (!r.err && config_has(&r, "eos_token_id"))
		config_read_eos(&r, &model->config);
	json_decref(config);
	mem_free(file);
	return r.err;
}

int model_open_path(struct model **model, const char *path)
{
	json_t *config = NULL;
	int is_dir = file_kind_of(path) == FILE_DIR;
	char *file = is_dir ? file_join(path, "config.json") : mem_strdup(path);
	int err = file ? json_read_python(&config, file, CONFIG_MAX_BYTES) : ERR_NOMEM;

	*model = NULL;
	if (!err)
		err = model_open(model, config, file);
	if (!err && is_dir)
		err = read_generation_config(*model, path);
	if (err) {
		model_close(*model);
		*model = NULL;
	}
	json_decref(config);
	mem_free(file);
	return err;
}
