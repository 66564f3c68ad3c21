/* The list of families, and rows and defaults that several families share.
 *
 * To add a family, add its file to this folder and its line to FAMILY_LIST. model/family.h explains the table
 * in a family's file. */
#ifndef FERRY_MODEL_FAMILIES_FAMILIES_H
#define FERRY_MODEL_FAMILIES_FAMILIES_H

#include "model/config.h"
#include "model/family.h"

/* ROW(name): struct model_family family_<name>, in the order in which messages list them */
#define FAMILY_LIST(ROW)                                                                                     \
	ROW(llama)                                                                                           \
	ROW(mistral)                                                                                         \
	ROW(ministral)                                                                                       \
	ROW(ministral3)                                                                                      \
	ROW(qwen2)                                                                                           \
	ROW(qwen3)                                                                                           \
	ROW(qwen3_5_text)                                                                                    \
	ROW(qwen3_5_moe_text)                                                                                \
	ROW(mixtral)                                                                                         \
	ROW(olmoe)                                                                                           \
	ROW(qwen2_moe)                                                                                       \
	ROW(qwen3_moe)                                                                                       \
	ROW(qwen3_vl_moe_text)                                                                               \
	ROW(qwen3_next)                                                                                      \
	ROW(phi3)                                                                                            \
	ROW(gemma)                                                                                           \
	ROW(gemma2)                                                                                          \
	ROW(gemma3_text)                                                                                     \
	ROW(gemma4_text)                                                                                     \
	ROW(gemma4_unified_text)                                                                             \
	ROW(vaultgemma)                                                                                      \
	ROW(muse_glimmer_text)                                                                               \
	ROW(granite)                                                                                         \
	ROW(granitemoehybrid)                                                                                \
	ROW(hyperclovax)                                                                                     \
	ROW(olmo)                                                                                            \
	ROW(olmo2)                                                                                           \
	ROW(olmo3)                                                                                           \
	ROW(cwm)                                                                                             \
	ROW(hunyuan_v1_dense)                                                                                \
	ROW(nanochat)                                                                                        \
	ROW(smollm3)                                                                                         \
	ROW(exaone4)                                                                                         \
	ROW(seed_oss)                                                                                        \
	ROW(arcee)                                                                                           \
	ROW(starcoder2)                                                                                      \
	ROW(glm)                                                                                             \
	ROW(glm4)                                                                                            \
	ROW(gpt_oss)                                                                                         \
	ROW(deepseek_v2)                                                                                     \
	ROW(deepseek_v3)                                                                                     \
	ROW(glm4_moe)                                                                                        \
	ROW(cohere)                                                                                          \
	ROW(cohere2)                                                                                         \
	ROW(nemotron)                                                                                        \
	ROW(nemotron_h)                                                                                      \
	ROW(jais2)                                                                                           \
	ROW(ernie4_5)                                                                                        \
	ROW(helium)                                                                                          \
	ROW(stablelm)                                                                                        \
	ROW(lfm2)                                                                                            \
	ROW(phi)                                                                                             \
	ROW(gpt2)                                                                                            \
	ROW(gpt_bigcode)                                                                                     \
	ROW(gpt_neo)                                                                                         \
	ROW(opt)                                                                                             \
	ROW(bert)                                                                                            \
	ROW(distilbert)                                                                                      \
	ROW(modernbert)                                                                                      \
	ROW(roberta)                                                                                         \
	ROW(xlm_roberta)                                                                                     \
	ROW(mpnet)                                                                                           \
	ROW(falcon)                                                                                          \
	ROW(falcon_h1)                                                                                       \
	ROW(gptj)                                                                                            \
	ROW(gpt_neox)

/* NULL: none has this model_type */
const struct model_family *family_find(const char *model_type);

#define FAMILY_DECLARE(name) extern const struct model_family family_##name;
FAMILY_LIST(FAMILY_DECLARE)
#undef FAMILY_DECLARE

