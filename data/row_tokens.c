/* Rows of token ids. */
#include "data/row_formats.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/dataset_build.h"
#include "data/tokenizer/token_list.h"

/* An array of integers into a list. */
static int read_ints(struct token_list *list, const json_t *array, const char *where, const char *key)
{
	int64_t count = (int64_t)json_array_size(array);

	list->count = 0;
	if (token_list_reserve(list, count) < 0)
		return ERR_NOMEM;
	for (int64_t i = 0; i < count; i++) {
		const json_t *value = json_array_get(array, (size_t)i);
		int64_t number = json_integer_value(value);

		if (!json_is_integer(value))
			return err_set(ERR_INPUT, "%s: %s[%" PRId64 "] is %s; expected an integer", where,
			        key, i, json_kind_name(value));
		if (number < INT32_MIN || number > INT32_MAX)
			return err_set(ERR_INPUT,
			        "%s: %s[%" PRId64 "] is %" PRId64 ", which is not a token id", where, key, i,
			        number);
		list->ids[list->count++] = (int32_t)number;
	}
	return 0;
}

/* Keys that other programs write beside input_ids: only masks that say nothing are accepted, and masks of
 * targets where labels say what is one. */
static int check_mask(const json_t *record, const char *where, const char *key, const char *advice)
{
	const json_t *mask = json_object_get(record, key), *value;
	size_t i, count = json_array_size(json_object_get(record, "input_ids"));

	if (json_is_array(mask) && json_array_size(mask) != count)
		return err_set(ERR_INPUT, "%s: %s has %zu entries for %zu input_ids", where, key,
		        json_array_size(mask), count);
	json_array_foreach(mask, i, value) if (json_integer_value(value) != 1) return err_set(
	        ERR_UNSUPPORTED, "%s: %s[%zu] is not 1; %s", where, key, i, advice);
	return 0;
}

static int check_other_keys(const json_t *record, const char *where, int has_labels)
{
	static const char *const target_masks[] = {"completion_mask", "assistant_masks", "loss_mask"};
	static const char *const joins[] = {"position_ids", "seq_lengths"};
	int rc = check_mask(record, where, "attention_mask", "leave padding out of the rows");

	for (size_t i = 0; i < sizeof(joins) / sizeof(*joins); i++)
		if (json_object_get(record, joins[i]))
			return err_set(ERR_UNSUPPORTED,
			        "%s: %s are not supported; give each document a row of its own and set "
			        "packing",
			        where, joins[i]);
	for (size_t i = 0; i < sizeof(target_masks) / sizeof(*target_masks) && !has_labels && !rc; i++)
		rc = check_mask(
		        record, where, target_masks[i], "use labels, with -100 for tokens not to train on");
	return rc;
}

int row_tokens_is_mine(const struct dataset_builder *b, const json_t *record)
{
	(void)b;
	return json_object_get(record, "input_ids") != NULL;
}

int row_tokens_read(struct dataset_builder *b, const json_t *record)
{
	json_t *ids = NULL, *labels = NULL;
	int rc = json_get_array(record, b->where, "input_ids", &ids);

	if (rc == 0)
		return err_set(ERR_INPUT, "%s: input_ids is missing", b->where);
	if (rc > 0)
		rc = json_get_array(record, b->where, "labels", &labels);
	if (rc >= 0)
		rc = check_other_keys(record, b->where, labels != NULL);
	if (rc >= 0)
		rc = read_ints(b->ids, ids, b->where, "input_ids");
	if (rc >= 0 && labels)
		rc = read_ints(b->targets, labels, b->where, "labels");
	if (rc < 0)
		return rc;
	if (labels && b->targets->count != b->ids->count)
		return err_set(ERR_INPUT,
		        "%s: %" PRId64 " labels for %" PRId64 " input_ids; expected one each", b->where,
		        b->targets->count, b->ids->count);
	return dataset_builder_add(b, b->ids->ids, labels ? b->targets->ids : NULL, b->ids->count, 0);
}
