/* Rows of chats: messages, ShareGPT turns, and chats of other formats. */
#include "data/rows/row_formats.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "data/chat/chat_labels.h"
#include "data/chat/chat_lost.h"
#include "data/rows/dataset_build.h"

#include <string.h>

/* A chat is tokenized as a whole, also what max_length cuts off: its turns are found in its tokens. */
enum { CHAT_BYTES_MAX = 32 << 20 };

/* 1 for ShareGPT turns: the name of the speaker is not under "role". */
static int are_turns(const struct dataset_builder *b, const json_t *turns)
{
	const char *key = NULL;

	return row_field(b->names, json_array_get(turns, 0), ROW_FIELD_ROLE, &key) && strcmp(key, "role");
}

int row_messages_is_mine(const struct dataset_builder *b, const json_t *record)
{
	const json_t *turns = row_field(b->names, record, ROW_FIELD_MESSAGES, NULL);

	return json_is_array(turns) && !are_turns(b, turns);
}

int row_sharegpt_is_mine(const struct dataset_builder *b, const json_t *record)
{
	return json_is_array(row_field(b->names, record, ROW_FIELD_MESSAGES, NULL));
}

#define ROLE_KEYS "set role_user=%.40s, or role_assistant, role_system, role_tool"

static void note_end(struct dataset *d, int32_t id)
{
	for (int i = 0; i < d->counts.turn_end_id_count; i++)
		if (d->counts.turn_end_ids[i] == id)
			return;
	if (d->counts.turn_end_id_count < DATASET_TURN_END_IDS_MAX)
		d->counts.turn_end_ids[d->counts.turn_end_id_count++] = id;
}

static void count_ends(struct dataset_builder *b)
{
	const struct chat_labels *l = b->labels;
	int64_t kept = b->options->max_length_tokens ? b->options->max_length_tokens : INT64_MAX;

	if (l->ids.count > kept && b->options->long_rows == DATASET_LONG_ROWS_DROP)
		return;
	for (int64_t i = 0; i < l->end_count; i++) {
		note_end(b->d, l->ids.ids[l->ends[i]]); /* cut off or not, a result is used with it */
		if (l->ends[i] < kept)
			b->d->counts.turn_ends++;
		else
			b->d->counts.turn_ends_cut++;
	}
}

/* Counts the row if a trained answer is empty and calls no tool. */
static void note_empty(struct dataset_builder *b, const struct chat *chat)
{
	int64_t count = (int64_t)json_array_size(chat->messages);

	for (int64_t i = chat->prompt_count; i < count; i++) {
		const json_t *message = json_array_get(chat->messages, (size_t)i);
		const json_t *content = json_object_get(message, "content");
		const char *role = json_string_value(json_object_get(message, "role"));

		if (strcmp(role, "assistant") || chat->train[i] == CHAT_TRAIN_NO ||
		        !json_is_string(content) || json_object_get(message, "tool_calls") ||
		        json_object_get(message, "thinking") ||
		        json_string_value(content)[strspn(json_string_value(content), " \t\r\n")])
			continue;
		dataset_builder_note_answer(b, "", 0);
		return;
	}
}

static int has_answer(const struct chat *chat)
{
	const json_t *message;
	size_t i;

	json_array_foreach(chat->messages, i, message) if (chat_is_assistant(message)) return 1;
	return 0;
}

/* The columns that chat_add_extras looks at. */
int dataset_builder_add_extras(struct dataset_builder *b, struct chat *chat, const json_t *record)
{
	int rc;

	(void)dataset_builder_get(b, record, ROW_FIELD_TOOLS);
	dataset_builder_note_read(b, "documents");
	dataset_builder_note_read(b, "chat_template_kwargs");
	rc = chat_add_extras(chat, record, b->where);
	if (!rc && chat->has_dropped_nulls && !b->is_nulls_told++)
		log_warn("%s: members that are null in tool calls and schemas are left out in rows such as "
		         "this "
		         "one: they are keys of other rows, which Arrow puts there",
		        b->where);
	return rc;
}

