/* accelerate's configuration, and its FSDP block in files of other trainers. */
#include "config/dialect_item.h"

#include "comm/launch.h"

#include <stdio.h>
#include <stdlib.h>
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

/* Ranks are started by mpirun or srun, not by a file. */
static int processes(const struct item *s)
{
	char *end;
	long count = strtol(s->text, &end, 10);
	struct launch launch;

	if (*end || count < 1 || count > 1000000)
		return item_refuse(s, "must be a number of processes");
	launch_read_any(&launch);
	if (count > 1 && config_trains(s->c) && launch.size == 1)
		item_warn(s,
		        "%s=%ld has no effect: one rank trains, with 1/%ld of the rows of a step; for %ld "
		        "ranks "
		        "set ranks=%ld",
		        s->name, count, count, count, count);
	return 0;
}

static const struct dialect_key keys[] = {
        KEY("fsdp.offload_params fsdp.cpu_offload", "cpu_offload"),
        KEY("fsdp.sharding_strategy", "sharding_strategy"),
        KEY("fsdp.auto_wrap_policy", "wrap_policy"),
        KEY("fsdp.min_num_params", "min_num_params"),
        KEY("fsdp.backward_prefetch fsdp.backward_prefetch_policy", "backward_prefetch"),
        KEY("fsdp.forward_prefetch", "forward_prefetch"),
        KEY("fsdp.state_dict_type", "state_dict_type"),
        WEAK("fsdp.activation_checkpointing", "activations"),
        CALL("fsdp.reshard_after_forward", reshard),
        PASS("fsdp.version fsdp.use_orig_params fsdp.sync_module_states fsdp.cpu_ram_efficient_loading "
             "fsdp.transformer_layer_cls_to_wrap fsdp.transformer_cls_names_to_wrap fsdp.limit_all_gathers "
             "fsdp.final_state_dict_type fsdp_config fsdp_transformer_layer_cls_to_wrap"),
        ONLY("fsdp.xla fsdp.xla_fsdp_v2 fsdp.xla_fsdp_grad_ckpt", ITEM_OFF, "XLA is not supported"),
        CALL("fsdp", fsdp_words),
        ONLY("distributed_type", "FSDP NO MULTI_GPU MULTI_CPU DEEPSPEED",
                "this way of distributing is not supported"),
        IF("use_cpu no_cuda", "device=host"),
        PASS("compute_environment downcast_bf16 enable_cpu_affinity machine_rank main_training_function "
             "num_machines rdzv_backend same_network gpu_ids main_process_ip main_process_port "
             "tpu_* dynamo_config dynamo_config.* mpirun_config.* debug"),
        CALL("num_processes", processes),
        KEYS_END,
};

const struct dialect dialect_accelerate = {.name = "accelerate", .markers = markers, .keys = keys};
