#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/tokenizer/inside.h"
#include "data/tokenizer/json_keys.h"

enum { SEQUENCE_DEPTH_MAX = 8 };

/* The ids of one special token of a template, appended. */
static int add_special_ids(const struct tokenizer *t, struct token_list *list, const json_t *tokens,
        const char *name, const char *where)
{
	const json_t *spec = json_object_get(tokens, name), *ids = json_object_get(spec, "ids"), *id;
	size_t i;
	int rc;

	if (!json_is_object(spec) || !json_is_array(ids))
		return err_set(
		        ERR_INPUT, "%s: post_processor: special_tokens has no ids for '%.80s'", where, name);
	rc = json_check_keys(spec, where, "id ids tokens");
	json_array_foreach(ids, i, id)
	{
		size_t len_bytes;

		if (rc == 0 && (!json_is_integer(id) ||
		                       !vocab_bytes(&t->bpe.vocab, json_integer_value(id), &len_bytes)))
			rc = err_set(ERR_INPUT,
			        "%s: post_processor: '%.80s' has an id that the vocabulary lacks", where,
			        name);
		if (rc == 0)
			rc = token_list_add(list, (int32_t)json_integer_value(id));
	}
	return rc;
}

/* One element of a template: {"SpecialToken": {"id": NAME, ..}} or {"Sequence": {"id": "A", ..}}. */
static int read_element(
        struct tokenizer *t, int *seen_text, const json_t *element, const json_t *tokens, const char *where)
{
	const json_t *special = json_object_get(element, "SpecialToken"),
	             *text = json_object_get(element, "Sequence");
	const char *id = NULL;
	int rc = json_check_keys(special ? special : text, where, "id type_id");

	if (rc == 0 && (!!special == !!text || json_object_size(element) != 1))
		rc = err_set(ERR_INPUT,
		        "%s: post_processor: a template's element is neither SpecialToken nor Sequence",
		        where);
	if (rc == 0)
		rc = json_get_str(special ? special : text, where, "id", &id);
	if (rc == 0)
		rc = err_set(ERR_INPUT, "%s: post_processor: a template's element without id", where);
	if (rc < 0)
		return rc;
	if (special)
		return add_special_ids(t, *seen_text ? &t->after : &t->before, tokens, id, where);
	if (strcmp(id, "A") != 0 || *seen_text)
		return err_set(ERR_UNSUPPORTED,
		        "%s: post_processor: the template for one text does not hold it once, as A", where);
	*seen_text = 1;
	return 0;
}

static int load_template(struct tokenizer *t, const json_t *spec, const char *where)
{
	const json_t *single = json_object_get(spec, "single"), *element;
	size_t i;
	int seen_text = 0, rc = json_check_keys(spec, where, "type single pair special_tokens");

	if (rc == 0 && t->has_template++)
		rc = err_set(ERR_UNSUPPORTED, "%s: post_processor: TemplateProcessing twice", where);
	if (rc == 0 && !json_is_array(single))
		rc = err_set(
		        ERR_UNSUPPORTED, "%s: post_processor: \"single\" of the template is no array", where);
	json_array_foreach(single, i, element) if (rc == 0) rc =
	        read_element(t, &seen_text, element, json_object_get(spec, "special_tokens"), where);
	if (rc == 0 && !seen_text)
		rc = err_set(ERR_UNSUPPORTED, "%s: post_processor: the template for one text leaves it out",
		        where);
	return rc;
}

static int load_processor(struct tokenizer *t, const json_t *spec, const char *where, int depth)
{
	const char *type;
	const json_t *list, *element;
	size_t i;
	int rc = json_type_of(spec, where, &type);

	if (rc < 0)
		return rc;
	if (strcmp(type, "ByteLevel") == 0) /* about offsets only */
		return json_check_keys(spec, where, "type add_prefix_space trim_offsets use_regex");
	if (strcmp(type, "TemplateProcessing") == 0)
		return load_template(t, spec, where);
	if (strcmp(type, "Sequence") != 0)
		return err_set(ERR_UNSUPPORTED,
		        "%s: the post_processor %.80s is not supported; TemplateProcessing and ByteLevel are",
		        where, type);
	rc = json_check_keys(spec, where, "type processors");
	list = json_object_get(spec, "processors");
	if (rc == 0 && !json_is_array(list))
		rc = err_set(ERR_INPUT, "%s: post_processor: Sequence wants an array \"processors\"", where);
	if (rc == 0 && depth == SEQUENCE_DEPTH_MAX)
		rc = err_set(ERR_UNSUPPORTED, "%s: post_processor: Sequences nested more than %d deep", where,
		        SEQUENCE_DEPTH_MAX);
	json_array_foreach(list, i, element) if (rc == 0) rc = load_processor(t, element, where, depth + 1);
	return rc;
}

int tokenizer_load_template(struct tokenizer *t, const json_t *spec, const char *where)
{
	return !spec || json_is_null(spec) ? 0 : load_processor(t, spec, where, 0);
}
