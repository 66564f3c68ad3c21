#!/usr/bin/env python3
"""Runs of mixtures with the loss of even use of experts, as transformers computes it.

    python make_balance.py GOLDEN      writes balance.json beside this script; GOLDEN is the directory of golden models

The model computes in float64. A step has two micro-batches of two padded rows each; the loss is the mean over its
targets plus the coefficient times the mean of the micro-batches' losses, as in TRL. Recorded are, for each step, this
loss, the mean without the coefficient and the gradient's norm before clipping; then the norm of the gradient of every
router in the first step, with the loss and without it.
"""
import json
import sys
from pathlib import Path

import torch
import transformers

STEPS, ROWS, MICROS, RATE = 4, 2, 2, 1e-3
NAMES = {"mixtral": 0.5, "more/qwen3_moe": 0.25, "more/gpt_oss": 0.25, "modern/qwen2_moe": 1.0,
         "modern/qwen3_next": 0.5, "modern/qwen3_5_moe": 0.5, "modern/olmoe": 0.5, "modern/granitemoehybrid": 0.5}


def micro_batch(rows):
    width = max(len(row["input_ids"]) for row in rows)

    def padded(key, value):
        return torch.tensor([row[key] + [value] * (width - len(row[key])) for row in rows])

    mask = torch.tensor([[1] * len(row["input_ids"]) + [0] * (width - len(row["input_ids"])) for row in rows])
    return padded("input_ids", 0), padded("labels", -100), mask


def step_loss(model, rows, coefficient):
    micros = [micro_batch(rows[at:at + ROWS]) for at in range(0, len(rows), ROWS)]
    targets = sum(int((labels[:, 1:] != -100).sum()) for _, labels, _ in micros)
    total, balance = 0, 0
    for ids, labels, mask in micros:
        out = model(input_ids=ids, attention_mask=mask, output_router_logits=True, use_cache=False)
        loss = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(),
                                                 ignore_index=-100, reduction="sum")
        total = total + loss / targets + coefficient * out.aux_loss / len(micros)
        balance += float(out.aux_loss.detach()) / len(micros)
    return total, balance


def router_norms(model, rows, coefficient):
    model.zero_grad()
    step_loss(model, rows, coefficient)[0].backward()
    return {name: float(p.grad.norm()) for name, p in model.named_parameters()
            if name.endswith(("gate.weight", "router.weight", "router.layer.weight")) and "shared" not in name}


def run(folder, coefficient):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "hf", dtype=torch.float64, attn_implementation="eager", experts_implementation="eager")
    rows = [json.loads(line) for line in (folder / "train.jsonl").open()]
    model.train()
    case = {"coefficient": coefficient, "with": router_norms(model, rows[:ROWS * MICROS], coefficient),
            "without": router_norms(model, rows[:ROWS * MICROS], 0), "steps": []}
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, balance = step_loss(model, rows[step * ROWS * MICROS:(step + 1) * ROWS * MICROS], coefficient)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        case["steps"].append({"loss": float(loss), "aux_loss": balance, "grad_norm": float(norm)})
    return case


def main():
    golden = Path(sys.argv[1])
    out = Path(__file__).with_name("balance.json")
    cases = {name: run(golden / name, coefficient) for name, coefficient in NAMES.items()}
    out.write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
