/* Files of Unsloth Studio. */
#include "config/dialect_item.h"

#include <stddef.h>
#include <string.h>

static const struct dialect_marker markers[] = {
        {"training.training_type training.random_seed training.train_on_completions lora.use_loftq "
         "lora.finetune_language_layers lora.finetune_attention_modules logging.tensorboard_dir "
         "logging.wandb_project",
                1},
        {NULL, 0}};

static const struct dialect_default defaults[] = {
        {"num_train_epochs", "3", "max_steps", DIALECT_ROWS_ANY},
        {"max_length", "2048", NULL, DIALECT_ROWS_ANY},
        {"learning_rate", "2e-4", NULL, DIALECT_ROWS_ANY},
        {"per_device_train_batch_size", "2", NULL, DIALECT_ROWS_ANY},
        {"gradient_accumulation_steps", "4", NULL, DIALECT_ROWS_ANY},
        {"weight_decay", "0.01", NULL, DIALECT_ROWS_ANY},
        {"warmup_steps", "5", "warmup_ratio", DIALECT_ROWS_ANY},
        {"optimizer_state", "8bit", NULL, DIALECT_ROWS_ANY},
        {0},
};

static const struct dialect_lora lora = {
        .rank = "64",
        .alpha = "16",
        .targets = "all-linear",
        .ask = "training_type: lora",
        .full = "training_type=full",
        .unasked = {{"lora_rank", "lora.lora_r", 0}},
};

static int training_type(const struct item *s)
{
	return lora_switch(s, &dialect_unsloth, "lora");
}

/* 0 is no limit, and no checkpoint but the last. */
static int max_steps(const struct item *s)
{
	return config_name_equal(s->text, "0") ? 0 : item_set(s, "max_steps", s->text, CONFIG_STRONG);
}

static int epochs(const struct item *s)
{
	return config_name_equal(s->text, "0") ? 0 : item_set(s, "num_train_epochs", s->text, CONFIG_STRONG);
}

/* An empty list leaves the other of the two. */
static int data_set(const struct item *s)
{
	return *s->text && strcmp(s->text, "[]") != 0 ? item_set(s, "data", s->text, CONFIG_STRONG) : 0;
}

static int completions(const struct item *s)
{
	return item_set(s, "train_on_inputs", item_is_off(s->text) ? "on" : "off", CONFIG_STRONG);
}

static int format(const struct item *s)
{
	static const char *const words[][2] = {
	        {"auto", "auto"}, {"alpaca", "alpaca"}, {"chatml", "messages"}, {"sharegpt", "messages"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (config_name_equal(s->text, words[i][0]))
			return item_set(s, "data_format", words[i][1], CONFIG_STRONG);
	return item_refuse(s, "not supported; supported: auto, alpaca, chatml, sharegpt");
}

static int tensorboard(const struct item *s)
{
	return item_is_off(s->text) ? 0 : item_set(s, "report_to", "tensorboard", CONFIG_STRONG);
}

static int wandb(const struct item *s)
{
	if (!item_is_off(s->text))
		item_warn(s,
		        "%s=%s: ferry reports to no service; with report_to=tensorboard it writes an event "
		        "file, "
		        "which wandb sync OUTPUT_DIR uploads",
		        s->name, s->text);
	return 0;
}

/* Its files for training every weight name no modules. */
static int targets(const struct item *s)
{
	return *s->text ? lora_targets(s) : 0;
}

/* transformers' key. */
static int optim(const struct item *s)
{
	int found = dialect_set(s->d, s->c, s->layer, "optim", s->text, s->line, 0, DIALECT_ANY);

	return found < 0 ? found : 0;
}

static const struct dialect_key keys[] = {
        CALL("data.dataset data.local_dataset", data_set),
        CALL("data.format_type", format),
        CALL("training.training_type", training_type),
        CALL("training.max_steps", max_steps),
        CALL("training.num_epochs", epochs),
        CALL("training.train_on_completions", completions),
        CALL("training.load_in_4bit", item_quantized),
        KEY("training.max_seq_length", "max_length"),
        KEY("training.output_dir", "output_dir"),
        KEY("training.learning_rate", "learning_rate"),
        KEY("training.batch_size", "per_device_train_batch_size"),
        KEY("training.gradient_accumulation_steps", "gradient_accumulation_steps"),
        KEY("training.warmup_steps", "warmup_steps"),
        KEY("training.warmup_ratio", "warmup_ratio"),
        KEY("training.save_steps", "save_steps"),
        KEY("training.weight_decay", "weight_decay"),
        KEY("training.random_seed", "seed"),
        KEY("training.packing", "packing"),
        KEY("training.lr_scheduler_type", "lr_scheduler_type"),
        CALL("training.optim", optim),
        PASS("training.gradient_checkpointing"),
        KEY("lora.lora_r", "lora_rank"),
        KEY("lora.lora_alpha", "lora_alpha"),
        CALL("lora.lora_dropout", lora_dropout),
        CALL("lora.target_modules", targets),
        KEY("lora.use_rslora", "use_rslora"),
        KEY("lora.use_dora", "use_dora"),
        ONLY("lora.use_loftq", ITEM_OFF,
                "only PEFT's own start is supported: A at random, B zero; set it to false"),
        ONLY("lora.finetune_language_layers lora.finetune_attention_modules lora.finetune_mlp_modules",
                ITEM_ON, "name the modules in target_modules"),
        PASS("lora.finetune_vision_layers lora.vision_all_linear"),
        CALL("logging.enable_tensorboard", tensorboard),
        CALL("logging.enable_wandb", wandb),
        KEY("logging.log_frequency", "logging_steps"),
        PASS("logging.wandb_* logging.tensorboard_dir logging.hf_token inference.*"),
        METHOD("audio_type audio_input", ITEM_OFF, "trains on sound"),
        KEY("training.eval_steps", "eval_steps"),
        PASS("use_gradient_checkpointing"),
        KEYS_END,
};

const struct dialect dialect_unsloth = {
        .name = "Unsloth", .markers = markers, .keys = keys, .defaults = defaults, .lora = &lora};
