/* Lists of data sets with their columns, as axolotl, TRL and ferry's own files have them. */
#include "config/dialect_item.h"

#include "base/err.h"

#include <string.h>

/* A part of a data set, named by its last word. */
static int data_set(const struct item *s)
{
	static const char *const parts[] = {"path", "data_files", "weight", "type"};
	static const struct {
		const char *type, *key, *value;
	} axolotl[] = {/* in Stanford's words and a newline, whatever the chat template */
	        {"alpaca", "alpaca_form", "stanford_newline"}, {"completion", "long_rows", "split"}};
	const char *last = strrchr(s->name, '.') + 1, *text = s->text;
	int is_type = s->d->layer == &dialect_axolotl && config_name_equal(last, "type");
	int rc = is_type ? preference_set_type(&text, s) : 0;

	for (size_t i = 0; is_type && i < sizeof(axolotl) / sizeof(*axolotl) && !rc; i++)
		if (config_name_equal(s->text, axolotl[i].type))
			rc = item_set(s, axolotl[i].key, axolotl[i].value, CONFIG_WEAK);
	for (int part = 0; part < DIALECT_SET_PARTS; part++)
		if (config_name_equal(last, parts[part]))
			return rc ? rc
			          : dialect_sets_add(
			                    &s->d->sets, (enum dialect_set_part)part, s->name, text, s->line);
	return err_set(ERR_INTERNAL, "no meaning for %s", s->name);
}

static const struct dialect_key keys[] = {
        CALL("datasets.*.path dataset_mixture.datasets.*.path data.*.path", data_set),
        CALL("datasets.*.data_files data.*.data_files", data_set),
        CALL("datasets.*.weight dataset_mixture.datasets.*.weight data.*.weight", data_set),
        CALL("datasets.*.type data.*.type", data_set),
        ONLY("datasets.*.type.format datasets.*.type.no_input_format datasets.*.type.system_format "
             "datasets.*.type.system_prompt",
                ITEM_OFF,
                "ferry writes instructions in Stanford's words, or as chats with alpaca_form=chat; remove "
                "it"),
        JOIN("datasets.*.field datasets.*.text_column", "field_text"),
        JOIN("datasets.*.field_messages", "field_messages"),
        JOIN("datasets.*.message_field_role datasets.*.message_property_mappings.role", "field_role"),
        JOIN("datasets.*.message_field_content datasets.*.message_property_mappings.content",
                "field_content"),
        JOIN("datasets.*.field_tools", "field_tools"),
        JOIN("datasets.*.field_system datasets.*.type.field_system", "field_system"),
        JOIN("datasets.*.type.field_instruction", "field_instruction"),
        JOIN("datasets.*.type.field_prompt", "field_prompt"),
        JOIN("datasets.*.field_chosen datasets.*.type.field_chosen", "field_chosen"),
        JOIN("datasets.*.field_rejected datasets.*.type.field_rejected", "field_rejected"),
        ONLY("datasets.*.type.prompt_format datasets.*.type.chosen_format datasets.*.type.rejected_format",
                "{prompt} {chosen} {rejected}", "ferry takes the columns as they are; remove it"),
        JOIN("datasets.*.type.field_input", "field_input"),
        JOIN("datasets.*.type.field_output", "field_output"),
        JOIN("datasets.*.roles.user", "role_user"),
        JOIN("datasets.*.roles.assistant", "role_assistant"),
        JOIN("datasets.*.roles.system", "role_system"),
        JOIN("datasets.*.roles.tool", "role_tool"),
        ONLY("datasets.*.roles_to_train", "assistant gpt",
                "ferry trains on the assistant's turns; name them with role_assistant"),
        ONLY("datasets.*.train_on_eos", "turn",
                "ferry trains on the end-of-turn token of each trained turn (turn)"),
        ONLY("datasets.*.message_field_training", "weight train training loss_weight", "rename it to train"),
        KEY("datasets.*.chat_template", "chat_template"),
        KEY("datasets.*.split dataset_mixture.datasets.*.split data.*.split", "data_split"),
        ONLY("datasets.*.ds_type", "json jsonl text csv parquet", "the file itself says what it is"),
        ONLY("datasets datasets.* data.* dataset_mixture.*", ITEM_OFF,
                "of a data set, path, data_files, type, split, weight and its columns are supported"),
        KEYS_END,
};

const struct dialect dialect_datasets = {.keys = keys};
