#!/usr/bin/env python3
"""Runs with label smoothing and LoRA+: what transformers' Trainer logs at each step, and where the weights end.

    python make_tuning.py           writes tuning/ beside this script (needs transformers 5, peft 0.21, trl 1.16)

The model, its tokenizer and the adapter are those of preference-run/ (make_preference_run.py). rows.jsonl has prompts
with completions; the loss is over the completions and an end-of-text token. Six steps of 2 x 2 rows in file order,
AdamW, a linear schedule, on the CPU in fp32; after the last one the loss of all rows is evaluated.

expected.json has, for each run, the keys that ferry gets, the columns that the trainer logs, the loss at the end, and of
each trained tensor how far it moved and some elements at the end. "spread" is as in make_preference_run.py.
"""
import json
import math
import os
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = os.environ["TQDM_DISABLE"] = "1"

import datasets
import peft
import peft.optimizers
import torch
import transformers

from make_config_golden import Float64
from make_preference_run import OUT as MODELS
from make_preference_run import WORDS, Draws, final_tensors, load, rounded

OUT = Path(__file__).with_name("tuning")
STEPS, ROWS, ACCUMULATION, SEED = 6, 2, 2, 11

# name, LoRA, peak of the learning rate, keys of TrainingArguments, LoRA+: ratio of the rates of B and A
RUNS = [
    ("smoothing", False, 4e-3, dict(label_smoothing_factor=0.1), None),
    ("strong smoothing, lora", True, 2e-2, dict(label_smoothing_factor=0.6), None),
    ("lora+", True, 2e-3, {}, 16.0),
    ("lora+, weight decay, no clipping", True, 4e-3, dict(weight_decay=0.1, max_grad_norm=0.0), 4.0),
]
COLUMNS = ("loss", "grad_norm", "learning_rate")


def make_rows(tokenizer):
    draws, rows, tokens = Draws(SEED), [], []
    for _ in range(STEPS * ROWS * ACCUMULATION):
        rows.append({"prompt": draws.words(2, 9), "completion": " " + draws.words(1, 12)})
        prompt, answer = (tokenizer(rows[-1][key])["input_ids"] for key in ("prompt", "completion"))
        answer.append(tokenizer.eos_token_id)
        tokens.append({"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer})
    (OUT / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return datasets.Dataset.from_list(tokens)


def train(model, tokenizer, data, rate, more, ratio):
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            output_dir=folder, learning_rate=rate, lr_scheduler_type="linear", per_device_train_batch_size=ROWS,
            gradient_accumulation_steps=ACCUMULATION, max_steps=STEPS, train_sampling_strategy="sequential",
            per_device_eval_batch_size=24,
            **{"max_grad_norm": 1.0, "weight_decay": 0.0, **more}, optim="adamw_torch", logging_steps=1,
            save_strategy="no", report_to="none", use_cpu=True, seed=SEED, disable_tqdm=True)
        optimizer = None
        if ratio:
            optimizer = peft.optimizers.create_loraplus_optimizer(
                model, torch.optim.AdamW, lr=rate, loraplus_lr_ratio=ratio, loraplus_weight_decay=args.weight_decay)
        trainer = transformers.Trainer(
            model, args, transformers.DataCollatorForSeq2Seq(tokenizer, padding="longest"), train_dataset=data,
            eval_dataset=data, optimizers=(optimizer, None))
        trainer.train()
        end = trainer.evaluate()["eval_loss"]
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert len(rows) == STEPS
    return {**{c: [row[c] for row in rows] for c in COLUMNS}, "eval_loss": [end],
            "final": final_tensors(trainer.model, start)}


def spread(a, b):
    out = {c: max(abs(x - y) / max(abs(y), 1e-300) for x, y in zip(a[c], b[c])) for c in (*COLUMNS, "eval_loss")}
    error = [math.dist(a["final"][n]["elements"], b["final"][n]["elements"]) / b["final"][n]["moved_l2"]
             for n in a["final"]]
    return {**out, "final elements of moved_l2": max(error)}


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS / "model")
    data, lines = make_rows(tokenizer), []
    for name, lora, rate, more, ratio in RUNS:
        results = []
        for dtype, scope in ((torch.float32, nullcontext()), (torch.float64, Float64())):
            model = load(lora, dtype)
            with scope:
                results.append(train(model, tokenizer, data, rate, more, ratio))
        keys = {"learning_rate": rate, **more, **({"loraplus_lr_ratio": ratio} if ratio else {})}
        case = {"name": name, "lora": lora, "keys": keys,
                "spread": {k: float(f"{v:.2g}") for k, v in spread(*results).items()}, **rounded(results[0])}
        print(name, case["spread"], *(f"\n  {c} {[round(x, 6) for x in results[0][c]]}" for c in (*COLUMNS, "eval_loss")))
        lines.append(json.dumps(case, separators=(",", ":")))
    lines = ",\n".join(lines)
    (OUT / "expected.json").write_text(
        f'{{"peft":"{peft.__version__}","transformers":"{transformers.__version__}",\n"runs":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
