/* Recognises which trainer a file was written for, and knows the defaults of that trainer. */
#include "config/foreign_item.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "optim/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AXOLOTL (1u << DIALECT_AXOLOTL)
#define TORCHTUNE (1u << DIALECT_TORCHTUNE)
#define LLAMA_FACTORY (1u << DIALECT_LLAMA_FACTORY)
#define TRANSFORMERS (1u << DIALECT_TRANSFORMERS)
#define TRL (1u << DIALECT_TRL)

/* Other keys of TRL are keys of ferry too: they count beside those of transformers. */
enum { TRL_PROOF = 100 };

/* Keys that identify a tool; 2 points are enough. */
static const struct {
	const char *names;
	enum dialect dialect;
	int points;
} markers[] = {
        {"compute_environment distributed_type machine_rank downcast_bf16 main_training_function",
                DIALECT_ACCELERATE, 2},
        {"num_processes num_machines", DIALECT_ACCELERATE, 1},
        {"datasets datasets.* sequence_len sample_packing dataset_prepared_path is_*_derived_model",
                DIALECT_AXOLOTL, 2},
        {"adapter lora_target_linear lora_mlp_kernel lora_qkv_kernel lora_o_kernel", DIALECT_AXOLOTL, 2},
        {"base_model micro_batch_size val_set_size num_epochs saves_per_epoch", DIALECT_AXOLOTL, 1},
        {"checkpointer.* metric_logger.* model._component_ optimizer._component_ dataset._component_ "
         "enable_activation_checkpointing",
                DIALECT_TORCHTUNE, 2},
        {"finetuning_type stage cutoff_len dataset_dir", DIALECT_LLAMA_FACTORY, 2},
        {"template val_size", DIALECT_LLAMA_FACTORY, 1},
        {"eval_strategy evaluation_strategy save_strategy logging_dir logging_strategy logging_first_step "
         "dataset_name optim remove_unused_columns prediction_loss_only push_to_hub disable_tqdm data_seed "
         "dataloader_* ddp_* fp16 torch_compile label_smoothing_factor",
                DIALECT_TRANSFORMERS, 2},
        {"model_name_or_path report_to lr_scheduler_kwargs.* gradient_checkpointing_kwargs.*",
                DIALECT_TRANSFORMERS, 1},
        {"zero_optimization zero_optimization.* train_micro_batch_size_per_gpu", DIALECT_DEEPSPEED, 4},
        {"dataset_name completion_only_loss assistant_only_loss packing_strategy eval_packing "
         "chat_template_path dataset_kwargs.* use_peft lora_task_type "
         "precompute_ref_log_probs reference_free sync_ref_model f_divergence_type max_prompt_length",
                DIALECT_TRL, TRL_PROOF},
        {"packing max_length dataset_text_field eos_token padding_free", DIALECT_TRL, 1},
};

const char *dialect_name(enum dialect dialect)
{
	static const char *const names[DIALECT_COUNT] = {"ferry", "accelerate", "axolotl", "torchtune",
	        "LLaMA-Factory", "transformers (TrainingArguments)", "TRL", "DeepSpeed"};

	return names[dialect];
}

/* A name in the list may hold one *, which stands for any text. */
int foreign_name_matches(const char *name, const char *list)
{
	char word[128];

	while (*list) {
		size_t len = strcspn(list, " ");
		char *star;

		snprintf(word, sizeof(word), "%.*s", (int)len, list);
		star = strchr(word, '*');
		if (!star) {
			if (config_name_equal(name, word))
				return 1;
		} else {
			size_t tail = strlen(star + 1), head = (size_t)(star - word), all = strlen(name);
			char start[128];

			snprintf(start, sizeof(start), "%.*s", (int)(head < 127 ? head : 127), name);
			*star = 0;
			if (all >= head + tail && config_name_equal(start, word) &&
			        config_name_equal(name + all - tail, star + 1))
				return 1;
		}
		list += len;
		list += strspn(list, " ");
	}
	return 0;
}

enum dialect dialect_find(const struct yaml_doc *doc)
{
	int points[DIALECT_COUNT] = {0};
	enum dialect best = DIALECT_FERRY;

