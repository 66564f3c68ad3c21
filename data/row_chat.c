/* Rows of chats: messages, ShareGPT turns, and what other formats make chats of. */
#include "data/row_formats.h"

#include "base/err.h"
#include "base/json.h"
#include "data/chat_labels.h"
#include "data/dataset_build.h"

#include <inttypes.h>

/* The list of turns, under the names that data sets have for it. */
static const json_t *turns_of(const json_t *record)
{
	static const char *const keys[] = {"messages", "conversations", "conversation"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (json_is_array(json_object_get(record, keys[i])))
			return json_object_get(record, keys[i]);
	return NULL;
}

int row_messages_is_mine(const struct dataset_builder *b, const json_t *record)
{
	const json_t *turns = turns_of(record);

	(void)b;
	return turns && !json_object_get(json_array_get(turns, 0), "from");
}

int row_sharegpt_is_mine(const struct dataset_builder *b, const json_t *record)
{
	(void)b;
	return turns_of(record) != NULL;
}

static void count_ends(struct dataset_builder *b)
{
	const struct chat_labels *l = b->labels;
	int64_t kept = b->options->max_length_tokens ? b->options->max_length_tokens : INT64_MAX;

	if (l->ids.count > kept && b->options->long_rows == DATASET_LONG_ROWS_DROP)
		return;
	for (int64_t i = 0; i < l->end_count; i++)
		if (l->ends[i] < kept)
			b->d->counts.turn_ends++;
		else
			b->d->counts.turn_ends_cut++;
}

int dataset_builder_add_chat(struct dataset_builder *b, const struct chat *chat)
{
	const struct dataset_options *o = b->options;
	struct chat_labels *l = b->labels;
	int rc = dataset_builder_need_tokenizer(b);

	if (rc)
		return rc;
	if (!o->chat_template)
		return err_set(ERR_INPUT, "%s: chats need a chat template; set chat_template", b->where);
	rc = chat_labels_make(l, o->chat_template, o->tokenizer, chat,
	        o->inputs == DATASET_INPUTS_TRAIN ? CHAT_TURNS_ALL
	        : o->turns == DATASET_TURNS_LAST  ? CHAT_TURNS_LAST
	                                          : CHAT_TURNS_ASSISTANT);
	if (rc)
		return err_note(rc, "%s", b->where);
	count_ends(b);
	return dataset_builder_add(b, l->ids.ids, l->labels.ids, l->ids.count, 0);
}

/* A system message beside the turns, as some ShareGPT sets have it. */
static int add_system(struct chat *chat, const json_t *record, const char *where)
{
	const json_t *system = json_object_get(record, "system");

	return json_string_length(system) ? chat_add_text(chat, "system", system, where) : 0;
}

static int read_turns(struct dataset_builder *b, const json_t *record)
{
	const json_t *turns = turns_of(record);
	struct chat chat = {0};
	int rc;

	if (!turns)
		return err_set(
		        ERR_INPUT, "%s: there is no list under \"messages\" or \"conversations\"", b->where);
	rc = add_system(&chat, record, b->where);
	if (!rc && json_object_get(json_array_get(turns, 0), "from"))
		rc = chat_add_turns(&chat, turns, b->where);
	else if (!rc)
		rc = chat_add_messages(&chat, turns, b->where);
	if (!rc)
		rc = chat_add_extras(&chat, record, b->where);
	if (!rc)
		rc = dataset_builder_add_chat(b, &chat);
	chat_free(&chat);
	return rc;
}

int row_messages_read(struct dataset_builder *b, const json_t *record)
{
	return read_turns(b, record);
}

int row_sharegpt_read(struct dataset_builder *b, const json_t *record)
{
	return read_turns(b, record);
}
