/* The list of families. To add one: its file beside this one, and its line here. */
#ifndef FERRY_MODEL_FAMILIES_FAMILIES_H
#define FERRY_MODEL_FAMILIES_FAMILIES_H

#include "model/config.h"
#include "model/family.h"

/* ROW(name): struct model_family family_<name>, in the order in which messages list them */
#define FAMILY_LIST(ROW)                                                                                     \
	ROW(llama)                                                                                           \
	ROW(mistral)                                                                                         \
	ROW(qwen2)                                                                                           \
	ROW(qwen3)                                                                                           \
	ROW(phi3)                                                                                            \
	ROW(gemma)                                                                                           \
	ROW(gemma2)                                                                                          \
	ROW(gemma3_text)                                                                                     \
	ROW(granite)                                                                                         \
	ROW(olmo2)                                                                                           \
	ROW(smollm3)                                                                                         \
	ROW(exaone4)                                                                                         \
	ROW(seed_oss)                                                                                        \
	ROW(arcee)                                                                                           \
	ROW(starcoder2)                                                                                      \
	ROW(glm)                                                                                             \
	ROW(glm4)                                                                                            \
	ROW(cohere)                                                                                          \
	ROW(cohere2)                                                                                         \
	ROW(nemotron)                                                                                        \
	ROW(ernie4_5)                                                                                        \
	ROW(helium)                                                                                          \
	ROW(stablelm)                                                                                        \
	ROW(phi)                                                                                             \
	ROW(gpt2)                                                                                            \
	ROW(gpt_neox)

#define FAMILY_DECLARE(name) extern const struct model_family family_##name;
FAMILY_LIST(FAMILY_DECLARE)
#undef FAMILY_DECLARE

/* Rows that most descendants of Llama share, for lists of tensors. */
#define LLAMA_ATTENTION                                                                                      \
	TENSOR(Q_W, "self_attn.q_proj.weight"), TENSOR(K_W, "self_attn.k_proj.weight"),                      \
	        TENSOR(V_W, "self_attn.v_proj.weight"), TENSOR(O_W, "self_attn.o_proj.weight")
#define LLAMA_ATTENTION_BIASED(flag, if_absent)                                                              \
	TENSOR(Q_W, "self_attn.q_proj.weight"), TENSOR_IF(Q_B, "self_attn.q_proj.bias", flag, if_absent),    \
	        TENSOR(K_W, "self_attn.k_proj.weight"),                                                      \
	        TENSOR_IF(K_B, "self_attn.k_proj.bias", flag, if_absent),                                    \
	        TENSOR(V_W, "self_attn.v_proj.weight"),                                                      \
	        TENSOR_IF(V_B, "self_attn.v_proj.bias", flag, if_absent),                                    \
	        TENSOR(O_W, "self_attn.o_proj.weight"),                                                      \
	        TENSOR_IF(O_B, "self_attn.o_proj.bias", flag, if_absent)
#define LLAMA_HEAD_NORMS                                                                                     \
	TENSOR(Q_NORM_W, "self_attn.q_norm.weight"), TENSOR(K_NORM_W, "self_attn.k_norm.weight")
#define LLAMA_MLP                                                                                            \
	TENSOR(GATE_W, "mlp.gate_proj.weight"), TENSOR(UP_W, "mlp.up_proj.weight"),                          \
	        TENSOR(DOWN_W, "mlp.down_proj.weight")
#define LLAMA_MLP_BIASED(flag, if_absent)                                                                    \
	TENSOR(GATE_W, "mlp.gate_proj.weight"), TENSOR_IF(GATE_B, "mlp.gate_proj.bias", flag, if_absent),    \
	        TENSOR(UP_W, "mlp.up_proj.weight"), TENSOR_IF(UP_B, "mlp.up_proj.bias", flag, if_absent),    \
	        TENSOR(DOWN_W, "mlp.down_proj.weight"),                                                      \
	        TENSOR_IF(DOWN_B, "mlp.down_proj.bias", flag, if_absent)
#define LLAMA_NORMS                                                                                          \
	TENSOR(NORM1_W, "input_layernorm.weight"), TENSOR(NORM2_W, "post_attention_layernorm.weight")
#define LLAMA_POST_NORMS                                                                                     \
	TENSOR(POST_NORM1_W, "post_attention_layernorm.weight"),                                             \
	        TENSOR(POST_NORM2_W, "post_feedforward_layernorm.weight")
#define GEMMA_NORMS                                                                                          \
	TENSOR(NORM1_W, "input_layernorm.weight"), TENSOR(POST_NORM1_W, "post_attention_layernorm.weight"),  \
	        TENSOR(NORM2_W, "pre_feedforward_layernorm.weight"),                                         \
	        TENSOR(POST_NORM2_W, "post_feedforward_layernorm.weight")
#define LLAMA_LAYER_NORMS                                                                                    \
	TENSOR(NORM1_W, "input_layernorm.weight"), TENSOR(NORM1_B, "input_layernorm.bias"),                  \
	        TENSOR(NORM2_W, "post_attention_layernorm.weight"),                                          \
	        TENSOR(NORM2_B, "post_attention_layernorm.bias")
/* What Cohere 2 reads as Cohere does: the scale of the logits. */
void cohere_read_scale(struct config_reader *r, struct model_config *c);

/* What Gemma 3 reads as Gemma 2 does: scales of the embedding and of attention, the cap of the logits. */
void gemma2_read_scales(struct config_reader *r, struct model_config *c);

#define LLAMA_EMBED TENSOR(EMBED, "embed_tokens.weight")
#define LLAMA_HEAD TENSOR(FINAL_NORM_W, "norm.weight"), TENSOR(HEAD_W, "lm_head.weight"), TENSORS_END
#define LLAMA_LAYER_NORM_HEAD                                                                                \
	TENSOR(FINAL_NORM_W, "norm.weight"), TENSOR(FINAL_NORM_B, "norm.bias"),                              \
	        TENSOR(HEAD_W, "lm_head.weight"), TENSORS_END

#endif
