"""Models that also read images or sound, for tests of their text part with texts alone."""

from config_base import BASE

TEXT = dict(BASE["llama"], hidden_size=32, num_key_value_heads=2, head_dim=8, pad_token_id=None, bos_token_id=1,
            eos_token_id=2, rms_norm_eps=1e-5)
TOWER = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=14,
             patch_size=7)
CLIP = dict(TOWER, model_type="clip_vision_model", projection_dim=8)
SIGLIP = dict(TOWER, model_type="siglip_vision_model")
PIXTRAL = dict(TOWER, model_type="pixtral", head_dim=8)
MUSE = dict(TEXT, model_type="muse_glimmer_text", num_hidden_layers=5)
MUSE_TOWER = dict(model_type="muse_glimmer_vision", patch_size=2, pos_emb_height=4, pos_emb_width=4,
                  num_attention_heads=2, num_hidden_layers=1, hidden_size=16, intermediate_size=20,
                  patch_temporal=2, merge_size=2, max_position_embeddings=16)
MROPE = dict(rope_type="default", rope_theta=100.0, mrope_section=[1, 1, 2])
QWEN_TOWER = dict(depth=1, hidden_size=16, out_hidden_size=32, num_heads=2, intermediate_size=16)
QWEN_IDS = dict(image_token_id=30, video_token_id=31, vision_start_token_id=32, vision_end_token_id=33)
GEMMA4_IDS = dict(boi_token_id=26, eoi_token_id=27, image_token_id=22, video_token_id=23, boa_token_id=29,
                  eoa_token_index=32, audio_token_id=24)  # of no row
