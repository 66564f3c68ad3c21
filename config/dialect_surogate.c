/* Surogate's keys. */
#include "config/dialect_item.h"

#include <string.h>

/* Its data sets look like axolotl's, so its own keys weigh more. */
enum { ITS_OWN = 100 };
static const struct dialect_marker markers[] = {
        {"recipe cpu_training lmhead_chunks attn_bwd_chunks qlora_bnb qlora_fp8 qlora_fp4 lora_dtype "
         "validation_split_ratio distillation.teacher_model",
                ITS_OWN},
        {NULL, 0}};

static const struct dialect_default defaults[] = {
        {"per_device_train_batch_size", "2", NULL, DIALECT_ROWS_ANY},
        {"gradient_accumulation_steps", "4", NULL, DIALECT_ROWS_ANY},
        {"num_train_epochs", "3", "max_steps", DIALECT_ROWS_ANY},
        {"learning_rate", "2e-4", NULL, DIALECT_ROWS_ANY},
        {"weight_decay", "0.1", NULL, DIALECT_ROWS_ANY},
        {"packing", "on", NULL, DIALECT_ROWS_ANY},
        {"optimizer_state", "8bit", NULL, DIALECT_ROWS_ANY},
        {"eval_split", "0.1", "eval_data", DIALECT_ROWS_ANY},
        {"save_total_limit", "5", NULL, DIALECT_ROWS_ANY},
        {0},
};

static const struct dialect_lora lora = {
        .rank = "16",
        .alpha = "32",
        .targets = "all-linear",
        .dropout = "0.05",
        .ask = "lora: true",
        .full = "lora=false",
};

static int switch_lora(const struct item *s)
{
	return lora_switch(s, &dialect_surogate, ITEM_ON);
}

/* Products in fewer bits come out of another program than bf16's; the same rows train the same model. */
static int recipe(const struct item *s)
{
	if (!config_name_equal(s->text, "bf16"))
		item_warn(s, "%s=%s: ferry computes in bf16", s->name, s->text);
	return item_set(s, "compute_dtype", "bf16", CONFIG_WEAK);
}

static int devices(const struct item *s)
{
	if (!config_name_in(s->text, "0 1") && config_trains(s->c) && !config_was_set(s->c, "ranks"))
		item_warn(s, "%s=%s has no effect: one rank trains; for one a GPU set ranks=%s", s->name,
		        s->text, s->text);
	return 0;
}

static int set_type(const struct item *s)
{
	static const struct {
		const char *type, *format;
	} types[] = {{"conversation", "messages"}, {"instruction", "alpaca"}};
	const char *format = s->text;

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (config_name_equal(s->text, types[i].type))
			format = types[i].format;
	return dialect_sets_add(&s->d->sets, DIALECT_SET_TYPE, s->name, format, s->line);
}

static const struct dialect_key own[] = {
        CALL("lora", switch_lora),
        CALL("gpus", devices),
        CALL("lora_target_modules", lora_targets),
        CALL("datasets.*.type", set_type),
        IF("resume_from_checkpoint", "resume_from_checkpoint=auto"),
        KEYS_END,
};

static const struct dialect_key keys[] = {
        CALL("recipe", recipe),
        IF("cpu_training", "cpu_offload=on"),
        CALL("qlora_bnb qlora_fp8 qlora_fp4", item_quantized),
        CALL("qlora_bnb_double_quant", item_quant_double),
        CALL("qlora_bnb_block_size", item_quant_block),
        CALL("qlora_bnb_quant_type", item_quant_type),
        PASS("qlora_*"),
        KEY("validation_split_ratio", "eval_split"),
        KEY("validation_datasets.0.path", "eval_data"),
        PASS("validation_datasets.0.type validation_datasets.0.split"),
        KEY("adamw_beta1", "adam_beta1"),
        KEY("adamw_beta2", "adam_beta2"),
        KEY("adamw_epsilon", "adam_epsilon"),
        KEY("final_lr_fraction", "min_lr_rate"),
        KEY("train_seed", "seed"),
        KEY("datasets.*.samples", "max_samples"),
        WEAK("recompute", "activations"),
        JOIN("datasets.*.messages_field", "field_messages"),
        JOIN("datasets.*.text_field", "field_text"),
        JOIN("datasets.*.instruction_field", "field_instruction"),
        JOIN("datasets.*.input_field", "field_input"),
        JOIN("datasets.*.output_field", "field_output"),
        JOIN("datasets.*.prompt_field", "field_prompt"),
        JOIN("datasets.*.completion_field", "field_completion"),
        JOIN("datasets.*.chosen_field", "field_chosen"),
        JOIN("datasets.*.rejected_field", "field_rejected"),
        JOIN("datasets.*.system_field", "field_system"),
        JOIN("datasets.*.tools_field", "field_tools"),
        ONLY("from_scratch train_vision train_router", ITEM_OFF, "not supported; remove it"),
        ONLY("router_z_loss_coef", ITEM_OFF " 0.0", "this loss of routers is not supported; set it to 0"),
        ONLY("cooldown_steps", ITEM_OFF, "this learning-rate schedule is not supported"),
        ONLY("use_chat_template", ITEM_ON, "chats go through a chat template; for texts make rows of text"),
        ONLY("loss_scale", "default", "only plain cross-entropy is supported; remove it"),
        ONLY("truncation_strategy", "right", "long rows are cut at the end; to drop them set long_rows=drop"),
        METHOD("distillation.teacher_model", ITEM_OFF, "distills a teacher"),
        METHOD("loss.adv_tau loss.kl_tau max_async_level rollouts_per_example env.0.id use_token_client",
                ITEM_OFF, "trains by reinforcement learning"),
        METHOD("enable_lora gpu_memory_utilization max_num_seqs", ITEM_OFF, "serves a model"),
        PASS("lora_dtype lmhead_chunks attn_bwd_chunks long_context offload_residual offload_master "
             "offload_quants offload_optimizer offload_grads offload_saved_tensors persistent_quants "
             "use_zero_copy "
             "use_write_combined zero_level shard_weights shard_gradients use_all_to_all_reduce "
             "memcpy_all_gather memcpy_send_recv ep_size ep_load_balance_threshold ep_plan_refresh_interval "
             "parallelism sequence_chunks merge_adapter checkpoint_dir use_cuda_graphs use_fused_rope "
             "fp8_amax_history fp4_backend fp4_four_over_six skip_quant_first_layers skip_quant_last_layers "
             "eval_seed padding_side apply_recommended_values init_projections_to_zero distributed "
             "distributed.* turn_diagnostics master_dtype"),
        KEYS_END,
};

/* It holds back a tenth of the rows to evaluate on, unless a file says otherwise. */
static int finish(struct dialect_state *d, struct config *c)
{
	if (d->file != &dialect_surogate || !config_trains(c) || !config_was_set(c, "eval_steps") ||
	        c->eval_steps == 0 || config_was_set(c, "eval_data") || config_was_set(c, "eval_split"))
		return 0;
	return config_set_meant(c, d->file_path, "eval_split", "validation_split_ratio", 0, "0.1");
}

const struct dialect dialect_surogate = {.name = "Surogate",
        .markers = markers,
        .own = own,
        .keys = keys,
        .defaults = defaults,
        .lora = &lora,
        .cosine_has_floor = 1,
        .finish = finish};
