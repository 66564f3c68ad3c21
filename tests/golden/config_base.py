"""Smallest settings of each family, and rows, which the cases of config_cases*.py and config_wholes.py change."""

ROWS = [  # labels: None is -100
    ([5, 17, 3, 8, 30, 3, 3, 12, 25, 1, 9, 33, 7, 0, 2, 19, 28, 4, 11, 6, 21, 36, 14, 10], None),
    ([36, 3, 1, 20, 5, 5, 13, 31, 36], [-100, -100, -100, 20, 5, -100, 13, 31, 36]),
]

BASE = {
    "llama": dict(vocab_size=37, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
                  max_position_embeddings=64),
    "gpt2": dict(vocab_size=37, n_embd=16, n_layer=2, n_head=4, n_positions=32),
}
BASE["mistral"] = dict(BASE["llama"], num_key_value_heads=2)
BASE["qwen2"] = dict(BASE["mistral"])
BASE["qwen3"] = dict(BASE["mistral"], head_dim=8)
BASE["qwen3_5_text"] = dict(BASE["qwen3"], hidden_size=32, num_hidden_layers=4, linear_num_key_heads=2,
                            linear_num_value_heads=4, linear_key_head_dim=4, linear_value_head_dim=6, rms_norm_eps=1.0,
                            pad_token_id=None)
EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=6)
BASE["mixtral"] = dict(BASE["mistral"], num_local_experts=5, num_experts_per_tok=2)
BASE["olmoe"] = dict(BASE["mistral"], num_experts=5, num_experts_per_tok=2, pad_token_id=None)
BASE["qwen2_moe"] = dict(BASE["mistral"], **EXPERTS, shared_expert_intermediate_size=7)
BASE["qwen3_moe"] = dict(BASE["mistral"], **EXPERTS, head_dim=8)
BASE["qwen3_5_moe_text"] = dict(BASE["qwen3_5_text"], **EXPERTS, shared_expert_intermediate_size=7)
BASE["qwen3_next"] = dict(BASE["qwen3_5_text"], **EXPERTS, shared_expert_intermediate_size=7)
BASE["glm4_moe"] = dict(BASE["mistral"], n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=6,
                        head_dim=8, pad_token_id=None)
BASE["deepseek_v3"] = dict(BASE["mistral"], n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=6, n_group=1,
                           topk_group=1, q_lora_rank=6, kv_lora_rank=5, qk_nope_head_dim=3, qk_rope_head_dim=4,
                           v_head_dim=5, num_key_value_heads=4, first_k_dense_replace=1, pad_token_id=None)
BASE["deepseek_v2"] = dict(BASE["deepseek_v3"], n_group=None, topk_group=None, kv_lora_rank=6, qk_nope_head_dim=2)
BASE["gpt_oss"] = dict(BASE["mistral"], num_local_experts=5, num_experts_per_tok=2, head_dim=8, num_hidden_layers=3,
                       sliding_window=5)
BASE["gpt_neox"] = dict(BASE["llama"], num_attention_heads=2)

BASE["phi3"] = dict(BASE["mistral"], hidden_size=32, pad_token_id=None)

BASE["olmo2"] = dict(BASE["phi3"])
BASE["exaone4"] = dict(BASE["phi3"], num_hidden_layers=4)
BASE["smollm3"] = dict(BASE["phi3"], num_hidden_layers=4)
BASE["starcoder2"] = dict(BASE["phi3"])
BASE["stablelm"] = dict(BASE["phi3"], num_hidden_layers=2)
BASE["phi"] = dict(BASE["phi3"])
BASE["seed_oss"] = dict(BASE["phi3"], head_dim=4)
BASE["arcee"] = dict(BASE["phi3"])
BASE["gemma"] = dict(BASE["llama"], num_key_value_heads=1, head_dim=6, pad_token_id=None)
BASE["granite"] = dict(BASE["mistral"], attention_multiplier=0.3, embedding_multiplier=3.0, residual_multiplier=0.4,
                       logits_scaling=2.0, pad_token_id=None)
BASE["gemma2"] = dict(BASE["gemma"], num_key_value_heads=2, query_pre_attn_scalar=5, attn_logit_softcapping=1.5,
                      final_logit_softcapping=2.0, sliding_window=5)
BASE["gemma3_text"] = dict(BASE["gemma"], num_key_value_heads=2, num_hidden_layers=3, query_pre_attn_scalar=5,
                           sliding_window=5, sliding_window_pattern=2)
