/* Adds the chat template and end-of-turn ids to a model's files. */
#include "checkpoint/hf/hf_chat.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"

#include <string.h>

static const char text_part[] = "text_config";

static int list_has(const json_t *list, int32_t id)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item) if (json_integer_value(item) == id) return 1;
	return 0;
}

/* Appends the end-of-turn ids to the object's eos_token_id. Returns 1 if it added any. */
static int add_ids(json_t *object, const struct hf_chat *chat)
{
	json_t *eos = json_object_get(object, "eos_token_id");
	json_t *list = json_is_array(eos) ? json_copy(eos) : json_array();
	size_t before;
	int failed = 0;

	if (json_is_integer(eos))
		failed = json_array_append(list, eos);
	for (int i = 0; !eos && i < chat->text_end_id_count && !failed; i++)
		failed = json_array_append_new(list, json_integer(chat->text_end_ids[i]));
	before = json_array_size(list);
	for (int i = 0; i < chat->end_id_count && !failed; i++)
		if (!list_has(list, chat->end_ids[i]))
			failed = json_array_append_new(list, json_integer(chat->end_ids[i]));
	if (json_array_size(list) == before && !failed) {
		json_decref(list);
		return list ? 0 : ERR_NOMEM;
	}
	/* write a single id as a number, because not every reader accepts a list */
	if (!failed && json_array_size(list) == 1)
		failed = json_object_set(object, "eos_token_id", json_array_get(list, 0));
	else if (!failed)
		failed = json_object_set(object, "eos_token_id", list);
	json_decref(list);
	return failed ? err_set(ERR_NOMEM, "out of memory for eos_token_id") : 1;
}

/* Makes a generation_config.json from the ids in config.json. */
static json_t *generation_of(const json_t *config)
{
	static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
	json_t *object = json_object();

	for (size_t i = 0; object && i < sizeof(keys) / sizeof(*keys); i++) {
		json_t *value = json_object_get(config, keys[i]);

		if (!value)
			value = json_object_get(json_object_get(config, text_part), keys[i]);

		if (value && !json_is_null(value) && json_object_set(object, keys[i], value)) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

/* Adds missing ids to an existing file. A model that also reads images or sound has them for its text part,
 * or for the whole, or for both. */
static int add_to_file(struct side_files *side, const char *name, const struct hf_chat *chat, json_t **read)
{
	static const char key[] = "eos_token_id";
	int err = side_files_object(read, side, name), added = 0;
	json_t *text = json_object_get(*read, text_part);

	if (!err && *read && (!text || json_object_get(*read, key)))
		added = add_ids(*read, chat);
	if (!err && added >= 0 && json_object_get(text, key)) {
		err = add_ids(text, chat);
		added |= err == 1;
	}
	if (added < 0 || err < 0)
		return added < 0 ? added : err;
	return added ? side_files_put_object(side, name, *read) : 0;
}

static int add_ends(const struct hf_chat *chat, struct side_files *side)
{
	static const char generation_name[] = "generation_config.json";
	json_t *config = NULL, *generation = NULL;
	int err = add_to_file(side, "config.json", chat, &config);

	if (!err)
		err = add_to_file(side, generation_name, chat, &generation);
	if (!err && !generation && config) {
		generation = generation_of(config);
		err = generation ? side_files_put_object(side, generation_name, generation) : ERR_NOMEM;
	}
	json_decref(config);
	json_decref(generation);
	return err;
}

/* special_tokens_map.json repeats it, for older programs. */
static int set_eos(struct side_files *side, const char *eos_token)
{
	static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json"};
	int err = 0;

	for (size_t i = 0; eos_token && i < 2 && !err; i++) {
		json_t *object = NULL;

		err = side_files_object(&object, side, names[i]);
		if (!err && !object && !i)
			object = json_object();
		if (!err && object && json_object_set_new(object, "eos_token", json_string(eos_token)))
			err = ERR_NOMEM;
		if (!err && object)
			err = side_files_put_object(side, names[i], object);
		json_decref(object);
	}
	return err;
}

int hf_chat_apply(const struct hf_chat *chat, struct side_files *side)
{
	char *text;
	int err;

	err = chat->end_id_count ? add_ends(chat, side) : 0;
	if (!err)
		err = set_eos(side, chat->eos_token);
	if (err || !chat->template_text)
		return err;
	text = mem_strdup(chat->template_text);
	return text ? side_files_put(side, "chat_template.jinja", text, strlen(text)) : ERR_NOMEM;
}

void hf_chat_free(struct hf_chat *chat)
{
	mem_free(chat->template_text);
	*chat = (struct hf_chat){0};
}
