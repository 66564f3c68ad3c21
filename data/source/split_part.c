/* Parses parts of splits, and finds their records. */
#include "data/source/split_part.h"

#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad(const char *text)
{
	return err_set(ERR_INPUT,
	        "%s: unknown part of a split; write it as train[:500], train[10%%:20%%] or train[-500:]",
	        text);
}

/* A number that ends at the character `end`; nothing at all is the start or the end of the split. */
static int bound_parse(struct split_bound *bound, const char **text, char end)
{
	char *rest;

	*bound = (struct split_bound){0};
	if (**text != end) {
		bound->value = strtoll(*text, &rest, 10);
		bound->is_set = rest > *text && llabs(bound->value) < INT64_MAX / 1000;
		bound->is_percent = *rest == '%';
		if (!bound->is_set || (bound->is_percent && llabs(bound->value) > 100))
			return -1;
		*text = rest + bound->is_percent;
	}
	if (**text != end)
		return -1;
	(*text)++;
	return 0;
}

int split_part_parse(char name[SPLIT_NAME_BYTES], struct split_part *part, const char *text)
{
	size_t len = strcspn(text, "[");
	const char *at = text + len;

	*part = (struct split_part){0};
	if (len >= SPLIT_NAME_BYTES)
		return bad(text);
	memcpy(name, text, len);
	name[len] = 0;
	if (!*at)
		return 0;
	at++;
	part->is_part = 1;
	return bound_parse(&part->from, &at, ':') || bound_parse(&part->to, &at, ']') || *at ? bad(text) : 0;
}

static int of_end(const struct split_bound *b)
{
	return b->is_set && (b->is_percent || b->value < 0);
}

int split_part_needs_count(const struct split_part *part)
{
	return of_end(&part->from) || of_end(&part->to);
}

static int64_t place(const struct split_bound *b, int64_t count, int64_t unset)
{
	int64_t at = !b->is_set      ? unset
	             : b->is_percent ? (int64_t)nearbyint((double)(b->value * count) / 100)
	                             : b->value;

	if (at < 0)
		at = count + at > 0 ? count + at : 0;
	return at < count ? at : count;
}

void split_part_range(int64_t *first, int64_t *end, const struct split_part *part, int64_t count)
{
	*first = place(&part->from, count, 0);
	*end = place(&part->to, count, count);
}
