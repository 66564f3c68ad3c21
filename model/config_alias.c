/* Reads a config.json by the usual spelling of its keys. */
#include "base/err.h"
#include "model/config.h"
#include "model/family.h"

/* A copy of the file; NULL: no memory. */
static json_t *without_aliases(const struct family_alias *aliases, const json_t *json)
{
	json_t *copy = json_copy((json_t *)json);

	for (const struct family_alias *a = aliases; copy && a && a->key; a++) {
		json_t *value = json_object_get(json, a->alias);

		if (value && (json_object_set(copy, a->key, value) || json_object_del(copy, a->alias))) {
			json_decref(copy);
			return NULL;
		}
	}
	return copy;
}

int model_config_read(
        struct model_config *config, const struct model_family *family, const json_t *json, const char *where)
{
	json_t *usual = without_aliases(family->aliases, json);
	int err;

	*config = (struct model_config){0};
	if (!usual)
		return ERR_NOMEM;
	err = config_read_usual(config, family, usual, where);
	json_decref(usual);
	return err;
}
