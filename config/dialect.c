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
         "chat_template_path dataset_kwargs.* use_peft lora_task_type",
                DIALECT_TRL, TRL_PROOF},
        {"packing max_length dataset_text_field eos_token padding_free", DIALECT_TRL, 1},
};

const char *dialect_name(enum dialect dialect)
{
	static const char *const names[DIALECT_COUNT] = {"ferry", "accelerate", "axolotl", "torchtune",
	        "LLaMA-Factory", "transformers (TrainingArguments)", "TRL (SFTConfig)", "DeepSpeed"};

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
	const char *key, *value, *or_key; /* or_key: says the same; NULL = none */
} defaults[] = {
        {TRANSFORMERS | TRL | LLAMA_FACTORY, "per_device_train_batch_size", "8", NULL},
        {TRANSFORMERS | TRL | LLAMA_FACTORY, "num_train_epochs", "3", NULL},
        {TRANSFORMERS | LLAMA_FACTORY, "learning_rate", "5e-5", NULL},
        {TRANSFORMERS | LLAMA_FACTORY, "compute_dtype", "fp32", NULL},
        {TRL, "train_on_inputs", "chats", NULL},
        {LLAMA_FACTORY, "max_length", "2048", NULL},
        {AXOLOTL, "lr_scheduler_type", "cosine", NULL},
        {AXOLOTL, "max_length", "512", NULL},
        {AXOLOTL, "warmup_ratio", "0.03, at most 100 steps", "warmup_steps"},
        {AXOLOTL, "save_total_limit", "4", NULL},
        {AXOLOTL, "long_rows", "drop", NULL},
        {TORCHTUNE, "lr_scheduler_type", "constant", NULL},
        {TORCHTUNE, "max_length", "off", NULL},
        {TORCHTUNE, "weight_decay", "0.01", NULL},
        {TORCHTUNE, "max_grad_norm", "off", NULL},
        {TRANSFORMERS | TRL | LLAMA_FACTORY | TORCHTUNE, "save_total_limit", "all", NULL},
};

/* ---- after all settings ---- */

/* Sets steps for so many times an epoch: axolotl's saves_per_epoch. */
static void each_epoch(double *steps, const char *key, double times, const struct config *c)
{
	if (times == 1)
		*steps = CONFIG_EACH_EPOCH;
	if (times == 1 || !(times * c->num_train_epochs > 0))
		return;
	*steps = 1 / (times * c->num_train_epochs);
	if (*steps >= 1) /* 0 = once, at the end */
		*steps = 0;
	if (c->max_steps > 0)
		log_warn("ferry takes %s=%s, a share of the run: with max_steps it does not know the steps "
		         "of a "
		         "part of an epoch; set a number of steps",
		        key, config_text(c, key));
}

/* A strategy counts more than a number of steps, as in transformers, unless it is a file's and the number the
 * command line's. */
static void steps_apply(const struct foreign *f, struct config *c)
{
	const struct {
		const char *key;
		double *steps;
	} events[FOREIGN_EVENTS] = {[FOREIGN_SAVE] = {"save_steps", &c->save_steps},
	        [FOREIGN_EVAL] = {"eval_steps", &c->eval_steps},
	        [FOREIGN_LOG] = {"logging_steps", &c->logging_steps}};

	for (int i = 0; i < FOREIGN_EVENTS; i++) {
		const char *place = c->origins[config_key_find(events[i].key) - config_keys].place;
		const struct foreign_strategy *s = &f->strategy[i];
		int wins = s->by_words || !place || *place;

		if (s->when == FOREIGN_NEVER && wins && i != FOREIGN_SAVE)
			*events[i].steps = 0;
		else if (s->when == FOREIGN_NEVER && wins && !config_was_set(c, "save_only_model"))
			c->save_only_model = 1;
		else if (s->when == FOREIGN_EPOCH && wins)
			*events[i].steps = CONFIG_EACH_EPOCH;
		else if (!place)
			each_epoch(events[i].steps, events[i].key, f->per_epoch[i], c);
	}
}

