/* Lists of added tokens, and their form in files. */
#include "data/tokenizer/added_list.h"

#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/json_keys.h"

int added_list_add(struct added_list *list, const struct added_entry *entry)
{
	int rc;

	if (list->count == list->cap) {
		int64_t cap = list->cap * 2 + 32;
		struct added_entry *grown = mem_resize(list->entries, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		list->entries = grown;
		list->cap = cap;
	}
	rc = vocab_add(&list->index, entry->content, entry->len_bytes, list->count, VOCAB_KIND_WORD);
	if (rc < 0)
		return err_note(rc, "%s: added tokens", entry->where);
	list->entries[list->count++] = *entry;
	return 0;
}

struct added_entry *added_list_find(const struct added_list *list, const char *content, size_t len_bytes)
{
	int32_t at = vocab_find(&list->index, content, len_bytes);

	return at < 0 ? NULL : &list->entries[at];
}

int added_entry_read(
        struct added_entry *entry, const json_t *spec, const char *where, const char *what, int is_strict)
{
	static const char *const names[] = {"single_word", "lstrip", "rstrip", "normalized", "special"};
	int given[5] = {0},
	    rc = json_check_keys(spec, where,
	            is_strict ? "id content single_word lstrip rstrip normalized special"
	                      : "__type content single_word lstrip rstrip normalized special");

	entry->content = NULL;
	entry->flags = 0;
	entry->where = where;
	if (rc == 0)
		rc = json_get_str(spec, where, "content", &entry->content);
	if (rc < 0)
		return rc;
	if (!entry->content || (is_strict && !*entry->content))
		return err_set(ERR_INPUT, "%s: %s: an entry without %scontent", where, what,
		        is_strict ? "id or " : "");
	entry->len_bytes = json_string_length(json_object_get(spec, "content"));
	for (int i = 0; i < 5; i++) {
		int flag = 0;

		given[i] = json_get_bool(spec, where, names[i], &flag);
		if (given[i] == 0 && is_strict)
			return err_set(ERR_INPUT, "%s: %s: '%.80s' has no \"%s\"", where, what,
			        entry->content, names[i]);
		if (given[i] < 0)
			return given[i];
		entry->flags |= flag ? 1u << i : 0;
	}
	if (!given[3] && !(entry->flags & ADDED_SPECIAL))
		entry->flags |= ADDED_NORMALIZED;
	return 0;
}

int added_list_read(struct added_list *list, const json_t *array, const char *where)
{
	const json_t *element;
	size_t i;

	if (array && !json_is_null(array) && !json_is_array(array))
		return err_set(
		        ERR_INPUT, "%s: added_tokens is %s; expected an array", where, json_kind_name(array));
	json_array_foreach(array, i, element)
	{
		struct added_entry e = {.id = -1};
		int rc = added_entry_read(&e, element, where, "added_tokens", 1);

		if (rc == 0)
			rc = json_get_int(element, where, "id", &e.id);
		if (rc >= 0 && e.id < 0)
			rc = err_set(ERR_INPUT, "%s: added_tokens: an entry without id or content", where);
		if (rc >= 0 && added_list_find(list, e.content, e.len_bytes))
			rc = err_set(ERR_INPUT, "%s: added_tokens: '%.80s' occurs twice", where, e.content);
		if (rc >= 0)
			rc = added_list_add(list, &e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

void added_list_free(struct added_list *list)
{
	mem_free(list->entries);
	vocab_free(&list->index);
	*list = (struct added_list){0};
}
