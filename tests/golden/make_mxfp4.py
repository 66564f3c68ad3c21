#!/usr/bin/env python3
"""A small gpt-oss with experts in MXFP4, as it is published, and the same values in bf16, by transformers.

    python tests/golden/make_mxfp4.py        writes mxfp4/ beside this script (needs transformers 5)
"""
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GptOssConfig, GptOssForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

OUT = Path(__file__).with_name("mxfp4")
CONFIG = dict(vocab_size=64, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, head_dim=8, num_local_experts=3, num_experts_per_tok=2, sliding_window=4,
              max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.2,
              rope_theta=150000, rope_scaling=dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0,
                                                   truncate=False, original_max_position_embeddings=16))
QUANTIZATION = {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
                                           "lm_head"], "quant_method": "mxfp4"}


def write(name, tensors, more):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = dict(architectures=["GptOssForCausalLM"], model_type="gpt_oss", torch_dtype="bfloat16", **CONFIG, **more)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def main():
    torch.manual_seed(1)
    model = GptOssForCausalLM(GptOssConfig(**CONFIG)).to(torch.bfloat16)
    plain, coded = {}, {}
    for name, value in model.state_dict().items():
        value = value.clone()
        if name.endswith(("bias", "sinks")):
            value = torch.randn_like(value) * 0.3
        if ".experts." in name and name.endswith("_proj"):
            experts, rows, columns = value.shape
            blocks = torch.randint(0, 256, (experts, columns, rows // 32, 16), dtype=torch.uint8)
            scales = torch.randint(121, 126, (experts, columns, rows // 32), dtype=torch.uint8)
            coded[name + "_blocks"], coded[name + "_scales"] = blocks, scales
            value = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).contiguous()
            assert value.shape == (experts, rows, columns)
        else:
            coded[name] = value
        plain[name] = value
    write("plain", plain, {})
    write("coded", coded, {"quantization_config": QUANTIZATION})


if __name__ == "__main__":
    main()
