#!/usr/bin/env python3
"""Runs of preference losses without a reference: what TRL's ORPOTrainer and CPOTrainer log, and where the weights end.

    python make_orpo_run.py       writes orpo-run/expected.json beside this script (needs transformers 5, peft, trl 1.16)

Model, adapter and pairs are those of make_preference_run.py, and so is the form of expected.json. Six steps of four
micro-batches of one pair: these trainers take the chosen answer's own loss over the tokens of a micro-batch, ORPO over
those of prompt and answer.
"""
import json
import os
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = os.environ["TQDM_DISABLE"] = "1"

import datasets
import peft
import torch
import transformers
import trl
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

import make_preference_run as pairs_run
from make_config_golden import Float64

OUT = Path(__file__).with_name("orpo-run")
STEPS, PAIRS, ACCUMULATION = 6, 1, 4
COLUMNS = pairs_run.COLUMNS

# name, LoRA, peak of the learning rate, beta, clipping, trainer, its configuration, keys of ferry
RUNS = [
    ("full orpo", False, 4e-3, 0.3, 1.0, (ORPOTrainer, ORPOConfig), {},
     {"preference_loss": "orpo", "preference_own_tokens": "all"}),
    ("lora orpo", True, 2e-2, 0.1, 0.0, (ORPOTrainer, ORPOConfig), {},
     {"preference_loss": "orpo", "preference_own_tokens": "all"}),
    ("full cpo", False, 4e-3, 0.2, 1.0, (CPOTrainer, CPOConfig), {"loss_type": "sigmoid", "cpo_alpha": 1.0},
     {"preference_loss": "cpo"}),
    ("lora simpo", True, 2e-2, 2.0, 1.0, (CPOTrainer, CPOConfig),
     {"loss_type": "simpo", "cpo_alpha": 0.5, "simpo_gamma": 0.5},
     {"preference_loss": "simpo", "preference_own_weight": "0.5", "preference_gamma": "0.5"}),
]


def train(model, rate, beta, clip, kinds, more):
    tokenizer = transformers.AutoTokenizer.from_pretrained(pairs_run.OUT / "model")
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    trainer_class, config_class = kinds
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_class(
            model=model, processing_class=tokenizer, train_dataset=datasets.load_dataset(
                "json", data_files=str(pairs_run.OUT / "pairs.jsonl"), split="train", cache_dir=folder),
            args=config_class(
                output_dir=folder, beta=beta, learning_rate=rate, lr_scheduler_type="linear",
                per_device_train_batch_size=PAIRS, gradient_accumulation_steps=ACCUMULATION, max_steps=STEPS,
                train_sampling_strategy="sequential", max_grad_norm=clip, adam_beta1=0.9, adam_beta2=0.999,
                adam_epsilon=1e-8, weight_decay=0.0, optim="adamw_torch", logging_steps=1, save_strategy="no",
                report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False, seed=pairs_run.SEED,
                disable_tqdm=True, **more))
        trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert len(rows) == STEPS
    return {**{c: [row[c] for row in rows] for c in COLUMNS}, "final": pairs_run.final_tensors(trainer.model, start)}


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    lines = []
    for name, lora, rate, beta, clip, kinds, more, keys in RUNS:
        results = []
        for dtype, scope in ((torch.float32, nullcontext()), (torch.float64, Float64())):
            model = pairs_run.load(lora, dtype)
            with scope:
                results.append(train(model, rate, beta, clip, kinds, more))
        spread = {k: float(f"{v:.2g}") for k, v in pairs_run.spread(*results).items()}
        case = {"name": name, "lora": lora, "learning_rate": rate, "preference_beta": beta, "max_grad_norm": clip,
                **keys, "spread": spread, **pairs_run.rounded(results[0])}
        print(name, spread, *(f"\n  {c} {[round(x, 5) for x in results[0][c]]}" for c in COLUMNS))
        lines.append(json.dumps(case, separators=(",", ":")))
    lines = ",\n".join(lines)
    (OUT / "expected.json").write_text(
        f'{{"trl":"{trl.__version__}","peft":"{peft.__version__}","transformers":"{transformers.__version__}",'
        f'"pairs":{PAIRS},"accumulation":{ACCUMULATION},"runs":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
