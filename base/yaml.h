/* YAML by libyaml's event parser: a flat list of settings with their places.
 *
 * A configuration is a mapping of scalars, lists of scalars, and mappings of those. Each scalar comes
 * out as one yaml_item with its dotted path ("fsdp_config.fsdp_offload_params"); a list of scalars
 * gives one item whose text is the elements joined by "," and `is_list` set. Anchors, aliases, several
 * documents, duplicate keys, nesting beyond 8 and files above 1 MiB are errors with file and line.
 */
#ifndef FERRY_BASE_YAML_H
#define FERRY_BASE_YAML_H

#include <stddef.h>

struct yaml_item {
	char *path;  /* dotted keys from the root */
	char *text;  /* the scalar as written; "" for an empty value */
	int is_null; /* ~, null or nothing, unquoted */
	int is_list;
	int quoted;
	int line; /* from 1 */
};

struct yaml_doc {
	struct yaml_item *items;
	size_t count;
};

int yaml_read_file(struct yaml_doc *doc, const char *path);
int yaml_parse(struct yaml_doc *doc, const char *where, const char *text, size_t len_bytes);
void yaml_free(struct yaml_doc *doc);

#endif
