/* Reads the ids that begin, end and pad a text from the files beside tokenizer.json. */
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/inside.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 64 << 20 };

/* Reads a token by name: "x" or {"content": "x", ..} under `key`, which loading made a token. */
static int read_name(const struct tokenizer *t, const struct beside *beside, const char *key, int32_t *id)
{
	const char *where;
	const json_t *value = beside_special(beside, key, &where);
	const char *name =
	        json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);

	if (!value)
		return 0;
	if (!name)
		return err_set(
		        ERR_INPUT, "%s: %s is neither a string nor an object with \"content\"", where, key);
	if (*name && !tokenizer_find(t, id, name))
		return err_set(
		        ERR_INPUT, "%s: %s '%.80s' is not in the tokenizer's vocabulary", where, key, name);
	return 0;
}

/* Reads a token by id under `key`: a number, or the first of a list. */
static int read_id(const json_t *config, const char *key, const char *where, int32_t *id)
{
	const json_t *value = json_object_get(config, key);

	if (json_is_array(value))
		value = json_array_get(value, 0);
	if (!value || json_is_null(value) || *id >= 0)
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) >= INT32_MAX)
		return err_set(ERR_INPUT, "%s: %s is neither an id nor a list of ids", where, key);
	if (json_integer_value(value) >= 0) /* in some files -1 means none */
		*id = (int32_t)json_integer_value(value);
	return 0;
}

/* Reads the roles that are not set yet from one file. */
static int read_file(struct tokenizer *t, const json_t *config, const char *where)
{
	struct tokenizer_roles *roles = &t->roles;
	int rc = read_id(config, "eos_token_id", where, &roles->eos);

	if (rc == 0)
		rc = read_id(config, "bos_token_id", where, &roles->bos);
	if (rc == 0)
		rc = read_id(config, "pad_token_id", where, &roles->pad);
	return rc;
}

int tokenizer_load_roles(struct tokenizer *t, const struct beside *beside, const char *dir)
{
	static const char *const names[] = {"generation_config.json", "config.json"};
	const struct tokenizer_roles of_model = t->roles;
	int rc;

	t->roles = (struct tokenizer_roles){.bos = -1, .eos = -1, .pad = -1, .mask = -1};
	rc = read_name(t, beside, "eos_token", &t->roles.eos);
	if (rc == 0)
		rc = read_name(t, beside, "bos_token", &t->roles.bos);
	if (rc == 0)
		rc = read_name(t, beside, "pad_token", &t->roles.pad);
	if (rc == 0)
		rc = read_name(t, beside, "mask_token", &t->roles.mask);
	for (size_t i = 0; dir && rc == 0 && i < sizeof(names) / sizeof(names[0]); i++) {
		char *path = file_join(dir, names[i]);
		json_t *config = NULL;

		if (!path)
			return ERR_NOMEM;
		if (file_kind_of(path) != FILE_NONE) {
			rc = json_read_file(&config, path, CONFIG_BYTES_MAX);
			if (rc == 0)
				rc = read_file(t, config, path);
			json_decref(config);
		}
		mem_free(path);
	}
	if (t->roles.eos < 0)
		t->roles.eos = of_model.eos;
	if (t->roles.bos < 0)
		t->roles.bos = of_model.bos;
	return rc;
}
