/* Keys of other tools, and what they become here. */
#include "config/foreign.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What becomes of a foreign key. In all of them an empty value (null) sets nothing. */
enum foreign_kind {
	FOREIGN_KEY,  /* `arg` under another name */
	FOREIGN_WEAK, /* the same, but a stronger spelling beside it wins */
	FOREIGN_PASS, /* changes nothing here */
	FOREIGN_ONLY, /* changes nothing while it has one of the values in `arg`, else refused with `note` */
	FOREIGN_IF,   /* sets `arg` ("key=value") when on */
	FOREIGN_NOT,  /* the flag `arg`, turned round */
	FOREIGN_CALL, /* has a function: foreign_calls[] of the same name */
};

struct foreign_key {
	const char *names; /* separated by blanks; a name that ends in * is a prefix */
	enum foreign_kind kind;
	const char *arg, *note;
	unsigned dialects; /* bits; 0 = any. Others are looked at before our own keys. */
};

#define OFF "off false no 0 none null"
#define ADAMW                                                                                                \
	"adamw adamw_torch adamw_torch_fused adamw_hf adamw_apex_fused adamw_anyprecision torch.optim.AdamW"
#define AXOLOTL (1u << DIALECT_AXOLOTL)

static const struct foreign_key foreign_keys[] = {
        /* accelerate, and its block in others; "fsdp_config.fsdp_x", "fsdp_config.x" and "fsdp_x" are
           "fsdp.x" */
        {"fsdp.offload_params fsdp.cpu_offload", FOREIGN_KEY, "cpu_offload", NULL, 0},
        {"fsdp.sharding_strategy", FOREIGN_KEY, "sharding_strategy", NULL, 0},
        {"fsdp.auto_wrap_policy", FOREIGN_KEY, "wrap_policy", NULL, 0},
        {"fsdp.min_num_params", FOREIGN_KEY, "min_num_params", NULL, 0},
        {"fsdp.backward_prefetch fsdp.backward_prefetch_policy", FOREIGN_KEY, "backward_prefetch", NULL, 0},
        {"fsdp.forward_prefetch", FOREIGN_KEY, "forward_prefetch", NULL, 0},
        {"fsdp.state_dict_type", FOREIGN_KEY, "state_dict_type", NULL, 0},
        {"fsdp.activation_checkpointing", FOREIGN_WEAK, "activations", NULL, 0},
        {"fsdp.reshard_after_forward", FOREIGN_CALL, NULL, NULL, 0},
        {"fsdp.version fsdp.use_orig_params fsdp.sync_module_states fsdp.cpu_ram_efficient_loading "
         "fsdp.transformer_layer_cls_to_wrap fsdp.transformer_cls_names_to_wrap fsdp.limit_all_gathers "
         "fsdp.final_state_dict_type fsdp_config fsdp_transformer_layer_cls_to_wrap",
                FOREIGN_PASS, NULL, NULL, 0},
        {"fsdp.xla fsdp.xla_fsdp_v2 fsdp.xla_fsdp_grad_ckpt", FOREIGN_ONLY, OFF, "XLA is not supported", 0},
        {"fsdp", FOREIGN_CALL, NULL, NULL, 0},
        {"distributed_type", FOREIGN_ONLY, "FSDP NO MULTI_GPU MULTI_CPU DEEPSPEED",
                "this way of distributing is not supported", 0},
        {"use_cpu no_cuda", FOREIGN_IF, "device=host", NULL, 0},
        {"compute_environment downcast_bf16 enable_cpu_affinity machine_rank main_training_function "
         "num_machines num_processes rdzv_backend same_network gpu_ids main_process_ip main_process_port "
         "tpu_* dynamo_config dynamo_config.* mpirun_config.* debug",
                FOREIGN_PASS, NULL, NULL, 0},
        {"deepspeed_config.zero_stage deepspeed_config.offload_optimizer_device "
         "deepspeed_config.offload_param_device",
                FOREIGN_CALL, NULL, NULL, 0},
        {"deepspeed_config.gradient_accumulation_steps", FOREIGN_WEAK, "gradient_accumulation_steps", NULL,
                0},
        {"deepspeed_config.gradient_clipping", FOREIGN_WEAK, "max_grad_norm", NULL, 0},
        {"deepspeed_config.zero3_init_flag deepspeed_config.zero3_save_16bit_model "
         "deepspeed_config.deepspeed_multinode_launcher deepspeed_config.offload_optimizer_pin_memory",
                FOREIGN_PASS, NULL, NULL, 0},
        {"deepspeed deepspeed_config deepspeed_config.*", FOREIGN_ONLY, OFF,
                "DeepSpeed configurations are not supported yet; set sharding_strategy and cpu_offload", 0},

        /* axolotl */
        {"batch_size", FOREIGN_CALL, NULL, NULL, AXOLOTL},
        {"datasets.0.path", FOREIGN_KEY, "data", NULL, 0},
        {"datasets.0.type", FOREIGN_KEY, "data_format", NULL, 0},
        {"datasets.0.field", FOREIGN_KEY, "text_field", NULL, 0},
        {"datasets.0.split", FOREIGN_KEY, "data_split", NULL, 0},
        {"datasets.0.ds_type", FOREIGN_ONLY, "json jsonl text csv parquet", "the file itself says what it is",
                0},
        {"datasets.0.data_files", FOREIGN_KEY, "data", NULL, 0},
        {"datasets datasets.*", FOREIGN_ONLY, OFF,
                "only one data set with path, type and field is supported; join the files", 0},
        {"test_datasets.0.path", FOREIGN_KEY, "eval_data", NULL, 0},
        {"test_datasets.0.type test_datasets.0.split test_datasets.0.ds_type", FOREIGN_PASS, NULL, NULL, 0},
        {"saves_per_epoch evals_per_epoch", FOREIGN_CALL, NULL, NULL, 0},
        {"adapter relora relora_steps qlora peft peft.* peft_config peft_config.*", FOREIGN_ONLY, OFF,
                "this trains LoRA adapters, which ferry does not support yet; it trains every weight", 0},
        {"lora_* use_dora use_rslora peft_*", FOREIGN_ONLY, OFF,
                "this trains LoRA adapters, which ferry does not support yet; it trains every weight", 0},
        {"load_in_8bit load_in_4bit quantization quantization_bit gptq bnb_*", FOREIGN_ONLY, OFF,
                "quantized weights are not supported yet", 0},
        {"rl reward_model process_reward_model", FOREIGN_ONLY, OFF,
                "preference training is not supported yet; only supervised fine-tuning", 0},
        {"special_tokens.pad_token special_tokens", FOREIGN_PASS, NULL, NULL, 0},
        {"tokens added_tokens_overrides special_tokens.* resize_vocab new_special_tokens add_tokens",
                FOREIGN_ONLY, OFF, "adding tokens is not supported yet", 0},
        {"unfrozen_parameters freeze_*", FOREIGN_ONLY, OFF, "this way to freeze weights is not supported", 0},
        {"early_stopping_patience", FOREIGN_ONLY, OFF, "early stopping is not supported", 0},
        {"plugins liger_* cut_cross_entropy unsloth_* flash_attention flash_attn xformers_attention "
         "sdp_attention eager_attention flash_attn_* s2_attention pad_to_sequence_len eval_sample_packing "
         "dataset_prepared_path model_type tokenizer_type model_config_type is_*_derived_model "
         "eval_table_size eval_max_new_tokens loss_watchdog_* strict tokenizer_use_fast tokenizer_legacy "
         "trust_remote_code special_tokens_* sample_packing_* multipack_real_batches dataset_processes",
                FOREIGN_PASS, NULL, NULL, 0},

        /* torchtune */
        {"optimizer._component_ optim optimizer", FOREIGN_ONLY, ADAMW, "only AdamW is supported", 0},
        {"optimizer.lr", FOREIGN_KEY, "learning_rate", NULL, 0},
        {"optimizer.weight_decay", FOREIGN_KEY, "weight_decay", NULL, 0},
        {"optimizer.eps", FOREIGN_KEY, "adam_epsilon", NULL, 0},
        {"optimizer.betas", FOREIGN_CALL, NULL, NULL, 0},
        {"optimizer.fused optimizer.foreach optimizer_in_bwd", FOREIGN_PASS, NULL, NULL, 0},
        {"lr_scheduler._component_", FOREIGN_CALL, NULL, NULL, 0},
        {"lr_scheduler.num_warmup_steps", FOREIGN_KEY, "warmup_steps", NULL, 0},
        {"dtype", FOREIGN_KEY, "compute_dtype", NULL, 0},
        {"enable_activation_checkpointing", FOREIGN_WEAK, "activations", NULL, 0},
        {"enable_activation_offloading activation_offloading", FOREIGN_IF, "activations=offload", NULL, 0},
        {"checkpointer.checkpoint_dir", FOREIGN_KEY, "model", NULL, 0},
        {"checkpointer.output_dir", FOREIGN_WEAK, "output_dir", NULL, 0},
        {"checkpointer.recipe_checkpoint checkpointer.adapter_checkpoint", FOREIGN_ONLY, OFF,
                "set resume_from_checkpoint to a ferry checkpoint", 0},
        {"model._component_ dataset._component_ dataset.source", FOREIGN_CALL, NULL, NULL, 0},
        {"dataset.data_files", FOREIGN_KEY, "data", NULL, 0},
        {"dataset.packed", FOREIGN_KEY, "packing", NULL, 0},
        {"dataset.train_on_input", FOREIGN_KEY, "train_on_inputs", NULL, 0},
        {"dataset.column", FOREIGN_KEY, "text_field", NULL, 0},
        {"dataset.split", FOREIGN_KEY, "data_split", NULL, 0},
        {"tokenizer.max_seq_len", FOREIGN_KEY, "max_length", NULL, 0},
        {"loss", FOREIGN_PASS, NULL, NULL, 0},
        {"loss._component_", FOREIGN_CALL, NULL, NULL, 0},
        {"max_steps_per_epoch", FOREIGN_ONLY, OFF, "set max_steps, or num_train_epochs to a fraction", 0},
        {"checkpointer._component_ checkpointer.checkpoint_files checkpointer.checkpoint_files.* "
         "checkpointer.model_type checkpointer.safe_serialization tokenizer._component_ tokenizer.path "
         "tokenizer.merges_file tokenizer.prompt_template loss.* compile compile.* profiler profiler.* "
         "metric_logger.* log_peak_memory_stats log_level custom_sharded_layers fsdp_reshard_after_forward",
                FOREIGN_PASS, NULL, NULL, 0},

        /* LLaMA-Factory */
        {"stage", FOREIGN_ONLY, "sft pt", "only supervised fine-tuning (sft) is supported", 0},
        {"finetuning_type", FOREIGN_ONLY, "full", "ferry trains every weight; set finetuning_type=full", 0},
        {"pure_bf16 use_galore use_apollo use_badam use_adam_mini use_muon use_llama_pro shift_attn "
         "mixture_of_depths",
                FOREIGN_ONLY, OFF, "this way of training is not supported", 0},
        {"do_train", FOREIGN_ONLY, "on true yes 1", "ferry train trains; see ferry eval", 0},
        {"do_eval do_predict predict_with_generate dataset_dir media_dir overwrite_cache "
         "preprocessing_num_workers preprocessing_batch_size plot_loss save_only_model use_unsloth "
         "enable_liger_kernel use_fast_tokenizer disable_gradient_checkpointing low_cpu_mem_usage "
         "include_num_input_tokens_seen include_tokens_per_second tokenized_path",
                FOREIGN_PASS, NULL, NULL, 0},

        /* transformers, TRL */
        {"save_strategy eval_strategy evaluation_strategy", FOREIGN_CALL, NULL, NULL, 0},
        {"logging_strategy", FOREIGN_PASS, NULL, NULL, 0},
        {"dataset_name", FOREIGN_KEY, "data", NULL, 0},
        {"dataset_config", FOREIGN_ONLY, OFF, "a local data set has one configuration", 0},
        {"packing_strategy", FOREIGN_ONLY, "bfd", "only bfd is supported", 0},
        {"completion_only_loss", FOREIGN_NOT, "train_on_inputs", NULL, 0},
        {"assistant_only_loss", FOREIGN_NOT, "train_on_inputs", NULL, 0},
        {"fp16 fp16_full_eval fp8", FOREIGN_ONLY, OFF " auto",
                "fp16 and fp8 are not supported; supported: bf16, fp32", 0},
        {"lr_scheduler_kwargs.min_lr_rate", FOREIGN_KEY, "min_lr_rate", NULL, 0},
        {"lr_scheduler_kwargs.num_cycles", FOREIGN_ONLY, "0.5", "only half a cosine is supported", 0},
        {"lr_scheduler_kwargs.power", FOREIGN_ONLY, "1 1.0", "only power 1 is supported", 0},
        {"lr_scheduler_kwargs.lr_end", FOREIGN_ONLY, "1e-7", "only an end at 1e-7 is supported", 0},
        {"lr_scheduler_kwargs lr_scheduler_kwargs.*", FOREIGN_ONLY, OFF " {}",
                "only min_lr_rate is supported; set it directly", 0},
        {"optim_args optim_target_modules", FOREIGN_ONLY, OFF, "set adam_beta1, adam_beta2, adam_epsilon", 0},
        {"adafactor", FOREIGN_ONLY, OFF, "only AdamW is supported", 0},
        {"label_smoothing_factor neftune_noise_alpha noisy_embedding_alpha", FOREIGN_ONLY, OFF " 0.0",
                "it is not supported", 0},
        {"loss_type", FOREIGN_ONLY, "nll", "only cross-entropy is supported", 0},
        {"load_best_model_at_end", FOREIGN_ONLY, OFF, "ferry keeps the last model", 0},
        {"group_by_length length_column_name dataloader_drop_last auto_find_batch_size ignore_data_skip "
         "eval_on_start jit_mode_eval",
                FOREIGN_ONLY, OFF " length", "it is not supported", 0},
        {"push_to_hub", FOREIGN_ONLY, OFF, "ferry uploads nothing", 0},
        {"use_peft", FOREIGN_ONLY, OFF,
                "this trains LoRA adapters, which ferry does not support yet; it trains every weight", 0},
        {"model_revision", FOREIGN_ONLY, "main", "a local directory has no revisions", 0},
        {"report_to run_name logging_dir logging_first_step logging_nan_inf_filter log_level log_level_* "
         "log_on_each_node disable_tqdm wandb_* use_wandb mlflow_* comet_* swanlab_* use_swanlab "
         "gc_steps hub_* dataloader_* ddp_* local_rank tf32 bf16_full_eval torch_compile torch_compile_* "
         "use_liger_kernel attn_implementation torch_dtype gradient_checkpointing_kwargs "
         "gradient_checkpointing_kwargs.* accelerator_config accelerator_config.* save_safetensors "
         "metric_for_best_model greater_is_better remove_unused_columns prediction_loss_only data_seed "
         "full_determinism dataset_num_proc padding_free pad_to_multiple_of eval_packing "
         "torch_empty_cache_steps label_names skip_memory_metrics save_on_each_node "
         "restore_callback_states_from_checkpoint eval_accumulation_steps eval_delay "
         "include_for_metrics average_tokens_across_devices dataset_kwargs.skip_prepare_dataset "
         "experiment_name use_mps_device past_index device_map gradient_checkpointing_use_reentrant",
                FOREIGN_PASS, NULL, NULL, 0},
};

