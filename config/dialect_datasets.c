/* Lists of data sets with their columns, as axolotl, TRL and ferry's own files have them. */
#include "config/dialect_item.h"

#include "base/err.h"

#include <string.h>

/* A part of a data set, named by its last word. */
static int data_set(const struct item *s)
{
	static const char *const parts[] = {"path", "data_files", "weight", "type", "id"};
	static const struct {
		const char *type, *key, *value;
	} axolotl[] = {/* in Stanford's words and a newline, whatever the chat template */
	        {"pretrain", "long_rows", "split"}, {"alpaca", "alpaca_form", "stanford_newline"},
	        {"completion", "long_rows", "split"}};
	const char *last = strrchr(s->name, '.') + 1, *text = s->text;
	int is_type = s->d->layer == &dialect_axolotl && config_name_equal(last, "type");
	int rc = is_type ? preference_set_type(&text, s) : 0;

	for (size_t i = 0; is_type && i < sizeof(axolotl) / sizeof(*axolotl) && !rc; i++)
		if (config_name_equal(s->text, axolotl[i].type))
			rc = item_set(s, axolotl[i].key, axolotl[i].value, CONFIG_WEAK);
	for (int part = 0; part < (int)(sizeof(parts) / sizeof(*parts)); part++)
		if (config_name_equal(last, parts[part]))
			return rc ? rc
			          : dialect_sets_add(&s->d->sets,
			                    (enum dialect_set_part)(part % DIALECT_SET_PARTS), s->name, text,
			                    s->line);
	return err_set(ERR_INTERNAL, "no meaning for %s", s->name);
}

/* A part of a set to evaluate on. */
static int eval_set(const struct item *s)
{
	const char *last = strrchr(s->name, '.') + 1;

	if (config_name_equal(last, "name"))
		return dialect_sets_own(&s->d->eval_sets, s->name, s->text, s->line);
	return dialect_sets_add(&s->d->eval_sets,
	        config_name_equal(last, "path") ? DIALECT_SET_PATH : DIALECT_SET_WEIGHT, s->name, s->text,
	        s->line);
}

/* Its name, or a key of ferry's that it has of its own. */
static int own_key(const struct item *s)
{
	const char *last = strrchr(s->name, '.') + 1;
	const struct config_key *key = config_key_find(last);

	if (config_name_equal(last, "name") || (key && key->verbs & VERB_SETTING_OF_SET))
		return dialect_sets_own(&s->d->sets, s->name, s->text, s->line);
	return item_refuse(s,
	        key ? "is a key of all data sets; set it outside of data"
	            : "of a data set, path, data_files, name, type, split, weight, its columns and the keys "
	              "of embedding_loss are supported");
}

/* One split for all sets. */
static int split(const struct item *s)
{
	const struct config_key *key = config_key_find("data_split");

	if (s->layer->seen[key - config_keys] && strcmp(config_text(s->c, "data_split"), s->text))
		return item_refuse(
		        s, "data sets with different splits are not supported; name their files in data");
	return item_set(s, "data_split", s->text, CONFIG_STRONG);
}

/* What the template reads under the same name needs no mapping. */
static int same_name(const struct item *s)
{
	const char *last = strrchr(s->name, '.') + 1;

	return config_name_equal(last, s->text)
	               ? 0
	               : item_refuse(s, "members of messages keep their names; rename them in the rows");
}

static int thinking(const struct item *s)
{
	return item_keep(s, strstr(s->name, "template") ? "template_thinking" : "field_thinking");
}

/* axolotl gives the template what stands in field_thinking as template_thinking_key. */
static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *from = dialect_kept(d, "field_thinking"),
	                          *to = dialect_kept(d, "template_thinking");
	const char *name = "reasoning_content";

	(void)c;
	if (!strcmp(from ? from->text : name, to ? to->text : name))
		return 0;
	return kept_error(ERR_UNSUPPORTED, from ? from : to,
	        "renames a member of messages; members keep their names: rename it in the rows");
}

/* A directory of a data set may hold several; its files say which. */
static int configuration(const struct item *s)
{
	if (!item_is_off(s->text))
		item_warn(s,
		        "%s=%s: ferry takes the files that the path names; name those of this configuration",
		        s->name, s->text);
	return 0;
}

static const struct dialect_key keys[] = {
        CALL("datasets.*.path pretraining_dataset.*.path dataset_mixture.datasets.*.path "
             "dataset_mixture.datasets.*.id data.*.path",
                data_set),
        CALL("datasets.*.data_files pretraining_dataset.*.data_files data.*.data_files", data_set),
        CALL("datasets.*.weight dataset_mixture.datasets.*.weight data.*.weight", data_set),
        CALL("datasets.*.type pretraining_dataset.*.type data.*.type", data_set),
        ONLY("datasets.*.type.format datasets.*.type.no_input_format datasets.*.type.system_format "
             "datasets.*.type.system_prompt",
                ITEM_OFF,
                "ferry writes instructions in Stanford's words, or as chats with alpaca_form=chat; remove "
                "it"),
        JOIN("datasets.*.field pretraining_dataset.*.field pretraining_dataset.*.text_column "
             "datasets.*.text_column",
                "field_text"),
        JOIN("datasets.*.field_messages", "field_messages"),
        JOIN("datasets.*.message_field_role datasets.*.message_property_mappings.role", "field_role"),
        JOIN("datasets.*.message_field_content datasets.*.message_property_mappings.content",
                "field_content"),
        CALL("datasets.*.message_property_mappings.*", same_name),
        CALL("datasets.*.field_thinking datasets.*.template_thinking_key", thinking),
        JOIN("datasets.*.field_tools", "field_tools"),
        JOIN("datasets.*.field_system datasets.*.type.field_system", "field_system"),
        JOIN("datasets.*.type.field_instruction", "field_instruction"),
        JOIN("datasets.*.type.field_prompt", "field_prompt"),
        JOIN("datasets.*.type.field_completion", "field_completion"),
        JOIN("datasets.*.type.field_label", "field_label"),
        JOIN("datasets.*.field_chosen datasets.*.type.field_chosen", "field_chosen"),
        JOIN("datasets.*.field_rejected datasets.*.type.field_rejected", "field_rejected"),
        ONLY("datasets.*.type.prompt_format datasets.*.type.chosen_format datasets.*.type.rejected_format "
             "datasets.*.type.completion_format",
                "{prompt} {chosen} {rejected} {completion}",
                "ferry takes the columns as they are; remove it"),
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
        CALL("datasets.*.split pretraining_dataset.*.split dataset_mixture.datasets.*.split data.*.split",
                split),
        CALL("dataset_mixture.datasets.*.config datasets.*.name datasets.*.subset pretraining_dataset.*.name",
                configuration),
        PASS("dataset_mixture.datasets.*.columns datasets.*.trust_remote_code datasets.*.preprocess_shards"),
        KEY("dataset_mixture.test_split_size", "eval_split"),
        ONLY("datasets.*.ds_type", "json jsonl text csv parquet", "the file itself says what it is"),
        CALL("data.*", own_key),
        CALL("eval_data.*.path eval_data.*.name eval_data.*.weight", eval_set),
        ONLY("eval_data.*", ITEM_OFF,
                "of a data set to evaluate on, path, name and weight are supported; it has the keys of the "
                "set of that name in data"),
        ONLY("datasets datasets.* pretraining_dataset.* dataset_mixture.*", ITEM_OFF,
                "of a data set, path, data_files, type, split, weight and its columns are supported"),
        KEYS_END,
};

const struct dialect dialect_datasets = {.keys = keys, .finish = finish};
