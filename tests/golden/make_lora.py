#!/usr/bin/env python3
"""Small models with adapters, and what peft computes for them.

    python make_lora.py                     writes lora.json beside this script (needs transformers 5 and peft)

Rows, weights and the form of a case are those of make_config_golden.py; the adapters' values follow the same
formula, so B is not zero. A case has the token losses and the gradients of all adapters in float64.
"""
import json
import re
import warnings
from pathlib import Path

import peft
import torch
import transformers

from config_base import BASE, ROWS
from config_wholes import MUSE, MUSE_TOWER
from make_config_golden import (Float64, gradient_entry, load_config, norm_of, open_model, parameters_of, table_name,
                                text_name, weight_of)

# the keys of a case with dropout: those of device/noise.h, for a number of the step and the rows of the data
STEP, FIRST_ROW, MASK = 987654321, 40, (1 << 64) - 1

OUT = Path(__file__).with_name("lora.json")
PREFIX = "base_model.model."

# name, model_type, keys over BASE, rank, alpha, rslora, target modules
CASES = [
    ("llama", "llama", dict(num_key_value_heads=2), 3, 6, False, "all-linear"),
    ("llama two modules, rslora", "llama", dict(attention_bias=True), 4, 2, True, ["q_proj", "v_proj"]),
    ("llama k and up", "llama", dict(num_key_value_heads=1), 2, 3, False, ["self_attn.k_proj", "up_proj"]),
    ("phi3", "phi3", {}, 3, 6, False, "all-linear"),
    ("phi3 fused tensors", "phi3", {}, 5, 10, False, ["qkv_proj", "gate_up_proj"]),
    ("gpt2", "gpt2", {}, 3, 3, False, "all-linear"),
    ("gpt2 two modules", "gpt2", {}, 3, 6, True, ["c_attn", "mlp.c_proj"]),
    ("gpt_neox", "gpt_neox", {}, 3, 6, False, "all-linear"),
    ("gpt_neox in sequence", "gpt_neox", dict(use_parallel_residual=False), 2, 2, False, ["query_key_value", "dense"]),
    ("falcon", "falcon", dict(new_decoder_architecture=True, num_kv_heads=2), 3, 6, False, "all-linear"),
    ("falcon one norm, biases", "falcon", dict(
        new_decoder_architecture=True, num_kv_heads=3, num_attention_heads=6, hidden_size=24, bias=True,
        num_ln_in_parallel_attn=1), 3, 2, False, ["query_key_value"]),
    ("gemma2", "gemma2", {}, 3, 6, False, "all-linear"),
    ("cohere", "cohere", {}, 3, 6, False, "all-linear"),
    ("nemotron", "nemotron", {}, 3, 6, False, "all-linear"),
    ("opt", "opt", {}, 3, 6, False, ["out_proj", "fc1", "fc2"]),
    ("granite", "granite", {}, 3, 6, False, "all-linear"),
    ("olmo2", "olmo2", {}, 3, 6, False, ["o_proj", "down_proj"]),
    ("gemma4 K = V", "gemma4_text", dict(attention_k_eq_v=True, num_global_key_value_heads=1), 3, 6, False, "all-linear"),
    ("gemma4 shared, inputs, modules that some layers lack", "gemma4_text", dict(
        num_kv_shared_layers=1, use_double_wide_mlp=True, hidden_size_per_layer_input=5, head_dim=4,
        global_head_dim=4), 2, 3, False,
     ["q_proj", "k_proj", "v_proj", "up_proj", "per_layer_input_gate", "per_layer_projection"]),
    ("lfm2", "lfm2", dict(conv_bias=True), 3, 6, False, "all-linear"),
    ("lfm2 modules of one kind of layer", "lfm2", {}, 2, 1, True, ["in_proj", "q_proj", "w1", "w2"]),
    ("muse_glimmer, both gates of a layer", "muse_glimmer", dict(
        text_config=dict(MUSE, qk_scale_factor=0.7), vision_config=MUSE_TOWER), 3, 2, False,
     r".*language_model\..*\.(q_proj|o_proj|gate_proj|down_proj)"),
]
# the same, and more keys of LoraConfig
PATTERN_CASES = [
    ("llama ranks by module", "llama", dict(num_key_value_heads=2), 3, 6, False, "all-linear", dict(
        rank_pattern={"q_proj": 5, "mlp.down_proj": 1}, alpha_pattern={"q_proj": 2, "up_proj": 9})),
    ("llama ranks by module, rslora", "llama", {}, 4, 8, True, ["q_proj", "k_proj", "gate_proj"], dict(
        rank_pattern={".*_proj": 2}, alpha_pattern={"(k|v)_proj": 3})),
    ("llama expression", "llama", {}, 2, 4, False, r"model\.layers\.[\d]+\.(mlp|self_attn)\.(up|q|o)_proj", {}),
    ("llama without two", "llama", {}, 2, 4, False, "all-linear", dict(exclude_modules=["q_proj", "mlp.up_proj"])),
    ("llama layers of a list", "llama", {}, 2, 4, False, ["q_proj", "up_proj"], dict(
        layers_to_transform=[1], layers_pattern=["h", "layers"])),
    ("phi3 ranks of fused tensors", "phi3", {}, 2, 4, False, "all-linear", dict(
        rank_pattern={"qkv_proj": 4, "gate_up_proj": 3}, alpha_pattern={"gate_up_proj": 1})),
    ("gpt2 ranks by module", "gpt2", {}, 3, 6, False, ["c_attn", "mlp.c_proj", "c_fc"], dict(
        rank_pattern={"mlp.c_proj": 2}, alpha_pattern={"attn.c_attn": 12})),
]

