/* Reads files beside tokenizer.json: ids that begin, end and pad a text, and add_prefix_space. */
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/inside.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 64 << 20 };

/* Reads a token by name: "x" or {"content": "x", ..} under `key`. If the key is absent or null, *id stays. */
static int read_name(
        const struct tokenizer *t, const json_t *config, const char *key, const char *where, int32_t *id)
{
	const json_t *value = json_object_get(config, key);
	const char *name =
	        json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
	int32_t found;

	if (!value || json_is_null(value) || *id >= 0)
		return 0;
	if (!name)
		return err_set(
		        ERR_INPUT, "%s: %s is neither a string nor an object with \"content\"", where, key);
	if (!tokenizer_find(t, &found, name))
		return err_set(ERR_INPUT, "%s: %s '%.80s' is not in the vocabulary of tokenizer.json", where,
		        key, name);
	*id = found;
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
	int rc = read_name(t, config, "eos_token", where, &roles->eos);

	if (rc == 0)
		rc = read_name(t, config, "bos_token", where, &roles->bos);
	if (rc == 0)
		rc = read_name(t, config, "pad_token", where, &roles->pad);
	if (rc == 0)
		rc = read_id(config, "eos_token_id", where, &roles->eos);
	if (rc == 0)
		rc = read_id(config, "bos_token_id", where, &roles->bos);
	if (rc == 0)
		rc = read_id(config, "pad_token_id", where, &roles->pad);
	return rc;
}

int tokenizer_load_roles(struct tokenizer *t, const char *dir)
{
	static const char *const names[] = {
	        "tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json"};
	int rc = 0;

	t->roles = (struct tokenizer_roles){.bos = -1, .eos = -1, .pad = -1};
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
	return rc;
}

/* 1 for classes that replace the ByteLevel by one with add_prefix_space of this file. Others keep
 * tokenizer.json. */
static int makes_byte_level(const char *class)
{
	static const char *const classes[] = {"GPT2Tokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer"};

	for (size_t i = 0; class && i < sizeof(classes) / sizeof(classes[0]); i++) {
		size_t len = strlen(classes[i]);

		if (strncmp(class, classes[i], len) == 0 && (!class[len] || strcmp(class + len, "Fast") == 0))
			return 1;
	}
	return 0;
}

int tokenizer_read_prefix_space(int *prefix_space, const char *dir)
{
	char *path = dir ? file_join(dir, "tokenizer_config.json") : NULL;
	const char *class = NULL;
	json_t *config = NULL;
	int rc = dir && !path ? ERR_NOMEM : 0, is_on = 0;

	*prefix_space = -1;
	if (rc == 0 && path && file_kind_of(path) != FILE_NONE)
		rc = json_read_file(&config, path, CONFIG_BYTES_MAX);
	if (rc == 0 && config)
		rc = json_get_str(config, path, "tokenizer_class", &class);
	if (rc >= 0 && makes_byte_level(class)) {
		rc = json_get_bool(config, path, "add_prefix_space", &is_on);
		*prefix_space = is_on;
	}
	json_decref(config);
	mem_free(path);
	return rc < 0 ? rc : 0;
}