	for (size_t i = 0; i < doc->count; i++)
		for (size_t m = 0; m < sizeof(markers) / sizeof(*markers); m++)
			if (foreign_name_matches(doc->items[i].path, markers[m].names))
				points[markers[m].dialect] += markers[m].points;
	/* the other tools build on transformers and share its keys, so they win over it */
	if (points[DIALECT_TRANSFORMERS] >= 2)
		best = points[DIALECT_TRL] ? DIALECT_TRL : DIALECT_TRANSFORMERS;
	else if (points[DIALECT_TRL] >= TRL_PROOF)
		best = DIALECT_TRL;
	points[DIALECT_TRANSFORMERS] = points[DIALECT_TRL] = 0;
	points[DIALECT_FERRY] = 1;
	for (int d = 0; d < DIALECT_COUNT; d++)
		if (points[d] >= 2 && points[d] > points[best])
			best = d;
	return best;
}

/* Defaults of these trainers that differ from ferry's and change what is trained. */
static const struct {
	unsigned dialects;
	const char *key, *value, *or_key;               /* or_key: says the same; NULL = none */
	enum { ROWS_ANY, ROWS_TEXTS, ROWS_PAIRS } rows; /* pairs: with preference_loss */
} defaults[] = {
        {TRANSFORMERS | TRL | LLAMA_FACTORY, "per_device_train_batch_size", "8", NULL, ROWS_ANY},
        {TRANSFORMERS | TRL | LLAMA_FACTORY, "num_train_epochs", "3", NULL, ROWS_ANY},
        {TRANSFORMERS | LLAMA_FACTORY, "learning_rate", "5e-5", NULL, ROWS_ANY},
        {TRANSFORMERS | LLAMA_FACTORY, "compute_dtype", "fp32", NULL, ROWS_ANY},
        {TRL, "train_on_inputs", "chats", NULL, ROWS_TEXTS},
        {TRL, "learning_rate", "1e-6", NULL, ROWS_PAIRS},
        {LLAMA_FACTORY, "max_length", "2048", NULL, ROWS_ANY},
        {AXOLOTL, "lr_scheduler_type", "cosine", NULL, ROWS_ANY},
        {AXOLOTL, "max_length", "512", NULL, ROWS_ANY},
        {AXOLOTL, "warmup_ratio", "0.03, at most 100 steps", "warmup_steps", ROWS_ANY},
        {AXOLOTL, "save_total_limit", "4", NULL, ROWS_ANY},
        {AXOLOTL, "long_rows", "drop", NULL, ROWS_ANY},
        {TORCHTUNE, "lr_scheduler_type", "constant", NULL, ROWS_ANY},
        {TORCHTUNE, "max_length", "off", NULL, ROWS_ANY},
        {TORCHTUNE, "weight_decay", "0.01", NULL, ROWS_ANY},
        {TORCHTUNE, "max_grad_norm", "off", NULL, ROWS_ANY},
        {TRANSFORMERS | TRL | LLAMA_FACTORY | TORCHTUNE, "save_total_limit", "all", NULL, ROWS_ANY},
};

/* ---- after all settings ---- */

int item_meant(struct config *c, const struct foreign_item *kept, const char *key, const char *text)
{
	return config_set_meant(c, kept->file, key, kept->name, kept->line, text);
}

/* Sets steps for so many times an epoch: axolotl's saves_per_epoch. */
static int each_epoch(struct config *c, const struct foreign_item *item, const char *key)
{
	double times = item->text ? strtod(item->text, NULL) : 0, share = 1 / (times * c->num_train_epochs);
	char text[40];
	int rc;

	if (times == 1)
		return item_meant(c, item, key, "epoch");
	if (!(times * c->num_train_epochs > 0))
		return 0;
	snprintf(text, sizeof(text), "%.17g", share < 1 ? share : 0); /* 0: once, at the end */
	rc = item_meant(c, item, key, text);
	if (!rc && c->max_steps > 0)
		log_warn("ferry takes %s=%s, a share of the run: with max_steps it does not know the steps "
		         "of a "
		         "part of an epoch; set a number of steps",
		        key, config_text(c, key));
	return rc;
}

/* A strategy counts more than a number of steps, as in transformers, unless it is a file's and the number the
 * command line's. */
