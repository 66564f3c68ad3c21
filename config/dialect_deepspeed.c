/* DeepSpeed's configuration: a JSON file, or what accelerate takes from it. */
#include "config/dialect_item.h"

#include "base/err.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* transformers and accelerate fill these in from their own settings. */
static int is_auto(const struct item *s)
{
	return config_name_equal(s->text, "auto");
}

static const struct dialect_marker markers[] = {
        {"zero_optimization zero_optimization.* train_micro_batch_size_per_gpu", 4}, {NULL, 0}};

/* Stage 1 and 2 differ in memory alone. */
static int stage(const struct item *s)
{
	static const char *const strategies[] = {"NO_SHARD", "SHARD_GRAD_OP", "SHARD_GRAD_OP", "FULL_SHARD"};

	if (is_auto(s))
		return 0;
	if (strlen(s->text) != 1 || !strchr("0123", *s->text))
		return item_refuse(s, "not supported; supported: 0, 1, 2, 3");
	return item_set(s, "sharding_strategy", strategies[*s->text - '0'], CONFIG_WEAK);
}

static int offload(const struct item *s)
{
	if (config_name_equal(s->text, "nvme"))
		return item_refuse(
		        s, "weights and optimizer state on a disk are not supported yet; set it to cpu");
	if (!config_name_equal(s->text, "cpu") && !item_is_off(s->text))
		return item_refuse(s, "not supported; supported: cpu, none");
	return item_keep(s, strstr(s->name, "param") ? "zero_param" : "zero_optimizer");
}

/* Rows of a step on all devices. */
static int batch(const struct item *s)
{
	return is_auto(s) ? 0 : item_step_rows(s, "zero_batch");
}

static int bf16(const struct item *s)
{
	return is_auto(s) || item_is_off(s->text) ? 0 : item_set(s, "compute_dtype", "bf16", CONFIG_STRONG);
}

static int scheduler(const struct item *s)
{
	static const struct {
		const char *name, *type;
	} known[] = {{"WarmupLR", "constant_with_warmup"}, {"WarmupDecayLR", "linear"},
	        {"WarmupCosineLR", "cosine_with_min_lr"}};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(s->text, known[i].name)) {
			if (item_keep(s, "zero_scheduler"))
				return ERR_NOMEM;
			return item_set(s, "lr_scheduler_type", known[i].type, CONFIG_STRONG);
		}
	return item_refuse(s, "not supported; supported: WarmupLR, WarmupDecayLR, WarmupCosineLR");
}

static int warmup_type(const struct item *s)
{
	return config_name_equal(s->text, "linear") ? item_keep(s, "zero_warmup_linear") : 0;
}

static int read_json(const struct item *s)
{
	return item_is_off(s->text) ? 0 : item_read_file(s, &dialect_deepspeed, "");
}

#define FP16 "fp16 is not supported; bf16 needs no loss scale: set bf16"

