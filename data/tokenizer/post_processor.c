/* Reads a post_processor. */
#include "data/tokenizer/post_processor.h"

#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/tokenizer/json_keys.h"

struct loading {
	struct template *t;
	const struct vocab *vocab;
	const char *where;
};

static int add_part(const struct loading *l, struct template_list *list, struct template_part part)
{
	if (list->count == TEMPLATE_PARTS_MAX)
		return err_set(ERR_UNSUPPORTED, "%s: post_processor: a template of more than %d parts",
		        l->where, TEMPLATE_PARTS_MAX);
	list->parts[list->count++] = part;
	return 0;
}

static int add_id(const struct loading *l, const json_t *id, const char *name)
{
	size_t len_bytes;

	if (!json_is_integer(id) || !vocab_bytes(l->vocab, json_integer_value(id), &len_bytes))
		return err_set(ERR_INPUT, "%s: post_processor: '%.80s' has an id that the vocabulary lacks",
		        l->where, name);
	return token_list_add(&l->t->ids, (int32_t)json_integer_value(id));
}

static int add_special(
        const struct loading *l, struct template_list *list, const json_t *tokens, const char *name)
{
	const json_t *spec = json_object_get(tokens, name), *ids = json_object_get(spec, "ids"), *id;
	struct template_part part = {.text = -1, .first = l->t->ids.count};
	size_t i;
	int rc;

	if (!json_is_object(spec) || !json_is_array(ids))
		return err_set(ERR_INPUT, "%s: post_processor: special_tokens has no ids for '%.80s'",
		        l->where, name);
	rc = json_check_keys(spec, l->where, "id ids tokens");
	json_array_foreach(ids, i, id) if (rc == 0) rc = add_id(l, id, name);
	part.count = l->t->ids.count - part.first;
	return rc < 0 ? rc : add_part(l, list, part);
}

/* One element of a template: {"SpecialToken": {"id": NAME, ..}} or {"Sequence": {"id": "A", ..}}. */
static int read_element(const struct loading *l, struct template_list *list, int texts, const json_t *element,
        const json_t *tokens)
{
	const json_t *special = json_object_get(element, "SpecialToken"),
	             *text = json_object_get(element, "Sequence");
	const char *id = NULL;
	int rc = json_check_keys(special ? special : text, l->where, "id type_id");

	if (rc == 0 && (!!special == !!text || json_object_size(element) != 1))
		rc = err_set(ERR_INPUT,
		        "%s: post_processor: a template's element is neither SpecialToken nor Sequence",
		        l->where);
	if (rc == 0)
		rc = json_get_str(special ? special : text, l->where, "id", &id);
	if (rc == 0)
		rc = err_set(ERR_INPUT, "%s: post_processor: a template's element without id", l->where);
	if (rc < 0)
		return rc;
	if (special)
		return add_special(l, list, tokens, id);
	if (strcmp(id, "A") == 0)
		return add_part(l, list, (struct template_part){.text = 0});
	if (strcmp(id, "B") == 0 && texts == 2)
		return add_part(l, list, (struct template_part){.text = 1});
	return err_set(ERR_UNSUPPORTED, "%s: post_processor: the template for %s holds a text '%.80s'",
	        l->where, texts == 1 ? "one text" : "two texts", id);
}

static int load_list(const struct loading *l, const json_t *spec, const char *key, int texts)
{
	struct template_list *list = &l->t->lists[texts - 1];
	const json_t *elements = json_object_get(spec, key), *element;
	int rc = 0, seen = 0;
	size_t i;

	list->count = 0;
	if (!json_is_array(elements))
		return err_set(ERR_UNSUPPORTED, "%s: post_processor: \"%s\" of the template is not an array",
		        l->where, key);
	json_array_foreach(elements, i, element) if (rc == 0) rc =
	        read_element(l, list, texts, element, json_object_get(spec, "special_tokens"));
	for (int part = 0; part < list->count; part++)
		seen |= list->parts[part].text >= 0;
	if (rc == 0 && !seen && texts == 1)
		rc = err_set(ERR_UNSUPPORTED, "%s: post_processor: the template for one text leaves it out",
		        l->where);
	return rc;
}

