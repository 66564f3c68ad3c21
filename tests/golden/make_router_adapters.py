#!/usr/bin/env python3
"""Adapters of routers as PEFT saves them, their losses, and 20 steps of PEFT's training.

    python make_router_adapters.py          writes router_adapters/ beside this script (needs transformers 5 and peft)

router_adapters/NAME has adapter/ and trained/, as PEFT saves them, for the model in expert_adapters/NAME/base; losses.json:
those of rows.jsonl's tokens without and with the adapter, and of each step, one row after the other, in fp32 on a CPU."""
import json
import shutil
import warnings
from pathlib import Path

import peft
import torch
import transformers

from check_experts import load
from check_wholes import token_losses
from config_base import ROWS

OUT = Path(__file__).with_name("router_adapters")
BASES = Path(__file__).with_name("expert_adapters")
# model, keys of LoraConfig
CASES = {
    "mixtral": dict(target_parameters=["mlp.gate.weight"]),
    "olmoe": dict(target_parameters=["gate.weight"], target_modules=["q_proj"]),
    "qwen2_moe": dict(target_parameters=["mlp.gate.weight"], use_rslora=True),
    "qwen3_moe": dict(target_parameters=["mlp.gate.weight", "mlp.experts.down_proj"]),
    "deepseek_v3": dict(target_parameters=["mlp.gate.weight"], rank_pattern={".*gate.weight": 2}),
    "gpt_oss": dict(target_parameters=["mlp.router.weight"], target_modules=["o_proj"]),
    "granitemoehybrid": dict(target_parameters=["block_sparse_moe.router.weight"], lora_alpha=90),
    "nemotron_h": dict(target_parameters=["mixer.gate.weight"]),
    "gemma4": dict(target_modules=["router.proj", "q_proj"], use_dora=True),
}
STEPS = 20


def trained(model):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0)
    losses = []
    for step in range(STEPS):
        ids, labels = ROWS[step % len(ROWS)]
        loss = model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels or ids])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 6))
    return losses


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    shutil.rmtree(OUT, ignore_errors=True)
    for name, keys in CASES.items():
        folder, base = OUT / name, BASES / name / "base"
        plain = token_losses(load(base))
        torch.manual_seed(2)
        model = peft.get_peft_model(load(base), peft.LoraConfig(
            task_type="CAUSAL_LM", **dict(dict(r=3, lora_alpha=5, target_modules=[]), **keys)))
        with torch.no_grad():
            for n, p in model.named_parameters():
                if "lora_A" in n or "lora_B" in n:
                    p.copy_(torch.randn_like(p) * 0.3)
        model.save_pretrained(folder / "adapter")
        model = peft.PeftModel.from_pretrained(load(base), folder / "adapter", is_trainable=True).eval()
        with_it = token_losses(model)
        assert (with_it - plain).abs().max() > 2e-5, (name, (with_it - plain).abs().max())
        steps = trained(model)
        model.save_pretrained(folder / "trained")
        Path(folder, "losses.json").write_text(json.dumps({
            "plain": [round(x, 6) for x in plain.tolist()], "adapted": [round(x, 6) for x in with_it.tolist()],
            "steps": steps}) + "\n")
    for extra in OUT.rglob("README.md"):
        extra.unlink()
    for config in OUT.rglob("adapter_config.json"):
        keys = json.loads(config.read_text())
        keys["base_model_name_or_path"] = "base"
        config.write_text(json.dumps(keys, indent=1) + "\n")


if __name__ == "__main__":
    main()