static int steps_apply(const struct foreign *f, struct config *c)
{
	static const char *const keys[FOREIGN_EVENTS] = {[FOREIGN_SAVE] = "save_steps",
	        [FOREIGN_EVAL] = "eval_steps",
	        [FOREIGN_LOG] = "logging_steps"};
	int rc = 0;

	for (int i = 0; i < FOREIGN_EVENTS && !rc; i++) {
		const char *place = config_set_at(c, keys[i]);
		const struct foreign_strategy *s = &f->strategy[i];
		int wins = !s->item.file || !place || *place;

		if (s->when == FOREIGN_NEVER && wins && i != FOREIGN_SAVE)
			rc = item_meant(c, &s->item, keys[i], "0");
		else if (s->when == FOREIGN_NEVER && wins && !config_was_set(c, "save_only_model"))
			rc = item_meant(c, &s->item, "save_only_model", "on");
		else if (s->when == FOREIGN_EPOCH && wins)
			rc = item_meant(c, &s->item, keys[i], "epoch");
		else if (!place)
			rc = each_epoch(c, &f->per_epoch[i], keys[i]);
	}
	return rc;
}

/* LLaMA-Factory's pt joins texts and cuts them at cutoff_len. Full bins of split texts are next to that. */
static int pretraining_apply(const struct foreign *f, struct config *c)
{
	int rc = 0;

	if (f->pretrains.text && !config_was_set(c, "long_rows"))
		rc = item_meant(c, &f->pretrains, "long_rows", "split");
	if (!rc && f->pretrains.text && !config_was_set(c, "packing"))
		rc = item_meant(c, &f->pretrains, "packing", "bfd");
	return rc;
}

static int zero_apply(const struct foreign *f, struct config *c)
{
	if (!f->zero_offload || config_was_set(c, "cpu_offload"))
		return 0;
	return item_meant(c, &f->zero, "cpu_offload",
	        f->zero_offload == CONFIG_OFFLOAD_ON       ? "on"
	        : f->zero_offload == CONFIG_OFFLOAD_PARAMS ? "params"
	                                                   : "gradients,optimizer");
}

/* What TRL says of completions alone says nothing of chats. */
static int was_set(const struct foreign *f, const struct config *c, const char *key)
{
	const struct config_origin *o = &c->origins[config_key_find(key) - config_keys];

	return config_was_set(c, key) &&
	       (f->assistant_only_said || !config_name_equal(o->as, "completion_only_loss"));
}

/* One line of the keys that nobody set and that the file's trainer would set otherwise. */
static int defaults_say(const struct foreign *f, const struct config *c)
{
	struct str list = {0};
	int err = 0;

	for (size_t i = 0; i < sizeof(defaults) / sizeof(*defaults); i++)
		if (defaults[i].rows != (c->preference_loss ? ROWS_TEXTS : ROWS_PAIRS) &&
		        defaults[i].dialects >> f->file_dialect & 1 && !was_set(f, c, defaults[i].key) &&
		        !(defaults[i].or_key && was_set(f, c, defaults[i].or_key)))
			str_printf(&list, "%s%s %s (%s)", list.len_bytes ? ", " : "", defaults[i].key,
			        config_text(c, defaults[i].key), defaults[i].value);
	if (config_trains(c) && list.len_bytes)
		log_warn("these keys are not set, and their defaults differ from those of %s (in brackets): "
		         "%s",
		        dialect_name(f->file_dialect), list.data);
	err = str_check(&list);
	str_free(&list);
	return err;
}

static int total_batch_apply(const struct foreign *f, struct config *c)
{
	int64_t micro = c->per_device_train_batch_size, steps = c->gradient_accumulation_steps;
	int has_micro = config_was_set(c, "per_device_train_batch_size");
	int has_steps = config_was_set(c, "gradient_accumulation_steps");
	char text[24];

	if (has_micro && has_steps && micro * steps != f->total_batch)
		return err_set(ERR_INPUT,
		        "batch_size %lld is not micro_batch_size %lld x gradient_accumulation_steps %lld; "
		        "axolotl "
		        "counts the rows of a whole step; drop one of them",
		        (long long)f->total_batch, (long long)micro, (long long)steps);
	if (has_micro && has_steps)
		return 0;
	if (f->total_batch % (has_micro ? micro : steps))
		return err_set(ERR_INPUT,
		        "batch_size %lld is not a multiple of %s %lld; axolotl counts the rows of a whole "
		        "step",
		        (long long)f->total_batch,
		        has_micro ? "micro_batch_size" : "gradient_accumulation_steps",
		        (long long)(has_micro ? micro : steps));
	snprintf(text, sizeof(text), "%lld", (long long)(f->total_batch / (has_micro ? micro : steps)));
	return item_meant(c, &f->total_batch_item,
	        has_micro ? "gradient_accumulation_steps" : "per_device_train_batch_size", text);
}