/* Keys by which a tool is recognised; 2 points are enough. */
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
        {"base_model micro_batch_size val_set_size num_epochs saves_per_epoch", DIALECT_AXOLOTL, 1},
        {"checkpointer.* metric_logger.* model._component_ optimizer._component_ dataset._component_ "
         "enable_activation_checkpointing",
                DIALECT_TORCHTUNE, 2},
        {"finetuning_type stage cutoff_len dataset_dir", DIALECT_LLAMA_FACTORY, 2},
        {"template val_size", DIALECT_LLAMA_FACTORY, 1},
        {"eval_strategy evaluation_strategy save_strategy logging_dir dataset_name optim",
                DIALECT_TRANSFORMERS, 2},
        {"model_name_or_path report_to dataloader_* lr_scheduler_kwargs.* gradient_checkpointing_kwargs.*",
                DIALECT_TRANSFORMERS, 1},
};

const char *dialect_name(enum dialect dialect)
{
	static const char *const names[DIALECT_COUNT] = {"ferry", "accelerate", "axolotl", "torchtune",
	        "LLaMA-Factory", "transformers (TrainingArguments)"};

	return names[dialect];
}

/* Whether `name` is in a list whose members may be prefixes or hold a * inside. */
static int name_matches(const char *name, const char *list)
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
			if (name_matches(doc->items[i].path, markers[m].names))
				points[markers[m].dialect] += markers[m].points;
	/* the others build on transformers and have its keys too */
	if (points[DIALECT_TRANSFORMERS] >= 2)
		best = DIALECT_TRANSFORMERS;
	points[DIALECT_TRANSFORMERS] = 0;
	points[DIALECT_FERRY] = 1;
	for (int d = 0; d < DIALECT_COUNT; d++)
		if (points[d] >= 2 && points[d] > points[best])
			best = d;
	return best;
}