WHOLES = [
    ("gemma3 whole", "gemma3", dict(
        text_config=dict(TEXT, model_type="gemma3_text", num_hidden_layers=3, sliding_window=5,
                         sliding_window_pattern=2), vision_config=SIGLIP, image_token_index=30, boi_token_index=31,
        eoi_token_index=32, mm_tokens_per_image=4, eos_token_id=[1, 6])),
    ("gemma4 whole", "gemma4", dict(
        text_config=dict(TEXT, model_type="gemma4_text", num_hidden_layers=3, sliding_window=5, global_head_dim=12,
                         attention_k_eq_v=True, num_global_key_value_heads=1, hidden_size_per_layer_input=0,
                         tie_word_embeddings=False, pad_token_id=0),
        vision_config=dict(model_type="gemma4_vision", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                           num_attention_heads=2, num_key_value_heads=2, head_dim=8, patch_size=4,
                           position_embedding_size=12, pooling_kernel_size=2), audio_config=None, **GEMMA4_IDS,
        tie_word_embeddings=True)),
    ("gemma4 whole that says nothing of the head", "gemma4", dict(
        text_config=dict(TEXT, model_type="gemma4_text", num_hidden_layers=2, sliding_window=5, global_head_dim=12,
                         hidden_size_per_layer_input=0, tie_word_embeddings=False, pad_token_id=0),
        vision_config=dict(model_type="gemma4_vision", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                           num_attention_heads=2, num_key_value_heads=2, head_dim=8, patch_size=4,
                           position_embedding_size=12, pooling_kernel_size=2), audio_config=None, **GEMMA4_IDS)),
    ("muse_glimmer whole", "muse_glimmer", dict(text_config=dict(MUSE, sliding_window=5), vision_config=MUSE_TOWER)),
    ("muse_glimmer lists, biases, pad", "muse_glimmer", dict(
        text_config=dict(MUSE, sliding_window=3, attention_bias=True, hidden_activation="gelu_pytorch_tanh",
                         num_hidden_layers=3, layer_types=["full_attention", "sliding_attention", "sliding_attention"],
                         layer_rope_theta=[7.0, 0, 1.5], rope_parameters=dict(rope_type="default", rope_theta=50.0),
                         pad_token_id=3, post_norm_eps=0.5, rms_norm_eps=0.01),
        vision_config=MUSE_TOWER)),
    ("muse_glimmer one kv head, odd heads, eos list", "muse_glimmer", dict(
        text_config=dict(MUSE, num_attention_heads=3, hidden_size=18, num_key_value_heads=1, head_dim=10,
                         num_hidden_layers=2, layer_types=["full_attention"] * 2,
                         qk_scale_factor=0.7, output_multiplier=2.0, final_logit_softcapping=3.0,
                         eos_token_id=[2, 5]), vision_config=MUSE_TOWER)),
    ("muse_glimmer tied at the top", "muse_glimmer", dict(
        text_config=dict(MUSE, num_hidden_layers=2, sliding_window=5, layer_rope_theta=[0.0, 1]),
        vision_config=MUSE_TOWER, tie_word_embeddings=True)),
    ("qwen3_5 whole", "qwen3_5", dict(
        text_config=dict(BASE["qwen3_5_text"], model_type="qwen3_5_text", eos_token_id=2, rope_parameters=dict(
            rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5, mrope_section=[1, 1, 0],
            mrope_interleaved=True)),
        vision_config=dict(depth=1, hidden_size=16, out_hidden_size=32, num_heads=2, intermediate_size=16,
                           num_position_embeddings=4),
        tie_word_embeddings=False, **QWEN_IDS)),
    ("qwen3_5 whole, tied by the whole", "qwen3_5", dict(
        text_config=dict(BASE["qwen3_5_text"], model_type="qwen3_5_text", tie_word_embeddings=False),
        vision_config=dict(depth=1, hidden_size=16, out_hidden_size=32, num_heads=2, intermediate_size=16,
                           num_position_embeddings=4),
        tie_word_embeddings=True, **QWEN_IDS)),
    ("mistral3 whole", "mistral3", dict(text_config=dict(TEXT, sliding_window=5), vision_config=PIXTRAL,
                                        image_token_index=30, tie_word_embeddings=True)),
    ("llava whole", "llava", dict(text_config=dict(TEXT, model_type="llama"), vision_config=CLIP,
                                  image_token_index=30)),
    ("llava_next whole", "llava_next", dict(text_config=dict(TEXT, model_type="mistral", sliding_window=None),
                                            vision_config=CLIP, image_token_index=30)),
    ("llava_onevision whole", "llava_onevision", dict(text_config=dict(TEXT, model_type="qwen2"), vision_config=SIGLIP,
                                                      image_token_index=30, video_token_index=31)),
    ("vipllava whole", "vipllava", dict(text_config=dict(TEXT, model_type="llama"), vision_config=CLIP,
                                        image_token_index=30)),
    ("internvl whole", "internvl", dict(
        text_config=dict(TEXT, model_type="qwen3"), vision_config=dict(TOWER, image_size=[14, 14], patch_size=[7, 7]),
        image_token_id=30, tie_word_embeddings=False)),
    ("idefics3 whole", "idefics3", dict(text_config=dict(TEXT, model_type="llama"), vision_config=TOWER,
                                        image_token_id=30)),
    ("smolvlm whole", "smolvlm", dict(text_config=dict(TEXT, model_type="llama"), vision_config=TOWER,
                                      image_token_id=30)),
    ("qwen2_vl whole", "qwen2_vl", dict(
        QWEN_IDS, text_config=dict(TEXT, rope_parameters=MROPE),
        vision_config=dict(depth=1, embed_dim=16, hidden_size=32, num_heads=2))),
    ("qwen2_5_vl whole", "qwen2_5_vl", dict(
        QWEN_IDS, text_config=dict(TEXT, rope_parameters=MROPE),
        vision_config=dict(QWEN_TOWER, fullatt_block_indexes=[0]))),
    ("qwen2_5_vl whole, older keys", "qwen2_5_vl", dict(
        QWEN_IDS, **TEXT, tie_word_embeddings=True, rope_theta=100.0,
        rope_scaling=dict(type="mrope", mrope_section=[1, 1, 2]),
        vision_config=dict(QWEN_TOWER, fullatt_block_indexes=[0]))),
    ("qwen3_vl whole", "qwen3_vl", dict(
        QWEN_IDS, text_config=dict(TEXT, rope_parameters=dict(MROPE, mrope_interleaved=True)),
        vision_config=dict(QWEN_TOWER, deepstack_visual_indexes=[0], num_position_embeddings=4))),
    ("qwen3_vl_moe whole", "qwen3_vl_moe", dict(
        QWEN_IDS, text_config=dict(TEXT, model_type="qwen3_vl_moe_text", num_experts=5, num_experts_per_tok=2,
                                   moe_intermediate_size=6, mlp_only_layers=[1], tie_word_embeddings=False,
                                   rope_parameters=dict(MROPE, mrope_interleaved=True)),
        vision_config=dict(QWEN_TOWER, deepstack_visual_indexes=[0], num_position_embeddings=4))),
    ("qwen2_audio whole", "qwen2_audio", dict(
        text_config=dict(TEXT, model_type="qwen2"), audio_token_index=30, audio_config=dict(
            model_type="qwen2_audio_encoder", d_model=16, encoder_ffn_dim=16, encoder_layers=1,
            encoder_attention_heads=2, num_mel_bins=8, max_source_positions=8))),
]
