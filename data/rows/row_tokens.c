/* Rows of token ids. */
#include "data/rows/row_formats.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/rows/dataset_build.h"
#include "data/tokenizer/token_list.h"

int row_ids_append(struct token_list *list, const json_t *array, const char *where, const char *key)
{
	int64_t count = (int64_t)json_array_size(array);

	if (token_list_reserve(list, list->count + count) < 0)
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

/* Checks masks that other programs write beside input_ids. A mask must be all ones; masks of targets may be
 * anything if the row has labels. */
static int check_mask(
        const json_t *record, size_t count, const char *where, const char *key, const char *advice)
{
	const json_t *mask = json_object_get(record, key), *value;
	size_t i;

	if (json_is_array(mask) && json_array_size(mask) != count)
		return err_set(ERR_INPUT, "%s: %s has %zu entries for %zu input_ids", where, key,
		        json_array_size(mask), count);
	json_array_foreach(mask, i, value) if (json_integer_value(value) != 1) return err_set(
	        ERR_UNSUPPORTED, "%s: %s[%zu] is not 1; %s", where, key, i, advice);
	return 0;
}

static int check_other_keys(struct dataset_builder *b, const json_t *record, size_t count, int has_labels)
{
	static const char *const target_masks[] = {"completion_mask", "assistant_masks", "loss_mask"};
	static const char *const joins[] = {"position_ids", "seq_lengths"};
	const char *where = b->where;
	int rc = check_mask(record, count, where, "attention_mask", "leave padding out of the rows");

	dataset_builder_note_read(b, "attention_mask");
	for (size_t i = 0; i < sizeof(target_masks) / sizeof(*target_masks); i++)
		dataset_builder_note_read(b, target_masks[i]);
	for (size_t i = 0; i < sizeof(joins) / sizeof(*joins); i++)
		if (json_object_get(record, joins[i]))
			return err_set(ERR_UNSUPPORTED,
			        "%s: %s are not supported; give each document a row of its own and set "
			        "packing",
			        where, joins[i]);
	for (size_t i = 0; i < sizeof(target_masks) / sizeof(*target_masks) && !has_labels && !rc; i++)
		rc = check_mask(record, count, where, target_masks[i],
		        "use labels, with -100 for tokens not to train on");
	return rc;
}

/* Reads an array of integers: 1, or 0 if it is absent or null. */
static int read_field(
        struct token_list *list, struct dataset_builder *b, const json_t *record, enum row_field field)
{
	const char *key = NULL;
	const json_t *value = row_field(b->names, record, field, &key);
	int rc;

	if (!dataset_builder_get(b, record, field) || json_is_null(value))
		return 0;
	if (!json_is_array(value))
		return err_set(ERR_INPUT, "%s: \"%s\" is %s; expected an array of integers", b->where, key,
		        json_kind_name(value));
	list->count = 0;
	rc = row_ids_append(list, value, b->where, key);
	return rc < 0 ? rc : 1;
}

int row_tokens_read(struct dataset_builder *b, const json_t *record)
{
	int rc = read_field(b->ids, b, record, ROW_FIELD_INPUT_IDS), has_labels;

	if (rc == 0)
		return dataset_builder_missing(b, record, ROW_FIELD_INPUT_IDS);
	if (rc > 0)
		rc = read_field(b->targets, b, record, ROW_FIELD_LABELS);
	has_labels = rc > 0;
	if (rc >= 0)
		rc = check_other_keys(b, record, (size_t)b->ids->count, has_labels);
	if (rc < 0)
		return rc;
	if (has_labels && b->targets->count != b->ids->count)
		return err_set(ERR_INPUT,
		        "%s: %" PRId64 " labels for %" PRId64 " input_ids; expected one each", b->where,
		        b->targets->count, b->ids->count);
	return dataset_builder_add(b, b->ids->ids, has_labels ? b->targets->ids : NULL, b->ids->count, 0);
}