/* ---- one setting ---- */

/* A setting that is being looked at. */
struct item {
	struct foreign *f;
	struct config *c;
	struct config_layer *layer;
	const char *name, *text;
	int line;
};

static int item_set(const struct item *s, const char *key, const char *text, enum config_strength strength)
{
	const struct config_key *own = config_key_find(key);

	if (!config_key_known(own, s->c->verb) && !s->layer->file)
		return err_set(ERR_INPUT, "%s means %s, which is not a key of ferry %s; see ferry %s --help",
		        s->name, key, verb_name(s->c->verb), verb_name(s->c->verb));
	return config_set(s->c, s->layer, own, s->name, s->line, text, strength);
}

static int item_pass(const struct item *s)
{
	str_printf(&s->f->passed, "%s%s", s->f->passed.len_bytes ? ", " : "", s->name);
	return str_check(&s->f->passed);
}

static int item_refuse(const struct item *s, const char *why)
{
	struct str place = {0};

	config_place(&place, s->layer, s->line);
	err_set(ERR_UNSUPPORTED, "%s%s=%.80s: %s", place.data ? place.data : "", s->name, s->text, why);
	str_free(&place);
	return ERR_UNSUPPORTED;
}

static int is_off(const char *text)
{
	return !*text || config_name_in(text, OFF);
}

