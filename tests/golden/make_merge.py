#!/usr/bin/env python3
"""Adapters merged by peft, in each dtype of a base.

    python make_merge.py                    writes merge/ beside this script (needs transformers 5 and peft)

merge/NAME has base/ and adapter/, as the two libraries save them, and merged.safetensors: merge_and_unload of
both, as they are loaded again, on a CPU.
"""
import shutil
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import save_file

OUT = Path(__file__).with_name("merge")
LLAMA = transformers.LlamaConfig(
    vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None)
GPT2 = transformers.GPT2Config(
    vocab_size=32, n_embd=32, n_layer=1, n_head=4, n_positions=32, bos_token_id=None, eos_token_id=None)

# name, config, dtype, rank, alpha, rslora, target modules
CASES = [
    ("fp16", LLAMA, torch.float16, 3, 5, False, ["q_proj", "v_proj", "down_proj"]),
    ("bf16", LLAMA, torch.bfloat16, 8, 12, True, ["q_proj", "v_proj", "down_proj"]),
    ("fp32", LLAMA, torch.float32, 4, 8, False, ["q_proj", "up_proj"]),
    ("gpt2-fp16", GPT2, torch.float16, 2, 3, False, ["c_attn", "mlp.c_proj"]),
]


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    for name, config, dtype, rank, alpha, rslora, targets in CASES:
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
        model.save_pretrained(OUT / name / "base")
        adapted = peft.get_peft_model(model, peft.LoraConfig(
            r=rank, lora_alpha=alpha, use_rslora=rslora, target_modules=targets,
            fan_in_fan_out=config.model_type == "gpt2"))
        for key, value in adapted.named_parameters():
            if "lora_B" in key:
                torch.nn.init.normal_(value, std=0.02)
        adapted.save_pretrained(OUT / name / "adapter")
        base = transformers.AutoModelForCausalLM.from_pretrained(OUT / name / "base", dtype=dtype)
        merged = peft.PeftModel.from_pretrained(base, OUT / name / "adapter").merge_and_unload()
        tied = {"lm_head.weight"} if config.model_type == "gpt2" else set()
        save_file({k: v.contiguous() for k, v in merged.state_dict().items() if k not in tied},
                  OUT / name / "merged.safetensors")
    for extra in OUT.rglob("*"):
        if extra.name in ("README.md", "generation_config.json"):
            extra.unlink()


if __name__ == "__main__":
    main()
