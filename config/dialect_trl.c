/* TRL's keys, beside those of transformers. */
#include "config/dialect_item.h"

#include "data/chat/label.h"

#include <string.h>

static const struct dialect_marker markers[] = {
        {"dataset_name completion_only_loss assistant_only_loss packing_strategy eval_packing "
         "chat_template_path dataset_kwargs.* use_peft lora_task_type "
         "precompute_ref_log_probs reference_free sync_ref_model f_divergence_type max_prompt_length "
         "desirable_weight undesirable_weight",
                2},
        {"packing max_length dataset_text_field eos_token padding_free", 0}, /* keys of ferry too */
        {NULL, 0}};

static const struct dialect_default defaults[] = {
        {"per_device_train_batch_size", "8", NULL, DIALECT_ROWS_ANY},
        {"num_train_epochs", "3", NULL, DIALECT_ROWS_ANY},
        {"train_on_inputs", "chats", NULL, DIALECT_ROWS_TEXTS},
        {"learning_rate", "1e-6", NULL, DIALECT_ROWS_PAIRS},
        {"shuffle", "off", NULL, DIALECT_ROWS_JUDGED},
        {"save_total_limit", "all", NULL, DIALECT_ROWS_ANY},
        {0},
};

static const struct dialect_lora lora = {
        .rank = "16",
        .alpha = "32",
        .targets = "peft",
        .dropout = "0.05",
        .quants_once = 1,
        .ask = "use_peft: true",
        .unasked = {{"lora_rank", "lora_r", 1}}, /* it may be meant for ferry */
};

static int use_peft(const struct item *s)
{
	return lora_switch(s, &dialect_trl, ITEM_ON);
}

/* Each of the two is about rows of its own kind. */
static int only_loss(const struct item *s)
{
	static const char *const words[] = {"off", "prompts", "chats", "on"};
	const struct config_key *key = config_key_find("train_on_inputs");
	int is_assistant = config_name_equal(s->name, "assistant_only_loss");
	int bit = is_assistant ? DATASET_INPUTS_CHATS : DATASET_INPUTS_PROMPTS;
	int bits = item_is_off(s->text) ? s->c->train_on_inputs | bit : s->c->train_on_inputs & ~bit;

	if (!item_is_off(s->text) && !config_name_in(s->text, ITEM_ON))
		return item_refuse(s, "is neither on nor off");
	if (s->d->only_loss) /* the other one set it */
		s->layer->seen[key - config_keys] = 0;
	s->d->only_loss |= bit;
	s->d->assistant_only_said |= is_assistant;
	return item_set(s, "train_on_inputs", words[bits / DATASET_INPUTS_PROMPTS], CONFIG_STRONG);
}

/* A directory of a data set may hold several; its files say which. */
static int dataset_config(const struct item *s)
{
	if (!item_is_off(s->text))
		item_warn(s, "%s=%s: ferry takes the files that data names; name those of this configuration",
		        s->name, s->text);
	return 0;
}

/* Streamed rows are drawn in the order of the files. */
static int streaming(const struct item *s)
{
	if (item_is_off(s->text))
		return 0;
	return item_set(s, "shuffle", "off", CONFIG_WEAK);
}

/* Shuffles streamed rows; others are drawn at random either way. */
static int shuffle_dataset(const struct item *s)
{
	return item_is_off(s->text) ? item_pass(s) : item_set(s, "shuffle", "on", CONFIG_STRONG);
}

static const struct dialect_key own[] = {OR_OFF("max_length", "max_length"), KEYS_END};

static const struct dialect_key keys[] = {
        CALL("use_peft", use_peft),
        CALL("completion_only_loss assistant_only_loss", only_loss),
        KEY("dataset_name", "data"),
        KEY("chat_template_path", "chat_template"),
        CALL("dataset_config", dataset_config),
        ONLY("packing_strategy", "bfd", "only bfd is supported"),
        CALL("dataset_streaming", streaming),
        CALL("shuffle_dataset", shuffle_dataset),
        PASS("dataset_kwargs.skip_prepare_dataset"),
        METHOD("reward_funcs reward_weights num_generations use_vllm", ITEM_OFF,
                "trains by reinforcement learning (GRPO)"),
        KEYS_END,
};

/* TRL adds the loss of even use wherever the model's class has it, with the model's coefficient. */
static int finish(struct dialect_state *d, struct config *c)
{
	if (d->file != &dialect_trl || !config_trains(c) || config_was_set(c, "router_aux_loss_coef"))
		return 0;
	return config_set_meant(c, d->file_path, "router_aux_loss_coef", "router_aux_loss_coef", 0, "model");
}

const struct dialect dialect_trl = {.name = "TRL",
        .base = &dialect_transformers,
        .markers = markers,
        .own = own,
        .keys = keys,
        .defaults = defaults,
        .lora = &lora,
        .finish = finish};