static int strategy(const struct item *s)
{
	int save = config_name_equal(s->name, "save_strategy");

	if (config_name_equal(s->text, "steps"))
		return 0;
	if (is_off(s->text))
		return item_set(s, save ? "save_steps" : "eval_steps", "0", CONFIG_WEAK);
	if (!config_name_equal(s->text, "epoch"))
		return item_refuse(s, "may be no, steps or epoch");
	*(save ? &s->f->save_by_epoch : &s->f->eval_by_epoch) = 1;
	return 0;
}

static int per_epoch(const struct item *s)
{
	char *end;
	double count = strtod(s->text, &end);

	if (*end || !(count >= 0) || count > 1e6)
		return item_refuse(s, "wants a number");
	*(config_name_equal(s->name, "saves_per_epoch") ? &s->f->saves_per_epoch : &s->f->evals_per_epoch) =
	        count;
	return 0;
}

/* transformers: fsdp="full_shard auto_wrap offload"; axolotl: the same as a list */
static int fsdp_words(const struct item *s)
{
	const char *p = s->text;
	char word[40];
	int err = 0;

	if (is_off(s->text))
		return 0;
	while (*p && !err) {
		size_t len;

		p += strspn(p, " ,[]\"'");
		len = strcspn(p, " ,[]\"'");
		if (!len)
			break;
		snprintf(word, sizeof(word), "%.*s", (int)len, p);
		p += len;
		if (config_name_equal(word, "offload"))
			err = item_set(s, "cpu_offload", "on", CONFIG_WEAK);
		else if (!config_name_equal(word, "auto_wrap"))
			err = item_set(s, "sharding_strategy", word, CONFIG_WEAK);
	}
	return err;
}