# the embedding and the head
TABLE_CASES = [
    ("llama embedding and head", "llama", dict(num_key_value_heads=2, tie_word_embeddings=False, pad_token_id=0), 3, 6,
     False, ["q_proj", "embed_tokens", "lm_head"], {}),
    ("llama embedding alone, rslora", "llama", dict(tie_word_embeddings=False), 4, 2, True, ["embed_tokens"], {}),
    ("llama head alone, other rank", "llama", dict(tie_word_embeddings=False), 2, 4, False, ["lm_head", "up_proj"],
     dict(rank_pattern={"lm_head": 5}, alpha_pattern={"lm_head": 2})),
    ("gemma2 scaled embedding, capped head", "gemma2", dict(tie_word_embeddings=False), 3, 6, False,
     r".*\.(embed_tokens|down_proj)|lm_head", {}),
    ("gpt_neox head", "gpt_neox", dict(tie_word_embeddings=False), 3, 6, False,
     ["embed_in", "lm_head", "dense"], dict(rank_pattern={"lm_head": 2})),
    ("cohere head, logit scale", "cohere", dict(tie_word_embeddings=False), 3, 6, False, ["lm_head", "o_proj"], {}),
    ("llama head, dora", "llama", dict(tie_word_embeddings=False), 3, 6, False, ["lm_head", "q_proj"],
     dict(use_dora=True)),
]

# DoRA
DORA_CASES = [
    ("llama dora", "llama", dict(num_key_value_heads=2, attention_bias=True), 3, 6, False, "all-linear",
     dict(use_dora=True)),
    ("phi3 dora", "phi3", {}, 3, 6, True, "all-linear", dict(use_dora=True, rank_pattern={"qkv_proj": 4})),
    ("gpt2 dora", "gpt2", {}, 3, 3, False, "all-linear", dict(use_dora=True)),
    ("gpt_neox dora", "gpt_neox", {}, 3, 6, False, "all-linear", dict(use_dora=True)),
    ("lfm2 dora", "lfm2", dict(conv_bias=True), 3, 6, False, "all-linear", dict(use_dora=True)),
]