/* Rows that most descendants of Llama share, for lists of tensors. */
#define LLAMA_ATTENTION                                                                                      \
	TENSOR(Q_W, "self_attn.q_proj.weight"), TENSOR(K_W, "self_attn.k_proj.weight"),                      \
	        TENSOR(V_W, "self_attn.v_proj.weight"), TENSOR(O_W, "self_attn.o_proj.weight")
/* flag NULL: the biases always exist */
#define LLAMA_QKV_BIASED(flag, if_absent)                                                                    \
	TENSOR(Q_W, "self_attn.q_proj.weight"), TENSOR_IF(Q_B, "self_attn.q_proj.bias", flag, if_absent),    \
	        TENSOR(K_W, "self_attn.k_proj.weight"),                                                      \
	        TENSOR_IF(K_B, "self_attn.k_proj.bias", flag, if_absent),                                    \
	        TENSOR(V_W, "self_attn.v_proj.weight"),                                                      \
	        TENSOR_IF(V_B, "self_attn.v_proj.bias", flag, if_absent)
#define LLAMA_ATTENTION_BIASED(flag, if_absent)                                                              \
	LLAMA_QKV_BIASED(flag, if_absent), TENSOR(O_W, "self_attn.o_proj.weight"),                           \
	        TENSOR_IF(O_B, "self_attn.o_proj.bias", flag, if_absent)
#define LLAMA_HEAD_NORMS                                                                                     \
	TENSOR(Q_NORM_W, "self_attn.q_norm.weight"), TENSOR(K_NORM_W, "self_attn.k_norm.weight")
#define LLAMA_MLP                                                                                            \
	TENSOR(GATE_W, "mlp.gate_proj.weight"), TENSOR(UP_W, "mlp.up_proj.weight"),                          \
	        TENSOR(DOWN_W, "mlp.down_proj.weight")
#define LLAMA_UP_DOWN_BIASED(flag, if_absent)                                                                \
	TENSOR(UP_W, "mlp.up_proj.weight"), TENSOR_IF(UP_B, "mlp.up_proj.bias", flag, if_absent),            \
	        TENSOR(DOWN_W, "mlp.down_proj.weight"),                                                      \
	        TENSOR_IF(DOWN_B, "mlp.down_proj.bias", flag, if_absent)
#define LLAMA_MLP_BIASED(flag, if_absent)                                                                    \
	TENSOR(GATE_W, "mlp.gate_proj.weight"), TENSOR_IF(GATE_B, "mlp.gate_proj.bias", flag, if_absent),    \
	        LLAMA_UP_DOWN_BIASED(flag, if_absent)
#define QWEN_ATTENTION_OR_DELTA                                                                              \
	TENSOR(DT_BIAS, "linear_attn.dt_bias"), TENSOR(A_LOG, "linear_attn.A_log"),                          \
	        TENSOR(CONV_W, "linear_attn.conv1d.weight"),                                                 \
	        TENSOR(DELTA_NORM_W, "linear_attn.norm.weight"),                                             \
	        TENSOR(DELTA_OUT_W, "linear_attn.out_proj.weight"),                                          \
	        TENSOR(DELTA_QKV_W, "linear_attn.in_proj_qkv.weight"),                                       \
	        TENSOR(DELTA_Z_W, "linear_attn.in_proj_z.weight"),                                           \
	        TENSOR(DELTA_B_W, "linear_attn.in_proj_b.weight"),                                           \
	        TENSOR(DELTA_A_W, "linear_attn.in_proj_a.weight"),                                           \
	        LLAMA_ATTENTION_BIASED("attention_bias", 0), LLAMA_HEAD_NORMS