static int reshard(const struct item *s)
{
	if (config_name_in(s->text, "on true yes 1"))
		return item_set(s, "sharding_strategy", "FULL_SHARD", CONFIG_WEAK);
	if (is_off(s->text))
		return item_set(s, "sharding_strategy", "SHARD_GRAD_OP", CONFIG_WEAK);
	return item_set(s, "sharding_strategy", s->text, CONFIG_WEAK);
}

static int zero(const struct item *s)
{
	static const char *const stages[] = {"NO_SHARD", NULL, "SHARD_GRAD_OP", "FULL_SHARD"};
	const char *what = strchr(s->name, '.') + 1;

	if (config_name_equal(what, "zero_stage")) {
		if (strlen(s->text) != 1 || !strchr("023", *s->text))
			return item_refuse(s, "supported: stages 0, 2 and 3");
		return item_set(s, "sharding_strategy", stages[*s->text - '0'], CONFIG_WEAK);
	}
	if (is_off(s->text))
		return 0;
	if (!config_name_equal(s->text, "cpu"))
		return item_refuse(s, "may be cpu or none");
	s->f->zero_offload |= config_name_equal(what, "offload_param_device")
	                              ? CONFIG_OFFLOAD_PARAMS
	                              : CONFIG_OFFLOAD_OPTIMIZER | CONFIG_OFFLOAD_GRADIENTS;
	return 0;
}

