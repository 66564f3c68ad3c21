#!/usr/bin/env python3
"""Writes a Llama of about 1.1B parameters in block FP8 with random weights, as DeepSeek and Qwen publish them.

    python3 bench/make_fp8.py DIR [LAYERS]        needs nothing but Python; 66 MB a layer (16)
"""
import json
import os
import struct
import sys

HIDDEN, INNER, VOCAB, HEADS = 2048, 8192, 32000, 16
# bytes of E4M3 below 2 in magnitude: no NaN, no large numbers
CODES = bytes((b & 0x80) | (b & 0x3F) for b in range(256))


def tensors(layers):
    yield "model.embed_tokens.weight", "BF16", [VOCAB, HIDDEN]
    for layer in range(layers):
        for name, out, columns in (("self_attn.q_proj", HIDDEN, HIDDEN), ("self_attn.k_proj", HIDDEN, HIDDEN),
                                   ("self_attn.v_proj", HIDDEN, HIDDEN), ("self_attn.o_proj", HIDDEN, HIDDEN),
                                   ("mlp.gate_proj", INNER, HIDDEN), ("mlp.up_proj", INNER, HIDDEN),
                                   ("mlp.down_proj", HIDDEN, INNER)):
            yield f"model.layers.{layer}.{name}.weight", "F8_E4M3", [out, columns]
            yield f"model.layers.{layer}.{name}.weight_scale_inv", "F32", [out // 128, columns // 128]
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"model.layers.{layer}.{name}.weight", "BF16", [HIDDEN]
    yield "model.norm.weight", "BF16", [HIDDEN]
    yield "lm_head.weight", "BF16", [VOCAB, HIDDEN]


def values(dtype, shape):
    count = 1
    for n in shape:
        count *= n
    if dtype == "F8_E4M3":
        return os.urandom(count).translate(CODES)
    if dtype == "F32":
        return struct.pack("<f", 0.01) * count
    return struct.pack("<H", 0x3F80 if len(shape) == 1 else 0x3C00) * count  # norms 1, tables 2^-7


def main():
    folder, layers = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 16
    width = {"BF16": 2, "F32": 4, "F8_E4M3": 1}
    header, at = {}, 0
    for name, dtype, shape in tensors(layers):
        size = width[dtype]
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/model.safetensors", "wb") as file:
        text = json.dumps(header).encode()
        file.write(struct.pack("<Q", len(text)) + text)
        for _, dtype, shape in tensors(layers):
            file.write(values(dtype, shape))
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN,
              "intermediate_size": INNER, "num_hidden_layers": layers, "num_attention_heads": HEADS,
              "num_key_value_heads": HEADS, "max_position_embeddings": 2048, "tie_word_embeddings": False,
              "torch_dtype": "bfloat16",
              "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}
    with open(f"{folder}/config.json", "w") as file:
        json.dump(config, file)


if __name__ == "__main__":
    main()
