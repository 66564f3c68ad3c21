#!/usr/bin/env python3
"""Small mixtures with adapters of all experts as PEFT saves them (target_parameters), and their losses.

    python make_expert_adapters.py          writes expert_adapters/ beside this script (needs transformers 5 and peft)

expert_adapters/NAME has base/ and adapter/, as the two libraries save them, rows.jsonl, and losses.json: those of the rows'
tokens without and with the adapter, in fp32 on a CPU.
"""
import json
import shutil
import warnings
from pathlib import Path

import peft
import torch
import transformers

from check_experts import FAMILIES, load, make
from check_wholes import token_losses
from config_base import BASE, ROWS

OUT = Path(__file__).with_name("expert_adapters")
# name, family, end of the names of parameters, more keys of LoraConfig
CASES = [
    ("mixtral", "mixtral", ["gate_up_proj", "down_proj"], dict(target_modules=["o_proj"], use_rslora=True)),
    ("olmoe", "olmoe", ["down_proj"], {}),
    ("qwen2_moe", "qwen2_moe", ["gate_up_proj", "down_proj"], dict(target_modules=["q_proj"])),
    ("qwen3_moe", "qwen3_moe", ["gate_up_proj", "down_proj"], dict(rank_pattern={".*gate_up_proj": 2})),
    ("qwen3_5_moe", "qwen3_5_moe_text", ["gate_up_proj", "down_proj"], {}),
    ("deepseek_v3", "deepseek_v3", ["gate_up_proj", "down_proj"], {}),
    ("gpt_oss", "gpt_oss", ["gate_up_proj", "down_proj"], dict(alpha_pattern={".*down_proj": 2})),
    ("gpt_oss_up", "gpt_oss", ["gate_up_proj"], {}),
    ("gemma4", "gemma4_text", ["gate_up_proj", "down_proj"], {}),
    ("granitemoehybrid", "granitemoehybrid", ["gate_up_proj", "down_proj"], {}),
    ("nemotron_h", "nemotron_h", ["up_proj", "down_proj"], {}),
    ("qwen3_vl_moe", "qwen3_vl_moe", ["gate_up_proj", "down_proj"], {}),
]


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    shutil.rmtree(OUT, ignore_errors=True)
    for name, family, ends, more in CASES:
        keys, module, _ = FAMILIES[family]
        folder = OUT / name
        make(folder / "base", dict({} if "text_config" in keys else BASE[family], model_type=family, **keys))
        plain = token_losses(load(folder / "base"))
        torch.manual_seed(2)
        model = peft.get_peft_model(load(folder / "base"), peft.LoraConfig(
            r=3, lora_alpha=5, target_parameters=[f"{module}.{end}" for end in ends], task_type="CAUSAL_LM",
            **dict(dict(target_modules=[]), **more)))
        with torch.no_grad():
            for n, p in model.named_parameters():
                if "lora_" in n:
                    p.copy_(torch.randn_like(p) * 0.3)
        model.save_pretrained(folder / "adapter")
        with_it = token_losses(peft.PeftModel.from_pretrained(load(folder / "base"), folder / "adapter").eval())
        assert (with_it - plain).abs().max() > 1e-3, name
        Path(folder, "rows.jsonl").write_text(
            "".join(json.dumps({"input_ids": i, "labels": l or i}) + "\n" for i, l in ROWS))
        Path(folder, "losses.json").write_text(json.dumps({
            "plain": [round(x, 6) for x in plain.tolist()], "adapted": [round(x, 6) for x in with_it.tolist()]}) + "\n")
    for extra in OUT.rglob("*"):
        if extra.name in ("README.md", "generation_config.json"):
            extra.unlink()
    for config in OUT.rglob("adapter_config.json"):
        keys = json.loads(config.read_text())
        keys["base_model_name_or_path"] = "base"
        config.write_text(json.dumps(keys, indent=1) + "\n")


if __name__ == "__main__":
    main()
