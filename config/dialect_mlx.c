/* mlx-lm's keys. It counts micro-batches where ferry counts steps, and LoRA by its scale. */
#include "config/dialect_item.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "optim/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct dialect_marker markers[] = {
        {"fine_tune_type lora_parameters.* steps_per_report steps_per_eval resume_adapter_file mask_prompt "
         "val_batches test_batches lr_schedule.*",
                2},
        {NULL, 0}};

static const struct dialect_default defaults[] = {
        {"per_device_train_batch_size", "4", NULL, DIALECT_ROWS_ANY},
        {"max_steps", "1000", "num_train_epochs", DIALECT_ROWS_ANY},
        {"learning_rate", "1e-5", NULL, DIALECT_ROWS_ANY},
        {"lr_scheduler_type", "constant", NULL, DIALECT_ROWS_ANY},
        {"max_length", "2048", NULL, DIALECT_ROWS_ANY},
        {"max_grad_norm", "off", NULL, DIALECT_ROWS_ANY},
        {"lora_layers", "the last 16", "trainable", DIALECT_ROWS_ANY},
        {0},
};

static const struct dialect_lora lora = {
        .rank = "8",
        .alpha = "20",
        .alpha_is_times_rank = 1,
        .targets = "all-linear",
        .ask = "fine_tune_type: lora",
        .full = "fine_tune_type=full",
};

static int tune_type(const struct item *s)
{
	int is_dora = config_name_equal(s->text, "dora");
	int rc = is_dora ? item_set(s, "use_dora", "on", CONFIG_STRONG) : 0;

	return rc ? rc : item_keep(s, "mlx_type") ? ERR_NOMEM : lora_switch(s, &dialect_mlx, "lora dora");
}

static int keep_scale(const struct item *s)
{
	return item_keep(s, "mlx_scale");
}

static int keep_layers(const struct item *s)
{
	return config_name_in(s->text, "-1 0") ? 0 : item_keep(s, "mlx_layers");
}

static int keep_iterations(const struct item *s)
{
	return item_keep(s, "mlx_iters");
}

static int do_train(const struct item *s)
{
	if (config_trains(s->c) && item_is_off(s->text))
		return item_refuse(s, "ferry train always trains; to measure the loss alone, run ferry eval");
	return item_pass(s);
}

static int mask_prompt(const struct item *s)
{
	return item_set(s, "train_on_inputs", item_is_off(s->text) ? "on" : "off", CONFIG_STRONG);
}

/* The folder has train.jsonl and valid.jsonl. */
static int data(const struct item *s)
{
	char *rows = file_join(s->text, "valid.jsonl");
	int rc = rows ? item_set(s, "data", s->text, CONFIG_STRONG) : ERR_NOMEM;

	if (!rc && file_kind_of(rows) == FILE_REGULAR)
		rc = item_set(s, "eval_data", rows, CONFIG_WEAK);
	mem_free(rows);
	return rc;
}

static int optimizer(const struct item *s)
{
	if (!config_name_in(s->text, "adam adamw"))
		return item_refuse(s, "only AdamW is supported");
	return config_name_equal(s->text, "adam") ? item_set(s, "weight_decay", "0", CONFIG_WEAK) : 0;
}

static int keep_schedule(const struct item *s)
{
	return config_name_in(s->text, "cosine_decay linear_schedule")
	               ? item_keep(s, "mlx_schedule")
	               : item_refuse(s, "not supported; supported: cosine_decay, linear_schedule");
}

static int keep_arguments(const struct item *s)
{
	return item_keep(s, "mlx_arguments");
}

static int warmup_start(const struct item *s)
{
	if (strtod(s->text, NULL) != 0)
		item_warn(s, "%s=%s: ferry warms up from 0", s->name, s->text);
	return 0;
}

static int test(const struct item *s)
{
	if (!item_is_off(s->text))
		item_warn(s, "%s=%s: for the loss on a test set run ferry eval after training", s->name,
		        s->text);
	return 0;
}

