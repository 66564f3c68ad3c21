/* NanoChat: norms without weights, also of the embedding, q and k; squared ReLU, heads rotated backwards, a
 * cap. */
#include "model/families/families.h"

/* The norms stand here for their place; norm_plain says that they have no tensors. transformers rotates q and
 * k before their norms. Without weights the order makes no difference. */
static const struct family_tensor nanochat_tensors[] = {
        LLAMA_EMBED,
        TENSOR(EMBED_NORM_W, "norm.weight"),
        LLAMA_ATTENTION_BIASED("attention_bias", 0),
        LLAMA_HEAD_NORMS,
        TENSOR(UP_W, "mlp.fc1.weight"),
        TENSOR(DOWN_W, "mlp.fc2.weight"),
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

static void nanochat_read(struct config_reader *r, struct model_config *c)
{
	c->rope[0].is_backwards = 1;
	gemma2_read_cap(r, "final_logit_softcapping", &c->logit_cap);
}

const struct model_family family_nanochat = {
        .model_type = "nanochat",
        .base_class = "NanoChatModel",
        .causal_class = "NanoChatForCausalLM",
        .tensors = nanochat_tensors,
        .defaults = {.V = 50304,
                .C = 768,
                .F = 8192,
                .L = 12,
                .H = 6,
                .max_positions = 2048,
                .norm_epsilon = 1e-6,
                .norm_weight_offset = 1,
                .norm_plain = 1,
                .act = ACT_RELU2,
                .logit_cap = 15,
                .eos_ids = {1},
                .eos_count = 1,
                .bos_id = 0,
                .pad_id = 1},
        .read = nanochat_read,
};
