/* accelerate's configuration, and its FSDP block in files of other trainers. */
#include "config/dialect_item.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

static const struct dialect_marker markers[] = {
        {"compute_environment distributed_type machine_rank downcast_bf16 main_training_function", 2},
        {"num_processes num_machines", 1}, {NULL, 0}};

/* transformers: fsdp="full_shard auto_wrap offload"; axolotl: the same as a list */
static int fsdp_words(const struct item *s)
{
	const char *p = s->text;
	char word[40];
	int err = 0;

	if (item_is_off(s->text))
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
	if (config_name_in(s->text, ITEM_ON))
		return item_set(s, "sharding_strategy", "FULL_SHARD", CONFIG_WEAK);
	if (item_is_off(s->text))
		return item_set(s, "sharding_strategy", "SHARD_GRAD_OP", CONFIG_WEAK);
	return item_set(s, "sharding_strategy", s->text, CONFIG_WEAK);
}

static int distributed(const struct item *s)
{
	if (config_name_in(s->text, "MULTI_GPU MULTI_CPU"))
		return item_set(s, "sharding_strategy", "NO_SHARD", CONFIG_WEAK);
	return config_name_in(s->text, "FSDP NO DEEPSPEED")
	               ? 0
	               : item_refuse(s, "this way of distributing is not supported");
}

static int checkpointing(const struct item *s)
{
	return item_keep(s, "fsdp_checkpointing");
}

/* transformers takes a file in place of the block. */
static int fsdp_file(const struct item *s)
{
	return item_is_off(s->text) || !strcmp(s->text, "{}") ? 0 : item_read_file(s, NULL, "fsdp_config.");
}

static const struct dialect_key keys[] = {
        KEY("fsdp.offload_params fsdp.cpu_offload", "cpu_offload"),
        KEY("fsdp.sharding_strategy", "sharding_strategy"),
        KEY("fsdp.auto_wrap_policy", "wrap_policy"),
        KEY("fsdp.min_num_params", "min_num_params"),
        KEY("fsdp.backward_prefetch fsdp.backward_prefetch_policy", "backward_prefetch"),
        KEY("fsdp.forward_prefetch", "forward_prefetch"),
        KEY("fsdp.state_dict_type", "state_dict_type"),
        CALL("fsdp.activation_checkpointing", checkpointing),
        CALL("fsdp_config", fsdp_file),
        CALL("fsdp.reshard_after_forward", reshard),
        PASS("fsdp.version fsdp.use_orig_params fsdp.sync_module_states fsdp.cpu_ram_efficient_loading "
             "fsdp.transformer_layer_cls_to_wrap fsdp.transformer_cls_names_to_wrap fsdp.limit_all_gathers "
             "fsdp.final_state_dict_type fsdp.mixed_precision_policy fsdp_transformer_layer_cls_to_wrap"),
        ONLY("fsdp.xla fsdp.xla_fsdp_v2 fsdp.xla_fsdp_grad_ckpt", ITEM_OFF, "XLA is not supported"),
        CALL("fsdp", fsdp_words),
        CALL("distributed_type", distributed),
        IF("use_cpu no_cuda", "device=host"),
        PASS("compute_environment downcast_bf16 enable_cpu_affinity machine_rank main_training_function "
             "num_machines rdzv_backend same_network gpu_ids main_process_ip main_process_port "
             "tpu_* dynamo_config dynamo_config.* mpirun_config.* debug"),
        CALL("num_processes", item_processes),
        ONLY("parallelism_config.parallelism_config_tp_size parallelism_config.parallelism_config_cp_size "
             "parallelism_config.parallelism_config_sp_size parallelism_config.tp_size "
             "parallelism_config.cp_size",
                "1 " ITEM_OFF, "tensor and context parallelism are not supported"),
        CALL("parallelism_config.parallelism_config_dp_shard_size "
             "parallelism_config.parallelism_config_dp_replicate_size parallelism_config.dp_shard_size "
             "parallelism_config.dp_replicate_size",
                item_processes),
        PASS("parallelism_config.*"),
        ONLY("fp8_config fp8_config.*", ITEM_OFF,
                "these recipes are not supported; ferry's own is compute_dtype=fp8"),
        METHOD("command_file commands tpu_name", ITEM_OFF, "starts jobs on TPUs"),
        KEYS_END,
};

/* Either of the two keys computes activations again. */
static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *on = dialect_kept(d, "fsdp_checkpointing");
	int rc = processes_say(d, c);

	if (rc)
		return rc;
	if (!on || (config_was_set(c, "activations") && item_is_off(on->text)))
		return 0;
	if (config_was_set(c, "activations") && config_keeps_activations(c))
		log_warn("%s=%s: activations are computed again, though %s keeps them", on->name, on->text,
		        config_where(c, "activations"));
	else if (config_was_set(c, "activations"))
		return 0;
	return kept_set(c, on, "activations", on->text);
}

const struct dialect dialect_accelerate = {
        .name = "accelerate", .markers = markers, .keys = keys, .finish = finish};