# the same with dropout: share
DROPOUT_CASES = [
    ("llama dora with dropout", "llama", dict(num_key_value_heads=2, attention_bias=True), 3, 6, False, "all-linear",
     dict(use_dora=True), 0.25),
    ("gpt2 dora with dropout", "gpt2", {}, 3, 3, False, ["c_attn", "c_fc"], dict(use_dora=True), 0.5),
    ("llama with dropout", "llama", dict(num_key_value_heads=2), 3, 6, False, "all-linear", {}, 0.25),
    ("llama two modules with dropout", "llama", {}, 4, 2, True, ["q_proj", "down_proj"], {}, 0.6),
    ("phi3 with dropout", "phi3", {}, 3, 6, False, "all-linear", {}, 0.1),
    ("gpt2 with dropout", "gpt2", {}, 3, 3, False, "all-linear", {}, 0.5),
    ("lfm2 with dropout", "lfm2", dict(conv_bias=True), 3, 6, False, "all-linear", {}, 0.3),
    ("gemma4 shared, inputs, with dropout", "gemma4_text", dict(
        num_kv_shared_layers=1, use_double_wide_mlp=True, hidden_size_per_layer_input=5, head_dim=4,
        global_head_dim=4), 2, 3, False,
     ["q_proj", "k_proj", "v_proj", "up_proj", "per_layer_input_gate", "per_layer_projection"], {}, 0.2),
    ("llama embedding and head with dropout", "llama", dict(tie_word_embeddings=False), 3, 6, False,
     ["embed_tokens", "lm_head", "v_proj"], {}, 0.3),
]

# adapters of all experts of a parameter, as transformers 5 names them
GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
EXPERT_CASES = [
    ("qwen3_moe experts", "qwen3_moe", {}, 3, 6, False, ["q_proj"], dict(target_parameters=[GATE_UP, DOWN])),
    ("qwen3_moe experts, ranks, rslora", "qwen3_moe", dict(norm_topk_prob=True), 3, 6, True, [], dict(
        target_parameters=[GATE_UP, DOWN], rank_pattern={r".*\.gate_up_proj": 2}, alpha_pattern={".*down_proj": 5})),
    ("qwen3_moe down", "qwen3_moe", {}, 2, 6, False, [], dict(target_parameters=["experts.down_proj"])),
    ("mixtral experts", "mixtral", {}, 2, 4, False, ["o_proj"], dict(target_parameters=[GATE_UP, DOWN])),
    ("mixtral gate and up", "mixtral", {}, 2, 4, False, [], dict(target_parameters=["gate_up_proj"])),
    ("qwen2_moe experts", "qwen2_moe", {}, 2, 3, False, [], dict(target_parameters=[GATE_UP, DOWN])),
    ("deepseek_v3 experts", "deepseek_v3", {}, 2, 3, False, [], dict(target_parameters=[GATE_UP, DOWN])),
    ("gpt_oss experts", "gpt_oss", {}, 2, 3, False, ["k_proj"], dict(target_parameters=[GATE_UP, DOWN])),
    ("gpt_oss gate and up", "gpt_oss", {}, 3, 3, False, [], dict(target_parameters=[GATE_UP])),
    ("granitemoehybrid experts", "granitemoehybrid", {}, 2, 3, False, [], dict(
        target_parameters=["block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj"])),
    ("gemma4 experts", "gemma4_text", dict(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=6,
                                           hidden_size_per_layer_input=0), 2, 3, False, [], dict(
        target_parameters=["experts.gate_up_proj", "experts.down_proj"])),
    ("nemotron_h experts", "nemotron_h", {}, 2, 3, False, [], dict(
        target_parameters=["mixer.experts.up_proj", "mixer.experts.down_proj"])),
]


class FusedB:
    """B of all experts [out, rank E] as the table has it, [E out, rank]."""

    def __init__(self, whole, experts):
        self.whole, self.experts, self.out = whole, experts, whole.shape[0]
        self.rank = whole.shape[1] // experts
        self.shape = torch.Size((experts * self.out, self.rank))

    def copy_(self, values):
        self.whole.copy_(values.reshape(self.experts, self.out, self.rank).permute(1, 2, 0).reshape(self.whole.shape))

    @property
    def grad(self):
        g = self.whole.grad
        return None if g is None else g.reshape(self.out, self.rank, self.experts).permute(2, 0, 1).reshape(self.shape)


def of_table(model, kind, name, parameter):
    """The name and the layout of an adapter in ferry's table."""
    if ".experts.base_layer.lora_" not in name and ".experts.lora_" not in name:
        return table_name(kind, name), parameter
    wrapped = model.get_submodule(PREFIX + name[:name.index(".lora_")])
    module = name[:name.index(".lora_")].removesuffix(".base_layer")
    stem = table_name(kind, f"{module}.{wrapped.parameter_name}").removesuffix(".weight")
    if kind == "mixtral":
        stem = stem.replace("experts.down_proj", "experts.w2")
    end = name[name.index(".lora_"):]
    return stem + end, FusedB(parameter, wrapped.num_experts) if "lora_B" in end else parameter


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
    return x ^ x >> 31