/* Below `mixer`; the flags of the biases: of the convolution, of the projections in and out. */
#define MAMBA2(mixer, conv_bias, conv_otherwise, in_bias, out_bias)                                          \
	TENSOR(SCAN_DT_BIAS, mixer ".dt_bias"), TENSOR(SCAN_A_LOG, mixer ".A_log"),                          \
	        TENSOR(SCAN_D, mixer ".D"), TENSOR(SCAN_CONV_W, mixer ".conv1d.weight"),                     \
	        TENSOR_IF(SCAN_CONV_B, mixer ".conv1d.bias", conv_bias, conv_otherwise),                     \
	        TENSOR(SCAN_IN_W, mixer ".in_proj.weight"),                                                  \
	        TENSOR_IF(SCAN_IN_B, mixer ".in_proj.bias", in_bias, 0),                                     \
	        TENSOR(SCAN_NORM_W, mixer ".norm.weight"), TENSOR(SCAN_OUT_W, mixer ".out_proj.weight"),     \
	        TENSOR_IF(SCAN_OUT_B, mixer ".out_proj.bias", out_bias, 0)
#define QWEN_EXPERTS                                                                                         \
	TENSOR(ROUTER_W, "mlp.gate.weight"), TENSOR(EXPERTS_GATE_UP_W, "mlp.experts.gate_up_proj"),          \
	        TENSOR(EXPERTS_DOWN_W, "mlp.experts.down_proj")
#define QWEN_SHARED_EXPERT                                                                                   \
	TENSOR(SHARED_GATE_W, "mlp.shared_expert.gate_proj.weight"),                                         \
	        TENSOR(SHARED_UP_W, "mlp.shared_expert.up_proj.weight"),                                     \
	        TENSOR(SHARED_DOWN_W, "mlp.shared_expert.down_proj.weight"),                                 \
	        TENSOR(SHARED_WEIGHT_W, "mlp.shared_expert_gate.weight")
/* What latent attention has: q_lora_rank null leaves Q_W alone for q (deepseek_sizes). */
#define DEEPSEEK_ATTENTION                                                                                   \
	TENSOR(Q_A_W, "self_attn.q_a_proj.weight"),                                                          \
	        TENSOR_IF(Q_A_B, "self_attn.q_a_proj.bias", "attention_bias", 0),                            \
	        TENSOR(Q_A_NORM_W, "self_attn.q_a_layernorm.weight"),                                        \
	        TENSOR(Q_B_W, "self_attn.q_b_proj.weight"), TENSOR(Q_W, "self_attn.q_proj.weight"),          \
	        TENSOR(KV_A_W, "self_attn.kv_a_proj_with_mqa.weight"),                                       \
	        TENSOR_IF(KV_A_B, "self_attn.kv_a_proj_with_mqa.bias", "attention_bias", 0),                 \
	        TENSOR(KV_A_NORM_W, "self_attn.kv_a_layernorm.weight"),                                      \
	        TENSOR(KV_B_W, "self_attn.kv_b_proj.weight"), TENSOR(O_W, "self_attn.o_proj.weight"),        \
	        TENSOR_IF(O_B, "self_attn.o_proj.bias", "attention_bias", 0)
#define DEEPSEEK_EXPERTS                                                                                     \
	TENSOR(EXPERTS_GATE_UP_W, "mlp.experts.gate_up_proj"),                                               \
	        TENSOR(EXPERTS_DOWN_W, "mlp.experts.down_proj"), TENSOR(ROUTER_W, "mlp.gate.weight"),        \
	        TENSOR(ROUTER_CHOICE_B, "mlp.gate.e_score_correction_bias"),                                 \
	        TENSOR(SHARED_GATE_W, "mlp.shared_experts.gate_proj.weight"),                                \
	        TENSOR(SHARED_UP_W, "mlp.shared_experts.up_proj.weight"),                                    \
	        TENSOR(SHARED_DOWN_W, "mlp.shared_experts.down_proj.weight")
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
#define LLAMA_EMBED TENSOR(EMBED, "embed_tokens.weight")
#define LLAMA_NORM_HEAD TENSOR(FINAL_NORM_W, "norm.weight"), TENSOR(HEAD_W, "lm_head.weight"), TENSORS_END
#define LLAMA_LAYER_NORM_HEAD                                                                                \
	TENSOR(FINAL_NORM_W, "norm.weight"), TENSOR(FINAL_NORM_B, "norm.bias"),                              \
	        TENSOR(HEAD_W, "lm_head.weight"), TENSORS_END

