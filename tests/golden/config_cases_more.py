"""More configurations for config_cases.py: families that came later, from phi3 and olmo2 on."""

from config_base import ABSENT, LLAMA3, LONG

# name, model_type, keys over BASE
MORE = [
    ("phi3 plain", "phi3", {}),
    ("phi3 head_dim, null kv heads", "phi3", dict(head_dim=4, num_key_value_heads=None)),
    ("phi3 window, pad, tied", "phi3", dict(sliding_window=5, pad_token_id=3, tie_word_embeddings=True)),
    ("phi3 layer types are not read", "phi3", dict(sliding_window=5, layer_types=["full_attention"] * 2)),
    ("phi3 partial", "phi3", dict(partial_rotary_factor=0.5, rope_theta=100.0)),
    ("phi3 longrope, short and long rows", "phi3", dict(
        rope_theta=50.0, original_max_position_embeddings=16, rope_scaling=dict(LONG, rope_type="longrope"))),
    ("phi3 longrope, all short", "phi3", dict(rope_theta=50.0, rope_scaling=dict(LONG, type="longrope"))),
    ("phi3 su, partial", "phi3", dict(
        hidden_size=64, partial_rotary_factor=0.5, original_max_position_embeddings=16,
        rope_scaling=dict(LONG, type="su", original_max_position_embeddings=20))),
    ("phi3 longrope, attention_factor", "phi3", dict(
        original_max_position_embeddings=16, rope_scaling=dict(LONG, rope_type="longrope", attention_factor=1.3))),
    ("phi3 longrope, factor", "phi3", dict(
        original_max_position_embeddings=16, rope_scaling=dict(LONG, rope_type="longrope", factor=8.0))),
    ("phi3 longrope, original in it is not read", "phi3", dict(
        rope_parameters=dict(LONG, rope_type="longrope", rope_theta=70, original_max_position_embeddings=16))),
    ("olmo2 plain", "olmo2", {}),
    ("olmo2 biases, tied, pad", "olmo2", dict(attention_bias=True, tie_word_embeddings=True, pad_token_id=4,
                                             rope_theta=30.0)),
    ("olmo2 null kv heads", "olmo2", dict(num_key_value_heads=None, rms_norm_eps=1e-2)),
    ("exaone4 plain", "exaone4", dict(sliding_window=5)),
    ("exaone4 pattern", "exaone4", dict(sliding_window=5, sliding_window_pattern=2, tie_word_embeddings=True)),
    ("exaone4 no window", "exaone4", dict(sliding_window=None, layer_types=["full_attention"] * 4)),
    ("exaone4 layer types, pattern in letters", "exaone4", dict(sliding_window=3, sliding_window_pattern="LLLG", layer_types=[
        "sliding_attention", "full_attention", "sliding_attention", "full_attention"])),
    ("exaone4 no window, pattern 0", "exaone4", dict(sliding_window=None, sliding_window_pattern=0, layer_types=[
        "full_attention"] * 4)),
    ("exaone4 layer types", "exaone4", dict(sliding_window=3, layer_types=[
        "full_attention", "sliding_attention", "sliding_attention", "full_attention"])),
    ("smollm3 plain", "smollm3", {}),
    ("smollm3 untied, biases", "smollm3", dict(tie_word_embeddings=False, attention_bias=True, mlp_bias=True)),
    ("smollm3 layers", "smollm3", dict(no_rope_layers=[0, 1, 1, 0], rope_theta=40.0)),
    ("smollm3 interval, window", "smollm3", dict(no_rope_layer_interval=2, use_sliding_window=True,
                                                sliding_window=4)),
    ("smollm3 layer types", "smollm3", dict(use_sliding_window=True, sliding_window=4, layer_types=[
        "sliding_attention", "full_attention", "full_attention", "full_attention"])),
    ("starcoder2 plain", "starcoder2", {}),
    ("starcoder2 window, untied", "starcoder2", dict(sliding_window=6, tie_word_embeddings=False, pad_token_id=2)),
    ("starcoder2 no bias", "starcoder2", dict(use_bias=False, hidden_act="relu", norm_epsilon=1e-2)),
    ("stablelm plain", "stablelm", {}),
    ("stablelm parallel", "stablelm", dict(use_parallel_residual=True, use_qkv_bias=True)),
    ("stablelm partial, tied", "stablelm", dict(partial_rotary_factor=0.5, tie_word_embeddings=True,
                                               num_key_value_heads=4, rope_theta=30.0)),
    ("phi plain", "phi", {}),
    ("phi partial", "phi", dict(partial_rotary_factor=0.25, num_key_value_heads=None, hidden_act="gelu")),
    ("phi tied", "phi", dict(tie_word_embeddings=True, layer_norm_eps=1e-2, pad_token_id=1)),
    ("seed_oss plain", "seed_oss", {}),
    ("seed_oss flags", "seed_oss", dict(attention_bias=False, attention_out_bias=True, mlp_bias=True,
                                       tie_word_embeddings=True)),
    ("arcee plain", "arcee", {}),
    ("arcee biases", "arcee", dict(attention_bias=True, mlp_bias=True, rope_scaling=dict(
        rope_type="yarn", factor=2.0, original_max_position_embeddings=16))),
    ("llama longrope", "llama", dict(rope_theta=50.0, head_dim=8, rope_scaling=dict(
        LONG, rope_type="longrope", original_max_position_embeddings=16))),
    ("gemma plain", "gemma", {}),
    ("gemma old gelu, untied, biases, pad", "gemma", dict(hidden_act="gelu", tie_word_embeddings=False,
                                                         attention_bias=True, pad_token_id=3, rope_theta=50.0)),
    ("gemma silu, linear", "gemma", dict(hidden_act="silu", hidden_activation="relu",
                                         rope_scaling=dict(type="linear", factor=2.0))),
    ("gemma2 plain", "gemma2", {}),
    ("gemma2 no caps", "gemma2", dict(attn_logit_softcapping=None, final_logit_softcapping=None)),
    ("gemma2 usual caps, untied, pad", "gemma2", dict(
        attn_logit_softcapping=ABSENT, final_logit_softcapping=ABSENT, query_pre_attn_scalar=ABSENT,
        tie_word_embeddings=False, pad_token_id=3)),
    ("gemma2 cap of scores, all kv heads, biases", "gemma2", dict(
        attn_logit_softcapping=0.3, final_logit_softcapping=None, num_key_value_heads=4, attention_bias=True)),
    ("gemma2 layer types, cap of logits", "gemma2", dict(
        attn_logit_softcapping=None, final_logit_softcapping=0.5, hidden_act="relu", hidden_activation="silu",
        sliding_window=3, layer_types=["full_attention", "sliding_attention"])),
    ("qwen3_5 plain", "qwen3_5_text", {}),
    ("qwen3_5 every second layer, two taps, biases, tied", "qwen3_5_text", dict(
        num_hidden_layers=5, full_attention_interval=2, linear_conv_kernel_dim=2, attention_bias=True,
        tie_word_embeddings=True, eos_token_id=[2, 5])),
    ("qwen3_5 layer_types, eight taps, as many key heads, other dims", "qwen3_5_text", dict(
        layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"],
        linear_conv_kernel_dim=8, linear_num_key_heads=3, linear_num_value_heads=3, linear_key_head_dim=7,
        linear_value_head_dim=5, num_key_value_heads=4,
        rope_parameters=dict(rope_type="default", rope_theta=50.0, partial_rotary_factor=0.5,
                             mrope_section=[1, 1, 0], mrope_interleaved=True))),
    ("qwen3_5 attention alone, whole rotary", "qwen3_5_text", dict(
        num_hidden_layers=2, full_attention_interval=1, partial_rotary_factor=1.0, num_key_value_heads=1)),
    ("qwen3_5 linear attention alone, one key head", "qwen3_5_text", dict(
        num_hidden_layers=2, layer_types=["linear_attention"] * 2, use_cache=False, linear_num_key_heads=1, linear_num_value_heads=5,
        linear_key_head_dim=9, rms_norm_eps=0.5)),
    ("qwen3_5 partial factor beside rope_parameters, odd rotary, heads wider than the stream", "qwen3_5_text", dict(
        head_dim=20, full_attention_interval=3, partial_rotary_factor=0.25, linear_value_head_dim=16,
        rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=30.0))),
    ("gemma3_text plain", "gemma3_text", {}),
    ("gemma3_text absent pattern, other thetas", "gemma3_text", dict(
        sliding_window_pattern=ABSENT, num_hidden_layers=6, rope_theta=70.0, rope_local_base_freq=9.0)),
    ("gemma3_text old scaling", "gemma3_text", dict(
        rope_theta=300.0, rope_local_base_freq=20.0, rope_scaling=dict(rope_type="linear", factor=3.0))),
    ("gemma3_text two sets", "gemma3_text", dict(
        layer_types=["full_attention", "sliding_attention", "full_attention"], rope_parameters=dict(
            full_attention=dict(rope_type="linear", factor=4.0, rope_theta=90.0),
            sliding_attention=dict(rope_type="default", rope_theta=11.0)))),
    ("gemma3_text one set of two", "gemma3_text", dict(rope_theta=80.0, rope_local_base_freq=7.0, rope_parameters=dict(
        full_attention=dict(rope_type="default")))),
    ("gemma3_text caps, untied, pad", "gemma3_text", dict(
        attn_logit_softcapping=0.2, final_logit_softcapping=1.5, tie_word_embeddings=False, pad_token_id=2,
        attention_bias=True)),
    ("gemma4_text plain", "gemma4_text", {}),
    ("gemma4_text experts", "gemma4_text", dict(enable_moe_block=True, num_experts=5, top_k_experts=2,
                                                moe_intermediate_size=6, hidden_size_per_layer_input=0)),
    ("gemma4_text experts, K = V, silu", "gemma4_text", dict(
        enable_moe_block=True, num_experts=4, top_k_experts=3, moe_intermediate_size=10, attention_k_eq_v=True,
        hidden_activation="silu", hidden_size_per_layer_input=0, rms_norm_eps=0.1)),
    ("gemma4_text K = V, cap, absent layer types", "gemma4_text", dict(
        attention_k_eq_v=True, num_global_key_value_heads=1, num_hidden_layers=7, layer_types=ABSENT,
        final_logit_softcapping=1.5)),
    ("gemma4_text K = V, biases, untied, pad, one head", "gemma4_text", dict(
        attention_k_eq_v=True, attention_bias=True, tie_word_embeddings=False, pad_token_id=2, global_head_dim=6,
        num_key_value_heads=1)),
    ("gemma4_text global heads without K = V", "gemma4_text", dict(num_global_key_value_heads=1, sliding_window=1)),
    ("gemma4_text by layer, last one sliding", "gemma4_text", dict(
        layer_types=["sliding_attention"] * 3, attention_k_eq_v=True, num_global_key_value_heads=4, per_layer_config={
            "0": dict(num_key_value_heads=4), "1": dict(num_key_value_heads=4), "02": dict(head_dim=12, num_key_value_heads=1)})),
    ("gemma4_text nothing by layer", "gemma4_text", dict(per_layer_config={}, num_global_key_value_heads=1)),
    ("gemma4_text rotary settings", "gemma4_text", dict(rope_parameters=dict(
        full_attention=dict(rope_type="proportional", factor=3.0, partial_rotary_factor=0.7, rope_theta=90.0),
        sliding_attention=dict(rope_type="default", rope_theta=11.0)))),
    ("gemma4_text other kinds of rotation", "gemma4_text", dict(rope_parameters=dict(
        full_attention=dict(rope_type="linear", factor=2.0, rope_theta=30.0),
        sliding_attention=dict(rope_type="proportional", partial_rotary_factor=0.4, rope_theta=11.0)))),
    ("gemma4_text inputs of layers", "gemma4_text", dict(
        hidden_size_per_layer_input=3, vocab_size_per_layer_input=37, pad_token_id=3, hidden_activation="silu")),
    ("gemma4_text shared, wide, inputs", "gemma4_text", dict(
        num_hidden_layers=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"] * 2,
        num_kv_shared_layers=3, use_double_wide_mlp=True, hidden_size_per_layer_input=5, vocab_size_per_layer_input=37,
        tie_word_embeddings=False)),
    ("gemma4_text shared by one, K = V", "gemma4_text", dict(
        num_kv_shared_layers=1, hidden_size_per_layer_input=2, attention_k_eq_v=True, num_global_key_value_heads=1, attention_bias=True,
        use_double_wide_mlp=False)),
    ("gemma4_text shared by all but two", "gemma4_text", dict(
        num_hidden_layers=5, layer_types=["full_attention"] + ["sliding_attention"] * 3 + ["full_attention"],
        num_kv_shared_layers=3, hidden_size_per_layer_input=1, num_key_value_heads=4, sliding_window=3)),
    ("gemma4_unified_text plain", "gemma4_unified_text", {}),
    ("gemma4_unified_text shared and wide", "gemma4_unified_text", dict(
        num_kv_shared_layers=1, use_double_wide_mlp=True)),
    ("gemma4_unified_text K = V", "gemma4_unified_text", dict(
        attention_k_eq_v=True, num_global_key_value_heads=2, final_logit_softcapping=0.7)),
    ("granite plain", "granite", {}),
    ("granite biases, tied, pad", "granite", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                                 pad_token_id=3)),
    ("granite absent multipliers", "granite", dict(
        attention_multiplier=ABSENT, embedding_multiplier=ABSENT, residual_multiplier=ABSENT, logits_scaling=ABSENT,
        num_key_value_heads=None)),
    ("cohere plain", "cohere", {}),
    ("cohere biases, untied, pad", "cohere", dict(attention_bias=True, tie_word_embeddings=False, pad_token_id=3,
                                                  rope_theta=70.0)),
    ("cohere absent scale, all kv heads", "cohere", dict(logit_scale=ABSENT, num_key_value_heads=None,
                                                         layer_norm_eps=0.1)),
    ("cohere linear rope", "cohere", dict(rope_scaling=dict(type="linear", factor=2.5))),
    ("cohere2 plain", "cohere2", {}),
    ("cohere2 pattern", "cohere2", dict(sliding_window_pattern=2, rope_theta=70.0, attention_bias=True)),
    ("cohere2 layer types", "cohere2", dict(layer_types=["full_attention", "sliding_attention", "sliding_attention",
                                                         "full_attention"])),
    ("glm plain", "glm", {}),
    ("glm whole heads, no biases", "glm", dict(partial_rotary_factor=1.0, attention_bias=False, num_key_value_heads=4,
                                               tie_word_embeddings=True, pad_token_id=3)),
    ("glm a quarter, theta", "glm", dict(partial_rotary_factor=0.25, rope_theta=70.0)),
    ("glm4 plain", "glm4", {}),
    ("glm4 no biases", "glm4", dict(attention_bias=False, partial_rotary_factor=1.0, rope_theta=70.0, pad_token_id=3)),
    ("nemotron plain", "nemotron", {}),
    ("nemotron biases, tied, pad", "nemotron", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                                    pad_token_id=3, norm_eps=0.1)),
    ("nemotron head_dim, whole heads, gelu", "nemotron", dict(head_dim=12, partial_rotary_factor=1.0, rope_theta=70.0,
                                                              hidden_act="gelu")),
    ("ernie4_5 plain", "ernie4_5", {}),
    ("ernie4_5 biases, untied", "ernie4_5", dict(use_bias=True, tie_word_embeddings=False, rope_theta=70.0)),
    ("ernie4_5 pad, all kv heads", "ernie4_5", dict(pad_token_id=3, num_key_value_heads=None)),
    ("helium plain", "helium", {}),
    ("helium biases, pad", "helium", dict(attention_bias=True, mlp_bias=True, pad_token_id=3, rope_theta=70.0)),
    ("olmo3 plain", "olmo3", {}),
    ("olmo3 yarn, old key", "olmo3", dict(rope_theta=500000, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=16, attention_factor=1.2, beta_fast=4))),
    ("olmo3 theta, yarn without original", "olmo3", dict(
        rope_theta=30.0, original_max_position_embeddings=16, rope_scaling=dict(rope_type="yarn", factor=4.0,
                                                                                 beta_fast=4))),
    ("olmo3 two sets", "olmo3", dict(original_max_position_embeddings=20, rope_parameters=dict(
        full_attention=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, rope_theta=50.0),
        sliding_attention=dict(rope_type="linear", factor=2.0, rope_theta=11.0)))),
    ("olmo3 one set of two, biases", "olmo3", dict(attention_bias=True, rope_theta=40.0, rope_parameters=dict(
        full_attention=None, sliding_attention=dict(rope_type="default", rope_theta=20.0)))),
    ("olmo3 layer types, tied, pad", "olmo3", dict(
        layer_types=["full_attention", "sliding_attention", "full_attention", "full_attention"], sliding_window=3,
        tie_word_embeddings=True, pad_token_id=3, num_key_value_heads=None, head_dim=6)),
    ("olmo3 flat settings are not read", "olmo3", dict(rope_parameters=dict(rope_type="default", rope_theta=70.0))),
    ("ministral plain", "ministral", {}),
    ("ministral layer types", "ministral", dict(layer_types=["sliding_attention", "full_attention"], rope_theta=50.0)),
    ("ministral full everywhere, tied, pad", "ministral", dict(
        layer_types=["full_attention", "full_attention"], tie_word_embeddings=True, pad_token_id=3, head_dim=10)),
    ("ministral null layer types, ignored biases", "ministral", dict(
        layer_types=None, attention_bias=True, mlp_bias=True, num_key_value_heads=4, rope_scaling=dict(
            rope_type="yarn", factor=4.0, beta_fast=4, original_max_position_embeddings=16))),
    ("cwm plain", "cwm", {}),
    ("cwm ignored theta, original at top", "cwm", dict(rope_theta=50.0, original_max_position_embeddings=48)),
    ("cwm empty settings", "cwm", dict(rope_theta=50.0, rope_parameters={})),
    ("cwm settings without theta", "cwm", dict(rope_parameters=dict(rope_type="linear", factor=2.0))),
    ("cwm old key", "cwm", dict(rope_theta=50.0, rope_scaling=dict(LLAMA3, original_max_position_embeddings=48))),
    ("cwm layer types, biases", "cwm", dict(mlp_bias=True, attention_bias=True, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"])),
    ("cwm tied, pad, null eos", "cwm", dict(tie_word_embeddings=True, pad_token_id=3, eos_token_id=None)),
    ("cwm eos", "cwm", dict(eos_token_id=[2, 5], num_hidden_layers=1)),
    ("hyperclovax plain", "hyperclovax", {}),
    ("hyperclovax no post norms", "hyperclovax", dict(use_post_norm=False, rope_theta=70.0)),
    ("hyperclovax absent multipliers, head_dim", "hyperclovax", dict(
        attention_multiplier=ABSENT, embedding_multiplier=ABSENT, residual_multiplier=ABSENT, logits_scaling=ABSENT,
        num_key_value_heads=None, head_dim=6)),
    ("hyperclovax null multiplier, biases, tied, pad", "hyperclovax", dict(
        attention_multiplier=None, head_dim=None, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        pad_token_id=3)),
    ("jais2 plain", "jais2", {}),
    ("jais2 no biases, tied, pad", "jais2", dict(attention_bias=False, mlp_bias=False, tie_word_embeddings=True,
                                                 pad_token_id=3, layer_norm_eps=0.1)),
    ("jais2 head_dim, null kv heads, gelu", "jais2", dict(head_dim=12, num_key_value_heads=None, hidden_act="gelu",
                                                          rope_theta=70.0, mlp_bias=False)),
    ("vaultgemma plain", "vaultgemma", {}),
    ("vaultgemma no caps, biases", "vaultgemma", dict(
        attn_logit_softcapping=None, final_logit_softcapping=None, attention_bias=True, num_key_value_heads=4)),
    ("vaultgemma usual caps, untied, pad", "vaultgemma", dict(
        attn_logit_softcapping=ABSENT, final_logit_softcapping=ABSENT, query_pre_attn_scalar=ABSENT,
        tie_word_embeddings=False, pad_token_id=3)),
    ("vaultgemma layer types, theta", "vaultgemma", dict(
        hidden_act="relu", hidden_activation="silu", sliding_window=3, rope_theta=70.0,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
    ("hunyuan_v1_dense plain", "hunyuan_v1_dense", {}),
    ("hunyuan_v1_dense alpha", "hunyuan_v1_dense", dict(rope_theta=50.0, rope_scaling=dict(
        type="dynamic", factor=1.0, alpha=1000.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0))),
    ("hunyuan_v1_dense alpha, new keys", "hunyuan_v1_dense", dict(rope_parameters=dict(
        rope_type="dynamic", factor=1.0, alpha=3, rope_theta=20.0), head_dim=6)),
    ("hunyuan_v1_dense linear, alpha not read", "hunyuan_v1_dense", dict(rope_theta=50.0, rope_scaling=dict(
        type="linear", factor=2.0, alpha=3.0))),
    ("hunyuan_v1_dense biases, tied, pad", "hunyuan_v1_dense", dict(
        attention_bias=True, mlp_bias=True, tie_word_embeddings=True, pad_token_id=3, num_key_value_heads=None)),
    ("ministral3 plain", "ministral3", {}),
    ("ministral3 growing queries, window", "ministral3", dict(sliding_window=9, rope_parameters=dict(
        rope_type="yarn", factor=4.0, rope_theta=50.0, original_max_position_embeddings=5, beta_fast=4,
        llama_4_scaling_beta=0.3, mscale=1.0, mscale_all_dim=1.0))),
    ("ministral3 default by name, old key", "ministral3", dict(rope_theta=50.0, rope_scaling=dict(
        type="default", original_max_position_embeddings=7, llama_4_scaling_beta=0.5))),
    ("ministral3 original at top", "ministral3", dict(original_max_position_embeddings=4, rope_theta=50.0)),
    ("ministral3 llama3, tied, pad", "ministral3", dict(tie_word_embeddings=True, pad_token_id=3, rope_scaling=dict(
        LLAMA3, original_max_position_embeddings=8, llama_4_scaling_beta=0.2))),
    ("ministral3 longrope", "ministral3", dict(rope_parameters=dict(
        LONG, rope_type="longrope", factor=4.0, original_max_position_embeddings=10, llama_4_scaling_beta=0.4))),
    ("ministral3 layer types are not read, no growth", "ministral3", dict(
        sliding_window=5, layer_types=["full_attention"] * 2, attention_bias=True, rope_parameters=dict(
            rope_type="default", rope_theta=50.0, original_max_position_embeddings=4, llama_4_scaling_beta=0.0))),
    ("olmo3 one kv head, window 1", "olmo3", dict(num_key_value_heads=1, sliding_window=1, hidden_act="gelu")),
    ("ministral one kv head, window 1", "ministral", dict(num_key_value_heads=1, sliding_window=1, hidden_act="gelu")),
    ("cwm one kv head, gelu", "cwm", dict(num_key_value_heads=1, head_dim=10, hidden_act="gelu", rms_norm_eps=0.1)),
    ("hyperclovax yarn", "hyperclovax", dict(head_dim=8, rope_theta=50.0, rope_scaling=dict(
        rope_type="yarn", factor=4.0, beta_fast=4, original_max_position_embeddings=16))),
    ("hunyuan_v1_dense yarn, eps, relu", "hunyuan_v1_dense", dict(
        num_key_value_heads=1, hidden_act="relu", rms_norm_eps=0.1, rope_scaling=dict(
            rope_type="yarn", factor=4.0, beta_fast=4, original_max_position_embeddings=16), rope_theta=50.0)),
    ("ministral3 one kv head, window 1, gelu", "ministral3", dict(
        num_key_value_heads=1, sliding_window=1, head_dim=10, hidden_act="gelu", rms_norm_eps=0.1)),

    ("gptj plain", "gptj", {}),
    ("gptj whole heads, tied, null n_inner", "gptj", dict(rotary_dim=8, tie_word_embeddings=True, n_inner=None)),
    ("gptj n_inner, relu, eps", "gptj", dict(n_inner=12, activation_function="relu", layer_norm_epsilon=0.01)),
    ("gptj keys without effect", "gptj", dict(rotary=True, scale_attn_weights=True, rope_theta=50.0, pad_token_id=3)),
    ("gptj general names", "gptj", dict(n_embd=ABSENT, hidden_size=12, n_layer=ABSENT, num_hidden_layers=1,
                                        n_head=ABSENT, num_attention_heads=3)),
    ("gpt_neo plain", "gpt_neo", {}),
    ("gpt_neo older list, null inner size", "gpt_neo", dict(attention_layers=["local", "global"],
                                                            intermediate_size=None)),
    ("gpt_neo patterns, untied", "gpt_neo", dict(num_layers=4, tie_word_embeddings=False, intermediate_size=12,
                                                 attention_types=[[["local", "global"], 1], [["local"], 2]])),
    ("gpt_neo general names, relu, eps", "gpt_neo", dict(
        num_layers=ABSENT, num_hidden_layers=2, num_heads=ABSENT, num_attention_heads=2, window_size=1,
        activation_function="relu", layer_norm_epsilon=0.01, pad_token_id=3)),
    ("gpt_bigcode plain", "gpt_bigcode", {}),
    ("gpt_bigcode heads of k and v", "gpt_bigcode", dict(multi_query=False, n_inner=12, activation_function="gelu")),
    ("gpt_bigcode unscaled, untied", "gpt_bigcode", dict(scale_attn_weights=False, tie_word_embeddings=False,
                                                         layer_norm_epsilon=0.01, pad_token_id=3)),
    ("gpt_bigcode keys without effect", "gpt_bigcode", dict(
        n_inner=8, attention_softmax_in_fp32=False, scale_attention_softmax_in_fp32=False, num_key_value_heads=2)),
    ("opt plain", "opt", {}),
    ("opt no biases, no pad, gelu", "opt", dict(enable_bias=False, pad_token_id=None, activation_function="gelu",
                                                word_embed_proj_dim=16, init_std=0.05)),
    ("opt untied, pad, inert keys", "opt", dict(tie_word_embeddings=False, pad_token_id=3, layer_norm_eps=0.1,
                                                dropout=0.0)),
    ("opt norms without weights", "opt", dict(layer_norm_elementwise_affine=False)),
    ("olmo plain", "olmo", {}),
    ("olmo biases, tied, pad", "olmo", dict(attention_bias=True, tie_word_embeddings=True, pad_token_id=3,
                                            clip_qkv=None, rms_norm_eps=0.1, rope_theta=50.0)),
    ("olmo clip", "olmo", dict(clip_qkv=1.5, num_key_value_heads=2)),
    ("olmo null kv heads", "olmo", dict(num_key_value_heads=None)),
    ("granitemoehybrid plain", "granitemoehybrid", {}),
    ("granitemoehybrid dense, rope, biases, groups, step limit", "granitemoehybrid", dict(
        num_local_experts=0, position_embedding_type="rope", mamba_proj_bias=True, attention_bias=True, mamba_n_groups=2,
        mamba_d_conv=3, time_step_limit=[0.4, 0.9], layer_types=["full_attention", "linear_attention", "linear_attention"])),
    ("granitemoehybrid heads by auto, no conv bias, untied", "granitemoehybrid", dict(
        layer_types=["linear_attention", "full_attention"], mamba_d_head="auto", mamba_n_heads=2, mamba_conv_bias=False, tie_word_embeddings=False, mamba_expand=1,
        num_experts_per_tok=3, num_hidden_layers=2)),
    ("nemotron_h plain", "nemotron_h", {}),
    ("nemotron_h list, biases, groups of experts, a high step", "nemotron_h", dict(
        hybrid_override_pattern=ABSENT, layers_block_type=["moe", "mamba", "attention", "mamba", "mlp"], num_hidden_layers=ABSENT,
        use_bias=True, attention_bias=True, n_group=2, topk_group=1, time_step_min=0.5, norm_topk_prob=False,
        routed_scaling_factor=2.5)),
    ("nemotron_h experts narrower than the stream", "nemotron_h", dict(moe_latent_size=6)),
    ("nemotron_h narrow experts with biases, no scan", "nemotron_h", dict(
        hybrid_override_pattern="E*E", num_hidden_layers=3, moe_latent_size=4, mlp_bias=True)),
    ("nemotron_h biases of the shared expert", "nemotron_h", dict(hybrid_override_pattern="ME-", num_hidden_layers=3, mlp_bias=True)),
    ("nemotron_h without experts, no conv bias, one group, biases of MLPs", "nemotron_h", dict(
        hybrid_override_pattern="M-M*", use_conv_bias=False, n_groups=1, conv_kernel=2, mlp_bias=True, mlp_hidden_act="silu",
        layer_norm_epsilon=0.01)),
    ("falcon_h1 plain", "falcon_h1", {}),
    ("falcon_h1 norm before the gate, groups, all biases, step limit", "falcon_h1", dict(
        mamba_rms_norm=True, mamba_n_groups=2, attention_bias=True, mlp_bias=True, mamba_proj_bias=True, projectors_bias=True,
        time_step_limit=[0.4, 0.9], mamba_d_conv=3, rope_theta=100.0)),
    ("falcon_h1 norm behind the gate, no conv bias, tied, wide heads", "falcon_h1", dict(
        mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_n_groups=2, mamba_conv_bias=False, tie_word_embeddings=True,
        head_dim=6, mamba_d_ssm=None, mamba_d_head=8, num_key_value_heads=None, pad_token_id=3)),
    ("falcon_h1 without multipliers", "falcon_h1", dict(
        mlp_multipliers=None, ssm_multipliers=ABSENT, attention_in_multiplier=ABSENT, ssm_in_multiplier=ABSENT,
        ssm_out_multiplier=1.0, key_multiplier=ABSENT, attention_out_multiplier=ABSENT, embedding_multiplier=ABSENT,
        lm_head_multiplier=ABSENT, projectors_bias=True)),
    ("falcon_h1 equal multipliers of inputs", "falcon_h1", dict(attention_in_multiplier=0.75, ssm_in_multiplier=0.75)),
    ("lfm2 plain", "lfm2", {}),
    ("lfm2 bias, 8 taps, untied by the older key, no pad", "lfm2", dict(
        conv_bias=True, conv_L_cache=8, tie_embedding=False, pad_token_id=None)),
    ("lfm2 bias, 2 taps, indices, older width, one kv head", "lfm2", dict(
        layer_types=ABSENT, full_attn_idxs=[0, 2], conv_bias=True, conv_L_cache=2, block_ff_dim=28,
        block_auto_adjust_ff_dim=False, num_key_value_heads=1, tie_word_embeddings=False, rope_theta=50.0)),
    ("lfm2 odd heads, multiplier, no convolution", "lfm2", dict(
        layer_types=ABSENT, num_hidden_layers=2, hidden_size=18, num_attention_heads=3, num_key_value_heads=1,
        block_ffn_dim_multiplier=1.7, block_multiple_of=7, rope_parameters=dict(rope_type="default", rope_theta=9.0))),
    ("lfm2 odd width, 5 taps, a size of heads", "lfm2", dict(
        layer_types=["full_attention", "conv"], num_hidden_layers=2, hidden_size=15, num_attention_heads=3, num_key_value_heads=3,
        head_dim=4, conv_L_cache=5, block_auto_adjust_ff_dim=False)),
    ("lfm2 1 tap, keys without effect", "lfm2", dict(
        conv_L_cache=1, conv_dim=99, block_dim=99, block_norm_eps=0.5, full_attn_idxs=[0], hidden_act="relu")),
    ("nanochat plain", "nanochat", {}),
    ("nanochat biases, tied, pad, no cap", "nanochat", dict(
        attention_bias=True, tie_word_embeddings=True, pad_token_id=3, final_logit_softcapping=None)),
    ("nanochat wide heads, cap, linear", "nanochat", dict(
        head_dim=24, final_logit_softcapping=1.5, num_key_value_heads=None, rms_norm_eps=0.1, hidden_act="gelu",
        rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=50.0))),
    ("falcon plain", "falcon", {}),
    ("falcon 7b's file", "falcon", dict(num_kv_heads=4, new_decoder_architecture=False, parallel_attn=True, alibi=False,
                                        ffn_hidden_size=20, activation="relu", rope_theta=50.0, pad_token_id=3)),
    ("falcon mlp after attention", "falcon", dict(parallel_attn=False, num_ln_in_parallel_attn=2, hidden_size=24,
                                                  rope_scaling=dict(type="linear", factor=2.0))),
    ("falcon heads of k and v, biases", "falcon", dict(multi_query=False, parallel_attn=False, bias=True,
                                                       tie_word_embeddings=False)),
    ("falcon new, two norms", "falcon", dict(new_decoder_architecture=True, num_kv_heads=2, multi_query=True)),
    ("falcon new, one norm, biases", "falcon", dict(
        new_decoder_architecture=True, num_kv_heads=2, num_attention_heads=6, hidden_size=24, bias=True,
        num_ln_in_parallel_attn=1, layer_norm_epsilon=0.01, tie_word_embeddings=False)),
    ("falcon new, two norms, biases", "falcon", dict(
        new_decoder_architecture=True, num_kv_heads=3, num_attention_heads=6, hidden_size=24, bias=True,
        num_ln_in_parallel_attn=2, ffn_hidden_size=20)),
    ("falcon new, as many kv heads", "falcon", dict(new_decoder_architecture=True, bias=True)),
    ("falcon new, one kv head", "falcon", dict(new_decoder_architecture=True, num_kv_heads=1, bias=True)),
]