/* LLaMA-Factory's pt joins texts and cuts them at cutoff_len. Full bins of split texts are next to that. */
static void pretraining_apply(const struct foreign *f, struct config *c)
{
	if (f->pretrains && !config_was_set(c, "long_rows"))
		c->long_rows = CONFIG_LONG_ROWS_SPLIT;
	if (f->pretrains && !config_was_set(c, "packing"))
		c->packing = CONFIG_PACKING_BFD;
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
		if (defaults[i].dialects >> f->file_dialect & 1 && !was_set(f, c, defaults[i].key) &&
		        !(defaults[i].or_key && was_set(f, c, defaults[i].or_key)))
			str_printf(&list, "%s%s %s (%s)", list.len_bytes ? ", " : "", defaults[i].key,
			        config_text(c, defaults[i].key), defaults[i].value);
	if (c->verb == VERB_TRAIN && list.len_bytes)
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
	if (has_micro)
		c->gradient_accumulation_steps = f->total_batch / micro;
	else
		c->per_device_train_batch_size = f->total_batch / steps;
	return 0;
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
	        (c->verb != VERB_TRAIN && c->verb != VERB_PLAN))
		return 0;
	return item_error(ERR_INPUT, &f->evaluates, "needs rows to evaluate on; set eval_data or eval_split");
}

int foreign_meant_set(
        struct config *c, const char *file, const char *name, const char *as, int line, const char *text)
{
	const struct config_key *key = config_key_find(name);
	struct config_layer layer = {.file = file, .seen = mem_alloc((size_t)config_key_count, 1)};
	int rc = layer.seen ? config_set(c, &layer, key, as, line, text, CONFIG_STRONG) : ERR_NOMEM;

	mem_free(layer.seen);
	return rc;
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
	return foreign_meant_set(c, item->file, "tokenizer", item->name, item->line, item->text);
}

/* LLaMA-Factory looks for data/dataset_info.json if the file names no other directory. */
static int dataset_dir_apply(const struct foreign *f, struct config *c)
{
	static const char usual[] = "data";

	if (f->file_dialect != DIALECT_LLAMA_FACTORY || config_was_set(c, "dataset_info") || !c->data ||
	        strpbrk(c->data, "/*?[") || /* a path, a pattern, an id of the Hub */
	        file_kind_of(c->data) != FILE_NONE || file_kind_of("data/dataset_info.json") != FILE_REGULAR)
		return 0;
	log_info("looking for data in data/dataset_info.json, as LLaMA-Factory does without dataset_dir");
	mem_free(c->dataset_info);
	c->dataset_info = mem_strdup(usual);
	return c->dataset_info ? 0 : ERR_NOMEM;
}

int foreign_finish(struct foreign *f, struct config *c)
{
	int rc = foreign_lora_finish(f, c);

	if (!rc)
		rc = check_data_seed(f, c);
	if (!rc)
		rc = tokenizer_apply(f, c);
	if (rc)
		return rc;
	steps_apply(f, c);
	pretraining_apply(f, c);
	rc = dataset_dir_apply(f, c);
	if (rc)
		return rc;
	if (f->file_dialect == DIALECT_LLAMA_FACTORY && !config_was_set(c, "alpaca_form"))
		rc = foreign_meant_set(
		        c, f->file, "alpaca_form", "template", 0, "chat"); /* all rows go through it */
	if (rc)
		return rc;
	if (f->file_dialect == DIALECT_AXOLOTL && c->min_lr_rate > 0 &&
	        c->lr_scheduler_type == SCHEDULE_COSINE)
		c->lr_scheduler_type = SCHEDULE_COSINE_WITH_MIN_LR;
	if (f->zero_offload && !config_was_set(c, "cpu_offload"))
		c->cpu_offload = f->zero_offload;
	if (f->total_batch && total_batch_apply(f, c))
		return ERR_INPUT;
	rc = check_evaluates(f, c);
	return rc ? rc : defaults_say(f, c);
}
