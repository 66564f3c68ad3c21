/* DeepSpeed's settings, as accelerate names them. */
#include "config/dialect_item.h"

#include <string.h>

#define DEEPSPEED "DeepSpeed configurations are not supported yet; set sharding_strategy and cpu_offload"

static const struct dialect_marker markers[] = {
        {"zero_optimization zero_optimization.* train_micro_batch_size_per_gpu", 4}, {NULL, 0}};

static int stage(const struct item *s)
{
	static const char *const strategies[] = {"NO_SHARD", NULL, "SHARD_GRAD_OP", "FULL_SHARD"};

	if (strlen(s->text) != 1 || !strchr("023", *s->text))
		return item_refuse(s, "not supported; supported: 0, 2, 3");
	return item_set(s, "sharding_strategy", strategies[*s->text - '0'], CONFIG_WEAK);
}

static int offload(const struct item *s)
{
	if (item_is_off(s->text))
		return 0;
	if (!config_name_equal(s->text, "cpu"))
		return item_refuse(s, "not supported; supported: cpu, none");
	return item_keep(s, strstr(s->name, "param") ? "zero_param" : "zero_optimizer");
}

static const struct dialect_key keys[] = {
        CALL("deepspeed_config.zero_stage", stage),
        CALL("deepspeed_config.offload_optimizer_device deepspeed_config.offload_param_device", offload),
        WEAK("deepspeed_config.gradient_accumulation_steps", "gradient_accumulation_steps"),
        WEAK("deepspeed_config.gradient_clipping", "max_grad_norm"),
        PASS("deepspeed_config.zero3_init_flag deepspeed_config.zero3_save_16bit_model "
             "deepspeed_config.deepspeed_multinode_launcher deepspeed_config.offload_optimizer_pin_memory"),
        ONLY("deepspeed deepspeed_config deepspeed_config.*", ITEM_OFF, DEEPSPEED),
        KEYS_END,
};

static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *param = dialect_kept(d, "zero_param");
	const struct dialect_kept *optimizer = dialect_kept(d, "zero_optimizer");

	if ((!param && !optimizer) || config_was_set(c, "cpu_offload"))
		return 0;
	return kept_set(c, param ? param : optimizer, "cpu_offload",
	        param && optimizer ? "on"
	        : param            ? "params"
	                           : "gradients,optimizer");
}

const struct dialect dialect_deepspeed = {
        .name = "DeepSpeed", .markers = markers, .keys = keys, .finish = finish};