/* ---- what keys ask for together ---- */

static int item_error(int err, const struct foreign_item *item, const char *what)
{
	err_set(err, "%s=%s %s", item->name, item->text, what);
	return item->file ? err_note(err, "%s:%d", item->file, item->line) : err;
}

static int check_data_seed(const struct foreign *f, const struct config *c)
{
	char *end;

	if (!f->data_seed.text || strtoll(f->data_seed.text, &end, 10) == c->seed)
		return 0;
	return item_error(ERR_UNSUPPORTED, &f->data_seed,
	        "differs from seed, by which ferry orders rows; remove it or set seed");
}

static int check_evaluates(const struct foreign *f, const struct config *c)
{
	if (!f->evaluates.text || config_was_set(c, "eval_steps") || c->eval_data || c->eval_split > 0 ||
	        (!config_trains(c) && c->verb != VERB_PLAN))
		return 0;
	return item_error(ERR_INPUT, &f->evaluates, "needs rows to evaluate on; set eval_data or eval_split");
}

/* torchtune: a tokenizer in the model's directory is the model's own. */
static int tokenizer_apply(const struct foreign *f, struct config *c)
{
	const struct foreign_item *item = &f->tokenizer_path;
	size_t len = c->model ? strlen(c->model) : 0;

	if (!item->text || config_was_set(c, "tokenizer") ||
	        (len && !strncmp(item->text, c->model, len) &&
	                (item->text[len] == '/' || c->model[len - 1] == '/')))
		return 0;
	return item_meant(c, item, "tokenizer", item->text);
}

/* LLaMA-Factory looks for data/dataset_info.json if the file names no other directory. */
static int dataset_dir_apply(const struct foreign *f, struct config *c)
{
	if (f->file_dialect != DIALECT_LLAMA_FACTORY || config_was_set(c, "dataset_info") || !c->data ||
	        strpbrk(c->data, "/*?[") || /* a path, a pattern, an id of the Hub */
	        file_kind_of(c->data) != FILE_NONE || file_kind_of("data/dataset_info.json") != FILE_REGULAR)
		return 0;
	log_info("looking for data in data/dataset_info.json, as LLaMA-Factory does without dataset_dir");
	return config_set_meant(c, f->file, "dataset_info", "dataset_dir", 0, "data");
}

int foreign_finish(struct foreign *f, struct config *c)
{
	int rc = foreign_lora_finish(f, c);

	if (!rc)
		rc = foreign_preference_finish(f, c);
	if (!rc)
		rc = check_data_seed(f, c);
	if (!rc)
		rc = check_evaluates(f, c);
	if (!rc)
		rc = tokenizer_apply(f, c);
	if (!rc)
		rc = steps_apply(f, c);
	if (!rc)
		rc = pretraining_apply(f, c);
	if (!rc)
		rc = dataset_dir_apply(f, c);
	if (!rc && f->file_dialect == DIALECT_LLAMA_FACTORY && !config_was_set(c, "alpaca_form"))
		rc = config_set_meant(
		        c, f->file, "alpaca_form", "template", 0, "chat"); /* all rows go through it */
	if (!rc && f->file_dialect == DIALECT_AXOLOTL && c->min_lr_rate > 0 &&
	        c->lr_scheduler_type == SCHEDULE_COSINE)
		c->lr_scheduler_type = SCHEDULE_COSINE_WITH_MIN_LR;
	if (!rc)
		rc = zero_apply(f, c);
	if (!rc && f->total_batch)
		rc = total_batch_apply(f, c);
	return rc ? rc : defaults_say(f, c);
}