/* Messages of the assistant from here on are trained. */
static int64_t first_trained(const struct chat *chat, enum chat_turns turns)
{
	int64_t last = (int64_t)json_array_size(chat->messages) - 1;

	while (turns == CHAT_TURNS_LAST && last > 0 &&
	        !chat_is_assistant(json_array_get(chat->messages, (size_t)last)))
		last--;
	return turns == CHAT_TURNS_ALL ? 0 : turns == CHAT_TURNS_LAST ? last : chat->prompt_count;
}

/* The bytes of the texts in a value. */
static size_t text_bytes(const json_t *value)
{
	size_t bytes = json_string_length(value), i;
	const char *key;
	json_t *item;

	json_array_foreach(value, i, item) bytes += text_bytes(item);
	json_object_foreach((json_t *)(uintptr_t)value, key, item) bytes += text_bytes(item);
	return bytes;
}

int dataset_builder_add_chat(struct dataset_builder *b, const struct chat *chat, enum dataset_inputs kind)
{
	const struct dataset_options *o = b->options;
	const enum chat_turns turns = (o->inputs & (int)kind)          ? CHAT_TURNS_ALL
	                              : o->turns == DATASET_TURNS_LAST ? CHAT_TURNS_LAST
	                                                               : CHAT_TURNS_ASSISTANT;
	struct chat_labels *l = b->labels;
	int rc = dataset_builder_need_tokenizer(b);

	if (rc)
		return rc;
	if (text_bytes(chat->messages) > CHAT_BYTES_MAX)
		return err_set(ERR_UNSUPPORTED,
		        "%s: the chat has more than %d MiB of text, which is the limit; make several chats "
		        "of it",
		        b->where, CHAT_BYTES_MAX >> 20);
	if (!o->chat_template)
		return err_set(ERR_INPUT, "%s: chats need a chat template; set chat_template", b->where);
	rc = chat_labels_make(l, o->chat_template, o->tokenizer, chat, turns);
	if (rc == ERR_INPUT && chat->other_role) {
		err_reword(rc, "%s: %s; if the role '%.40s' stands for another one, " ROLE_KEYS, b->where,
		        err_text(), chat->other_role, chat->other_role);
	} else if (rc)
		rc = err_note(rc, "%s", b->where);
	if (rc)
		return rc;
	if (chat->other_role && !b->is_other_role_told++)
		log_warn("%s: the chat template gets the role '%.40s' unchanged, and ferry does not train on "
		         "it; if it stands for another role, " ROLE_KEYS,
		        b->where, chat->other_role, chat->other_role);
	rc = chat_lost_warn(b->warned, o->chat_template, chat, first_trained(chat, turns), b->where);
	if (rc)
		return rc;
	b->d->counts.chats++;
	b->d->counts.answered_chats += has_answer(chat);
	count_ends(b);
	note_empty(b, chat);
	return dataset_builder_add(b, l->ids.ids, l->labels.ids, l->ids.count, 0);
}

/* Some ShareGPT sets have the system message beside the turns. */
int dataset_builder_add_system(struct dataset_builder *b, struct chat *chat, const json_t *record)
{
	const json_t *system = dataset_builder_get(b, record, ROW_FIELD_SYSTEM);

	return json_string_length(system) ? chat_add_text(chat, "system", system, b->where) : 0;
}

int dataset_builder_add_messages(const struct dataset_builder *b, struct chat *chat, const json_t *list)
{
	return are_turns(b, list) ? chat_add_turns(chat, list, b->where)
	                          : chat_add_messages(chat, list, b->where);
}

static int read_turns(struct dataset_builder *b, const json_t *record)
{
	const json_t *turns = dataset_builder_get(b, record, ROW_FIELD_MESSAGES);
	struct chat chat = {.names = b->names, .seen = &b->seen};
	int rc;

	if (!turns)
		return dataset_builder_missing(b, record, ROW_FIELD_MESSAGES);
	rc = dataset_builder_add_system(b, &chat, record);
	if (!rc)
		rc = dataset_builder_add_messages(b, &chat, turns);
	if (!rc)
		rc = dataset_builder_add_extras(b, &chat, record);
	if (!rc)
		rc = dataset_builder_add_chat(b, &chat, DATASET_INPUTS_CHATS);
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
