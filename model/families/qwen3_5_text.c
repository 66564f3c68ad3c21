/* Qwen3.5, 3.6 and 3.8: three layers of the gated delta rule, then one of attention with a gate on its
 * output. */
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/families/families.h"

#include <string.h>

static const struct family_tensor qwen3_5_tensors[] = {
        LLAMA_EMBED, QWEN_ATTENTION_OR_DELTA, LLAMA_MLP, LLAMA_NORMS, LLAMA_NORM_HEAD};

static const struct family_tensor qwen3_5_moe_tensors[] = {
        LLAMA_EMBED,
        QWEN_ATTENTION_OR_DELTA,
        QWEN_EXPERTS,
        QWEN_SHARED_EXPERT,
        LLAMA_NORMS,
        LLAMA_NORM_HEAD,
};

/* What transformers 5.24 does not read, with values that other code may mean. */
static void warn_unread(struct config_reader *r)
{
	const char *gate = NULL;
	int is_gated = 1;

	config_read_str(r, "output_gate_type", &gate);
	config_read_flag(r, "attn_output_gate", &is_gated);
	if (!r->err && !is_gated)
		log_warn("%s: attn_output_gate is ignored: this family's attention has a gate", r->where);
	if (!r->err && gate && strcmp(gate, "swish") && strcmp(gate, "silu"))
		log_warn("%s: output_gate_type is ignored: the gate of linear attention is silu", r->where);
}

void qwen3_5_read(struct config_reader *r, struct model_config *c)
{
	static const char *const names[] = {"full_attention", "linear_attention", NULL};
	int *is_linear = mem_alloc((size_t)c->L, sizeof(*is_linear));
	struct block_config delta = {0};
	int64_t interval = 4;

	if (!is_linear) {
		r->err = ERR_NOMEM;
		return;
	}
	config_read_delta(r, &delta);
	warn_unread(r);
	if (!config_read_layer_types(r, c, names, is_linear)) {
		config_read_int(r, "full_attention_interval", &interval, 1, INT32_MAX);
		for (int64_t l = 0; l < c->L; l++)
			is_linear[l] = (l + 1) % interval != 0;
	}
	for (int64_t l = 0; l < c->L && !r->err; l++) {
		struct block_config *b = &c->block[l];

		config_drop_stage(b, is_linear[l] ? STAGE_ATTN : STAGE_DELTA);
		b->attention_gate = !is_linear[l];
		if (!is_linear[l])
			continue;
		b->delta = delta.delta;
		b->taps = delta.taps;
		if (c->act != ACT_SILU)
			config_fail(r, ERR_UNSUPPORTED, "hidden_act: layers of linear attention need silu");
	}
	mem_free(is_linear);
}

const struct model_family family_qwen3_5_text = {
        .model_type = "qwen3_5_text",
        .base_class = "Qwen3_5TextModel",
        .causal_class = "Qwen3_5ForCausalLM",
        .tensors = qwen3_5_tensors,
        .defaults = {.V = 248320, .C = 4096, .F = 12288, .L = 32, .KV = 4, QWEN_DELTA_DEFAULTS},
        .rope = {.partial_otherwise = 0.25, .partial_in_default = 1},
        .read = qwen3_5_read,
};

static void qwen3_5_moe_read(struct config_reader *r, struct model_config *c)
{
	static const struct experts_keys keys = {.count = {"num_experts", "num_local_experts"},
	        .chosen = "num_experts_per_tok",
	        .inner = "moe_intermediate_size"};
	struct experts_config e = {.count = 256, .chosen = 8, .F = 512, .shared = 512, .is_normed = 1};

	qwen3_5_read(r, c);
	config_read_size(r, "shared_expert_intermediate_size", &e.shared);
	config_read_experts(r, &e, &keys);
	config_read_balance(r, c, 0.001);
	config_set_all_sparse(r, c, &e);
}

const struct model_family family_qwen3_5_moe_text = {
        .model_type = "qwen3_5_moe_text",
        .base_class = "Qwen3_5MoeTextModel",
        .causal_class = "Qwen3_5MoeForCausalLM",
        .tensors = qwen3_5_moe_tensors,
        .splits = qwen_expert_splits,
        .peft_drops_experts = 1,
        .defaults = {.V = 248320, .C = 2048, .L = 40, .KV = 2, QWEN_DELTA_DEFAULTS},
        .rope = {.partial_otherwise = 0.25, .partial_in_default = 1},
        .read = qwen3_5_moe_read,
};
