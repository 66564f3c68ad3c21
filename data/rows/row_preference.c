/* Pairs of a chosen and a rejected answer to one prompt: texts, chats, or token ids. */
#include "data/rows/row_formats.h"

#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/chat/chat.h"
#include "data/rows/dataset_build.h"
#include "data/tokenizer/token_list.h"
#include "data/tokenizer/tokenizer.h"

static const enum row_field answer_fields[2] = {ROW_FIELD_CHOSEN, ROW_FIELD_REJECTED};

struct preference_record {
	const json_t *record;
	const json_t *answers[2];
	int are_ids;                 /* the answers are lists of token ids */
	enum row_field prompt_field; /* ROW_FIELD_COUNT: the answers begin with the prompt */
	const json_t *prompt;
};

static int no_prompt(const struct dataset_builder *b, const json_t *record, const char *why)
{
	char columns[ROW_COLUMNS_BYTES];

	row_columns(columns, record);
	return err_set(ERR_INPUT,
	        "%s: no prompt: %s; the row has %s; set field_prompt to the column of the prompt", b->where,
	        why, columns);
}

/* Finds the prompt's column. One that the user named comes first. */
static int find_prompt(struct preference_record *r, struct dataset_builder *b)
{
	static const enum row_field fields[] = {ROW_FIELD_PROMPT, ROW_FIELD_MESSAGES, ROW_FIELD_INSTRUCTION};
	enum row_field found = ROW_FIELD_COUNT;
	const char *key = NULL;

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		const json_t *value = row_field(b->names, r->record, fields[i], NULL);

		if (value && !json_is_null(value) &&
		        (found == ROW_FIELD_COUNT ||
		                (b->names->fields[fields[i]] && !b->names->fields[found])))
			found = fields[i];
	}
	r->prompt_field = found;
	if (found == ROW_FIELD_COUNT)
		return 0;
	r->prompt = dataset_builder_get(b, r->record, found);
	(void)row_field(b->names, r->record, found, &key);
	if (!json_is_string(r->prompt) && !json_is_array(r->prompt))
		return err_set(ERR_INPUT, "%s: \"%s\" is %s; expected a text or a list of messages", b->where,
		        key, json_kind_name(r->prompt));
	return json_is_array(r->prompt) && !json_array_size(r->prompt) && !r->are_ids
	               ? no_prompt(b, r->record, "it is an empty list")
	               : 0;
}

static const char not_alike[] = "chosen and rejected do not begin alike";

/* ---- texts ---- */