BASE["gemma4_text"] = dict(BASE["gemma"], vocab_size_per_layer_input=40, num_key_value_heads=2, num_hidden_layers=3, global_head_dim=10, rms_norm_eps=1e-3,
                           sliding_window=5, hidden_size_per_layer_input=0,
                           layer_types=["sliding_attention", "full_attention", "full_attention"])
BASE["gemma4_unified_text"] = {k: v for k, v in BASE["gemma4_text"].items() if "per_layer_input" not in k}
BASE["cohere"] = dict(BASE["mistral"], logit_scale=0.5, pad_token_id=None)
BASE["cohere2"] = dict(BASE["cohere"], num_hidden_layers=4, sliding_window=5)
BASE["glm"] = dict(BASE["phi3"], head_dim=8)
BASE["glm4"] = dict(BASE["glm"])
BASE["nemotron"] = dict(BASE["phi3"])
BASE["ernie4_5"] = dict(BASE["mistral"], head_dim=6, pad_token_id=None)
BASE["helium"] = dict(BASE["mistral"], head_dim=4, pad_token_id=None)
BASE["olmo3"] = dict(BASE["phi3"], num_hidden_layers=4, sliding_window=5)
BASE["ministral"] = dict(BASE["mistral"], head_dim=4, sliding_window=5)
BASE["cwm"] = dict(BASE["mistral"], head_dim=6, num_hidden_layers=5, sliding_window=5)
BASE["vaultgemma"] = dict(BASE["gemma2"], num_hidden_layers=3)
BASE["hyperclovax"] = dict(BASE["mistral"], attention_multiplier=0.3, embedding_multiplier=3.0, residual_multiplier=0.4,
                           logits_scaling=0.7, pad_token_id=None)
BASE["jais2"] = dict(BASE["phi3"])
BASE["hunyuan_v1_dense"] = dict(BASE["mistral"], head_dim=8, pad_token_id=None)
BASE["ministral3"] = dict(BASE["mistral"], head_dim=8, pad_token_id=None)
BASE["gptj"] = dict(BASE["gpt2"], n_head=2, rotary_dim=4)
BASE["gpt_neo"] = dict(vocab_size=37, hidden_size=16, num_layers=2, num_heads=4, max_position_embeddings=32,
                       attention_types=[[["global", "local"], 1]], window_size=5)
BASE["gpt_bigcode"] = dict(BASE["gpt2"])
BASE["opt"] = dict(vocab_size=37, hidden_size=16, ffn_dim=20, num_hidden_layers=2, num_attention_heads=4,
                   max_position_embeddings=32)
BASE["olmo"] = dict(BASE["mistral"], pad_token_id=None)
BASE["nanochat"] = dict(BASE["mistral"], pad_token_id=None)
BASE["lfm2"] = dict(BASE["mistral"], num_hidden_layers=3, block_multiple_of=4, norm_eps=0.01,
                    layer_types=["conv", "full_attention", "conv"])
BASE["granitemoehybrid"] = dict(
    BASE["granite"], intermediate_size=6, num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"], num_local_experts=4,
    num_experts_per_tok=2, shared_intermediate_size=10, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=6)
BASE["nemotron_h"] = dict(
    vocab_size=37, hidden_size=16, intermediate_size=20, hybrid_override_pattern="M*-E", num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, head_dim=4, max_position_embeddings=32, mamba_num_heads=4, mamba_head_dim=6, n_groups=2, ssm_state_size=5,
    n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=6, moe_shared_expert_intermediate_size=10)
BASE["falcon_h1"] = dict(
    BASE["mistral"], mamba_d_ssm=24, mamba_n_heads=4, mamba_d_state=6, embedding_multiplier=3.0, lm_head_multiplier=0.3,
    mlp_multipliers=[0.7, 1.4], ssm_multipliers=[0.6, 1.7, 0.4, 1.3, 0.8], attention_out_multiplier=0.6, key_multiplier=0.5,
    attention_in_multiplier=1.25, ssm_in_multiplier=0.9, ssm_out_multiplier=1.5, pad_token_id=None)
BASE["falcon"] = dict(BASE["llama"])
del BASE["falcon"]["intermediate_size"]

LONG = dict(short_factor=[1.0, 1.25, 2, 3.5], long_factor=[1.5, 2.0, 5, 9.0])
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0)
ABSENT = object()
