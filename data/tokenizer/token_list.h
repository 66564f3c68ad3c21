/* A growing list of token ids. Zero-initialise to start; token_list_free at the end. */
#ifndef FERRY_DATA_TOKENIZER_TOKEN_LIST_H
#define FERRY_DATA_TOKENIZER_TOKEN_LIST_H

#include <stdint.h>

struct token_list {
	int32_t *ids;
	int64_t count, cap;
	int64_t limit; /* encoding a text may stop at this count: the ids before are those of the whole text;
	                  0 = none */
};

static inline int token_list_is_enough(const struct token_list *list)
{
	return list->limit && list->count >= list->limit;
}

/* Makes room for at least extra_count more ids. 0, or ERR_NOMEM with the list unchanged. */
int token_list_reserve(struct token_list *list, int64_t extra_count);
int token_list_add(struct token_list *list, int32_t id);

/* Appends ids that are not the list's own. */
int token_list_extend(struct token_list *list, const int32_t *ids, int64_t count);

static inline int token_list_append(struct token_list *list, const struct token_list *more)
{
	return token_list_extend(list, more->ids, more->count);
}

/* Frees the ids and leaves an empty list. */
void token_list_free(struct token_list *list);

#endif
