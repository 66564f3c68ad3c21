/* What readers of records share: numbers, and texts among the tokens that the tokenizer puts around any. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/rows/dataset_build.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"

int row_value_refuse(
        const struct dataset_builder *b, const char *key, const json_t *value, const char *expected)
{
	const char *text = json_string_value(value);
	char number[32];

	if (json_is_integer(value))
		snprintf(number, sizeof(number), "%" PRId64, (int64_t)json_integer_value(value));
	else if (json_is_number(value))
		snprintf(number, sizeof(number), "%g", json_number_value(value));
	else
		number[0] = 0;
	return err_set(ERR_INPUT, "%s: \"%s\" is %s; expected %s", b->where, key,
	        *number ? number
	        : !text ? json_kind_name(value)
	        : *text ? text
	                : "empty",
	        expected);
}

int row_number_read(float *number, const struct dataset_builder *b, const char *key, const json_t *value)
{
	const char *text = json_string_value(value);
	char *end = NULL;

	*number = json_is_boolean(value) ? json_is_true(value) : (float)json_number_value(value);
	if (text)
		*number = (float)strtod(text, &end);
	if ((!text && !json_is_number(value) && !json_is_boolean(value)) ||
	        (text && (end == text || end[strspn(end, " \t")])) || !isfinite(*number))
		return row_value_refuse(b, key, value, "a number");
	return 0;
}

/* The tokens around a text are those of an empty one. */
static int around_find(struct dataset_builder *b)
{
	struct token_list before = {0};
	int rc;

	if (b->around)
		return 0;
	b->around = mem_alloc(1, sizeof(*b->around));
	rc = b->around ? tokenizer_encode(b->options->tokenizer, &before, "", 0, ADD_SPECIAL_BEFORE)
	               : ERR_NOMEM;
	if (!rc)
		rc = tokenizer_encode(b->options->tokenizer, b->around, "", 0, ADD_SPECIAL_ALL);
	b->around_before = before.count;
	token_list_free(&before);
	return rc;
}

int row_text_append(
        struct token_list *to, struct row_span *own, struct dataset_builder *b, const struct token_list *text)
{
	int64_t after;
	int rc = around_find(b);

	*own = (struct row_span){to->count, 0};
	if (!rc)
		rc = dataset_builder_fit_text(&own->count, b, text->count, b->around->count);
	if (rc || (text->count && !own->count))
		return rc;
	rc = token_list_extend(to, b->around->ids, b->around_before);
	own->first = to->count;
	if (!rc)
		rc = token_list_extend(to, text->ids, own->count);
	after = b->around->count - b->around_before;
	return rc || !after ? rc : token_list_extend(to, b->around->ids + b->around_before, after);
}