static const struct dialect_key own[] = {
        CALL("data", data),
        CALL("optimizer", optimizer),
        CALL("train", do_train),
        CALL("test", test),
        KEY("batch_size", "per_device_train_batch_size"),
        KEY("grad_accumulation_steps", "gradient_accumulation_steps"),
        CALL("lora_parameters.dropout", lora_dropout),
        CALL("lora_parameters.keys", lora_targets),
        CALL("lora_parameters.scale", keep_scale),
        KEY("lora_parameters.rank", "lora_rank"),
        KEY("lora_parameters.alpha", "lora_alpha"),
        CALL("num_layers lora_layers", keep_layers),
        KEY("save_every", "save_steps"),
        WEAK("adapter_path", "output_dir"),
        KEYS_END,
};

static const struct dialect_key keys[] = {
        CALL("fine_tune_type", tune_type),
        CALL("iters", keep_iterations),
        CALL("mask_prompt", mask_prompt),
        KEY("steps_per_report", "logging_steps"),
        KEY("steps_per_eval", "eval_steps"),
        CALL("optimizer_config.*.betas", item_betas),
        KEY("optimizer_config.*.eps", "adam_epsilon"),
        KEY("optimizer_config.adamw.weight_decay", "weight_decay"),
        ONLY("optimizer_config.*.bias_correction", ITEM_ON, "AdamW without bias correction is not supported"),
        CALL("lr_schedule.name", keep_schedule),
        CALL("lr_schedule.arguments", keep_arguments),
        KEY("lr_schedule.warmup", "warmup_steps"),
        CALL("lr_schedule.warmup_init", warmup_start),
        ONLY("resume_adapter_file", ITEM_OFF, "mlx-lm's form of adapters is not supported; PEFT's is"),
        ONLY("hf_dataset hf_dataset.*", ITEM_OFF, "ferry reads files of rows; name them in data"),
        PASS("val_batches test_batches grad_checkpoint clear_cache_threshold project_name"),
        KEYS_END,
};

/* ---- after all settings ---- */

/* Blocks of the model; 0: not known. */
static long layers_in(const struct config *c)
{
	json_t *root = item_model_json(c), *text = json_object_get(root, "text_config");
	long count = (long)json_integer_value(json_object_get(text ? text : root, "num_hidden_layers"));

	json_decref(root);
	return count;
}

/* The last layers alone: of LoRA by their numbers, of full training by a pattern. */
static int layers_apply(const struct dialect_kept *last, int is_full, struct config *c)
{
	const char *key = is_full ? "trainable" : "lora_layers";
	char *end;
	long wanted = strtol(last->text, &end, 10), count = layers_in(c);
	struct str text = {0};
	int rc;

	if (*end || wanted < 1)
		return kept_error(ERR_INPUT, last, "is not a number of layers; -1 is all of them");
	if ((count && wanted >= count) || !kept_wins(last, c, key))
		return 0;
	if (!count)
		return kept_error(ERR_INPUT, last,
		        "trains the last layers, and no config.json says how many there are; set model to a "
		        "directory");
	str_add(&text, is_full ? "model\\.layers\\.(" : "[");
	for (long i = count - wanted; i < count; i++)
		str_printf(&text, "%s%ld", i == count - wanted ? "" : is_full ? "|" : ",", i);
	str_add(&text, is_full ? ")\\..*" : "]");
	rc = str_check(&text);
	if (!rc)
		rc = kept_set(c, last, key, text.data);
	str_free(&text);
	return rc;
}

static int scale_apply(const struct dialect_kept *scale, struct config *c)
{
	char text[32], *end = NULL;
	double times = scale ? strtod(scale->text, &end) : 0;

	if (!scale || config_was_set(c, "lora_alpha"))
		return 0;
	if (*end || !(times > 0))
		return kept_error(ERR_INPUT, scale, "is not a number above 0");
	snprintf(text, sizeof(text), "%.9g",
	        times * (c->lora_rank ? (double)c->lora_rank : strtod(lora.rank, NULL)));
	return kept_set(c, scale, "lora_alpha", text);
}