/* Rows and defaults that generations of one family share. A default is the value of an absent key. */

#define GLM_ATTENTION_MLP                                                                                    \
	LLAMA_QKV_BIASED("attention_bias", 1), TENSOR(O_W, "self_attn.o_proj.weight"),                       \
	        TENSOR(GATE_UP_W, "mlp.gate_up_proj.weight"), TENSOR(DOWN_W, "mlp.down_proj.weight")
#define GLM_DEFAULTS                                                                                         \
	.defaults = {.V = 151552,                                                                            \
	        .C = 4096,                                                                                   \
	        .F = 13696,                                                                                  \
	        .L = 40,                                                                                     \
	        .H = 32,                                                                                     \
	        .KV = 2,                                                                                     \
	        .D = 128,                                                                                    \
	        .max_positions = 131072,                                                                     \
	        .norm_epsilon = 1.5625e-7,                                                                   \
	        .rope_pairs = ROPE_NEIGHBOURS,                                                               \
	        .eos_ids = {151329, 151336, 151338},                                                         \
	        .eos_count = 3,                                                                              \
	        .bos_id = -1,                                                                                \
	        .pad_id = 151329},                                                                           \
	.rope = {.partial_otherwise = 0.5, .partial_in_default = 1}

/* Ministral and Ministral 3 share these with Mistral. */
extern const struct family_tensor mistral_tensors[];

/* OLMo 3 shares these with OLMo 2. */
extern const struct family_tensor olmo2_tensors[];
/* GPT-BigCode has GPT-2's tensors. GPT-Neo and GPT-J share a part of the rest. */
#define GPT2_EMBED TENSOR(EMBED, "wte.weight"), TENSOR(POSITION, "wpe.weight")
#define GPT2_NORM1 TENSOR(NORM1_W, "ln_1.weight"), TENSOR(NORM1_B, "ln_1.bias")
#define GPT2_NORM2_MLP                                                                                       \
	TENSOR(NORM2_W, "ln_2.weight"), TENSOR(NORM2_B, "ln_2.bias"), TENSOR(UP_W, "mlp.c_fc.weight"),       \
	        TENSOR(UP_B, "mlp.c_fc.bias"), TENSOR(DOWN_W, "mlp.c_proj.weight"),                          \
	        TENSOR(DOWN_B, "mlp.c_proj.bias")
#define GPT2_NORM_HEAD                                                                                       \
	TENSOR(FINAL_NORM_W, "ln_f.weight"), TENSOR(FINAL_NORM_B, "ln_f.bias"),                              \
	        TENSOR(HEAD_W, "lm_head.weight")
#define GPT2_KEYS                                                                                            \
	.hidden = "n_embd", .layers = "n_layer", .heads = "n_head", .positions = "n_positions",              \
	.inner = "n_inner", .act = "activation_function", .epsilon = "layer_norm_epsilon"
extern const struct family_tensor gpt2_tensors[];
extern const char *const gpt2_buffers[];
void gpt2_read_scale(struct config_reader *r, struct model_config *c);

/* Cohere 2 shares these with Cohere. */
extern const struct family_tensor cohere_tensors[];
void cohere_read_scale(struct config_reader *r, struct model_config *c);
#define COHERE_DEFAULTS                                                                                      \
	.defaults = {.V = 256000,                                                                            \
	        .C = 8192,                                                                                   \
	        .F = 22528,                                                                                  \
	        .L = 40,                                                                                     \
	        .H = 64,                                                                                     \
	        .max_positions = 8192,                                                                       \
	        .norm = NORM_LAYER,                                                                          \
	        .norm_epsilon = 1e-5,                                                                        \
	        .parallel_residual = 1,                                                                      \
	        .rope_pairs = ROPE_NEIGHBOURS,                                                               \
	        .tied = 1,                                                                                   \
	        .eos_ids = {255001},                                                                         \
	        .eos_count = 1,                                                                              \
	        .bos_id = 5,                                                                                 \
	        .pad_id = 0},                                                                                \
	.keys = {.epsilon = "layer_norm_eps"}

