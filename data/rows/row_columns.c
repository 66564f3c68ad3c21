/* Columns of a data set: which of them no reader used, and chats that a cell holds as JSON. */
#include "data/chat/chat_calls.h"
#include "data/rows/dataset_build.h"

#include "base/err.h"
#include "base/json.h"

#include <stdio.h>
#include <string.h>

static int is_empty(const json_t *value)
{
	return json_is_null(value) || (json_is_string(value) && !json_string_length(value)) ||
	       (json_is_array(value) && !json_array_size(value)) ||
	       (json_is_object(value) && !json_object_size(value));
}

int row_columns_note(struct dataset_builder *b, json_t *record)
{
	const char *key;
	const json_t *value;

	if (!b->columns && !(b->columns = json_object()))
		return err_set(ERR_NOMEM, "out of memory for a data set's columns");
	json_object_foreach(record, key, value)
	{
		if (!json_object_get(b->columns, key) && !is_empty(value) &&
		        json_object_set_new(b->columns, key, json_false()))
			return err_set(ERR_NOMEM, "out of memory for a data set's columns");
	}
	return 0;
}

void dataset_builder_note_read(struct dataset_builder *b, const char *column)
{
	if (json_is_false(json_object_get(b->columns, column)))
		json_object_set_new(b->columns, column, json_true()); /* in the place of another: no memory */
}

void row_columns_end(struct dataset_builder *b)
{
	char *unread = b->d->counts.unread_columns;
	size_t len = strlen(unread), cap = sizeof(b->d->counts.unread_columns);
	const char *key;
	const json_t *is_read;

	json_object_foreach(b->columns, key, is_read)
	{
		int more = json_is_true(is_read)
		                   ? 0
		                   : snprintf(unread + len, cap - len, "%s%s", len ? ", " : "", key);

		if (more < 0 || len + (size_t)more >= cap - 5) {
			snprintf(unread + len, cap - len, ", ...");
			break;
		}
		len += (size_t)more;
	}
	json_decref(b->columns);
	b->columns = NULL;
}

/* Lists of messages and tools may hold each as JSON in a text. */
static int parse_lists(const struct dataset_builder *b, const json_t *record)
{
	static const enum row_field lists[] = {ROW_FIELD_MESSAGES, ROW_FIELD_PROMPT, ROW_FIELD_COMPLETION,
	        ROW_FIELD_CHOSEN, ROW_FIELD_REJECTED, ROW_FIELD_TOOLS};
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(lists) / sizeof(lists[0]); i++) {
		json_t *list = row_field(b->names, record, lists[i], NULL);

		if (json_is_string(json_array_get(list, 0)))
			rc = chat_parse_list(list);
	}
	return rc;
}

/* CSV has no lists, so a chat there is JSON in a text. */
int row_columns_parse_chat(const struct dataset_builder *b, json_t *record)
{
	const char *key = NULL;
	const json_t *cell = row_field(b->names, record, ROW_FIELD_MESSAGES, &key);
	const char *text = json_string_value(cell);
	json_t *chat = NULL;
	int rc = parse_lists(b, record);

	if (rc || !text || text[strspn(text, " \t\r\n")] != '[')
		return rc;
	rc = json_parse_exact(&chat, key, text, json_string_length(cell), 1);
	if (rc == ERR_INPUT)
		return err_reword(rc, "%s: \"%s\" is a text that begins with [ and is not JSON: %s", b->where,
		        key, err_text());
	if (!rc && json_object_set_new(record, key, chat))
		rc = err_set(ERR_NOMEM, "out of memory for a chat");
	return rc;
}

int dataset_builder_refuse_tools(const struct dataset_builder *b, const json_t *record)
{
	const char *key = NULL;
	const json_t *tools = row_field(b->names, record, ROW_FIELD_TOOLS, &key);

	if (!tools || is_empty(tools) || (json_is_string(tools) && !strcmp(json_string_value(tools), "[]")))
		return 0;
	return err_set(ERR_INPUT,
	        "%s: \"%s\" of the row would be lost, because %s rows of texts have no tools; make the row a "
	        "chat "
	        "(messages), or remove the column",
	        b->where, key, dataset_format_name(b->d->format));
}