static int steps_apply(const struct dialect_kept *iterations, struct config *c)
{
	char text[24], *end;
	long count = strtol(iterations->text, &end, 10), each = (long)c->gradient_accumulation_steps;

	if (*end || count < 1)
		return kept_error(ERR_INPUT, iterations, "is not a number of iterations");
	snprintf(text, sizeof(text), "%ld", count / each > 0 ? count / each : 1);
	return kept_set(c, iterations, "max_steps", text);
}

/* cosine_decay: [rate, steps, last rate]; linear_schedule: [rate, last rate, steps]. */
static int schedule_apply(const struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *name = dialect_kept(d, "mlx_schedule"),
	                          *arguments = dialect_kept(d, "mlx_arguments");
	int is_linear = name && config_name_equal(name->text, "linear_schedule"), count = 0, rc = 0;
	double numbers[3] = {0}, last;
	char text[32];

	if (name && kept_wins(name, c, "lr_scheduler_type"))
		rc = kept_set(c, name, "lr_scheduler_type", is_linear ? "linear" : "cosine_with_min_lr");
	if (rc || !arguments)
		return rc;
	count = config_numbers(numbers, 3, arguments->text);
	last = numbers[is_linear ? 1 : 2];
	if (count < (is_linear ? 3 : 2) || !(numbers[0] > 0) || !(last >= 0 && last <= numbers[0]))
		return kept_error(ERR_INPUT, arguments,
		        is_linear ? "is not supported; expected [rate, last rate, steps]"
		                  : "is not supported; expected [rate, steps, last rate]");
	snprintf(text, sizeof(text), "%.9g", numbers[0]);
	if (kept_wins(arguments, c, "learning_rate"))
		rc = kept_set(c, arguments, "learning_rate", text);
	snprintf(text, sizeof(text), "%.9g", last / numbers[0]);
	if (!rc && last > 0 && c->lr_scheduler_type == SCHEDULE_COSINE_WITH_MIN_LR &&
	        kept_wins(arguments, c, "min_lr_rate"))
		rc = kept_set(c, arguments, "min_lr_rate", text);
	log_warn("%s: lr_schedule.arguments: ferry's schedule ends with the run%s", dialect_place(d),
	        last > 0 && is_linear ? ", and at 0" : "");
	return rc;
}

static void differences_say(const struct dialect_state *d, const struct config *c)
{
	if (c->gradient_accumulation_steps > 1 && (c->eval_steps > 0 || config_was_set(c, "save_steps")))
		log_warn("%s: mlx-lm counts micro-batches and ferry counts steps of %lld of them: "
		         "steps_per_eval, steps_per_report and save_every are taken as steps",
		        dialect_place(d), (long long)c->gradient_accumulation_steps);
	log_warn("%s: AdamW of mlx-lm has no bias correction unless bias_correction is true; ferry's has",
	        dialect_place(d));
}

static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *type = dialect_kept(d, "mlx_type"),
	                          *layers = dialect_kept(d, "mlx_layers"),
	                          *iterations = dialect_kept(d, "mlx_iters");
	int is_full = type && config_name_equal(type->text, "full"), rc = 0;

	if (d->file != &dialect_mlx)
		return 0;
	if (iterations && !config_was_set(c, "max_steps"))
		rc = steps_apply(iterations, c);
	if (!rc && !is_full)
		rc = scale_apply(dialect_kept(d, "mlx_scale"), c);
	if (!rc && !config_was_set(c, "train_on_inputs"))
		rc = config_set_meant(c, d->file_path, "train_on_inputs", "mask_prompt", 0, "on");
	if (!rc && layers)
		rc = layers_apply(layers, is_full, c);
	if (!c->eval_data && !(c->eval_split > 0))
		c->eval_steps = 0; /* it evaluates where it has rows */
	if (!rc)
		rc = schedule_apply(d, c);
	if (!rc)
		differences_say(d, c);
	return rc;
}

const struct dialect dialect_mlx = {.name = "mlx-lm",
        .markers = markers,
        .own = own,
        .keys = keys,
        .defaults = defaults,
        .lora = &lora,
        .finish = finish};
