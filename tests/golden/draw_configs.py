#!/usr/bin/env python3
"""Draws odd config.json files of the families of 2025 and 2026, and what transformers computes for them.

    python draw_configs.py SEED COUNT OUT.json [TYPE ...]     COUNT of each model_type (needs transformers 5)
    FERRY_CONFIG_GOLDEN=OUT.json build/tests/test_model_families

A draw changes keys that transformers reads: absent, null, older spellings, other forms, other sizes. Draws that
transformers does not take are counted and left out. config_draws.json is `draw_configs.py 1 4 config_draws.json`; the tests run it.
"""
import json
import random
import sys
import warnings
from collections import Counter
from pathlib import Path

import transformers

import make_config_golden as golden
from config_base import ABSENT, BASE, EXPERTS, ROWS
from config_wholes import GEMMA4_IDS, MUSE, MUSE_TOWER, QWEN_IDS, QWEN_TOWER

ACTS = ["silu", "gelu", "relu", "gelu_pytorch_tanh"]
BOTH = [ABSENT, True, False]
PARTS = [ABSENT, 0.25, 0.5, 1.0]


def ropes(r, dim, partial=None):
    """Forms of rotary settings of today and of older files."""
    part = r.choice(partial) if partial is not None else ABSENT
    turned = int(dim * (0.25 if part is ABSENT else part)) if partial is not None else dim  # Qwen's and GLM's default differ

    def scaled():
        kinds = ["linear", "llama3", "dynamic", "default"]
        whole = turned % 2 == 0 and turned > 0 and (partial is None or part is not ABSENT)  # they need whole pairs of a part
        kind = r.choice(kinds + ["yarn", "longrope"] if whole else kinds)
        out = {"linear": dict(factor=2.0), "dynamic": dict(factor=2.0), "default": {},
               "yarn": dict(factor=4.0, original_max_position_embeddings=16, **r.choice([{}, dict(beta_fast=8.0), dict(
                   attention_factor=0.9), dict(mscale=0.7, mscale_all_dim=0.5), dict(truncate=False)])),
               "llama3": dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
               "longrope": dict(short_factor=[1.0 + i / 4 for i in range(turned // 2)],
                                long_factor=[2.0 + i for i in range(turned // 2)],
                                original_max_position_embeddings=r.choice([16, 64]))}[kind]
        return dict(out, **{r.choice(["rope_type", "type"]): kind})

    keys = {}
    form = r.randrange(6)
    if form in (1, 3):
        keys["rope_theta"] = r.choice([100.0, 10000, 500000.0])
    if form in (2, 3):
        keys["rope_scaling"] = r.choice([None, scaled()])
    if form >= 4:
        keys["rope_parameters"] = dict(dict(rope_type="default") if form == 4 else scaled(), rope_theta=r.choice([100.0, 1e4]))
        keys["rope_parameters"].pop("type", None)
        keys["rope_parameters"].setdefault("rope_type", "default")
    if part is not ABSENT:
        place = keys.get("rope_parameters") if r.random() < 0.6 else None
        (keys if place is None else place)["partial_rotary_factor"] = part
    return keys


def some(r, share=0.35, **choices):
    return {k: r.choice(v) for k, v in choices.items() if r.random() < share}


def usual(r, **more):
    return some(r, tie_word_embeddings=BOTH, rms_norm_eps=[0.1, 1.0], max_position_embeddings=[32, 64, 4096],
                pad_token_id=[None, 3, -1], bos_token_id=[ABSENT, None, 1], eos_token_id=[None, 2, [2, 5], 99],
                initializer_range=[0.1], use_cache=[False], dtype=["float32"], **more)  # in bf16 buffers would be rounded


def types(r, names, least=1, most=5):
    return [r.choice(names) for _ in range(r.randint(least, most))]


def with_types(keys, layers):
    return dict(keys, layer_types=layers, num_hidden_layers=len(layers))


def qwen3_5(r):
    dim = r.choice([4, 8, 12])
    keys = usual(r, attention_bias=BOTH, num_key_value_heads=[1, 2, 4], hidden_act=["silu"], linear_num_key_heads=[1, 2, 4],
                 linear_key_head_dim=[2, 8], linear_value_head_dim=[3, 16], linear_conv_kernel_dim=[2, 3, 5, 8],
                 mamba_ssm_dtype=["float32"], attn_output_gate=[True], output_gate_type=["swish"], mtp_num_hidden_layers=[1])
    keys.update(head_dim=dim, **ropes(r, dim, PARTS))
    form = r.randrange(4)
    if form == 0:
        return with_types(keys, types(r, ["linear_attention", "full_attention"]))
    if form == 1:
        keys["full_attention_interval"] = r.choice([1, 2, 3, 7])
    return dict(keys, num_hidden_layers=r.choice([1, 3, 4]))


def qwen_moe(r):
    return some(r, num_experts_per_tok=[1, 3, 5], moe_intermediate_size=[4, 9], shared_expert_intermediate_size=[3, 8],
                router_aux_loss_coef=[0.1], output_router_logits=[False])


def qwen3_5_moe(r):
    return {**qwen3_5(r), **qwen_moe(r), **some(r, norm_topk_prob=BOTH)}


def qwen3_next(r):
    return {**qwen3_5(r), **qwen_moe(r), **some(r, norm_topk_prob=BOTH, decoder_sparse_step=[1, 2, 3], intermediate_size=[12],
                                                mlp_only_layers=[None, [], [0], [0, 2]])}


def whole(r, kind, keys, **others):
    """A model with towers. transformers reads the whole's word on the head, not the text's."""
    text = {k: v for k, v in {**BASE.get(kind, MUSE), **keys}.items() if v is not ABSENT}
    tied = {k: v for k, v in some(r, tie_word_embeddings=BOTH).items() if v is not ABSENT}
    return dict(text_config=dict(text, model_type=kind, tie_word_embeddings=False), **others, **tied)


def whole_qwen(r):
    return whole(r, "qwen3_5_text", qwen3_5(r), vision_config=dict(QWEN_TOWER, num_position_embeddings=4), **QWEN_IDS)


def gemma4_ropes(r):
    def one(kinds):
        kind = r.choice(kinds)
        return dict(rope_type=kind, rope_theta=r.choice([100.0, 10000.0]), **(
                dict(partial_rotary_factor=r.choice([0.25, 0.5, 0.9, 1.0])) if kind == "proportional" and r.random() < 0.6 else {}),
            **(dict(factor=2.0) if kind == "linear" or r.random() < 0.1 else {}))

    return r.choice([{}, dict(rope_parameters=None), dict(rope_parameters=dict(
        sliding_attention=one(["default", "default", "linear"]), full_attention=one(["proportional", "default", "linear"])))])


def gemma4(r, unified=False):
    keys = usual(r, attention_bias=BOTH, num_key_value_heads=[1, 2, 4], head_dim=[4, 6, 12], global_head_dim=[4, 6, 16],
                 num_global_key_value_heads=[None, 1, 2, 4], attention_k_eq_v=BOTH, sliding_window=[1, 3, 40],
                 final_logit_softcapping=[None, 2.0], hidden_activation=["gelu_pytorch_tanh", "silu", "gelu"],
                 use_double_wide_mlp=BOTH, use_bidirectional_attention=[None] + ["vision"])
    keys["rms_norm_eps"] = r.choice([0.1, 1.0])  # a smaller one costs digits here
    if keys.get("pad_token_id") == -1:
        del keys["pad_token_id"]
    keys.update(gemma4_ropes(r))
    if r.random() < 0.3:
        keys.update(layer_types=ABSENT, num_hidden_layers=r.choice([1, 2, 6, 7]))
    else:
        keys = with_types(keys, types(r, ["sliding_attention", "full_attention"], 2, 6))
    layers = keys["num_hidden_layers"]
    if r.random() < 0.4:
        keys["num_kv_shared_layers"] = r.randint(0, max(layers - 2, 0))
    if r.random() < 0.2:
        full = [i for i, t in enumerate(keys["layer_types"]) if t == "full_attention"] if keys["layer_types"] is not ABSENT else []
        keys["per_layer_config"] = {str(i): some(r, 0.7, head_dim=[4, 8], num_key_value_heads=[1, 2]) for i in {*full, layers - 1}}
    if not unified:
        keys.update(some(r, hidden_size_per_layer_input=[0, 3, 8], vocab_size_per_layer_input=[37, 50]))
        if r.random() < 0.25:
            keys.update(enable_moe_block=True, num_experts=4, top_k_experts=r.choice([1, 2, 4]), moe_intermediate_size=5)
    return keys


def gemma4_unified(r):
    return gemma4(r, unified=True)


def whole_gemma4(r):
    tower = dict(model_type="gemma4_vision", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                 num_key_value_heads=2, head_dim=8, patch_size=4, position_embedding_size=12, pooling_kernel_size=2)
    keys = {"pad_token_id": 0, **gemma4(r), "use_bidirectional_attention": None}
    keys["pad_token_id"] = keys["pad_token_id"] or 0
    return whole(r, "gemma4_text", keys, vision_config=tower, audio_config=None, **GEMMA4_IDS)


def muse(r):
    keys = usual(r, attention_bias=BOTH, num_key_value_heads=[1, 2, 4], head_dim=[4, 6, 12], sliding_window=[1, 3, 40],
                 final_logit_softcapping=[2.0], hidden_activation=ACTS, qk_scale_factor=[0.5, 2.0], output_multiplier=[0.3, 2.0],
                 post_norm_eps=[0.1], layer_types=[ABSENT])
    dim = keys.get("head_dim", 8)
    keys.update(ropes(r, dim))
    if r.random() < 0.5:
        keys = with_types(keys, types(r, ["sliding_attention", "full_attention"]))
    else:
        keys.update(num_hidden_layers=r.randint(1, 6))
    if r.random() < 0.3:
        keys["layer_rope_theta"] = [r.choice([0, 1, 500000.0]) for _ in range(keys["num_hidden_layers"])]
    return whole(r, "muse_glimmer_text", keys, vision_config=MUSE_TOWER)


def lfm2(r):
    keys = usual(r, num_key_value_heads=[1, 2, 4], conv_bias=BOTH, conv_L_cache=[2, 3, 5], norm_eps=[0.1, 1.0],
                 block_multiple_of=[1, 4, 16], block_ffn_dim_multiplier=[1, 1.3, 0.5], block_auto_adjust_ff_dim=BOTH,
                 tie_embedding=BOTH, block_ff_dim=[24], head_dim=[4, 8], conv_dim=[16], block_dim=[16])
    keys.pop("rms_norm_eps", None)  # another key here
    keys.update(ropes(r, keys.get("head_dim", 4)))
    form = r.randrange(3)
    if form == 0:
        return with_types(keys, types(r, ["conv", "full_attention"]))
    keys.update(layer_types=ABSENT, num_hidden_layers=3)
    return dict(keys, full_attn_idxs=r.choice([[1], [0, 2], None, []])) if form == 1 else keys


def mamba_keys(r, prefix):
    return some(r, **{prefix + "n_groups": [1, 2, 4], prefix + "d_conv": [2, 3, 4], prefix + "d_state": [4, 7],
                      prefix + "conv_bias": BOTH, prefix + "proj_bias": BOTH, prefix + "chunk_size": [4, 256]},
                time_step_limit=[None, [0.0, 1e30], [0.3, 0.8], [0.0, {"__float__": "Infinity"}]])


def granite(r):
    keys = usual(r, attention_bias=BOTH, num_key_value_heads=[None, 1, 2, 4], position_embedding_type=[None, "rope", "nope"],
                 num_local_experts=[0, 2, 4], num_experts_per_tok=[1, 2], shared_intermediate_size=[4, 20],
                 attention_multiplier=[ABSENT, 0.2], embedding_multiplier=[ABSENT, 0.3], logits_scaling=[ABSENT, 3.0],
                 residual_multiplier=[ABSENT, 2.0], hidden_act=["silu"])
    keys.update(mamba_keys(r, "mamba_"), **ropes(r, 4))
    if r.random() < 0.6:
        keys = with_types(keys, types(r, r.choice([["mamba", "attention"], ["linear_attention", "full_attention"]]), 1, 4))
        if r.random() < 0.3:
            keys["layers_block_type"] = keys.pop("layer_types")
            keys["layer_types"] = ABSENT
    elif r.random() < 0.5:
        keys.update(layer_types=ABSENT, num_hidden_layers=2)
    if r.random() < 0.3:
        keys.update(mamba_n_heads=r.choice([2, 4, 8]), mamba_d_head=r.choice(["auto", ABSENT]))
    return keys


def falcon(r):
    keys = usual(r, attention_bias=BOTH, mlp_bias=BOTH, projectors_bias=BOTH, num_key_value_heads=[None, 1, 2, 4],
                 mamba_rms_norm=BOTH, mamba_norm_before_gate=BOTH, attention_in_multiplier=[0.7], ssm_in_multiplier=[ABSENT, 0.7],
                 lm_head_multiplier=[ABSENT, 2.0], mlp_multipliers=[None, [1.0, 2.0]], ssm_multipliers=[None, [1.0, 1.0, 2.0, 1.0, 0.5]],
                 key_multiplier=[ABSENT, 2.0], num_hidden_layers=[1, 3], head_dim=[4, 6])
    keys.update(mamba_keys(r, "mamba_"), **ropes(r, keys.get("head_dim", 4)))
    if r.random() < 0.3:
        keys.update(mamba_d_ssm=r.choice([None, 16, 32]), mamba_n_heads=r.choice([2, 4]), mamba_d_head=r.choice(["auto", ABSENT]))
    return keys


def nemotron(r):
    keys = usual(r, attention_bias=BOTH, mlp_bias=BOTH, use_bias=BOTH, use_conv_bias=BOTH, num_key_value_heads=[None, 1, 2, 4],
                 head_dim=[4, 8], n_groups=[1, 2, 4], conv_kernel=[2, 3, 4], ssm_state_size=[4, 7], mamba_num_heads=[4, 8],
                 mamba_head_dim=[2, 5], time_step_min=[0.0001, 0.5], time_step_max=[0.2], time_step_limit=[[0.0, 1.0]],
                 time_step_floor=[0.1], n_group=[1, 2], norm_topk_prob=BOTH, routed_scaling_factor=[1, 2.5],
                 num_experts_per_tok=[1, 2], n_shared_experts=[1, 2], mlp_hidden_act=["relu2", "silu"], rope_theta=[100.0],
                 layer_norm_epsilon=[0.01, 0.1], residual_in_fp32=[False], chunk_size=[4, 16], expand=[1, 2],
                 sliding_window=[None, 3], mamba_proj_bias=BOTH, partial_rotary_factor=[0.5], num_nextn_predict_layers=[1],
                 rescale_prenorm_residual=[False], moe_latent_size=[None, 4, 6, 24])
    keys.pop("rms_norm_eps", None)
    keys.update(some(r, 0.15, mamba_n_groups=[1, 2], mamba_d_conv=[2, 3], mamba_conv_bias=BOTH, mamba_dt_min=[0.5],
                     mamba_dt_limit=[[0.0, 1.0]], mamba_expand=[2], mamba_chunk_size=[8]))
    form = r.randrange(4)
    if form < 3:
        pattern = "".join(r.choice("M*-E") for _ in range(r.randint(1, 5)))
        keys.update(hybrid_override_pattern=pattern, num_hidden_layers=len(pattern))
        if form:
            names = r.choice([dict(zip("M*-E", ("mamba", "attention", "mlp", "moe"))),
                              dict(zip("M*-E", ("linear_attention", "full_attention", "mlp", "moe")))])
            keys.update({r.choice(["layers_block_type", "layer_types"]): [names[k] for k in pattern]},
                        hybrid_override_pattern=r.choice([ABSENT, pattern]), num_hidden_layers=r.choice([ABSENT, len(pattern), 9]))
    else:
        keys.update(hybrid_override_pattern=ABSENT, num_hidden_layers=r.choice([ABSENT, 4]))
    return keys


def grouped(r):
    groups = r.choice([1, 1, 2, 3])
    return some(r, n_group=[groups], topk_group=[1] if groups == 1 else [1, 2], num_experts_per_tok=[1, 2, 3], routed_scaling_factor=[1.0, 2.5],
                first_k_dense_replace=[0, 1, 2, 5], n_shared_experts=[1, 2], norm_topk_prob=BOTH, moe_intermediate_size=[5])


def glm4_moe(r):
    keys = usual(r, attention_bias=BOTH, use_qk_norm=BOTH, num_key_value_heads=[1, 2, 4], hidden_act=ACTS, head_dim=[4, 8, 12],
                 num_nextn_predict_layers=[0, 1], scoring_func=["sigmoid"], topk_method=["noaux_tc"])
    return renamed(r, {**keys, **grouped(r), **ropes(r, keys.get("head_dim", 8), PARTS)}, "n_routed_experts", "num_local_experts")


def renamed(r, keys, old, new):
    """Another name of a key, which transformers reads too."""
    if r.random() < 0.2:
        keys = dict(keys, **{new: keys.get(old, 6), old: ABSENT})
    return keys


def olmoe(r):
    keys = usual(r, attention_bias=BOTH, num_key_value_heads=[None, ABSENT, 1, 2, 4], clip_qkv=[None, 0.5, 3.0], hidden_act=ACTS,
                 norm_topk_prob=BOTH, num_experts_per_tok=[1, 3, 5], head_dim=[4])
    return renamed(r, {"num_experts": 5, **keys, **ropes(r, 4)}, "num_experts", "num_local_experts")


def qwen2_moe(r):
    keys = usual(r, qkv_bias=BOTH, num_key_value_heads=[1, 2, 4, None], use_sliding_window=BOTH, sliding_window=[3, None, 40],
                 max_window_layers=[0, 1, 28], decoder_sparse_step=[1, 2], mlp_only_layers=[None, [], [0]], norm_topk_prob=BOTH,
                 hidden_act=ACTS, num_hidden_layers=[2, 3], head_dim=[4])
    return {**keys, **qwen_moe(r), **ropes(r, 4)}


def deepseek_v2(r):
    keys = usual(r, attention_bias=BOTH, q_lora_rank=[None, 6], kv_lora_rank=[4, 8], qk_nope_head_dim=[2, 6], v_head_dim=[3, 8],
                 topk_method=["greedy"], scoring_func=["softmax"], aux_loss_alpha=[0.001], seq_aux=[True], moe_layer_freq=[1],
                 num_key_value_heads=[ABSENT, None], hidden_act=ACTS, mlp_bias=[False], head_dim=[8])
    out = {**keys, **grouped(r), **ropes(r, 4)}
    if r.random() < 0.3:
        out.update(topk_method="group_limited_greedy", n_group=2, topk_group=r.choice([1, 2]))
    else:
        out.update(n_group=r.choice([None, 1]), topk_group=r.choice([None, 1]))
    return renamed(r, out, "n_routed_experts", "num_experts")


def gpt_oss(r):
    keys = usual(r, attention_bias=BOTH, num_key_value_heads=[1, 2, 4], head_dim=[4, 6, 12], sliding_window=[1, 3, 40],
                 num_local_experts=[1, 3, 8], num_experts_per_tok=[1], intermediate_size=[4, 9], swiglu_limit=[7.0],
                 router_aux_loss_coef=[0.1], hidden_act=["silu"])
    keys.update(ropes(r, keys.get("head_dim", 8)))
    if r.random() < 0.5:
        return with_types(keys, types(r, ["sliding_attention", "full_attention"]))
    return dict(keys, num_hidden_layers=r.choice([1, 2, 3]))


def sizes(r, kind, keys):
    """Sizes that nothing asks to be round: heads, widths, experts, a vocabulary."""
    base = {**BASE.get(kind, {}), **keys}
    heads = r.choice([1, 2, 3, 5, 6, 7])
    out = dict(vocab_size=r.choice([37, 38, 41, 50, 63]))
    if "vocab_size_per_layer_input" in base:  # one of fewer rows is refused by name
        out.update(vocab_size_per_layer_input=max(out["vocab_size"], base["vocab_size_per_layer_input"]))
    if r.random() < 0.6 and kind not in ("olmoe", "qwen2_moe", "lfm2") and (kind != "granitemoehybrid"):
        dim = base.get("head_dim")
        if dim is not None and dim is not ABSENT:
            out.update(num_attention_heads=heads, num_key_value_heads=r.choice([k for k in range(1, heads + 1) if heads % k == 0]))
            if "num_global_key_value_heads" in base and base["num_global_key_value_heads"]:
                out["num_global_key_value_heads"] = out["num_key_value_heads"]
    if r.random() < 0.4 and kind in ("lfm2", "olmoe", "qwen2_moe", "granitemoehybrid") and "head_dim" not in keys:
        out.update(num_attention_heads=r.choice([2, 1, 8]), num_key_value_heads=1)
    if r.random() < 0.6 and kind not in ("granitemoehybrid", "lfm2", "olmoe", "qwen2_moe", "falcon_h1"):
        out.update(hidden_size=r.choice([12, 20, 36]))
    if r.random() < 0.4 and "block_ff_dim" not in keys:
        out.update(intermediate_size=r.choice([4, 7, 19, 33]))
    if "linear_num_value_heads" in base and r.random() < 0.7:
        k = r.choice([1, 2, 3, 5])
        out.update(linear_num_key_heads=k, linear_num_value_heads=k * r.choice([1, 2, 3, 4]), linear_key_head_dim=r.choice([3, 5, 12]))
    if kind == "nemotron_h" and r.random() < 0.5:
        g = r.choice([1, 2, 3])
        out.update(n_groups=g, mamba_num_heads=g * r.choice([1, 2, 3]), mamba_head_dim=r.choice([3, 7]))
        for key in ("mamba_n_groups", "mamba_num_heads"):
            if key in keys:
                out[key] = out["n_groups"] if key == "mamba_n_groups" else out["mamba_num_heads"]
    return {**keys, **out}


DRAWS = {"qwen3_5_text": qwen3_5, "qwen3_5": whole_qwen, "qwen3_5_moe_text": qwen3_5_moe, "qwen3_next": qwen3_next,
         "gemma4_text": gemma4, "gemma4": whole_gemma4, "gemma4_unified_text": gemma4_unified, "muse_glimmer": muse, "lfm2": lfm2,
         "nemotron_h": nemotron, "granitemoehybrid": granite, "falcon_h1": falcon, "glm4_moe": glm4_moe, "olmoe": olmoe,
         "qwen2_moe": qwen2_moe, "deepseek_v2": deepseek_v2, "gpt_oss": gpt_oss}


def main():
    seed, count, out, only = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    cases, left = [], Counter()
    for kind, draw in DRAWS.items():
        for i in range(count if not only or kind in only else 0):
            r = random.Random(f"{kind} {seed} {i}")
            keys = draw(r)
            odd = random.Random(f"{kind} {seed} {i} sizes")
            if "text_config" not in keys and odd.random() < 0.6:
                keys = sizes(odd, kind, keys)
            try:
                cases.append(golden.run(f"{kind} draw {seed} {i}", kind, keys, "text_config" in keys))
            except Exception as error:
                left[f"{kind}: {type(error).__name__}: {str(error).splitlines()[-1][:110] if str(error) else ''}"] += 1
    rows = [{"input_ids": ids, "labels": labels or ids} for ids, labels in ROWS]
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    out.write_text(f'{{"transformers":"{transformers.__version__}","rows":{json.dumps(rows)},"cases":[\n{lines}\n]}}\n')
    print(len(cases), "cases; left out:")
    for text, times in left.most_common():
        print(f"{times:5} {text}")


if __name__ == "__main__":
    main()