static int total_batch(const struct item *s)
{
	char *end;
	long rows = strtol(s->text, &end, 10);

	if (*end || rows < 1 || rows > 1000000)
		return item_refuse(s, "must be a number of rows");
	s->f->total_batch = rows;
	return 0;
}

/* Of a Python name the last part says what it is. */
static int component(const struct item *s)
{
	const char *dot = strrchr(s->text, '.'), *last = dot ? dot + 1 : s->text;

	if (config_name_equal(s->name, "model._component_"))
		return strstr(last, "lora")
		               ? item_refuse(s, "this trains LoRA adapters, which ferry does not support yet")
		               : item_pass(s);
	if (config_name_equal(s->name, "loss._component_"))
		return strstr(last, "CrossEntropy") || strstr(last, "CEWithChunked")
		               ? item_pass(s)
		               : item_refuse(s, "only cross-entropy is supported");
	if (config_name_equal(s->name, "lr_scheduler._component_"))
		return item_set(s, "lr_scheduler_type", last, CONFIG_STRONG);
	if (config_name_equal(s->name, "dataset.source"))
		return config_name_in(last, "json text") ? 0 : item_set(s, "data", s->text, CONFIG_WEAK);
	if (config_name_in(last, "alpaca_dataset alpaca_cleaned_dataset"))
		return item_set(s, "data_format", "alpaca", CONFIG_STRONG);
	if (config_name_equal(last, "text_completion_dataset"))
		return item_set(s, "data_format", "text", CONFIG_STRONG);
	return item_refuse(s, "supported: alpaca_dataset, text_completion_dataset");
}

static int betas(const struct item *s)
{
	char first[32];
	const char *comma = strchr(s->text, ',');
	int err;

	if (!comma || comma - s->text >= (int)sizeof(first))
		return item_refuse(s, "must be two numbers");
	snprintf(first, sizeof(first), "%.*s", (int)(comma - s->text), s->text);
	err = item_set(s, "adam_beta1", first + strspn(first, "[( "), CONFIG_STRONG);
	return err ? err : item_set(s, "adam_beta2", comma + 1 + strspn(comma + 1, " "), CONFIG_STRONG);
}

static const struct {
	const char *names;
	int (*call)(const struct item *s);
} foreign_calls[] = {
        {"save_strategy eval_strategy evaluation_strategy", strategy},
        {"saves_per_epoch evals_per_epoch", per_epoch},
        {"fsdp", fsdp_words},
        {"fsdp.reshard_after_forward", reshard},
        {"deepspeed_config.*", zero},
        {"batch_size", total_batch},
        {"model._component_ dataset._component_ dataset.source loss._component_ lr_scheduler._component_",
                component},
        {"optimizer.betas", betas},
};

