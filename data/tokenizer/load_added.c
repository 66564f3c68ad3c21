/* Reads the added tokens of tokenizer.json. */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenizer/inside.h"
#include "data/tokenizer/json_keys.h"

static int read_added(const json_t *spec, const char *where, const char **content, size_t *len_bytes,
        int64_t *id, unsigned *flags)
{
	static const char *const names[] = {"single_word", "lstrip", "rstrip", "normalized", "special"};
	int rc = json_check_keys(spec, where, "id content single_word lstrip rstrip normalized special");

	*id = -1;
	*content = NULL;
	*flags = 0;
	if (rc == 0)
		rc = json_get_int(spec, where, "id", id);
	if (rc >= 0)
		rc = json_get_str(spec, where, "content", content);
	if (rc < 0)
		return rc;
	if (*id < 0 || !*content || !**content)
		return err_set(ERR_INPUT, "%s: added_tokens: an entry without id or content", where);
	*len_bytes = json_string_length(json_object_get(spec, "content"));
	for (int i = 0; i < 5; i++) {
		int flag = 0;

		rc = json_get_bool(spec, where, names[i], &flag);
		if (rc == 0)
			return err_set(ERR_INPUT, "%s: added_tokens: '%.80s' has no \"%s\"", where, *content,
			        names[i]);
		if (rc < 0)
			return rc;
		*flags |= flag ? 1u << i : 0;
	}
	return 0;
}

/* The content to search for, normalized if it is searched in normalized text. Returns 1 if that changes
 * it. */
static int searched_content(const struct tokenizer *t, struct normal_text *text, const char *content,
        size_t len_bytes, unsigned flags)
{
	int rc = 0;

	text->text = content;
	text->len_bytes = len_bytes;
	if (flags & ADDED_NORMALIZED)
		rc = normalizer_run(&t->normalizer, text, content, len_bytes);
	return rc < 0 ? rc : text->len_bytes != len_bytes || memcmp(text->text, content, len_bytes) != 0;
}

/* If normalization changes an added token, the token decodes to the changed content. */
static int rename_added(struct tokenizer *t, int32_t id, const struct normal_text *content)
{
	size_t start = t->renamed_bytes.len_bytes;

	str_add_bytes(&t->renamed_bytes, content->text, content->len_bytes);
	if (str_check(&t->renamed_bytes) < 0)
		return ERR_NOMEM;
	return piece_list_add(&t->renamed, start, t->renamed_bytes.len_bytes, id);
}

/* 1 if a text is the content of a special added token. */
static int is_special_content(
        const struct tokenizer *t, const json_t *list, const char *text, size_t len_bytes)
{
	const json_t *element;
	size_t i;

	(void)t;
	json_array_foreach(list, i, element)
	{
		const json_t *content = json_object_get(element, "content");

		if (json_is_true(json_object_get(element, "special")) &&
		        json_string_length(content) == len_bytes &&
		        memcmp(json_string_value(content), text, len_bytes) == 0)
			return 1;
	}
	return 0;
}

/* Puts one added token into its set, and sets its bits. Pass 0 takes contents that normalization does not
 * change, pass 1 the others: if two become equal, the unchanged one keeps its id. */
static int place_added(struct tokenizer *t, const json_t *list, const json_t *element,
        struct normal_text *text, int pass, const char *where)
{
	const char *content;
	size_t len_bytes;
	int64_t in_file;
	unsigned flags, mark = TOKENIZER_ADDED;
	int32_t id;
	int changed, rc = read_added(element, where, &content, &len_bytes, &in_file, &flags);

	if (rc < 0)
		return rc;
	changed = searched_content(t, text, content, len_bytes, flags);
	if (changed < 0 || changed != pass)
		return changed < 0 ? changed : 0;
	if (text->len_bytes == 0)
		return err_set(ERR_UNSUPPORTED,
		        "%s: added_tokens: the normalizer removes all of '%.80s'; set its normalized to "
		        "false",
		        where, content);
	id = vocab_find_content(&t->model.vocab, content, len_bytes);
	if (t->added[id])
		return err_set(ERR_INPUT, "%s: added_tokens: '%.80s' occurs twice", where, content);
	rc = added_set_add(
	        flags & ADDED_NORMALIZED ? &t->normalized : &t->raw, text->text, text->len_bytes, id, flags);
	if (rc == 0 && changed) {
		mark |= TOKENIZER_ADDED_RENAMED;
		rc = rename_added(t, id, text);
	}
	/* decoding skips special tokens by their text, so a renamed token is special if its new text is */
	if (changed ? is_special_content(t, list, text->text, text->len_bytes) : (flags & ADDED_SPECIAL) != 0)
		mark |= TOKENIZER_ADDED_SPECIAL;
	t->added[id] = (uint8_t)mark;
	return rc;
}

static int place_all(struct tokenizer *t, const json_t *list, const char *where)
{
	struct normal_text text = {0};
	const json_t *element;
	size_t i;
	int rc = 0;

	for (int pass = 0; pass < 2; pass++)
		json_array_foreach(list, i, element) if (rc == 0) rc =
		        place_added(t, list, element, &text, pass, where);
	normal_text_free(&text);
	return rc;
}

/* An added token has the id of the same content in the vocabulary, or the next id after all others. The id in
 * the file may be outdated, and HF tokenizers ignores it. */
int tokenizer_load_added(struct tokenizer *t, const json_t *list, const char *where)
{
	struct vocab *vocab = &t->model.vocab;
	int64_t model_count = vocab->entry_count, top = -1, id, in_file;
	const char *content;
	size_t len_bytes, i;
	const json_t *element;
	unsigned flags;
	int rc, differs = 0;

	if (list && !json_is_null(list) && !json_is_array(list))
		return err_set(
		        ERR_INPUT, "%s: added_tokens is %s; expected an array", where, json_kind_name(list));
	json_array_foreach(list, i, element)
	{
		rc = read_added(element, where, &content, &len_bytes, &in_file, &flags);
		if (rc < 0)
			return rc;
		id = vocab_find_content(vocab, content, len_bytes);
		if (id < 0) {
			id = top >= model_count ? top + 1 : model_count;
			rc = vocab_add(vocab, content, len_bytes, id, VOCAB_KIND_ADDED);
			if (rc < 0)
				return err_note(rc, "%s: added_tokens", where);
		}
		if (id != in_file && !differs++)
			log_warn("%s: added_tokens: '%.80s' has id %" PRId64
			         " in the file and is used as %" PRId64 ", as HF tokenizers does",
			        where, content, in_file, id);
		if (id > top)
			top = id;
	}
	t->added = mem_alloc((size_t)vocab->id_end, 1);
	if (!t->added)
		return ERR_NOMEM;
	return place_all(t, list, where);
}
