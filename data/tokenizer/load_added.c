/* Gives added tokens their ids, and puts them into the sets that texts are searched for. */
#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenizer/inside.h"

/* The content to search for, normalized if it is searched in normalized text. Returns 1 if that changes
 * it. */
static int searched_content(const struct tokenizer *t, struct normal_text *text, const char *content,
        size_t len_bytes, unsigned flags)
{
	int rc = 0;

	text->text = content;
	text->len_bytes = len_bytes;
	if (flags & ADDED_NORMALIZED)
		rc = normalizer_run(&t->normalizer, text, content, len_bytes, NORMAL_FRONT_START);
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
static int is_special_content(const struct added_list *list, const char *text, size_t len_bytes)
{
	const struct added_entry *e = added_list_find(list, text, len_bytes);

	return e && e->flags & ADDED_SPECIAL;
}

/* Puts one added token into its set, and sets its bits. Pass 0 takes contents that normalization does not
 * change, pass 1 the others: if two become equal, the unchanged one keeps its id. */
static int place_added(struct tokenizer *t, const struct added_list *list, const struct added_entry *e,
        struct normal_text *text, int pass, int splits_special)
{
	int is_special = (e->flags & ADDED_SPECIAL) != 0, changed, rc;
	unsigned mark = TOKENIZER_ADDED, skipped = splits_special && is_special ? ADDED_SKIPPED : 0;
	int32_t id;

	changed = searched_content(t, text, e->content, e->len_bytes, e->flags);
	if (changed < 0)
		return err_note(changed, "%s: '%.80s'", e->where, e->content);
	if (changed != pass)
		return 0;
	if (text->len_bytes == 0)
		return err_set(ERR_UNSUPPORTED,
		        "%s: added_tokens: the normalizer removes all of '%.80s'; set its normalized to "
		        "false",
		        e->where, e->content);
	id = vocab_find_content(&t->model.vocab, e->content, e->len_bytes);
	rc = added_set_add(e->flags & ADDED_NORMALIZED ? &t->normalized : &t->raw, text->text,
	        text->len_bytes, id, e->flags | skipped);
	if (rc == 0)
		rc = added_set_add(&t->contents, e->content, e->len_bytes, id, e->flags | skipped);
	if (rc == 0 && changed) {
		mark |= TOKENIZER_ADDED_RENAMED;
		rc = rename_added(t, id, text);
	}
	/* decoding skips special tokens by their text, so a renamed token is special if its new text is */
	if (changed ? is_special_content(list, text->text, text->len_bytes) : is_special)
		mark |= TOKENIZER_ADDED_SPECIAL;
	t->added[id] = (uint8_t)mark;
	return rc;
}

static int place_all(struct tokenizer *t, const struct added_list *list, int splits_special)
{
	struct normal_text text = {0};
	int rc = 0;

	for (int pass = 0; pass < 2; pass++)
		for (int64_t i = 0; rc == 0 && i < list->count; i++)
			rc = place_added(t, list, &list->entries[i], &text, pass, splits_special);
	normal_text_free(&text);
	return rc;
}

/* A file beside tokenizer.json gives the token an id that another token has. */
static int check_taken(const struct vocab *vocab, const struct added_entry *e, int32_t id)
{
	struct str other = {0};
	size_t len_bytes;
	int rc = 0;

	if (e->is_beside && e->id >= 0 && e->id != id && vocab_bytes(vocab, e->id, &len_bytes)) {
		vocab_content(vocab, &other, e->id);
		rc = err_set(ERR_INPUT,
		        "%s: '%.80s' has id %" PRId64 ", which is '%.80s' in the vocabulary; rename the "
		        "token there too, or remove it here",
		        e->where, e->content, e->id, other.data ? other.data : "");
	}
	str_free(&other);
	return rc;
}

/* Says once per kind that ids are not those of a file. */
static void tell_id(const struct added_entry *e, int32_t id, int told[2])
{
	if (e->id == id || told[e->id < 0]++)
		return;
	if (e->id < 0)
		log_warn("%s: '%.80s' is in no vocabulary; it gets id %d, as in transformers", e->where,
		        e->content, id);
	else
		log_warn("%s: %s'%.80s' has id %" PRId64 " in the file and is used as %d, as %s does",
		        e->where, e->is_beside ? "" : "added_tokens: ", e->content, e->id, id,
		        e->is_beside ? "transformers" : "HF tokenizers");
}

/* An added token has the id of the same content in the vocabulary, or the next id after all others. The id in
 * the file may be outdated, and HF tokenizers ignores it. */
int tokenizer_load_added(struct tokenizer *t, const struct added_list *list, int splits_special)
{
	struct vocab *vocab = &t->model.vocab;
	int64_t model_count = vocab->entry_count, top = -1;
	int rc, told[2] = {0};

	for (int64_t i = 0; i < list->count; i++) {
		const struct added_entry *e = &list->entries[i];
		int32_t id = vocab_find_content(vocab, e->content, e->len_bytes);
		int is_new = id < 0;

		if (is_new)
			id = (int32_t)(top >= model_count ? top + 1 : model_count);
		rc = check_taken(vocab, e, id);
		if (rc < 0)
			return rc;
		if (is_new)
			rc = vocab_add(vocab, e->content, e->len_bytes, id, VOCAB_KIND_ADDED);
		if (rc < 0)
			return err_note(rc, "%s: added_tokens", e->where);
		if (is_new || e->id >= 0)
			tell_id(e, id, told);
		if (id > top)
			top = id;
	}
	t->added = mem_alloc((size_t)vocab->id_end, 1);
	if (!t->added)
		return ERR_NOMEM;
	return place_all(t, list, splits_special);
}