static int load_template(const struct loading *l, const json_t *spec)
{
	int rc = json_check_keys(spec, l->where, "type single pair special_tokens");

	if (rc == 0)
		rc = load_list(l, spec, "single", 1);
	return rc < 0 ? rc : load_list(l, spec, "pair", 2);
}

/* {"sep": ["[SEP]", 102], "cls": ["[CLS]", 101], ..}: cls, the text, sep. A second text follows after
 * `between` more seps. */
static int load_bert(const struct loading *l, const json_t *spec, int between)
{
	static const char *const keys[] = {"cls", "sep"};
	struct template_part special[2] = {{.text = -1, .count = 1}, {.text = -1, .count = 1}};
	int rc = json_check_keys(spec, l->where, "type sep cls trim_offsets add_prefix_space");

	for (int i = 0; rc == 0 && i < 2; i++) {
		const json_t *pair = json_object_get(spec, keys[i]);

		special[i].first = l->t->ids.count;
		rc = json_array_size(pair) != 2
		             ? err_set(ERR_INPUT, "%s: post_processor: \"%s\" is not [token, id]", l->where,
		                       keys[i])
		             : add_id(l, json_array_get(pair, 1), keys[i]);
	}
	for (int texts = 1; rc == 0 && texts <= 2; texts++) {
		struct template_list *list = &l->t->lists[texts - 1];

		list->count = 0;
		rc = add_part(l, list, special[0]);
		for (int text = 0; rc == 0 && text < texts; text++) {
			for (int i = 0; rc == 0 && text > 0 && i < between; i++)
				rc = add_part(l, list, special[1]);
			if (rc == 0)
				rc = add_part(l, list, (struct template_part){.text = text});
			if (rc == 0)
				rc = add_part(l, list, special[1]);
		}
	}
	return rc;
}

static int load_processor(const struct loading *l, const json_t *spec, int depth)
{
	const json_t *list, *element;
	const char *type;
	size_t i;
	int rc = json_type_of(spec, l->where, &type);

	if (rc < 0)
		return err_note(rc, "post_processor");
	if (strcmp(type, "Sequence") == 0) {
		rc = json_sequence(spec, l->where, "post_processor", "processors", depth, &list);
		json_array_foreach(list, i, element) if (rc == 0) rc = load_processor(l, element, depth + 1);
		return rc;
	}
	if (strcmp(type, "ByteLevel") == 0) /* changes only offsets, which ferry does not use */
		return json_check_keys(spec, l->where, "type add_prefix_space trim_offsets use_regex");
	if (l->t->loaded++)
		return err_set(ERR_UNSUPPORTED, "%s: post_processor: more than one puts tokens around a text",
		        l->where);
	if (strcmp(type, "TemplateProcessing") == 0)
		return load_template(l, spec);
	if (strcmp(type, "BertProcessing") == 0)
		return load_bert(l, spec, 0);
	if (strcmp(type, "RobertaProcessing") == 0)
		return load_bert(l, spec, 1);
	return err_set(ERR_UNSUPPORTED, "%s: the post_processor %.80s is not supported", l->where, type);
}

int template_load(struct template *t, const struct vocab *vocab, const json_t *spec, const char *where)
{
	struct loading l = {.t = t, .vocab = vocab, .where = where};
	int rc = 0;

	for (int texts = 1; rc == 0 && texts <= 2; texts++)
		for (int text = 0; rc == 0 && text < texts; text++)
			rc = add_part(&l, &t->lists[texts - 1], (struct template_part){.text = text});
	if (rc < 0 || !spec || json_is_null(spec))
		return rc;
	return load_processor(&l, spec, 0);
}

void template_free(struct template *t)
{
	token_list_free(&t->ids);
}
