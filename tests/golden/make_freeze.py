#!/usr/bin/env python3
"""Reference of training with frozen parameters: what PyTorch does with requires_grad=False.

    python tests/golden/make_freeze.py GOLDEN > tests/golden/freeze.json

GOLDEN is the directory of golden models (GOLDEN/<model>/hf, train.jsonl). For each case the parameters whose whole
name matches `freeze`, or does not match `trainable`, get requires_grad_(False); 20 steps of AdamW follow, in fp64,
with the settings of the golden training traces: 2 x 2 rows a step, a cosine from 1e-3 to 1e-4 after 4 steps of
warmup, clipping of the trained parameters at 1, weight decay 0.1 on matrices. Written are the loss and the gradient
norm of each step and, of each trained parameter, its norm and some of its elements at the end.

Needs torch and transformers (made with torch 2.15, transformers 5.23).
"""
import json
import math
import os
import re
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

CASES = [
    ("llama3", {"freeze": r".*embed_tokens.*|model\.layers\.[01]\..*"}),
    ("llama3", {"trainable": r".*\.(q_proj|v_proj|input_layernorm)\.weight|model\.norm\.weight"}),
    ("llama3", {"trainable": r"model\.embed_tokens\.weight"}),
    ("qwen3", {"freeze": r"model\.layers\.0\..*|.*norm.*|.*\.(up_proj|o_proj)\.weight"}),
    ("qwen3", {"trainable": r"lm_head\.weight"}),
    ("gpt2", {"freeze": r"transformer\.wte\.weight|.*\.ln_\d\..*|.*\.c_attn\.bias"}),
    ("gpt2", {"trainable": r".*\.mlp\.c_proj\.bias|.*\.ln_2\..*"}),
    ("gpt_neox", {"freeze": r".*\.attention\..*|.*embed_in.*"}),
    ("gpt_neox", {"trainable": r".*layers\.1\.(mlp\..*bias|input_layernorm\.weight)|.*final_layer_norm\..*"}),
    ("mixtral", {"freeze": r".*\.experts\..*"}),
    ("mixtral", {"trainable": r".*\.experts\.down_proj|.*\.gate\.weight"}),
    ("modern/glm4_moe", {"freeze": r".*\.mlp\.gate\.weight|.*embed_tokens.*|.*shared_experts.*"}),
    ("modern/qwen2_moe", {"trainable": r".*\.experts\.gate_up_proj|.*shared_expert_gate\.weight"}),
]
STEPS, ROWS, WARMUP, PEAK, LEAST = 20, 4, 4, 1e-3, 0.1
SAMPLES = 8


def learning_rate(step):
    if step < WARMUP:
        return PEAK * step / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return PEAK * (LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * progress)))


def loss_sum(model, row):
    ids = torch.tensor([row["input_ids"]])
    labels = torch.tensor(row["labels"])[1:]
    logits = model(input_ids=ids).logits[0, :-1].double()
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum")


def as_in_files(directory, name, value, start):
    """The names and tensors that a checkpoint has for a parameter: its experts have matrices of their own."""
    if "gpt_neox" in directory:
        name = name.replace("lm_head.", "embed_out.")
    if "mixtral" in directory:
        name = name.replace(".mlp.", ".block_sparse_moe.")
    if ".experts." not in name:
        yield name, value, start
        return
    layer, kind = name.rsplit(".", 1)
    parts = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}[kind]
    short = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"} if "mixtral" in directory else {}
    for expert in range(len(value)):
        for part, now, was in zip(parts, value[expert].chunk(len(parts)), start[expert].chunk(len(parts))):
            yield f"{layer}.{expert}.{short.get(part, part)}.weight", now, was


def run(directory, settings):
    model = AutoModelForCausalLM.from_pretrained(
        os.path.join(directory, "hf"), dtype=torch.float64, attn_implementation="eager",
        experts_implementation="eager")
    model.eval()  # no dropout
    for name, parameter in model.named_parameters():
        frozen = "freeze" in settings and re.fullmatch(settings["freeze"], name)
        chosen = "trainable" not in settings or re.fullmatch(settings["trainable"], name)
        parameter.requires_grad_(bool(chosen and not frozen))
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    start = {n: p.detach().clone() for n, p in trained.items()}
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in trained.values() if p.ndim >= 2], "weight_decay": 0.1},
         {"params": [p for p in trained.values() if p.ndim < 2], "weight_decay": 0.0}],
        lr=PEAK, betas=(0.9, 0.95), eps=1e-8)
    rows = [json.loads(line) for line in open(os.path.join(directory, "train.jsonl"))]
    losses, norms = [], []
    for step in range(STEPS):
        batch = rows[ROWS * step:ROWS * (step + 1)]
        targets = sum(sum(label != -100 for label in row["labels"][1:]) for row in batch)
        optimizer.zero_grad()
        total = 0.0
        for row in batch:
            if any(label != -100 for label in row["labels"][1:]):
                loss = loss_sum(model, row) / targets
                loss.backward()
                total += loss.item()
        losses.append(total)
        norms.append(torch.nn.utils.clip_grad_norm_(trained.values(), 1.0).item())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
    final = {}
    for whole, parameter in trained.items():
        for name, part, was in as_in_files(directory, whole, parameter.detach(), start[whole]):
            flat = part.reshape(-1)
            stride = max(1, flat.numel() // SAMPLES)
            final[name] = {"l2": flat.norm().item(),
                           "moved_l2": (flat - was.reshape(-1)).norm().item(),
                           "stride": stride, "elements": flat[::stride][:SAMPLES].tolist()}
    return {"loss": losses, "grad_norm": norms, "final": final}


def main():
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    out = []
    for name, settings in CASES:
        out.append({"model": name, "settings": settings, **run(os.path.join(sys.argv[1], name), settings)})
    json.dump({"torch": torch.__version__.split("+")[0], "cases": out}, sys.stdout, indent=1)
    print()


main()
