/* Added tokens: contents that ferry finds in a text before any other step reads it.
 *
 * There are two sets, each searched leftmost-longest. Tokens with `normalized` false are searched in the raw
 * text. The others (with normalized contents) are searched in each normalized piece that remains. A flag may
 * refuse a match (single_word, skipped) or extend it over white space (lstrip, rstrip). The search goes on
 * after the content itself, so an extended match and the next one may overlap, as in HF tokenizers.
 */
#ifndef FERRY_DATA_TOKENIZER_ADDED_TOKENS_H
#define FERRY_DATA_TOKENIZER_ADDED_TOKENS_H

#include <stddef.h>
#include <stdint.h>

enum added_flag {
	ADDED_SINGLE_WORD = 1 << 0,
	ADDED_LSTRIP = 1 << 1,
	ADDED_RSTRIP = 1 << 2,
	ADDED_NORMALIZED = 1 << 3,
	ADDED_SPECIAL = 1 << 4,
	ADDED_SKIPPED = 1 << 5, /* a match is text like any other: split_special_tokens */
};

/* A stretch of a text: an added token, or (id -1) the text between two. */
struct piece {
	size_t start, end;
	int32_t id;
};

struct piece_list {
	struct piece *pieces;
	int64_t count, cap;
};

int piece_list_add(struct piece_list *list, size_t start, size_t end, int32_t id);
void piece_list_free(struct piece_list *list);

struct added_node {
	int32_t child, sibling; /* first child, next child of the same parent; -1 = none */
	int32_t id;             /* the content that ends here, or -1 */
	unsigned flags;
	unsigned char byte;
};

/* A trie over contents; node 0 is the root. */
struct added_set {
	struct added_node *nodes;
	int64_t count, cap;
	int32_t root_child[256]; /* node by first byte, 0 = none */
};

/* Adds a content. If the set has it already, its first id stays. */
int added_set_add(struct added_set *set, const char *content, size_t len_bytes, int32_t id, unsigned flags);
void added_set_free(struct added_set *set);

/* A search through a text. */
struct added_matches {
	const struct added_set *set;
	const char *text;
	size_t len_bytes;
	size_t at, done;    /* where to search next; everything before `done` is returned */
	struct piece match; /* if not empty: returned next, after the text before it */
};

void added_begin(struct added_matches *m, const struct added_set *set, const char *text, size_t len_bytes);

/* The next piece of the text (valid UTF-8), in order: a match, or (id -1) the text between two; never
 * empty. 0 at the end. */
int added_next(struct added_matches *m, struct piece *p);

#endif
