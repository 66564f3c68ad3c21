/* Reads tokenizer.json, part by part. */
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "data/tokenizer/inside.h"
#include "data/tokenizer/json_keys.h"
#include "data/tokenizer/unicode.h"

static int check_cut(const json_t *root, const char *key, const char *where)
{
	const json_t *value = json_object_get(root, key);

	if (value && !json_is_null(value) && !json_is_object(value))
		return err_set(ERR_INPUT, "%s: %s is %s; expected an object or null", where, key,
		        json_kind_name(value));
	return 0;
}

/* ---- finds the two large parts of a file first, and reads the tree without them ---- */

/* Finds the value of a key, and parts inside it if it is an object. */
struct part {
	const char *key;
	const char *start, *end;
	struct part *inside;
	int inside_count;
};

/* Finds parts of the object at `r`, and moves `r` past it. */

static int find_parts(struct json_reader *r, struct part *parts, int count)
{
	int64_t keys = 0;
	int rc = json_reader_expect(r, '{');

	while (rc == 0 && (rc = json_reader_more(r, '}', &keys)) > 0) {
		const char *key, *start;
		size_t len_bytes;
		struct part *part = NULL;

		rc = json_reader_string(r, &key, &len_bytes);
		for (int i = 0; rc == 0 && i < count; i++)
			if (strlen(parts[i].key) == len_bytes && memcmp(parts[i].key, key, len_bytes) == 0)
				part = &parts[i];
		if (rc == 0)
			rc = json_reader_expect(r, ':');
		if (rc < 0)
			return rc;
		json_reader_peek(r);
		start = r->at;
		rc = part && part->inside && *start == '{' ? find_parts(r, part->inside, part->inside_count)
		                                           : json_reader_skip(r);
		if (rc == 0 && part && !part->start) {
			part->start = start;
			part->end = r->at;
		}
	}
	return rc;
}

/* Appends the text before a part, then null for the part, with its newlines: line numbers stay the same. */
static void leave_out(struct str *out, const char **done, const struct part *part)
{
	str_add_bytes(out, *done, (size_t)(part->start - *done));
	str_add(out, "null");
	for (const char *p = part->start; p < part->end; p++)
		if (*p == '\n')
			str_add_char(out, '\n');
	*done = part->end;
}

