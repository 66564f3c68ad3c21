/* The added tokens of all files of a tokenizer, in the order in which they get ids. */
#ifndef FERRY_DATA_TOKENIZER_ADDED_LIST_H
#define FERRY_DATA_TOKENIZER_ADDED_LIST_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "data/tokenizer/vocab.h"

struct added_entry {
	const char *content; /* [len_bytes] and NUL, in a JSON tree */
	size_t len_bytes;
	int64_t id;        /* in the file; -1: it has none */
	unsigned flags;    /* enum added_flag */
	int is_beside;     /* from another file than tokenizer.json */
	const char *where; /* this file */
};

struct added_list {
	struct added_entry *entries;
	int64_t count, cap;
	int is_model; /* the first ones are pieces of a tokenizer.model, special unless another file says
	                 otherwise */
	struct vocab index; /* of contents: the id is the place in entries */
};

int added_list_add(struct added_list *list, const struct added_entry *entry);

/* The entry with this content, or NULL. */
struct added_entry *added_list_find(const struct added_list *list, const char *content, size_t len_bytes);

/* Appends the value of "added_tokens" in tokenizer.json; `where` is its path. */
int added_list_read(struct added_list *list, const json_t *array, const char *where);

/* Reads content and flags of an AddedToken. is_strict: each flag must be there; else a missing one is off,
 * and normalized the opposite of special. Messages begin with `where`: `what`. */
int added_entry_read(
        struct added_entry *entry, const json_t *spec, const char *where, const char *what, int is_strict);
void added_list_free(struct added_list *list);

#endif
