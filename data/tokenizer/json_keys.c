/* Keys and types of the objects in tokenizer.json. */
#include "data/tokenizer/json_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"

enum { SEQUENCE_DEPTH_MAX = 8 };

int json_type_of(const json_t *spec, const char *where, const char **type)
{
	int rc;

	*type = NULL;
	if (!json_is_object(spec))
		return err_set(ERR_INPUT, "%s: %s; expected an object", where, json_kind_name(spec));
	rc = json_get_str(spec, where, "type", type);
	if (rc == 0)
		return err_set(ERR_INPUT, "%s: there is no \"type\"", where);
	return rc < 0 ? rc : 0;
}

int json_check_keys(const json_t *object, const char *where, const char *keys)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)object, key, value)
	{
		const char *found = keys;
		size_t len = strlen(key);

		(void)value;
		while (found && !(strncmp(found, key, len) == 0 && (found[len] == ' ' || found[len] == 0))) {
			found = strchr(found, ' ');
			if (found)
				found++;
		}
		if (!found || len == 0)
			return err_set(ERR_UNSUPPORTED, "%s: the key \"%.80s\" is not supported", where, key);
	}
	return 0;
}

int json_sequence(const json_t *spec, const char *where, const char *part, const char *key, int depth,
        const json_t **list)
{
	char keys[64];
	int rc;

	snprintf(keys, sizeof(keys), "type %s", key);
	rc = json_check_keys(spec, where, keys);
	*list = json_object_get(spec, key);
	if (rc == 0 && !json_is_array(*list))
		rc = err_set(ERR_INPUT, "%s: %s: Sequence needs an array \"%s\"", where, part, key);
	if (rc == 0 && depth == SEQUENCE_DEPTH_MAX)
		rc = err_set(ERR_UNSUPPORTED, "%s: %s: Sequences nested more than %d deep", where, part,
		        SEQUENCE_DEPTH_MAX);
	return rc;
}

int json_flag(const json_t *object, const char *where, const char *key, int fallback, int *flag)
{
	int rc;

	*flag = fallback;
	rc = json_get_bool(object, where, key, flag);
	return rc < 0 ? rc : 0;
}