/* Finds the parts, if they are objects or arrays. For an invalid file, json_parse reports the error. */
static void find_model_parts(struct part parts[2], const char *text, size_t len_bytes, const char *where)
{
	struct json_reader r = {.where = where, .begin = text, .at = text, .end = text + len_bytes};
	struct part model = {.key = "model", .inside = parts, .inside_count = 2};

	if (len_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		r.at += 3;
	if (find_parts(&r, &model, 1) < 0)
		parts[0].start = parts[1].start = NULL;
	for (int i = 0; i < 2; i++)
		if (parts[i].start && *parts[i].start != '{' && *parts[i].start != '[')
			parts[i].start = NULL;
	json_reader_free(&r);
}

/* The tree of a file without two parts of its model; readers of these are in `source`. */
static int read_tree(
        json_t **root, struct model_source *source, const char *text, size_t len_bytes, const char *where)
{
	struct part parts[2] = {{.key = "vocab"}, {.key = "merges"}};
	struct json_reader *readers[2] = {&source->vocab, &source->merges};
	const char *done = text;
	struct str rest = {0};
	int first = 0, rc;

	if (utf8_check(text, len_bytes) == len_bytes)
		find_model_parts(parts, text, len_bytes, where);
	if (parts[0].start && parts[1].start && parts[1].start < parts[0].start)
		first = 1;
	for (int i = 0; i < 2; i++) {
		const struct part *part = &parts[i ^ first];

		if (!part->start)
			continue;
		leave_out(&rest, &done, part);
		*readers[i ^ first] = (struct json_reader){
		        .where = where, .begin = text, .at = part->start, .end = part->end};
	}
	str_add_bytes(&rest, done, (size_t)(text + len_bytes - done));
	rc = str_check(&rest) < 0 ? ERR_NOMEM : json_parse(root, where, rest.data, rest.len_bytes);
	str_free(&rest);
	return rc;
}

/* If words end in the byte alphabet and the model takes bytes, it gets words as bytes. */
static int load_model(struct tokenizer *t, struct model_source *source)
{
	struct token_model *m = &t->model;

	if (t->pretokenizer.ends_in_bytes && m->kind->takes_bytes && m->kind->takes_bytes(source->spec)) {
		m->vocab.in_bytes = 1;
		pretokenizer_drop_alphabet(&t->pretokenizer);
	}
	return m->kind->load(m, source);
}

static int load_tree(
        struct tokenizer *t, const json_t *root, struct model_source *source, enum pattern_engine engine)
{
	const char *version = "1.0", *where = source->where;
	int rc;

	if (!json_is_object(root) || !json_is_object(source->spec))
		return err_set(ERR_INPUT, "%s: not a tokenizer.json: it has no object \"model\"", where);
	rc = json_check_keys(root, where,
	        "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder "
	        "model");
	if (rc == 0)
		rc = json_get_str(root, where, "version", &version);
	if (rc >= 0 && strcmp(version, "1.0") != 0)
		rc = err_set(ERR_UNSUPPORTED, "%s: version '%.40s' is not supported; supported: 1.0", where,
		        version);
	if (rc >= 0)
		rc = check_cut(root, "truncation", where);
	if (rc >= 0)
		rc = check_cut(root, "padding", where);
	/* the kind first: an unsupported model is refused by its name, not by a detail */
	if (rc >= 0)
		rc = model_choose(&t->model, source);
	if (rc >= 0)
		rc = normalizer_load(&t->normalizer, json_object_get(root, "normalizer"), where);
	if (rc >= 0)
		rc = pretokenizer_load(
		        &t->pretokenizer, json_object_get(root, "pre_tokenizer"), where, engine);
	if (rc >= 0)
		rc = decoder_load(&t->decoder, json_object_get(root, "decoder"), where);
	if (rc >= 0)
		rc = load_model(t, source);
	return rc < 0 ? rc : 0;
}

/* The added tokens of all files. */
static int load_added(
        struct tokenizer *t, const json_t *root, const char *where, const struct beside *beside, int is_model)
{
	struct added_list list = {.is_model = is_model};
	int splits_special = beside_splits_special(beside), rc = splits_special < 0 ? splits_special : 0;

	if (rc == 0)
		rc = added_list_read(&list, json_object_get(root, "added_tokens"), where);
	if (rc == 0)
		rc = beside_add_tokens(beside, &list);
	/* in a tokenizer.model's steps only spaces change, and the mark in front belongs to no token */
	for (int64_t i = 0; is_model && i < list.count; i++)
		list.entries[i].flags &= ~(unsigned)ADDED_NORMALIZED;
	if (rc == 0)
		rc = tokenizer_load_added(t, &list, splits_special);
	added_list_free(&list);
	return rc;
}

/* The template of a tokenizer.model takes the bos and eos that the files beside it name. Without such names,
 * those of the model are the tokenizer's. */
static int name_template(struct tokenizer *t, json_t *root, const struct beside *beside)
{
	int32_t *const roles[] = {&t->roles.bos, &t->roles.eos};
	static const char *const keys[] = {"bos_token", "eos_token"}, *const names[] = {"bos", "eos"};
	json_t *tokens = json_object_get(json_object_get(root, "post_processor"), "special_tokens");
	const char *where;
	int32_t id;
	int rc = 0;

	for (int i = 0; i < 2; i++) {
		json_t *token = json_object_get(tokens, names[i]);
		const json_t *value = beside_special(beside, keys[i], &where);
		const char *content =
		        json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);

		if (token && content && tokenizer_find(t, &id, content))
			rc |= json_object_set_new(token, "ids", json_pack("[i]", (int)id));
		if (token)
			*roles[i] =
			        (int32_t)json_integer_value(json_array_get(json_object_get(token, "ids"), 0));
	}
	return rc ? ERR_NOMEM : 0;
}

int tokenizer_load(struct tokenizer *t, const char *text, size_t len_bytes, const char *where,
        const struct beside *beside, int is_model, enum pattern_engine engine)
{
	struct model_source source = {.where = where};
	json_t *root = NULL;
	int rc = read_tree(&root, &source, text, len_bytes, where);

	t->roles = (struct tokenizer_roles){.bos = -1, .eos = -1, .pad = -1, .mask = -1};
	source.spec = json_object_get(root, "model");
	if (rc == 0)
		rc = beside_set_prefix_space(beside, root, is_model);
	if (rc == 0)
		rc = load_tree(t, root, &source, engine);
	if (rc == 0)
		rc = load_added(t, root, where, beside, is_model);
	if (rc == 0 && is_model)
		rc = name_template(t, root, beside);
	if (rc == 0) /* its tokens may be added ones */
		rc = template_load(
		        &t->template, &t->model.vocab, json_object_get(root, "post_processor"), where);
	json_reader_free(&source.vocab);
	json_reader_free(&source.merges);
	json_decref(root);
	return rc;
}
