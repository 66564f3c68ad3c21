/* Reads and writes the modules of sentence-transformers. */
#include "checkpoint/hf/sentence_dir.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

#include <string.h>

enum { FILE_BYTES_MAX = 16 << 20 };

/* Names of pooling_mode, and of the flags of older files behind "pooling_mode_". */
static const struct {
	const char *name, *flag;
	enum pool_mode mode; /* NONE: not supported */
} modes[] = {{"cls", "cls_token", POOL_CLS}, {"lasttoken", "lasttoken", POOL_LASTTOKEN},
        {"mean", "mean_tokens", POOL_MEAN},
        {"mean_sqrt_len_tokens", "mean_sqrt_len_tokens", POOL_MEAN_SQRT_LEN},
        {"max", "max_tokens", POOL_NONE}, {"weightedmean", "weightedmean_tokens", POOL_NONE}};
enum { MODE_COUNT = sizeof(modes) / sizeof(*modes) };

const char *pool_mode_name(enum pool_mode mode)
{
	for (int i = 0; i < MODE_COUNT; i++)
		if (modes[i].mode == mode && mode != POOL_NONE)
			return modes[i].name;
	return "none";
}

/* ---- reading ---- */

static int object_read(json_t **object, const char *dir, const char *folder, const char *name)
{
	char *path = *folder ? mem_printf("%s/%s/%s", dir, folder, name) : file_join(dir, name);
	int rc = path ? 0 : ERR_NOMEM;

	*object = NULL;
	if (!rc && *folder && file_kind_of(path) == FILE_NONE) { /* in a checkpoint */
		mem_free(path);
		path = mem_printf("%s/%s" SIDE_FILE_FOLDER "%s", dir, folder, name);
		rc = path ? 0 : ERR_NOMEM;
	}
	if (!rc && file_kind_of(path) == FILE_REGULAR)
		rc = json_read_file(object, path, FILE_BYTES_MAX);
	if (!rc && *object && !json_is_object(*object))
		rc = err_set(ERR_INPUT, "%s: %s; expected an object", path, json_kind_name(*object));
	mem_free(path);
	return rc;
}

static int mode_find(struct sentence_dir *s, const char *where, int mode)
{
	if (modes[mode].mode == POOL_NONE)
		return err_set(ERR_UNSUPPORTED,
		        "%s: pooling %s is not supported yet; supported: cls, lasttoken, mean, "
		        "mean_sqrt_len_tokens",
		        where, modes[mode].name);
	if (s->pool != POOL_NONE && s->pool != modes[mode].mode)
		return err_set(ERR_UNSUPPORTED,
		        "%s: several poolings at once, %s and %s, are not supported yet", where,
		        pool_mode_name(s->pool), modes[mode].name);
	s->pool = modes[mode].mode;
	return 0;
}

/* A text such as "mean", or a flag for each mode. */
static int pooling_take(struct sentence_dir *s, const json_t *settings, const char *where)
{
	const json_t *mode = json_object_get(settings, "pooling_mode");
	int rc = 0;

	if (json_is_array(mode) && json_array_size(mode) == 1)
		mode = json_array_get(mode, 0);
	for (int i = 0; i < MODE_COUNT && !rc; i++) {
		char flag[64];

		snprintf(flag, sizeof(flag), "pooling_mode_%s", modes[i].flag);
		if ((json_is_string(mode) && !strcmp(json_string_value(mode), modes[i].name)) ||
		        (!mode && json_is_true(json_object_get(settings, flag))))
			rc = mode_find(s, where, i);
	}
	s->leaves_prompt_out = json_is_false(json_object_get(settings, "include_prompt"));
	if (!rc && s->pool == POOL_NONE)
		rc = err_set(ERR_UNSUPPORTED, "%s: no pooling that ferry knows", where);
	return rc;
}

static int pooling_read(struct sentence_dir *s, const char *dir, const char *folder)
{
	char *where = mem_printf("%s/%s/config.json", dir, folder);
	json_t *settings = NULL;
	int rc = where ? object_read(&settings, dir, folder, "config.json") : ERR_NOMEM;

	if (!rc && s->pool != POOL_NONE)
		rc = err_set(ERR_UNSUPPORTED, "%s: a second pooling is not supported", where);
	if (!rc && !settings)
		rc = err_set(ERR_INPUT, "%s is missing, but modules.json names it", where);
	if (!rc)
		rc = pooling_take(s, settings, where);
	json_decref(settings);
	mem_free(where);
	return rc;
}

