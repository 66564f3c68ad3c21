#!/usr/bin/env python3
"""Adapters of the embedding and the head, and both trained whole beside an adapter: 20 steps of transformers' Trainer.

    python make_tables.py           writes tables/ beside this script (needs transformers 5, peft 0.21, trl 1.16)

The model and its tokenizer are those of preference-run/, the rows those of tuning/. tables/NAME is the adapter that a
run begins with, as PEFT saves it, and expected.json is as in make_tuning.py, with the loss of the merged model.
"""
import json
import math
import os
import shutil
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = os.environ["TQDM_DISABLE"] = "1"

import datasets
import peft
import torch
import transformers

from make_config_golden import Float64
from make_preference_run import OUT as MODELS
from make_preference_run import final_tensors, rounded
from make_tuning import OUT as TUNING

OUT = Path(__file__).with_name("tables")
STEPS, ROWS, ACCUMULATION = 20, 2, 2
# name, peak of the learning rate, keys of LoraConfig
RUNS = [
    ("both", 1e-2, dict(target_modules=["q_proj", "embed_tokens", "lm_head"], rank_pattern={"lm_head": 2})),
    ("head-dora", 1e-2, dict(target_modules=["lm_head", "down_proj"], use_dora=True)),
    ("whole", 4e-3, dict(target_modules=["q_proj", "v_proj"], modules_to_save=["embed_tokens", "lm_head"])),
]
COLUMNS = ("loss", "grad_norm")


def base():
    return transformers.AutoModelForCausalLM.from_pretrained(
        MODELS / "model", dtype=torch.float32, attn_implementation="eager")


def make_adapter(name, keys):
    model = peft.get_peft_model(base(), peft.LoraConfig(r=3, lora_alpha=6, task_type="CAUSAL_LM", **keys))
    for n, value in model.named_parameters():
        if value.requires_grad and "magnitude" not in n:
            value.data += torch.randn_like(value) * 0.15
    model.save_pretrained(OUT / name)
    for path in (OUT / name).glob("README.md"):
        path.unlink()
    path = OUT / name / "adapter_config.json"
    config = json.loads(path.read_text()) | {"base_model_name_or_path": "preference-run/model"}
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def name_in_file(name):
    name = name.removesuffix(".default").replace(".modules_to_save.", ".").replace("_vector.weight", "_vector")
    return name.replace(".default", "")


def train(model, tokenizer, data, keys):
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            output_dir=folder, **keys, lr_scheduler_type="linear", per_device_train_batch_size=ROWS,
            gradient_accumulation_steps=ACCUMULATION, max_steps=STEPS, train_sampling_strategy="sequential",
            per_device_eval_batch_size=24, max_grad_norm=1.0, optim="adamw_torch", logging_steps=1,
            save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True)
        trainer = transformers.Trainer(
            model, args, transformers.DataCollatorForSeq2Seq(tokenizer, padding="longest"), train_dataset=data,
            eval_dataset=data)
        trainer.train()
        rows = [row for row in trainer.state.log_history if "loss" in row]
        final = {name_in_file(n): v for n, v in final_tensors(trainer.model, start).items()}
        merged = transformers.Trainer(model.merge_and_unload(), args, trainer.data_collator, eval_dataset=data)
        end = merged.evaluate()["eval_loss"]
    assert len(rows) == STEPS
    return {**{c: [row[c] for row in rows] for c in COLUMNS}, "merged": [end], "final": final}


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS / "model")
    tokens, lines = [], []
    for line in (TUNING / "rows.jsonl").read_text().splitlines():
        row = json.loads(line)
        prompt, answer = (tokenizer(row[key])["input_ids"] for key in ("prompt", "completion"))
        answer.append(tokenizer.eos_token_id)
        tokens.append({"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer})
    data = datasets.Dataset.from_list(tokens)
    for name, rate, keys in RUNS:
        make_adapter(name, keys)
        settings = {"learning_rate": rate, "weight_decay": 0.0 if "use_dora" in keys else 0.1}  # ferry's spares vectors
        results = []
        for dtype, scope in ((torch.float32, nullcontext()), (torch.float64, Float64())):
            model = peft.PeftModel.from_pretrained(base(), OUT / name, is_trainable=True).to(dtype)
            with scope:
                results.append(train(model, tokenizer, data, settings))
        spread = {c: max(abs(x - y) / abs(y) for x, y in zip(*(r[c] for r in results))) for c in (*COLUMNS, "merged")}
        case = {"name": name, "lora": True, "keys": settings, "spread": spread, **rounded(results[0])}
        print(name, case["spread"], results[0]["loss"], results[0]["merged"])
        lines.append(json.dumps(case, separators=(",", ":")))
    lines = ",\n".join(lines)
    (OUT / "expected.json").write_text(
        f'{{"peft":"{peft.__version__}","transformers":"{transformers.__version__}",\n"runs":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
