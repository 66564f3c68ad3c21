/* Expands and escapes ${key} in values. */
#include "config/reference.h"

#include "base/err.h"

#include <string.h>

static const struct yaml_item *item_find(const struct yaml_doc *doc, const char *name, size_t len)
{
	for (size_t i = 0; i < doc->count; i++)
		if (strlen(doc->items[i].path) == len && !strncmp(doc->items[i].path, name, len))
			return &doc->items[i];
	return NULL;
}

static int expand(struct str *out, const struct yaml_doc *doc, const struct yaml_item *item, const char *text,
        int depth)
{
	enum { DEPTH_MAX = 8 };
	const char *at;

	while ((at = strstr(text, "${"))) {
		size_t len = strcspn(at + 2, "}");
		const struct yaml_item *other = at[2 + len] ? item_find(doc, at + 2, len) : NULL;

		if (at > text && at[-1] == '\\') {
			str_add_bytes(out, text, (size_t)(at - 1 - text));
			str_add(out, "${");
			text = at + 2;
			continue;
		}
		if (!other || depth == DEPTH_MAX)
			return err_set(ERR_INPUT, "%s: %.*s refers to no key of this file; write the value",
			        item->path, (int)(len + 2 + (at[2 + len] != 0)), at);
		str_add_bytes(out, text, (size_t)(at - text));
		if (expand(out, doc, item, other->text, depth + 1))
			return ERR_INPUT;
		text = at + 2 + len + 1;
	}
	str_add(out, text);
	return str_check(out);
}

int reference_expand(struct str *out, const struct yaml_doc *doc, const struct yaml_item *item)
{
	return expand(out, doc, item, item->text, 0);
}

void reference_escape(struct str *out, const char *text)
{
	for (; *text; text++) {
		if (text[0] == '$' && text[1] == '{')
			str_add_char(out, '\\');
		str_add_char(out, *text);
	}
}