class Mask(torch.nn.Module):
    """Dropout by device/noise.h. `row` is the data's row of the text that goes through the model."""
    row = 0

    def __init__(self, name, share):
        super().__init__()
        self.module, self.share = 0xCBF29CE484222325, share
        for byte in name.encode():
            self.module = ((self.module ^ byte) * 0x100000001B3) & MASK

    def forward(self, x):
        assert x.dim() == 3 and x.shape[0] == 1
        kept, limit = torch.zeros_like(x), int(self.share * 2**32)
        for t in range(x.shape[1]):
            row = mix(mix((mix(STEP ^ mix(Mask.row)) + t) & MASK) ^ self.module)
            for c in range(x.shape[2]):
                two = mix((row + (c >> 1) * 0xD1342543DE82EF95) & MASK)
                kept[0, t, c] = (two >> 32 if c % 2 else two & 0xFFFFFFFF) >= limit
        return x * kept / (1 - self.share)


def run(name, model_type, keys, rank, alpha, rslora, targets, more=None, dropout=0):
    keys = dict({} if "text_config" in keys else BASE[model_type], model_type=model_type, **keys)
    own = text_name if "text_config" in keys else lambda n: n
    if model_type == "gpt_neox":  # its files' name of the head
        own = lambda n: re.sub("^lm_head", "embed_out", n)
    with Float64():
        model = open_model(load_config(keys)).to(torch.float64).eval()
        with torch.no_grad():
            for n, p in parameters_of(model):
                if own(n):
                    p.copy_(weight_of(own(n), p.shape, norm_of(model_type, own(n))))
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=rank, lora_alpha=alpha, use_rslora=rslora, target_modules=targets, task_type="CAUSAL_LM",
            fan_in_fan_out=model_type == "gpt2", **(more or {}))).to(torch.float64).eval()
        adapters = [of_table(model, model_type, own(n.removeprefix(PREFIX).replace(".default.", ".")
                                                    .replace("_vector.weight", "_vector").removesuffix(".default")), p)
                    for n, p in model.named_parameters() if p.requires_grad]
        with torch.no_grad():
            for n, p in adapters:
                p.copy_(weight_of(n, p.shape))
        for n, module in list(model.named_modules()):
            if dropout and hasattr(module, "lora_dropout"):
                a = own(f"{n}.lora_A.weight".removeprefix(PREFIX))
                module.lora_dropout["default"] = Mask(a, dropout)
                module.training = True  # DoRA asks for it
        losses = []
        for row, (ids, labels) in enumerate(ROWS):
            Mask.row = FIRST_ROW + row
            labels = labels or ids
            logits = model(torch.tensor([ids])).logits[0]
            losses += [torch.logsumexp(logits[t - 1], 0) - logits[t - 1, labels[t]]
                       for t in range(1, len(ids)) if labels[t] != -100]
        (sum(losses) / len(losses)).backward()
    return {"name": name, "config": keys, "rank": rank, "scale": alpha / (rank**0.5 if rslora else rank),
            **({"dropout": dropout} if dropout else {}),
            "targets": targets if isinstance(targets, str) else json.dumps(targets),
            **({} if more is None else {"alpha": alpha, "rslora": rslora, **{
                k.replace("_modules", "").replace("target_", ""): v for k, v in more.items()}}),
            "losses": [round(x.item(), 10) for x in losses], "tensors": [gradient_entry(n, p) for n, p in adapters]}


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    rows = [{"input_ids": ids, "labels": labels or ids} for ids, labels in ROWS]
    lines = ",\n".join(json.dumps(run(*args), separators=(",", ":")) for args in CASES + PATTERN_CASES + TABLE_CASES + DORA_CASES + DROPOUT_CASES + EXPERT_CASES)
    OUT.write_text(f'{{"peft":"{peft.__version__}","transformers":"{transformers.__version__}",'
                   f'"rows":{json.dumps(rows)},"step":{STEP},"first_row":{FIRST_ROW},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