static int item_apply(const struct item *s, const struct foreign_key *key, const char *name)
{
	char target[64];
	const char *equals;

	switch (key->kind) {
	case FOREIGN_KEY:
		return item_set(s, key->arg, s->text, CONFIG_STRONG);
	case FOREIGN_WEAK:
		return item_set(s, key->arg, s->text, CONFIG_WEAK);
	case FOREIGN_PASS:
		return item_pass(s);
	case FOREIGN_ONLY:
		return !*s->text || config_name_in(s->text, key->arg) ? 0 : item_refuse(s, key->note);
	case FOREIGN_IF:
		if (is_off(s->text))
			return 0;
		equals = strchr(key->arg, '=');
		snprintf(target, sizeof(target), "%.*s", (int)(equals - key->arg), key->arg);
		s->layer->seen[config_key_find(target) - config_keys] = 0; /* it is the stronger one */
		return item_set(s, target, equals + 1, CONFIG_STRONG);
	case FOREIGN_NOT:
		return item_set(s, key->arg, is_off(s->text) ? "on" : "off", CONFIG_STRONG);
	case FOREIGN_CALL:
		for (size_t i = 0; i < sizeof(foreign_calls) / sizeof(*foreign_calls); i++)
			if (name_matches(name, foreign_calls[i].names))
				return foreign_calls[i].call(s);
	}
	return err_set(ERR_INTERNAL, "no meaning for %s", s->name);
}

static const struct foreign_key *find(const char *name, enum foreign_scope scope, enum dialect dialect)
{
	for (size_t i = 0; i < sizeof(foreign_keys) / sizeof(*foreign_keys); i++) {
		const struct foreign_key *key = &foreign_keys[i];

		if (scope == FOREIGN_OWN_MEANING ? !(key->dialects >> dialect & 1) : key->dialects != 0)
			continue;
		if (name_matches(name, key->names))
			return key;
	}
	return NULL;
}

int foreign_set(struct foreign *f, struct config *c, struct config_layer *layer, const char *name,
        const char *text, int line, int is_null, enum foreign_scope scope)
{
	struct item s = {f, c, layer, name, text, line};
	const struct foreign_key *key = NULL;
	const char *rest = NULL;
	char fsdp[160];
	int err;

	if (!strncmp(name, "fsdp_config.fsdp_", 17))
		rest = name + 17;
	else if (!strncmp(name, "fsdp_config.", 12))
		rest = name + 12;
	else if (!strncmp(name, "fsdp_", 5) || !strncmp(name, "fsdp-", 5))
		rest = name + 5;
	if (rest) {
		snprintf(fsdp, sizeof(fsdp), "fsdp.%.140s", rest);
		key = find(fsdp, scope, f->dialect);
	}
	if (key)
		name = fsdp;
	else
		key = find(name, scope, f->dialect);
	if (!key)
		return FOREIGN_UNKNOWN;
	if (is_null)
		return FOREIGN_TAKEN;
	err = item_apply(&s, key, name);
	return err ? err : FOREIGN_TAKEN;
}

/* ---- the end ---- */

static int share_of_run(double *steps, double per_epoch, const struct config *c)
{
	if (!(per_epoch * c->num_train_epochs > 0))
		return 0;
	*steps = 1 / (per_epoch * c->num_train_epochs);
	if (*steps >= 1) /* once, at the end */
		*steps = 0;
	return 0;
}

int foreign_finish(struct foreign *f, struct config *c)
{
	if (f->save_by_epoch)
		f->saves_per_epoch = 1;
	if (f->eval_by_epoch)
		f->evals_per_epoch = 1;
	if (!config_was_set(c, "save_steps"))
		share_of_run(&c->save_steps, f->saves_per_epoch, c);
	if (!config_was_set(c, "eval_steps"))
		share_of_run(&c->eval_steps, f->evals_per_epoch, c);
	if (f->zero_offload && !config_was_set(c, "cpu_offload"))
		c->cpu_offload = f->zero_offload;
	if (f->total_batch && !config_was_set(c, "per_device_train_batch_size")) {
		if (f->total_batch % c->gradient_accumulation_steps)
			return err_set(ERR_INPUT,
			        "batch_size %lld is not a multiple of gradient_accumulation_steps %lld; "
			        "axolotl counts the rows of a whole step",
			        (long long)f->total_batch, (long long)c->gradient_accumulation_steps);
		c->per_device_train_batch_size = f->total_batch / c->gradient_accumulation_steps;
	}
	return 0;
}

void foreign_free(struct foreign *f)
{
	str_free(&f->passed);
}
