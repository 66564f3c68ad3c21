/* StableLM: LayerNorm, partial rotary positions, in some sizes a parallel residual on one norm. */
#include "model/families/families.h"

static const struct family_tensor stablelm_tensors[] = {
        LLAMA_EMBED,
        LLAMA_QKV_BIASED("use_qkv_bias", 0),
        TENSOR(O_W, "self_attn.o_proj.weight"),
        LLAMA_MLP,
        LLAMA_LAYER_NORMS,
        LLAMA_LAYER_NORM_HEAD,
};

static void stablelm_read(struct config_reader *r, struct model_config *c)
{
	config_refuse_flag(r, "qk_layernorm");
	config_read_flag(r, "use_parallel_residual", &c->parallel_residual);
	if (c->parallel_residual)
		config_drop_norm2(c);
}

const struct model_family family_stablelm = {
        .model_type = "stablelm",
        .base_class = "StableLmModel",
        .causal_class = "StableLmForCausalLM",
        .tensors = stablelm_tensors,
        .defaults = {.V = 50304,
                .C = 2560,
                .F = 6912,
                .L = 32,
                .H = 32,
                .KV = 32,
                .max_positions = 4096,
                .norm = NORM_LAYER,
                .norm_epsilon = 1e-5,
                .eos_ids = {0},
                .eos_count = 1,
                .bos_id = 0,
                .pad_id = -1},
        .keys = {.epsilon = "layer_norm_eps"},
        .rope = {.partial_otherwise = 0.25, .partial_in_default = 1},
        .read = stablelm_read,
};
