/* TrainingArguments of transformers. */
#include "config/dialect_item.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define ADAMW                                                                                                \
	"adamw adamw_torch adamw_torch_fused adamw_hf adamw_apex_fused adamw_anyprecision torch.optim.AdamW"

static const struct dialect_marker markers[] = {
        {"eval_strategy evaluation_strategy save_strategy logging_dir logging_strategy logging_first_step "
         "dataset_name optim remove_unused_columns prediction_loss_only push_to_hub disable_tqdm data_seed "
         "dataloader_* ddp_* fp16 torch_compile",
                2},
        {"model_name_or_path report_to lr_scheduler_kwargs.* gradient_checkpointing_kwargs.*", 1}, {NULL, 0}};

static const struct dialect_default defaults[] = {
        {"per_device_train_batch_size", "8", NULL, DIALECT_ROWS_ANY},
        {"num_train_epochs", "3", NULL, DIALECT_ROWS_ANY},
        {"learning_rate", "5e-5", NULL, DIALECT_ROWS_ANY},
        {"compute_dtype", "fp32", NULL, DIALECT_ROWS_ANY},
        {"save_total_limit", "all", NULL, DIALECT_ROWS_ANY},
        {0},
};

static const struct dialect_lora lora = {
        .ask = "use_peft: true", .unasked = {{"lora_rank", "lora_r", 1}}, /* it may be meant for ferry */
};

static int is_strategy(const char *text)
{
	return item_is_off(text) || config_name_in(text, "steps epoch");
}

static int eval_strategy(const struct item *s)
{
	dialect_forget(s->d, "evaluates");
	if (!is_strategy(s->text))
		return item_refuse(s, "not supported; supported: no, steps, epoch");
	if (item_keep(s, "eval_strategy"))
		return ERR_NOMEM;
	return item_is_off(s->text) ? 0 : item_keep(s, "evaluates");
}

static int save_strategy(const struct item *s)
{
	return is_strategy(s->text) || config_name_equal(s->text, "best")
	               ? item_keep(s, "save_strategy")
	               : item_refuse(s, "not supported; supported: no, steps, epoch, best");
}

static int logging_strategy(const struct item *s)
{
	return is_strategy(s->text) ? item_keep(s, "logging_strategy")
	                            : item_refuse(s, "not supported; supported: no, steps, epoch");
}

static int optimizer(const struct item *s)
{
	const char *dot = strrchr(s->text, '.'), *last = dot ? dot + 1 : s->text;

	if (!*s->text || config_name_in(s->text, ADAMW) || config_name_in(last, "AdamW"))
		return 0;
	if (config_name_in(last, "paged_adamw paged_adamw_32bit PagedAdamW PagedAdamW32bit"))
		return item_pass(s); /* moments are in host memory anyway */
	if (config_name_in(last,
	            "adamw_8bit adamw_bnb_8bit adamw_torch_8bit paged_adamw_8bit AdamW8bit PagedAdamW8bit")) {
		log_info("%s=%s: reading it as optimizer_state=8bit", s->name, s->text);
		return item_set(s, "optimizer_state", "8bit", CONFIG_WEAK);
	}
	if (config_name_in(last, "adamw_torch_4bit AdamW4bit")) {
		item_warn(s, "%s=%s: reading it as optimizer_state=8bit; ferry has no 4-bit state", s->name,
		        s->text);
		return item_set(s, "optimizer_state", "8bit", CONFIG_WEAK);
	}
	return item_refuse(s, "only AdamW is supported");
}

static int keep_data_seed(const struct item *s)
{
	return item_keep(s, "data_seed");
}

static int push(const struct item *s)
{
	if (!item_is_off(s->text))
		item_warn(s, "%s=%s: ferry uploads nothing; to upload the result, hf upload ID %s", s->name,
		        s->text, "OUTPUT_DIR/model");
	return 0;
}

/* A name of a tracker, or a list of them. One that ferry does not know changes no number. */
static int report_to(const struct item *s)
{
	static const char blanks[] = " []\",'";
	char *names = mem_strdup(s->text), *rest = names, *name;
	struct str unknown = {0};
	int rc = names ? 0 : ERR_NOMEM;

	while (!rc && (name = strsep(&rest, blanks)))
		if (config_name_equal(name, "tensorboard"))
			rc = item_set(s, "report_to", "tensorboard", CONFIG_STRONG);
		else if (*name && !item_is_off(name))
			str_printf(&unknown, "%s%s", unknown.len_bytes ? ", " : "", name);
	if (!rc && unknown.len_bytes)
		item_warn(s,
		        "%s=%s: ferry reports to no service; it writes metrics.jsonl, and with "
		        "report_to=tensorboard an event file%s",
		        s->name, unknown.data,
		        strstr(unknown.data, "wandb") ? ", which wandb sync OUTPUT_DIR uploads" : "");
	mem_free(names);
	str_free(&unknown);
	return rc;
}

/* A directory on disk has one revision. */
static int revision(const struct item *s)
{
	if (!config_name_equal(s->text, "main"))
		item_warn(s,
		        "%s=%s: ferry takes the files that model names; make sure that they are of this "
		        "revision",
		        s->name, s->text);
	return 0;
}

static const struct dialect_key own[] = {
        OR_OFF("clip_grad_norm max_grad_norm", "max_grad_norm"),
        CALL("lora_target_modules", lora_targets),
        CALL("report_to", report_to),
        PASS("dtype"), /* in which the weights are loaded */
        KEYS_END,
};