static const struct dialect_key own[] = {
        CALL("zero_optimization.stage", stage),
        CALL("zero_optimization.offload_optimizer.device zero_optimization.offload_param.device", offload),
        ONLY("zero_optimization.cpu_offload zero_optimization.cpu_offload_params", ITEM_OFF,
                "set offload_optimizer and offload_param instead"),
        ONLY("zero_optimization.offload_optimizer.ratio", "1 1.0",
                "optimizer state is in host memory whole; set vram_budget to keep a part on the GPU"),
        ONLY("zero_optimization.zero_quantized_* zero_optimization.mics_*", ITEM_OFF " -1",
                "quantized or partial communication is not supported; remove it"),
        PASS("zero_optimization zero_optimization.*"),
        OR_AUTO("train_micro_batch_size_per_gpu", "per_device_train_batch_size"),
        OR_AUTO("gradient_accumulation_steps", "gradient_accumulation_steps"),
        CALL("train_batch_size", batch),
        OR_AUTO("gradient_clipping", "max_grad_norm"),
        ONLY("optimizer.type", "auto Adam AdamW FusedAdam CPUAdam DeepSpeedCPUAdam",
                "only AdamW is supported"),
        OR_AUTO("optimizer.params.lr", "learning_rate"),
        CALL("optimizer.params.betas", item_betas),
        OR_AUTO("optimizer.params.eps", "adam_epsilon"),
        OR_AUTO("optimizer.params.weight_decay", "weight_decay"),
        ONLY("optimizer.params.adam_w_mode", "auto " ITEM_ON, "only decoupled weight decay is supported"),
        ONLY("optimizer.params.bias_correction", "auto " ITEM_ON,
                "AdamW without bias correction is not supported"),
        PASS("optimizer.params.torch_adam optimizer.legacy_fusion"),
        CALL("scheduler.type", scheduler),
        OR_AUTO("scheduler.params.warmup_num_steps", "warmup_steps"),
        OR_AUTO("scheduler.params.warmup_max_lr", "learning_rate"),
        CALL("scheduler.params.warmup_type", warmup_type),
        ONLY("scheduler.params.warmup_min_lr scheduler.params.warmup_min_ratio", "auto 0 0.0",
                "ferry warms up from 0"),
        ONLY("scheduler.params.total_num_steps", "auto", "the schedule ends with the run; remove it"),
        PASS("scheduler.params.last_batch_iteration"),
        KEY("scheduler.params.cos_min_ratio", "min_lr_rate"),
        CALL("bf16.enabled bfloat16.enabled", bf16),
        ONLY("fp16.enabled", "auto " ITEM_OFF, FP16),
        PASS("fp16.* bf16.* data_types.*"),
        METHOD("compression_training.*.enabled data_efficiency.enabled curriculum_learning.enabled "
               "sparse_attention.mode hybrid_engine.enabled eigenvalue.enabled "
               "progressive_layer_drop.enabled",
                ITEM_OFF, "compresses or drops parts of the model while it trains"),
        ONLY("tensor_parallel.autotp_size", "0 1", "tensor parallelism is not supported"),
        PASS("steps_per_print wall_clock_breakdown prescale_gradients gradient_predivide_factor "
             "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer communication_data_type "
             "seq_parallel_communication_data_type fp32_allreduce dump_state disable_allgather "
             "sparse_gradients "
             "memory_breakdown activation_checkpointing.* aio.* flops_profiler.* comms_logger.* "
             "tensorboard.* wandb.* csv_monitor.* comet.* monitor_config.* autotuning.* checkpoint.* "
             "elasticity.* compile.* torch_autocast.* amp.enabled amp.opt_level "
             "data_efficiency.* curriculum_learning.* compression_training.* sparse_attention.* "
             "hybrid_engine.* tensor_parallel.* graph_harvesting inference.*"),
        KEYS_END,
};

static const struct dialect_key keys[] = {
        CALL("deepspeed deepspeed_config deepspeed_config.deepspeed_config_file", read_json),
        CALL("deepspeed_config.zero_stage", stage),
        CALL("deepspeed_config.offload_optimizer_device deepspeed_config.offload_param_device", offload),
        WEAK("deepspeed_config.gradient_accumulation_steps", "gradient_accumulation_steps"),
        WEAK("deepspeed_config.gradient_clipping", "max_grad_norm"),
        PASS("deepspeed_config.zero3_init_flag deepspeed_config.zero3_save_16bit_model "
             "deepspeed_config.deepspeed_multinode_launcher deepspeed_config.offload_optimizer_pin_memory "
             "deepspeed_config.offload_param_pin_memory deepspeed_config.deepspeed_hostfile "
             "deepspeed_config.seq_parallel_communication_data_type "
             "deepspeed_config.deepspeed_moe_layer_cls_names"),
        ONLY("deepspeed_config.*", ITEM_OFF,
                "unknown key of DeepSpeed; remove it if it changes nothing in training"),
        KEYS_END,
};

static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *param = dialect_kept(d, "zero_param");
	const struct dialect_kept *optimizer = dialect_kept(d, "zero_optimizer");
	const struct dialect_kept *total = dialect_kept(d, "zero_batch");
	int has_param = param && !item_is_off(param->text);
	int has_optimizer = optimizer && !item_is_off(optimizer->text), rc = 0;

	if (dialect_kept(d, "zero_scheduler") && !dialect_kept(d, "zero_warmup_linear") && config_trains(c))
		log_warn("scheduler.params.warmup_type: DeepSpeed warms up by a logarithm unless it is "
		         "linear; "
		         "ferry warms up linearly");
	if (total)
		rc = kept_step_rows(c, total, STEP_OF_RANKS, 0);
	if (rc || (!param && !optimizer) || config_was_set(c, "cpu_offload"))
		return rc;
	return kept_set(c, has_param || !optimizer ? param : optimizer, "cpu_offload",
	        has_param && has_optimizer ? "on"
	        : has_param                ? "params"
	        : has_optimizer            ? "gradients,optimizer"
	                                   : "off");
}

const struct dialect dialect_deepspeed = {
        .name = "DeepSpeed", .markers = markers, .own = own, .keys = keys, .finish = finish};