static int is_word(char c)
{
	return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* A place where both texts may be cut: not in a character, a word, or an added token. */
static size_t cut_before(const struct tokenizer *t, const json_t *const texts[2], size_t n)
{
	const char *a = json_string_value(texts[0]), *b = json_string_value(texts[1]);
	size_t before;

	do {
		before = n;
		while (n && ((a[n] & 0xc0) == 0x80 || (b[n] & 0xc0) == 0x80 ||
		                    (is_word(a[n - 1]) && (is_word(a[n]) || is_word(b[n])))))
			n--;
		for (int i = 0; i < 2; i++)
			n = tokenizer_border(t, json_string_value(texts[i]), json_string_length(texts[i]), n);
	} while (n < before);
	return n;
}

/* Bytes of the prompt that two texts begin with. It ends with a word, because it is tokenized apart from the
 * answers; a blank behind it belongs to them, as in TRL. */
static size_t shared_prompt(const struct tokenizer *t, const json_t *const texts[2])
{
	const char *a = json_string_value(texts[0]), *b = json_string_value(texts[1]);
	size_t least = json_string_length(texts[0]), n = 0;

	if (json_string_length(texts[1]) < least)
		least = json_string_length(texts[1]);
	while (n < least && a[n] == b[n])
		n++;
	n = cut_before(t, texts, n);
	return n && a[n - 1] == ' ' ? cut_before(t, texts, n - 1) : n;
}

/* A prompt and its answer as one text, as in TRL. */
static int add_whole(struct dataset_builder *b, const char *prompt, size_t prompt_bytes, const char *answer,
        size_t answer_bytes)
{
	char *whole = mem_alloc(prompt_bytes + answer_bytes + 1, 1);
	int rc;

	if (!whole)
		return ERR_NOMEM;
	memcpy(whole, prompt, prompt_bytes);
	memcpy(whole + prompt_bytes, answer, answer_bytes);
	rc = dataset_builder_add_answer(b, "", 0, whole, prompt_bytes + answer_bytes, DATASET_PIECE_ANSWER);
	mem_free(whole);
	return rc < 0 ? rc : dataset_builder_add_said(b);
}

static int margin_read(struct dataset_builder *b, const json_t *record)
{
	const json_t *margin = json_object_get(record, "margin");

	b->margin = 0;
	if (b->options->pairs != DATASET_REWARDS_ONLY || !margin)
		return 0;
	dataset_builder_note_read(b, "margin");
	return row_number_read(&b->margin, b, "margin", margin);
}

static int add_texts(struct dataset_builder *b, const struct preference_record *r, int which)
{
	const char *prompt = "", *answer = "";
	size_t prompt_bytes = 0, answer_bytes = 0;
	int rc = dataset_builder_refuse_tools(b, r->record);

	if (rc == 0)
		rc = dataset_builder_need_tokenizer(b);
	if (rc == 0)
		rc = dataset_builder_text(b, r->record, answer_fields[which], &answer, &answer_bytes);
	if (rc == 0 && r->prompt) {
		rc = dataset_builder_text(b, r->record, r->prompt_field, &prompt, &prompt_bytes);
	} else if (rc == 0 && b->options->pairs != DATASET_REWARDS_ONLY) {
		prompt = answer;
		prompt_bytes = shared_prompt(b->options->tokenizer, r->answers);
		answer += prompt_bytes;
		answer_bytes -= prompt_bytes;
		rc = prompt_bytes ? 0 : no_prompt(b, r->record, not_alike);
	}
	if (rc == 0 && b->options->pairs == DATASET_REWARDS_ONLY)
		return add_whole(b, prompt, prompt_bytes, answer, answer_bytes);
	if (rc == 0)
		rc = dataset_builder_add_answer(
		        b, prompt, prompt_bytes, answer, answer_bytes, DATASET_PIECE_ANSWER);
	return rc < 0 ? rc : dataset_builder_add_said(b);
}

/* ---- token ids ---- */

static int append_ids(
        struct dataset_builder *b, const json_t *list, const char *key, enum dataset_piece piece)
{
	const int64_t top = b->vocab_count ? b->vocab_count : (int64_t)INT32_MAX + 1;
	int64_t from = b->ids->count;
	int rc = row_ids_append(b->ids, list, b->where, key);

	for (int64_t i = from; i < b->ids->count && !rc; i++) {
		int32_t id = b->ids->ids[i];

		if (id < 0 || id >= top)
			return err_set(ERR_INPUT,
			        "%s: %s[%" PRId64 "] is %d; the vocabulary has ids 0 to %" PRId64, b->where,
			        key, i - from, id, top - 1);
		rc = token_list_add(b->targets, piece == DATASET_PIECE_PROMPT ? DATASET_IGNORE : id);
	}
	return rc;
}

/* No token is added to them. */
static int add_ids(struct dataset_builder *b, const struct preference_record *r, int which)
{
	const char *key = NULL;
	int rc = 0;

	if (r->prompt) {
		(void)row_field(b->names, r->record, r->prompt_field, &key);
		if (!json_is_array(r->prompt))
			return err_set(
			        ERR_INPUT, "%s: \"%s\" must be token ids, as the answers are", b->where, key);
		rc = append_ids(b, r->prompt, key, DATASET_PIECE_PROMPT);
	}
	(void)row_field(b->names, r->record, answer_fields[which], &key);
	if (!rc)
		rc = append_ids(b, r->answers[which], key, DATASET_PIECE_ANSWER);
	return rc ? rc : dataset_builder_add_said(b);
}

/* ---- chats ---- */

static enum row_role role_at(const struct dataset_builder *b, const json_t *messages, size_t i)
{
	const char *role =
	        json_string_value(row_field(b->names, json_array_get(messages, i), ROW_FIELD_ROLE, NULL));

	return role ? row_role_of(b->names, role) : ROW_ROLE_COUNT;
}

/* Messages that both conversations begin with. Each keeps an answer. */
static size_t shared_messages(const json_t *const lists[2])
{
	size_t least = json_array_size(lists[0]), n = 0;

	if (json_array_size(lists[1]) < least)
		least = json_array_size(lists[1]);
	while (n + 1 < least && json_equal(json_array_get(lists[0], n), json_array_get(lists[1], n)))
		n++;
	return n;
}

/* Appends the prompt. *shared: so many messages of the answers belong to it too. */
static int add_prompt(struct chat *chat, size_t *shared, struct dataset_builder *b,
        const struct preference_record *r, const json_t *const lists[2])
{
	/* an answer begins with the assistant, a whole conversation does not */
	enum row_role first = role_at(b, lists[0], 0);
	int is_answer = !lists[0] || first == ROW_ROLE_ASSISTANT || first == ROW_ROLE_TOOL_CALL;
	int is_list = json_is_array(r->prompt) && (is_answer || r->prompt_field == ROW_FIELD_PROMPT), rc = 0;

	*shared = is_list || !lists[0] ? 0 : shared_messages(lists);
	if (role_at(b, is_list ? r->prompt : *shared ? lists[0] : NULL, 0) != ROW_ROLE_SYSTEM)
		rc = dataset_builder_add_system(b, chat, r->record);
	if (rc || *shared)
		return rc;
	if (is_list)
		return dataset_builder_add_messages(b, chat, r->prompt);
	return is_answer && json_is_string(r->prompt) ? chat_add_text(chat, "user", r->prompt, b->where)
	                                              : no_prompt(b, r->record, not_alike);
}

/* lists: the answers as lists of messages; NULL: they are texts. */
static int add_chat(
        struct dataset_builder *b, const struct preference_record *r, int which, const json_t *const lists[2])
{
	struct chat chat = {.names = b->names, .seen = &b->seen};
	size_t shared = 0;
	int rc = add_prompt(&chat, &shared, b, r, lists);

	chat.prompt_count = (int64_t)(json_array_size(chat.messages) + shared);
	if (rc == 0)
		rc = lists[which] ? dataset_builder_add_messages(b, &chat, lists[which])
		                  : chat_add_text(&chat, "assistant", r->answers[which], b->where);
	for (int64_t i = 0; rc == 0 && i < chat.prompt_count; i++)
		chat.train[i] = CHAT_TRAIN_UNSAID; /* a prompt is never trained */
	if (rc == 0)
		rc = dataset_builder_add_extras(b, &chat, r->record);
	if (rc == 0)
		rc = dataset_builder_add_chat(b, &chat, DATASET_INPUTS_MASK);
	chat_free(&chat);
	return rc;
}

/* ---- records ---- */

static int add_row(
        struct dataset_builder *b, const struct preference_record *r, int which, const json_t *const lists[2])
{
	b->ids->count = b->targets->count = 0;
	if (r->are_ids)
		return add_ids(b, r, which);
	if (lists[0] || json_is_array(r->prompt) || r->prompt_field == ROW_FIELD_MESSAGES)
		return add_chat(b, r, which, lists);
	if (r->prompt_field == ROW_FIELD_INSTRUCTION)
		return dataset_builder_read_alpaca(b, r->record, answer_fields[which]);
	return add_texts(b, r, which);
}

/* One message stands for a list of it. */
static int list_of(json_t **list, const struct dataset_builder *b, const json_t *answer, const char *key)
{
	*list = json_is_object(answer) ? json_pack("[O]", answer) : json_incref((json_t *)(uintptr_t)answer);
	if (!*list)
		return err_set(ERR_NOMEM, "out of memory for a chat");
	if (!json_array_size(*list))
		return err_set(ERR_INPUT, "%s: \"%s\" has no messages", b->where, key);
	return json_is_object(json_array_get(*list, 0))
	               ? 0
	               : err_set(ERR_INPUT, "%s: \"%s\": the first entry is %s; expected a message", b->where,
	                         key, json_kind_name(json_array_get(*list, 0)));
}

static int is_id_list(const json_t *list)
{
	return json_is_integer(json_array_get(list, 0));
}

/* Finds the answers: both texts, both chats, or both token ids. *texts: so many are texts. */
static int find_answers(
        struct preference_record *r, const char *keys[2], int *texts, struct dataset_builder *b)
{
	int id_lists = 0;

	for (int i = 0; i < 2; i++) {
		(void)row_field(b->names, r->record, answer_fields[i], &keys[i]);
		r->answers[i] = dataset_builder_get(b, r->record, answer_fields[i]);
		if (!r->answers[i])
			return dataset_builder_missing(b, r->record, answer_fields[i]);
		if (!json_is_string(r->answers[i]) && !json_is_array(r->answers[i]) &&
		        !json_is_object(r->answers[i]))
			return err_set(ERR_INPUT, "%s: \"%s\" is %s; expected a text or a list of messages",
			        b->where, keys[i], json_kind_name(r->answers[i]));
		*texts += json_is_string(r->answers[i]);
		r->are_ids |= is_id_list(r->answers[i]);
		id_lists += json_is_array(r->answers[i]) &&
		            (is_id_list(r->answers[i]) || !json_array_size(r->answers[i]));
	}
	if (*texts != 1 && (!r->are_ids || id_lists == 2))
		return 0;
	return err_set(ERR_INPUT, "%s: \"%s\" and \"%s\" must both be %s", b->where, keys[0], keys[1],
	        r->are_ids ? "lists of token ids" : "texts, or both lists of messages");
}

/* The rejected answer in the form of the chosen message: a message with that text. NULL: no memory. */
static json_t *as_message(const struct dataset_builder *b, const json_t *chosen, const json_t *text)
{
	const char *role = NULL, *content = row_field_names(b->names, ROW_FIELD_CONTENT);
	json_t *value = row_field(b->names, chosen, ROW_FIELD_ROLE, &role), *message = json_object();

	(void)row_field(b->names, chosen, ROW_FIELD_CONTENT, &content);
	if (message && !json_object_set(message, role, value) &&
	        !json_object_setn(message, content, strcspn(content, ","), (json_t *)(uintptr_t)text))
		return message;
	json_decref(message);
	return NULL;
}

/* Whether the rejected answer stands alone, and not behind its chat. */
static int is_alone(const struct dataset_builder *b, const json_t *rejected, const json_t *messages)
{
	return !json_is_array(rejected) || (role_at(b, rejected, 0) == ROW_ROLE_ASSISTANT &&
	                                           role_at(b, messages, 0) != ROW_ROLE_ASSISTANT);
}

/* Fills in the chosen answer's column, and leaves the prompt in that of the messages. */
static int chosen_split(json_t *pair, struct dataset_builder *b, const json_t *messages, const char *key,
        const char *rejected_key)
{
	const char *name = row_field_names(b->names, ROW_FIELD_CHOSEN), *prompt_key = NULL;
	json_t *rejected = json_object_get(pair, rejected_key),
	       *prompt = json_copy((json_t *)(uintptr_t)messages);
	size_t last = json_array_size(messages) - 1;
	json_t *chosen = json_array_get(messages, last);
	int is_prompt = is_alone(b, rejected, messages), failed = !prompt || json_array_remove(prompt, last);

	if (!failed && json_is_string(rejected))
		failed = json_object_set_new(pair, rejected_key, as_message(b, chosen, rejected));
	if (!failed)
		failed = json_object_setn(
		        pair, name, strcspn(name, ","), is_prompt ? chosen : (json_t *)(uintptr_t)messages);
	if (!failed)
		failed = is_prompt ? json_object_set(pair, key, prompt) : json_object_del(pair, key);
	json_decref(prompt);
	if (!b->names->fields[ROW_FIELD_PROMPT] && row_field(b->names, pair, ROW_FIELD_PROMPT, &prompt_key))
		json_object_del(pair, prompt_key); /* the chat has it */
	return failed ? err_set(ERR_NOMEM, "out of memory for a pair") : 0;
}

/* A chat that ends with the chosen answer, beside a rejected one: the same pair with a column of its own for
 * the chosen one. *out stays NULL for other rows. */
static int with_chosen(json_t **out, struct dataset_builder *b, const json_t *record)
{
	const char *key = NULL, *rejected_key = NULL;
	const json_t *messages = row_field(b->names, record, ROW_FIELD_MESSAGES, &key);
	const json_t *rejected = row_field(b->names, record, ROW_FIELD_REJECTED, &rejected_key);
	size_t count = json_array_size(messages);

	if (row_field(b->names, record, ROW_FIELD_CHOSEN, NULL) || !count || !rejected)
		return 0;
	if (role_at(b, messages, count - 1) != ROW_ROLE_ASSISTANT)
		return err_set(ERR_INPUT,
		        "%s: \"%s\" must end with the chosen answer, a message of the assistant", b->where,
		        key);
	dataset_builder_note_read(b, key);
	*out = json_copy((json_t *)(uintptr_t)record);
	return *out ? chosen_split(*out, b, messages, key, rejected_key)
	            : err_set(ERR_NOMEM, "out of memory for a pair");
}

static int read_pair(struct dataset_builder *b, const json_t *record)
{
	struct preference_record r = {.record = record};
	json_t *lists[2] = {NULL, NULL};
	const char *keys[2] = {NULL, NULL};
	int texts = 0, rc = find_answers(&r, keys, &texts, b);

	if (!rc)
		rc = margin_read(b, record);
	if (!rc)
		rc = find_prompt(&r, b);
	for (int i = 0; !texts && !r.are_ids && !rc && i < 2; i++)
		rc = list_of(&lists[i], b, r.answers[i], keys[i]);
	dataset_builder_begin_pair(b);
	for (int i = 0; !rc && i < 2; i++)
		rc = add_row(b, &r, i, (const json_t *const *)lists);
	json_decref(lists[0]);
	json_decref(lists[1]);
	return rc;
}

int row_preference_read(struct dataset_builder *b, const json_t *record)
{
	json_t *pair = NULL;
	int rc = with_chosen(&pair, b, record);

	if (!rc)
		rc = read_pair(b, pair ? pair : record);
	json_decref(pair);
	return rc;
}
