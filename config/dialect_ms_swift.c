/* ms-swift's keys: those of transformers, and its own. */
#include "config/dialect_item.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "device/preference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct dialect_marker markers[] = {
        {"tuner_type train_type split_dataset_ratio rlhf_type load_from_cache_file model_author "
         "freeze_vit freeze_aligner quant_bits lorap_lr_ratio val_dataset external_plugins",
                2},
        {"torch_dtype target_modules attn_impl dataset", 0}, {NULL, 0}}; /* no key of ferry: LoRA follows */

static const struct dialect_default defaults[] = {
        {"gradient_accumulation_steps", "as many as make 16 rows a step", NULL, DIALECT_ROWS_ANY},
        {"num_train_epochs", "3", "max_steps", DIALECT_ROWS_ANY},
        {"learning_rate", "1e-4 for LoRA, else 1e-5", NULL, DIALECT_ROWS_ANY},
        {"lr_scheduler_type", "cosine", NULL, DIALECT_ROWS_ANY},
        {"weight_decay", "0.1", NULL, DIALECT_ROWS_ANY},
        {"adam_beta2", "0.95", NULL, DIALECT_ROWS_ANY},
        {"max_length", "the model's", NULL, DIALECT_ROWS_ANY},
        {"long_rows", "drop", NULL, DIALECT_ROWS_ANY},
        {"save_total_limit", "all", NULL, DIALECT_ROWS_ANY},
        {0},
};

static const struct dialect_lora lora = {
        .rank = "8",
        .alpha = "32",
        .targets = "all-linear",
        .dropout = "0.05",
        .ask = "tuner_type: lora",
        .full = "tuner_type=full",
};

static int tuner(const struct item *s)
{
	return lora_switch(s, &dialect_ms_swift, "lora");
}

/* ---- data ---- */

#define ROWS_DIFFER                                                                                          \
	"a number of rows for each data set is not supported; cut the files, or set max_samples for all"

/* The number of rows in "rows.jsonl#500"; 0: all. *length: bytes of the path. -1: it is none. */
static long rows_of(const char *set, size_t *length)
{
	const char *mark = file_kind_of(set) == FILE_NONE ? strrchr(set, '#') : NULL;
	char *end;
	long count;

	*length = mark ? (size_t)(mark - set) : strlen(set);
	if (!mark)
		return 0;
	count = strtol(mark + 1, &end, 10);
	return *end || count < 1 ? -1 : count;
}

/* "rows.jsonl#500, other.jsonl#500": paths, each with a number of its rows. ferry has one number for all. A
 * path that is there twice counts twice. */
static int data_sets(const struct item *s, const char *key, const char *slot)
{
	struct item count_of = *s;
	struct str paths = {0};
	char text[24];
	long rows = -1;
	int rc = 0;

	for (const char *at = s->text + strspn(s->text, " ,"); *at && !rc; at += strspn(at, " ,")) {
		size_t length = strcspn(at, ",");
		struct str name = {0};
		long count = 0;

		str_printf(&name, "%.*s", (int)length, at);
		at += length;
		rc = str_check(&name);
		if (!rc) {
			count = rows_of(name.data, &length);
			name.data[length] = 0;
		}
		if (!rc && (count < 0 || (rows >= 0 && count != rows)))
			rc = item_refuse(s, ROWS_DIFFER);
		rows = count;
		if (!rc)
			str_printf(&paths, "%s%s", paths.len_bytes ? "," : "", name.data);
		str_free(&name);
	}
	if (!rc)
		rc = str_check(&paths);
	if (!rc && paths.len_bytes)
		rc = item_set(s, key, paths.data, CONFIG_STRONG);
	str_free(&paths);
	snprintf(text, sizeof(text), "%ld", rows);
	count_of.text = text;
	return rc || rows < 1 ? rc : item_keep(&count_of, slot);
}

static int dataset(const struct item *s)
{
	return data_sets(s, "data", "swift_rows");
}

static int val_dataset(const struct item *s)
{
	return data_sets(s, "eval_data", "swift_eval_rows");
}