static int module_read(struct sentence_dir *s, const char *dir, const json_t *module, size_t place)
{
	const char *type = json_string_value(json_object_get(module, "type")), *kind,
	           *folder = json_string_value(json_object_get(module, "path"));

	if (!type || !folder)
		return err_set(
		        ERR_INPUT, "%s/modules.json: module %zu lacks \"type\" or \"path\"", dir, place);
	kind = strrchr(type, '.') ? strrchr(type, '.') + 1 : type;
	if (place == 0 && !strcmp(kind, "Transformer") && !*folder)
		return 0;
	if (place == 0)
		return err_set(ERR_UNSUPPORTED,
		        "%s/modules.json: the first module is %s in \"%s\"; ferry reads a Transformer at the "
		        "top",
		        dir, type, folder);
	if (!strcmp(kind, "Pooling"))
		return pooling_read(s, dir, folder);
	if (!strcmp(kind, "Normalize") && s->pool != POOL_NONE) {
		s->normalizes = 1;
		return 0;
	}
	return err_set(ERR_UNSUPPORTED,
	        "%s/modules.json: module %s is not supported yet; supported: Transformer, Pooling, Normalize",
	        dir, type);
}

static int modules_read(struct sentence_dir *s, const char *dir)
{
	char *path = file_join(dir, "modules.json");
	json_t *list = NULL;
	int rc = path ? 0 : ERR_NOMEM;

	if (!rc && file_kind_of(path) == FILE_REGULAR) {
		rc = json_read_file(&list, path, FILE_BYTES_MAX);
		s->is_there = 1;
		if (!rc && !json_is_array(list))
			rc = err_set(
			        ERR_INPUT, "%s: %s; expected a list of modules", path, json_kind_name(list));
		for (size_t i = 0; !rc && i < json_array_size(list); i++)
			rc = module_read(s, dir, json_array_get(list, i), i);
		if (!rc && s->pool == POOL_NONE)
			rc = err_set(ERR_UNSUPPORTED, "%s: no module is a Pooling", path);
	}
	json_decref(list);
	mem_free(path);
	return rc;
}

static int settings_read(struct sentence_dir *s, const char *dir)
{
	json_t *settings = NULL, *sentence = NULL;
	int rc = object_read(&settings, dir, "", "config_sentence_transformers.json");

	if (!rc)
		rc = object_read(&sentence, dir, "", "sentence_bert_config.json");
	if (!rc && json_is_object(json_object_get(settings, "prompts")))
		s->prompts = json_incref(json_object_get(settings, "prompts"));
	if (!rc && json_is_integer(json_object_get(sentence, "max_seq_length")))
		s->max_tokens = json_integer_value(json_object_get(sentence, "max_seq_length"));
	json_decref(settings);
	json_decref(sentence);
	return rc;
}

int sentence_dir_read(struct sentence_dir *s, const char *dir)
{
	int rc;

	*s = (struct sentence_dir){0};
	rc = modules_read(s, dir);
	if (!rc && s->is_there)
		rc = settings_read(s, dir);
	if (rc)
		sentence_dir_free(s);
	return rc;
}

void sentence_dir_free(struct sentence_dir *s)
{
	json_decref(s->prompts);
	*s = (struct sentence_dir){0};
}

const char *sentence_dir_prompt(const struct sentence_dir *s, const char *name)
{
	return json_string_value(json_object_get(s->prompts, name));
}

/* ---- writing ---- */

static int put(struct side_files *side, const char *name, json_t *object)
{
	char *text = NULL;
	int rc = object ? json_write(&text, object, JSON_INDENT(2)) : ERR_NOMEM;

	json_decref(object);
	if (!rc)
		return side_files_put(side, name, text, strlen(text));
	mem_free(text);
	return rc;
}

/* The older names and settings, which every version reads. */
static json_t *modules_make(const struct sentence_dir *s)
{
	static const char *const kinds[] = {"Transformer", "Pooling", "Normalize"};
	json_t *list = json_array();

	for (int i = 0; list && i < 2 + s->normalizes; i++) {
		char path[32], type[64];

		snprintf(path, sizeof(path), "%d_%s", i, kinds[i]);
		snprintf(type, sizeof(type), "sentence_transformers.models.%s", kinds[i]);
		json_array_append_new(
		        list, json_pack("{s:i,s:o,s:s,s:s}", "idx", i, "name", json_sprintf("%d", i), "path",
		                      i ? path : "", "type", type));
	}
	return list;
}

static json_t *pooling_make(const struct sentence_dir *s, int64_t width)
{
	json_t *settings = json_pack("{s:I}", "word_embedding_dimension", (json_int_t)width);

	for (int i = 0; settings && i < MODE_COUNT; i++) {
		char flag[64];

		snprintf(flag, sizeof(flag), "pooling_mode_%s", modes[i].flag);
		json_object_set_new(settings, flag, json_boolean(modes[i].mode == s->pool));
	}
	json_object_set_new(settings, "include_prompt", json_true());
	return settings;
}

int sentence_dir_complete(struct side_files *side, const struct sentence_dir *s, int64_t width)
{
	int rc;

	if (side_files_find(side, "modules.json"))
		return 0;
	rc = put(side, "modules.json", modules_make(s));
	if (!rc)
		rc = put(side, "1_Pooling" SIDE_FILE_FOLDER "config.json", pooling_make(s, width));
	return rc ? rc
	          : put(side, "config_sentence_transformers.json",
	                    json_pack("{s:{},s:n,s:s}", "prompts", "default_prompt_name",
	                            "similarity_fn_name", "cosine"));
}
