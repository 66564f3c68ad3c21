/* YAML by libyaml's event parser: a flat list of settings with their places.
 *
 * A configuration is a mapping of scalars, lists of scalars, mappings of those, and lists of mappings. Each
 * scalar becomes one yaml_item with its dotted path ("fsdp_config.fsdp_offload_params"). A list of scalars
 * becomes one item with `is_list` set; its text is the elements joined by ",", and an element with a comma is
 * refused. A list of mappings puts the element's number in the path ("datasets.0.path"). Items keep the order
 * of the file. Numbers and booleans stay text as written. An empty mapping ({}) is one null item, so that its
 * key is not lost.
 *
 * These are errors with file and line: mappings named by a number, anchors, aliases, tags, several documents,
 * duplicate keys, nesting beyond 8, keys above 256 bytes, more than 10000 keys, files above 1 MiB.
 */
#ifndef FERRY_BASE_YAML_H
#define FERRY_BASE_YAML_H

#include <stddef.h>

struct yaml_item {
	char *path;  /* dotted keys from the root */
	char *text;  /* the scalar as written; "" for an empty value */
	int is_null; /* ~, null or nothing, unquoted */
	int is_list;
	int quoted; /* 'x', "x" or a block: always text, even if it looks like a number */
	int line;   /* of the value, from 1 */
};

struct yaml_doc {
	struct yaml_item *items;
	size_t count;
};

/* Parses a file or a text; one with only comments has no items. ERR_INPUT "where:line: what", or
 * "where:line:column: what" for syntax; ERR_NOMEM; for a file ERR_IO. *doc is empty after an error. */
int yaml_read_file(struct yaml_doc *doc, const char *path);
int yaml_parse(struct yaml_doc *doc, const char *where, const char *text, size_t len_bytes);

/* Empties *doc. NULL is allowed. (libyaml itself exports the name yaml_free.) */
void yaml_doc_free(struct yaml_doc *doc);

#endif