static int long_rows(const struct item *s)
{
	static const char *const words[][2] = {{"delete", "drop"}, {"right", "truncate"}, {"split", "split"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (config_name_equal(s->text, words[i][0]))
			return item_set(s, "long_rows", words[i][1], CONFIG_STRONG);
	return item_is_off(s->text)
	               ? 0
	               : item_refuse(s, "long rows are cut at the end; set it to right or delete");
}

/* Weights of tokens: those of three names are ferry's choices of what is trained. */
static int loss_scale(const struct item *s)
{
	if (config_name_equal(s->text, "last_round"))
		return item_set(s, "train_on_last_turn", "on", CONFIG_STRONG);
	if (config_name_equal(s->text, "all"))
		return item_set(s, "train_on_inputs", "on", CONFIG_STRONG);
	return config_name_equal(s->text, "default") || item_is_off(s->text)
	               ? 0
	               : item_refuse(s,
	                         "weights of tokens are not supported; supported: default, last_round, all");
}

static int system_text(const struct item *s)
{
	if (*s->text)
		item_warn(s,
		        "%s: ferry adds no system text; write it into the rows if the model should see it",
		        s->name);
	return 0;
}

static int template_name(const struct item *s)
{
	item_warn(s,
	        "%s=%s: ferry uses the model's own template; ferry data show prints a row as it is trained",
	        s->name, s->text);
	return 0;
}

static int thinking(const struct item *s)
{
	return item_member(s, "chat_template_kwargs", "");
}

/* ---- what is trained ---- */

static int torch_dtype(const struct item *s)
{
	static const char *const words[][2] = {{"bfloat16", "bf16"}, {"float32", "fp32"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (config_name_equal(s->text, words[i][0]))
			return item_set(s, "compute_dtype", words[i][1], CONFIG_WEAK);
	if (config_name_equal(s->text, "float16"))
		item_warn(s, "%s=%s: ferry computes in bf16, which needs no loss scale", s->name, s->text);
	return 0;
}

static int rlhf_type(const struct item *s)
{
	static const struct {
		const char *type, *does;
	} others[] = {{"rm", "trains a reward model; " ITEM_REWARD},
	        {"ppo grpo", "trains by reinforcement learning"}, {"gkd", "distills a teacher"}};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (config_name_in(s->text, others[i].type))
			return item_method(s, others[i].does);
	if (config_name_in(s->text, "cpo simpo") && item_keep(s, "cpo"))
		return ERR_NOMEM;
	return config_name_in(s->text, "dpo orpo simpo cpo kto")
	               ? item_keep(s, "rlhf_type")
	               : item_refuse(s, "not supported; supported: dpo, orpo, simpo, cpo, kto");
}

static int task_type(const struct item *s)
{
	static const char *const others[][2] = {
	        {"seq_cls",
	                "trains a classifier; write a file of ferry's keys with objective=classification"},
	        {"embedding", "trains an embedder; write a file of ferry's keys with objective=embedding"},
	        {"reranker generative_reranker",
	                "trains a reranker; write a file of ferry's keys with objective=reranking"}};

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (config_name_in(s->text, others[i][0]))
			return item_method(s, others[i][1]);
	return config_name_equal(s->text, "causal_lm") ? 0 : item_refuse(s, "only causal_lm is supported");
}

/* A stage of ZeRO by name, or DeepSpeed's file. */
static int deepspeed(const struct item *s)
{
	static const struct {
		const char *name, *strategy, *offload;
	} stages[] = {{"zero0", "NO_SHARD", NULL}, {"zero1", "SHARD_GRAD_OP", NULL},
	        {"zero2", "SHARD_GRAD_OP", NULL}, {"zero3", "FULL_SHARD", NULL},
	        {"zero2_offload", "SHARD_GRAD_OP", "gradients,optimizer"},
	        {"zero3_offload", "FULL_SHARD", "on"}};
	int rc = 0;

	for (size_t i = 0; i < sizeof(stages) / sizeof(*stages); i++)
		if (config_name_equal(s->text, stages[i].name)) {
			if (stages[i].offload)
				rc = item_set(s, "cpu_offload", stages[i].offload, CONFIG_WEAK);
			return rc ? rc : item_set(s, "sharding_strategy", stages[i].strategy, CONFIG_WEAK);
		}
	return item_is_off(s->text) ? 0 : item_read_file(s, &dialect_deepspeed, "");
}

static const struct dialect_key own[] = {
        CALL("dataset", dataset),
        CALL("val_dataset", val_dataset),
        CALL("target_modules", lora_targets),
        CALL("loss_scale", loss_scale),
        CALL("truncation_strategy", long_rows),
        CALL("torch_dtype", torch_dtype),
        CALL("template", template_name),
        CALL("system", system_text),
        CALL("deepspeed", deepspeed),
        KEY("target_regex", "lora_target_modules"),
        ONLY("init_weights", ITEM_ON, "only PEFT's own start is supported: A at random, B zero; remove it"),
        ONLY("packing_strategy", "binpack", "only binpack is supported"),
        PASS("model_name"), /* what a data set of its own says of the model */
        KEYS_END,
};

static const struct dialect_key keys[] = {
        CALL("tuner_type train_type", tuner),
        CALL("rlhf_type", rlhf_type),
        CALL("task_type", task_type),
        CALL("enable_thinking preserve_thinking", thinking),
        CALL("quant_bits", item_quantized),
        CALL("quant_method", item_quant_method),
        KEY("split_dataset_ratio", "eval_split"),
        KEY("lorap_lr_ratio", "loraplus_lr_ratio"),
        KEY("adapters", "lora_adapter"),
        KEY("modules_to_save", "lora_modules_to_save"),
        KEY("early_stop_interval", "early_stopping_patience"),
        KEY("dataset_shuffle", "shuffle"),
        KEY("sft_alpha", "preference_own_weight"),
        ONLY("sequence_parallel_size deepspeed_autotp_size", "1 " ITEM_OFF,
                "context and tensor parallelism are not supported"),
        ONLY("columns", ITEM_OFF " {}", "name the columns with field_prompt, field_messages and their like"),
        ONLY("freeze_parameters freeze_parameters_regex", ITEM_OFF " []", ITEM_BY_NAME ITEM_FREEZE_EXAMPLE),
        ONLY("freeze_parameters_ratio", "0 0.0", ITEM_BY_NAME ITEM_FREEZE_EXAMPLE),
        ONLY("trainable_parameters trainable_parameters_regex", ITEM_OFF " []",
                ITEM_BY_NAME ITEM_TRAINABLE_EXAMPLE),
        ONLY("freeze_llm new_special_tokens response_prefix is_binary_loss_scale", ITEM_OFF " []",
                "not supported; remove it"),
        ONLY("streaming cached_dataset cached_val_dataset custom_dataset_info", ITEM_OFF " []",
                "ferry reads files of rows; name them in data"),
        ONLY("tuner_backend", "peft", "only PEFT's form of adapters is supported"),
        ONLY("acc_strategy", "token seq", "not supported; supported: token, seq"),
        ONLY("external_plugins custom_register_path", ITEM_OFF " []", "ferry runs no Python code"),
        METHOD("tensor_model_parallel_size pipeline_model_parallel_size expert_model_parallel_size "
               "recompute_granularity no_save_optim lr_warmup_fraction",
                "", "trains with another program's engine (Megatron)"),
        METHOD("lisa_activated_layers", ITEM_OFF " 0", "trains by a method of its own"),
        ONLY("rope_scaling", ITEM_OFF, "set it in the model's config.json"),
        ONLY("max_epochs", ITEM_OFF, "set num_train_epochs, or max_steps"),
        METHOD("teacher_model", ITEM_OFF, "distills a teacher"),
        METHOD("vllm_mode sleep_level multi_turn_scheduler", ITEM_OFF, "trains by reinforcement learning"),
        ONLY("use_chat_template", ITEM_ON, "chats go through a chat template; for texts make rows of text"),
        ONLY("packing_length", ITEM_OFF, "packed rows have max_length tokens; set that"),
        ONLY("resume_only_model", ITEM_OFF, "training resumes with its optimizer; for a new start set model"),
        CALL("agent_template add_non_thinking_prefix disable_ignore_empty_think", template_name),
        PASS("model_author model_type use_hf hub_token load_from_cache_file lazy_tokenize "
             "packing_num_proc template_backend padding_side norm_bbox max_pixels freeze_vit "
             "freeze_aligner vit_* aligner_lr experts_impl max_memory local_repo_path "
             "val_dataset_shuffle shuffle_buffer_size download_mode strict "
             "disable_auto_column_mapping ignore_args_error load_args load_data_args add_version "
             "create_checkpoint_symlink zero_hpz_partition_size model_kwargs use_flash_ckpt use_ray "
             "ray_exp_name device_groups device_groups.* metric eval_metric llamapro_* reft_* "
             "adalora_* vera_* boft_* fourier_* adapter_act adapter_length lisa_* lora_ga_* attn_impl "
             "max_model_len use_logits_to_keep enable_npu_model_patch dataloader_* eval_use_evalscope "
             "eval_dataset eval_dataset_args eval_limit eval_generation_config logprobs stop_words "
             "verbose"),
        KEYS_END,
};

/* ---- after all settings ---- */

/* Its losses of pairs are those of TRL's trainers, with defaults of its own. */
static int preference_apply(const struct dialect_kept *type, struct config *c)
{
	static const struct {
		const char *types, *key, *value;
		int is_of_simpo;
	} unsaid[] = {{"dpo", "preference_loss", "sigmoid", 0}, {"orpo", "preference_loss", "orpo", 0},
	        {"orpo", "preference_own_tokens", "all", 0}, {"simpo", "preference_loss", "simpo", 0},
	        {"simpo", "preference_beta", "2", 0}, {"cpo", "preference_loss", "cpo", 0},
	        {"kto", "preference_loss", "kto", 0}, {"cpo simpo", "preference_gamma", "1", 1},
	        {"cpo simpo", "preference_own_weight", "1", 1}};
	const struct config_origin *said = &c->origins[config_key_find("preference_loss") - config_keys];
	int rc = 0;

	if (config_name_in(type->text, "orpo kto") && said->place &&
	        config_name_equal(said->as, "loss_type") &&
	        !config_name_equal(config_text(c, "preference_loss"), type->text))
		return kept_error(ERR_INPUT, type, "has a loss of its own; remove loss_type");
	for (size_t i = 0; i < sizeof(unsaid) / sizeof(*unsaid) && !rc; i++)
		if (config_name_in(type->text, unsaid[i].types) && !config_was_set(c, unsaid[i].key) &&
		        (!unsaid[i].is_of_simpo || c->preference_loss == PREFERENCE_SIMPO))
			rc = kept_set(c, type, unsaid[i].key, unsaid[i].value);
	return rc;
}

/* Numbers of rows become the one of ferry, which counts for evaluation too. */
static int rows_apply(const struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *rows = dialect_kept(d, "swift_rows"),
	                          *eval = dialect_kept(d, "swift_eval_rows");

	if (config_was_set(c, "max_samples") || (!rows && !eval))
		return 0;
	if (eval ? !rows || strcmp(rows->text, eval->text) != 0 : c->eval_data != NULL)
		return kept_error(ERR_UNSUPPORTED, rows ? rows : eval, "rows: " ROWS_DIFFER);
	log_warn("%s=%s rows: ferry takes the first ones, and ms-swift draws them", rows->name, rows->text);
	return kept_set(c, rows, "max_samples", rows->text);
}

/* Its columns, and all rows go through the template. */
static int columns_apply(struct config *c, int are_pairs)
{
	static const char *const meant[][2] = {{"alpaca_form", "chat"},
	        {"field_instruction", "instruction,query"}, {"field_output", "output,response"},
	        {"field_chosen", "chosen,response"}};
	int rc = 0;

	for (int i = 0; i < (are_pairs ? 4 : 3) && !rc; i++)
		if (!config_was_set(c, meant[i][0]))
			rc = config_set_meant(c, NULL, meant[i][0], meant[i][0], 0, meant[i][1]);
	return rc;
}

static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *type = dialect_kept(d, "rlhf_type");
	int rc = rows_apply(d, c);

	if (!rc && d->file == &dialect_ms_swift)
		rc = columns_apply(c, type && !config_name_equal(type->text, "kto"));
	if (rc)
		return rc;
	if (d->file == &dialect_ms_swift && !c->eval_data && !(c->eval_split > 0))
		c->eval_steps = 0; /* it evaluates where it has rows */
	return type ? preference_apply(type, c) : 0;
}

const struct dialect dialect_ms_swift = {.name = "ms-swift",
        .base = &dialect_transformers,
        .markers = markers,
        .own = own,
        .keys = keys,
        .defaults = defaults,
        .lora = &lora,
        .finish = finish};