static const struct dialect_key keys[] = {
        CALL("optimizer._component_ optim optimizer", optimizer),
        CALL("save_strategy", save_strategy),
        CALL("eval_strategy evaluation_strategy", eval_strategy),
        CALL("logging_strategy", logging_strategy),
        CALL("data_seed", keep_data_seed),
        PASS("do_train"), /* Trainer does not look at it */
        ONLY("fp16 fp16_full_eval", ITEM_OFF " auto",
                "fp16 is not supported; bf16 needs no loss scale: set bf16"),
        ONLY("fp8", ITEM_OFF " auto", "this recipe is not supported; ferry's own is compute_dtype=fp8"),
        KEY("lr_scheduler_kwargs.min_lr_rate", "min_lr_rate"),
        ONLY("lr_scheduler_kwargs.num_cycles", "0.5", "only half a cosine is supported"),
        ONLY("lr_scheduler_kwargs.power", "1 1.0", "only power 1 is supported"),
        ONLY("lr_scheduler_kwargs.lr_end", "1e-7", "only an end at 1e-7 is supported"),
        ONLY("lr_scheduler_kwargs lr_scheduler_kwargs.*", ITEM_OFF " {}",
                "only min_lr_rate is supported; set it directly"),
        ONLY("optim_args optim_target_modules", ITEM_OFF, "set adam_beta1, adam_beta2, adam_epsilon"),
        ONLY("adafactor", ITEM_OFF, "only AdamW is supported"),
        ONLY("train_sampling_strategy", "random", "rows are drawn at random; see shuffle"),
        ONLY("batch_eval_metrics", ITEM_OFF, "ferry computes the loss alone"),
        ONLY("group_by_length length_column_name dataloader_drop_last auto_find_batch_size ignore_data_skip "
             "eval_on_start jit_mode_eval",
                ITEM_OFF " length", "not supported yet; remove it"),
        CALL("load_in_8bit load_in_4bit quantization_bit", item_quantized),
        ONLY("gptq quantization", ITEM_OFF, ITEM_NOT_QUANTIZED "remove it"),
        CALL("bnb_4bit_quant_type", item_quant_type),
        CALL("bnb_4bit_use_double_quant use_bnb_nested_quant", item_quant_double),
        CALL("bnb_4bit_compute_dtype", item_quant_dtype),
        PASS("bnb_*"),
        CALL("push_to_hub", push),
        CALL("model_revision revision_of_model", revision),
        PASS("trust_remote_code run_name logging_dir logging_first_step logging_nan_inf_filter "
             "log_level "
             "log_level_* log_on_each_node disable_tqdm wandb_* use_wandb mlflow_* comet_* swanlab_* "
             "use_swanlab swanlab_* use_mlflow hub_* dataloader_* ddp_* local_rank tf32 bf16_full_eval "
             "torch_compile "
             "torch_compile_* use_liger_kernel attn_implementation torch_dtype gradient_checkpointing_kwargs "
             "gradient_checkpointing_kwargs.* accelerator_config accelerator_config.* save_safetensors "
             "remove_unused_columns prediction_loss_only "
             "full_determinism dataset_num_proc padding_free pad_to_multiple_of eval_packing "
             "activation_checkpointing_kwargs activation_checkpointing_kwargs.* use_cache project trackio_* "
             "eval_do_concat_batches eval_use_gather_object enable_jit_checkpoint parallelism_config "
             "liger_kernel_config liger_kernel_config.* torch_empty_cache_steps label_names "
             "skip_memory_metrics save_on_each_node restore_callback_states_from_checkpoint "
             "eval_accumulation_steps eval_delay include_for_metrics average_tokens_across_devices "
             "hf_use_auth_token lazy_preprocess dataloader_pin_memory use_kernels attn_implementation_* "
             "experiment_name use_mps_device past_index device_map gradient_checkpointing_use_reentrant"),
        KEYS_END,
};

/* ---- after all settings ---- */

static int steps_apply(const struct dialect_state *d, struct config *c)
{
	static const struct {
		const char *slot, *key;
	} events[] = {{"save_strategy", "save_steps"}, {"eval_strategy", "eval_steps"},
	        {"logging_strategy", "logging_steps"}};
	int rc = 0;

	for (size_t i = 0; i < sizeof(events) / sizeof(*events) && !rc; i++) {
		const struct dialect_kept *s = dialect_kept(d, events[i].slot);
		int is_save = !strcmp(events[i].key, "save_steps");

		if (!s || config_name_equal(s->text, "steps") || !kept_wins(s, c, events[i].key))
			continue;
		if (config_name_in(s->text, "epoch best"))
			rc = kept_set(c, s, events[i].key, s->text);
		else if (!is_save)
			rc = kept_set(c, s, events[i].key, "0");
		else if (!config_was_set(c, "save_only_model"))
			rc = kept_set(c, s, "save_only_model", "on");
	}
	return rc;
}

static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *seed = dialect_kept(d, "data_seed"),
	                          *evaluates = dialect_kept(d, "evaluates");
	char *end;

	if (seed && strtoll(seed->text, &end, 10) != c->seed)
		return kept_error(ERR_UNSUPPORTED, seed,
		        "differs from seed, by which ferry orders rows; remove it or set seed");
	if (evaluates && !config_was_set(c, "eval_steps") && !c->eval_data && !(c->eval_split > 0) &&
	        (config_trains(c) || c->verb == VERB_PLAN))
		return kept_error(
		        ERR_INPUT, evaluates, "needs rows to evaluate on; set eval_data or eval_split");
	return steps_apply(d, c);
}

const struct dialect dialect_transformers = {.name = "transformers (TrainingArguments)",
        .markers = markers,
        .own = own,
        .keys = keys,
        .defaults = defaults,
        .lora = &lora,
        .finish = finish};
