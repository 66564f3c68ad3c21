#!/usr/bin/env python3
"""Runs with early stopping and the best checkpoint: what transformers' Trainer does beside EarlyStoppingCallback.

    python make_best.py           writes best/ beside this script (needs transformers 5 and accelerate)

best/ holds a tiny Llama in fp32 (model/), rows of ids to train on (train.jsonl) and others to evaluate on (eval.jsonl), and
expected.json: for each run its settings, every evaluation, the last step, the best metric with its step, the checkpoints
that are left, the checkpoint that was the best, and elements of the weights that the run ends with. Rows in file order,
AdamW, a constant rate, on the CPU in fp32. The rate is high, so that the loss of the other rows falls and then rises.
"""
import json
import os
import shutil
import tempfile
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = os.environ["TQDM_DISABLE"] = "1"

import torch
import transformers

from make_config_golden import splitmix

OUT = Path(__file__).with_name("best")
SEED, ROWS, EVAL_ROWS, LENGTH, VOCAB = 11, 8, 8, 10, 40
CONFIG = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.25, tie_word_embeddings=False,
              bos_token_id=None, eos_token_id=None, pad_token_id=None)

# name, Trainer's settings, patience (0: no early stopping), threshold
RUNS = [
    ("stops", dict(eval_steps=2, save_steps=2, load_best_model_at_end=True), 2, 0.0),
    ("stops, patience 4", dict(eval_steps=1, save_steps=2, load_best_model_at_end=True), 4, 0.0),
    ("threshold", dict(eval_steps=1, save_steps=1, load_best_model_at_end=True), 2, 0.06),
    ("best between saves", dict(eval_steps=1, save_steps=3, load_best_model_at_end=True), 0, 0.0),
    ("keeps two", dict(eval_steps=2, save_steps=2, load_best_model_at_end=True, save_total_limit=2), 0, 0.0),
    ("keeps three", dict(eval_steps=2, save_steps=2, load_best_model_at_end=True, save_total_limit=3), 0, 0.0),
    ("last model", dict(eval_steps=2, save_steps=2, metric_for_best_model="eval_loss", save_total_limit=2), 3, 0.0),
    ("greater", dict(eval_steps=2, save_steps=2, load_best_model_at_end=True, metric_for_best_model="eval_loss",
                     greater_is_better=True), 2, 0.0),
    ("saves the best", dict(eval_steps=1, save_strategy="best", load_best_model_at_end=True), 3, 0.0),
]
STEPS, RATE, BATCH = 24, 2e-2, 2


def make_rows():
    """Rows of a pattern with noise; the pattern can be learned, the noise only by heart."""
    state = SEED

    def below(count):
        nonlocal state
        state = splitmix(state)
        return (state >> 20) % count

    def row():
        at, step = below(VOCAB), 1 + below(3)
        return [below(VOCAB) if below(3) == 0 else (at + i * step) % VOCAB for i in range(LENGTH)]

    rows = {"train": [row() for _ in range(ROWS)], "eval": [row() for _ in range(EVAL_ROWS)]}
    for name, part in rows.items():
        (OUT / f"{name}.jsonl").write_text("".join(json.dumps({"input_ids": ids, "labels": ids}) + "\n" for ids in part))
    return rows


def run(rows, settings, patience, threshold):
    model = transformers.AutoModelForCausalLM.from_pretrained(OUT / "model", dtype=torch.float32)
    sets = {n: [{"input_ids": ids, "labels": ids, "attention_mask": [1] * LENGTH} for ids in part]
            for n, part in rows.items()}
    callbacks = [transformers.EarlyStoppingCallback(patience, threshold)] if patience else []
    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            model=model, train_dataset=sets["train"], eval_dataset=sets["eval"], callbacks=callbacks,
            data_collator=transformers.default_data_collator,
            args=transformers.TrainingArguments(
                output_dir=folder, learning_rate=RATE, lr_scheduler_type="constant", max_steps=STEPS,
                per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH, eval_strategy="steps",
                train_sampling_strategy="sequential", max_grad_norm=1.0, adam_beta1=0.9, adam_beta2=0.999,
                adam_epsilon=1e-8, weight_decay=0.0, optim="adamw_torch", logging_steps=1, report_to="none", use_cpu=True,
                bf16=False, seed=SEED, disable_tqdm=True, **settings))
        trainer.train()
        state = trainer.state
        left = sorted(int(p.name.split("-")[1]) for p in Path(folder).glob("checkpoint-*"))
        best = int(state.best_model_checkpoint.rsplit("-", 1)[1]) if state.best_model_checkpoint else None
        final = {n: p.detach().reshape(-1)[::max(1, p.numel() // 4)][:4].tolist()
                 for n, p in trainer.model.named_parameters()}
    return {"evals": [[r["step"], r["eval_loss"]] for r in state.log_history if "eval_loss" in r],
            "end": state.global_step, "best_metric": state.best_metric, "best_step": state.best_global_step,
            "checkpoints": left, "best_checkpoint": best, "final": final}


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    torch.manual_seed(SEED)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG)).save_pretrained(OUT / "model")
    (OUT / "model" / "generation_config.json").unlink(missing_ok=True)
    rows = make_rows()
    lines = []
    for name, settings, patience, threshold in RUNS:
        case = {"name": name, "settings": settings, "patience": patience, "threshold": threshold,
                **run(rows, settings, patience, threshold)}
        print(name, {k: v for k, v in case.items() if k not in ("final", "settings", "name")})
        lines.append(json.dumps(case, separators=(",", ":")))
    lines = ",\n".join(lines)
    (OUT / "expected.json").write_text(
        f'{{"transformers":"{transformers.__version__}","steps":{STEPS},"rate":{RATE},"batch":{BATCH},"runs":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
