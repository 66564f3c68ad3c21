/* A growing list of token ids. */
#include "data/tokenizer/token_list.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

int token_list_reserve(struct token_list *list, int64_t extra_count)
{
	int64_t cap = list->count + extra_count;
	int32_t *grown;

	if (cap <= list->cap)
		return 0;
	if (cap < 2 * list->cap)
		cap = 2 * list->cap;
	grown = mem_resize(list->ids, (size_t)cap, sizeof(*list->ids));
	if (!grown)
		return ERR_NOMEM;
	list->ids = grown;
	list->cap = cap;
	return 0;
}

int token_list_add(struct token_list *list, int32_t id)
{
	if (list->count == list->cap && token_list_reserve(list, list->cap + 16) < 0)
		return ERR_NOMEM;
	list->ids[list->count++] = id;
	return 0;
}

int token_list_extend(struct token_list *list, const int32_t *ids, int64_t count)
{
	if (token_list_reserve(list, count) < 0)
		return ERR_NOMEM;
	if (count > 0)
		memcpy(list->ids + list->count, ids, (size_t)count * sizeof(*ids));
	list->count += count;
	return 0;
}

void token_list_free(struct token_list *list)
{
	mem_free(list->ids);
	*list = (struct token_list){0};
}