/* gemma2_read_scales reads the scales of the embedding and of attention, and the cap of the logits; Gemma 3
 * shares it. gemma2_read also reads the cap of the scores; VaultGemma shares it. GEMMA_DEFAULTS has the
 * defaults that all generations share. */
void gemma2_read_cap(struct config_reader *r, const char *key, double *cap); /* null: no cap */
void gemma2_read_scales(struct config_reader *r, struct model_config *c);
void gemma2_read(struct config_reader *r, struct model_config *c);
#define GEMMA_DEFAULTS                                                                                       \
	.D = 256, .norm_epsilon = 1e-6, .norm_weight_offset = 1, .act = ACT_GELU_TANH, .tied = 1,            \
	.eos_ids = {1}, .eos_count = 1, .bos_id = 2, .pad_id = 0
/* Default sizes of Gemma 2 and 3. */
#define GEMMA2_DEFAULTS GEMMA_DEFAULTS, .C = 2304, .F = 9216, .L = 26, .H = 8, .KV = 4

/* Defaults that a later generation shares: Ministral, OLMo 3, GPTBigCode. */
#define MISTRAL_DEFAULTS                                                                                     \
	.V = 32000, .C = 4096, .F = 14336, .L = 32, .H = 32, .KV = 8, .max_positions = 131072,               \
	.norm_epsilon = 1e-6, .eos_ids = {2}, .eos_count = 1, .bos_id = 1, .pad_id = -1
#define OLMO2_DEFAULTS                                                                                       \
	.V = 50304, .C = 4096, .F = 11008, .L = 32, .H = 32, .max_positions = 2048, .norm_epsilon = 1e-5,    \
	.qk_norm_whole = 1, .eos_ids = {50279}, .eos_count = 1, .bos_id = -1, .pad_id = 1
#define GPT2_DEFAULTS                                                                                        \
	.V = 50257, .C = 768, .L = 12, .H = 12, .max_positions = 1024, .norm = NORM_LAYER,                   \
	.norm_epsilon = 1e-5, .act = ACT_GELU_TANH, .tied = 1, .eos_ids = {50256}, .eos_count = 1,           \
	.bos_id = 50256, .dropout = 0.1, .pad_id = -1

/* Without head_dim, because Qwen2 has no such key. */
#define QWEN_DEFAULTS                                                                                        \
	.V = 151936, .C = 4096, .F = 22016, .L = 32, .H = 32, .KV = 32, .max_positions = 32768,              \
	.norm_epsilon = 1e-6, .bos_id = -1, .pad_id = -1
#define QWEN_WINDOW_AND_IGNORED                                                                              \
	.window = {.read = 1, .otherwise = 4096, .use = "use_sliding_window", .from = 28},                   \
	.ignored = {{"mlp_bias", "Qwen has none"}}

/* Which layers have attention and which the gated delta rule: of Qwen3.5 and Qwen3-Next. And the defaults
 * that they share. */
void qwen3_5_read(struct config_reader *r, struct model_config *c);
#define QWEN_DELTA_DEFAULTS                                                                                  \
	.H = 16, .D = 256, .max_positions = 32768, .norm_epsilon = 1e-6, .norm_weight_offset = 1,            \
	.bos_id = -1, .pad_id = -1

/* DeepSeek-V3's parts that V2 shares. shared, dense: of absent keys. */
void deepseek_sizes(struct config_reader *r, struct model_config *c);
void deepseek_read_attention(struct config_reader *r, struct model_config *c);
void deepseek_read_experts(struct config_reader *r, struct model_config *c, struct experts_config *e,
        const struct experts_keys *keys, int64_t shared, int64_t dense);

/* Names of the experts of the Qwen families and OLMoE, and their keys. */
extern const struct family_split qwen_expert_splits[];
extern const struct experts_keys experts_keys_qwen;

#endif
