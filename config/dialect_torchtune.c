/* torchtune's keys. */
#include "config/dialect_item.h"

#include "base/err.h"

#include <string.h>

static const struct dialect_marker markers[] = {
        {"checkpointer.* metric_logger.* model._component_ optimizer._component_ dataset._component_ "
         "enable_activation_checkpointing",
                2},
        {NULL, 0}};

static const struct dialect_default defaults[] = {
        {"lr_scheduler_type", "constant", NULL, DIALECT_ROWS_ANY},
        {"max_length", "off", NULL, DIALECT_ROWS_ANY},
        {"weight_decay", "0.01", NULL, DIALECT_ROWS_ANY},
        {"max_grad_norm", "off", NULL, DIALECT_ROWS_ANY},
        {"save_total_limit", "all", NULL, DIALECT_ROWS_ANY},
        {0},
};

static const struct dialect_lora lora = {
        .rank = "8",
        .alpha = "16",
        .need_targets = "needs lora_attn_modules, as in [q_proj, v_proj]",
        .ask = "a model._component_ of LoRA",
        .unasked = {{"lora_rank", "model.lora_rank", 1}},
};

/* Of a Python name the last part says what it is. */
static const char *last_part(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

static int model(const struct item *s)
{
	const char *last = last_part(s->text);

	if (strstr(last, "qlora") && item_quantized(s))
		return ERR_NOMEM;
	return strstr(last, "lora") ? lora_switch(s, &dialect_torchtune, NULL) : item_pass(s);
}

static int loss(const struct item *s)
{
	const char *last = last_part(s->text);

	if (config_name_equal(last, "DPOLoss"))
		return item_set(s, "preference_loss", "sigmoid", CONFIG_STRONG);
	return strstr(last, "CrossEntropy") || strstr(last, "CEWithChunked")
	               ? item_pass(s)
	               : item_refuse(s, "only cross-entropy is supported");
}

static int scheduler(const struct item *s)
{
	return item_set(s, "lr_scheduler_type", last_part(s->text), CONFIG_STRONG);
}

static int source(const struct item *s)
{
	return config_name_in(s->text, "json text csv parquet") ? 0
	                                                        : item_set(s, "data", s->text, CONFIG_WEAK);
}

static int dataset(const struct item *s)
{
	const char *last = last_part(s->text);

	if (config_name_in(last, "alpaca_dataset alpaca_cleaned_dataset")) {
		int err = item_set(s, "train_on_inputs", "on", CONFIG_WEAK); /* the default of these two */

		if (!err)
			err = item_set(s, "alpaca_form", "stanford_newline", CONFIG_WEAK);
		return err ? err : item_set(s, "data_format", "alpaca", CONFIG_STRONG);
	}
	if (config_name_equal(last, "preference_dataset"))
		return item_set(s, "data_format", "preference", CONFIG_STRONG);
	if (config_name_equal(last, "text_completion_dataset"))
		return item_set(s, "data_format", "text", CONFIG_STRONG);
	if (config_name_equal(last, "chat_dataset"))
		return item_set(s, "data_format", "messages", CONFIG_WEAK);
	return item_refuse(s, "not supported; supported: alpaca_dataset, chat_dataset, preference_dataset, "
	                      "text_completion_dataset");
}

/* More modules with adapters, where the item is on. */
static int apply_to(const struct item *s, const char *modules)
{
	struct item more = *s;

	if (item_is_off(s->text))
		return 0;
	if (!config_name_in(s->text, ITEM_ON))
		return item_refuse(s, "is neither on nor off");
	more.text = modules;
	return lora_targets(&more);
}

static int apply_to_mlp(const struct item *s)
{
	return apply_to(s, "gate_proj,up_proj,down_proj");
}

static int apply_to_output(const struct item *s)
{
	return apply_to(s, "lm_head");
}

static int keep_tokenizer_path(const struct item *s)
{
	return item_keep(s, "tokenizer_path");
}

static const struct dialect_key own[] = {OR_OFF("clip_grad_norm max_grad_norm", "max_grad_norm"), KEYS_END};

static const struct dialect_key keys[] = {
        KEY("optimizer.lr", "learning_rate"),
        KEY("optimizer.weight_decay", "weight_decay"),
        KEY("optimizer.eps", "adam_epsilon"),
        CALL("optimizer.betas", item_betas),
        PASS("optimizer.fused optimizer.foreach optimizer_in_bwd"),
        CALL("lr_scheduler._component_", scheduler),
        KEY("lr_scheduler.num_warmup_steps", "warmup_steps"),
        KEY("dtype", "compute_dtype"),
        WEAK("enable_activation_checkpointing", "activations"),
        IF("enable_activation_offloading activation_offloading", "activations=offload"),
        KEY("checkpointer.checkpoint_dir", "model"),
        WEAK("checkpointer.output_dir", "output_dir"),
        ONLY("checkpointer.recipe_checkpoint checkpointer.adapter_checkpoint", ITEM_OFF,
                "set resume_from_checkpoint to a ferry checkpoint"),
        CALL("model._component_", model),
        CALL("model.lora_attn_modules", lora_targets),
        CALL("model.apply_lora_to_mlp", apply_to_mlp),
        KEY("model.lora_rank", "lora_rank"),
        KEY("model.lora_alpha", "lora_alpha"),
        CALL("model.lora_dropout", lora_dropout),
        CALL("model.apply_lora_to_output", apply_to_output),
        CALL("model.quantize_base", item_quantized),
        PASS("model.quantization_kwargs.* model.use_tied_weights"),
        PASS("save_adapter_weights_only"),
        CALL("dataset._component_", dataset),
        CALL("dataset.source", source),
        ONLY("run_val_every_n_steps", ITEM_OFF, "set eval_data or eval_split, and eval_steps"),
        PASS("dataset_val.* batch_size_val low_cpu_ram"),
        METHOD("quantizer quantizer.* fp8_training enable_fp8_training", ITEM_OFF,
                "trains with rounding to a quantized format"),
        METHOD("teacher_model._component_ teacher_checkpointer._component_", ITEM_OFF, "distills a teacher"),
        METHOD("reward_and_value_model._component_ value_model._component_ ref_policy_model._component_ "
               "grpo_samples num_generations",
                ITEM_OFF, "trains by reinforcement learning"),
        METHOD("tasks enable_kv_cache prompt prompt.* quantization_method", ITEM_OFF,
                "evaluates or generates"),
        METHOD("model.decoder_trainable model.encoder_trainable model.fusion_trainable", ITEM_OFF,
                "trains on images"),
        CALL("data_parallel_replicate_dim data_parallel_shard_dim", item_processes),
        ONLY("tensor_parallel_dim context_parallel_dim", "1 -1 " ITEM_OFF,
                "tensor and context parallelism are not supported"),
        PASS("tensor_parallel_plan tensor_parallel_plan.* dataset_num_proc "
             "async_checkpointing enable_async_checkpointing"),
        KEY("dataset.data_files", "data"),
        KEY("dataset.packed", "packing"),
        KEY("dataset.train_on_input", "train_on_inputs"),
        KEY("dataset.column", "field_text"),
        KEY("dataset.column_map.instruction", "field_instruction"),
        KEY("dataset.column_map.input", "field_input"),
        KEY("dataset.column_map.output", "field_output"),
        KEY("dataset.conversation_column", "field_messages"),
        ONLY("dataset.conversation_style", "openai sharegpt", "not supported; supported: openai, sharegpt"),
        KEY("dataset.split", "data_split"),
        CALL("tokenizer.path", keep_tokenizer_path),
        ONLY("tokenizer.prompt_template", ITEM_OFF,
                "ferry writes prompts by chat_template or alpaca_form; set one of them"),
        OR_OFF("tokenizer.max_seq_len", "max_length"),
        CALL("loss._component_", loss),
        PASS("loss.num_output_chunks"),
        KEY("loss.beta", "preference_beta"),
        KEY("loss.label_smoothing", "preference_label_smoothing"),
        KEY("checkpointer.keep_last_n_checkpoints", "save_total_limit"),
        KEY("dataset.column_map.chosen", "field_chosen"),
        KEY("dataset.column_map.rejected", "field_rejected"),
        ONLY("loss.ignore_index", "-100", "labels of -100 are left out; remove it"),
        ONLY("loss.reduction", "mean", "only the mean over a step's targets is supported; remove it"),
        ONLY("loss.*", ITEM_OFF " 0.0", "only plain cross-entropy is supported; remove it"),
        ONLY("max_steps_per_epoch", ITEM_OFF, "set max_steps, or num_train_epochs to a fraction"),
        PASS("checkpointer._component_ checkpointer.checkpoint_files checkpointer.checkpoint_files.* "
             "checkpointer.model_type checkpointer.safe_serialization tokenizer._component_ "
             "tokenizer.merges_file tokenizer.vocab_path tokenizer.merges_path compile compile.* profiler "
             "profiler.* metric_logger.* "
             "log_peak_memory_stats custom_sharded_layers fsdp_reshard_after_forward"),
        KEYS_END,
};

/* A tokenizer in the model's directory is the model's own. */
static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *path = dialect_kept(d, "tokenizer_path");
	size_t len = c->model ? strlen(c->model) : 0;

	if (!path || config_was_set(c, "tokenizer") ||
	        (len && !strncmp(path->text, c->model, len) &&
	                (path->text[len] == '/' || c->model[len - 1] == '/')))
		return 0;
	return kept_set(c, path, "tokenizer", path->text);
}

const struct dialect dialect_torchtune = {.name = "torchtune",
        .markers = markers,
        .own = own,
        .keys = keys,
        .defaults = defaults,
        .lora = &lora,
        .finish = finish};
