/* The keys of LLaMA-Factory's version 1. */
#include "config/dialect_item.h"

#include <string.h>

static const struct dialect_marker markers[] = {
        {"model_class kernel_config.* dist_config.* train_dataset sample_backend", 4}, {NULL, 0}};

static int train_dataset(const struct item *s)
{
	return item_set(s, "data", s->text, CONFIG_STRONG);
}

/* A file of DeepSpeed's; other ways of sharding need none. */
static int config_file(const struct item *s)
{
	return item_is_off(s->text) ? 0 : item_read_file(s, &dialect_deepspeed, "");
}

static int peft_name(const struct item *s)
{
	if (config_name_equal(s->text, "lora"))
		return lora_switch(s, &dialect_peft, "lora");
	return item_refuse(s, config_name_equal(s->text, "freeze") ? ITEM_BY_NAME ITEM_TRAINABLE_EXAMPLE
	                                                           : "of adapters only lora is supported");
}

/* Of all ranks; micro_batch_size is 1 if nothing is said. */
static int global_batch(const struct item *s)
{
	return item_step_rows(s, "global_batch");
}

static int finish(struct dialect_state *d, struct config *c)
{
	const struct dialect_kept *rows = dialect_kept(d, "global_batch");

	return rows ? kept_step_rows(c, rows, STEP_OF_RANKS, 1) : 0;
}

static const struct dialect_key keys[] = {
        CALL("global_batch_size", global_batch),
        CALL("train_dataset", train_dataset),
        CALL("dist_config.config_file", config_file),
        CALL("peft_config.name", peft_name),
        CALL("quant_config.quantization_bit", item_quantized),
        CALL("quant_config.quantization_type", item_quant_type),
        CALL("quant_config.double_quantization", item_quant_double),
        CALL("quant_config.compute_dtype", item_quant_dtype),
        PASS("quant_config quant_config.*"),
        ONLY("model_class", "llm", "only text is supported"),
        ONLY("dist_config.name", "fsdp2 fsdp deepspeed ddp", "not supported; supported: fsdp2, deepspeed"),
        ONLY("dist_config.ep_size dist_config.tp_size cp_size", "1 " ITEM_OFF,
                "tensor, context and expert parallelism are not supported"),
        ONLY("batching_strategy", "normal padding_free", "micro-batches of varying size are not supported"),
        ONLY("optim_config.name", "adamw adamw_torch", "only AdamW is supported"),
        METHOD("export_dir", ITEM_OFF, "exports a model; for an adapter use ferry merge"),
        PASS("kernel_config kernel_config.* dist_config dist_config.* sample_backend cp_mode init_config "
             "init_config.*"),
        KEYS_END,
};

const struct dialect dialect_llama_factory_v1 = {
        .name = "LLaMA-Factory (version 1)", .markers = markers, .keys = keys, .finish = finish};
