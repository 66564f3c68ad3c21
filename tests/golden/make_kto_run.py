#!/usr/bin/env python3
"""Runs of KTO: what TRL's KTOTrainer logs at each step, the first gradients, and where the weights end.

    python make_kto_run.py           writes kto-run/ beside this script (needs transformers 5, peft, trl 1.16)

Model and adapter are those of preference-run/ (make_preference_run.py). kto-run/ holds answers.jsonl (prompt, completion,
label) and expected.json. LoRA starts from the adapter, and the reference is that start. Twenty steps of 6 answers in
file order, AdamW, a linear schedule, on the CPU in fp32. A prompt of one row is longer than max_length: TRL leaves it out.

expected.json has, for each run, the columns that the trainer logs (means over the batches of a step; null where a step has
no such answer), and of each trained tensor its first gradient
("gradient": norm and elements), its norm, how far it moved, and elements at the end. "spread" is as in make_preference_run.py.
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
import torch
import transformers
import trl

import make_preference_run as base
from make_config_golden import Float64

OUT, FROM = Path(__file__).with_name("kto-run"), Path(__file__).with_name("preference-run")
STEPS, STEP_ROWS, MAX_LENGTH = 20, 6, 20
# name, LoRA, processes, rows of a batch, accumulation, peak of the learning rate, beta, desirable and undesirable weight, clipping
RUNS = [
    ("full", False, 1, 3, 2, 4e-3, 0.3, 1.0, 1.0, 1.0),
    ("full weighted", False, 1, 6, 1, 4e-3, 0.5, 1.5, 0.75, 0.0),
    ("lora", True, 1, 6, 1, 2e-2, 0.5, 1.0, 1.0, 1.0),
    ("lora accumulated", True, 1, 2, 3, 2e-2, 0.3, 0.5, 2.0, 0.0),
    ("two processes", False, 2, 3, 1, 4e-3, 0.3, 1.0, 1.0, 0.0),
]
RELATIVE = ("loss", "grad_norm", "logps/chosen", "logps/rejected")
COLUMNS = (*RELATIVE, "learning_rate", "rewards/chosen", "rewards/rejected", "rewards/margins", "kl")


def make_answers():
    """Desirable answers have other words than undesirable ones, and the labels have no pattern."""
    draws, rows = base.Draws(9), []
    for i in range(STEPS * STEP_ROWS + 1):
        good = draws.below(5) < 3
        rows.append({"prompt": draws.words(2, 9),
                     "completion": " " + draws.words(1, 12, base.WORDS[:26] if good else base.WORDS[18:]),
                     "label": good})
    rows[10]["prompt"] = draws.words(MAX_LENGTH + 3, MAX_LENGTH + 3)
    OUT.mkdir(exist_ok=True)
    (OUT / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


class Gradients(transformers.TrainerCallback):
    """Those of the first step, before they are clipped."""

    def __init__(self):
        self.found = None

    def on_pre_optimizer_step(self, args, state, control, model=None, **rest):
        if self.found is None:
            self.found = {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.requires_grad}


def train(model, reference, rows, accumulation, rate, beta, desirable, undesirable, clip):
    tokenizer = transformers.AutoTokenizer.from_pretrained(FROM / "model")
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    gradients = Gradients()
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.KTOTrainer(
            model=model, ref_model=reference, processing_class=tokenizer, callbacks=[gradients],
            train_dataset=datasets.load_dataset(
                "json", data_files=str(OUT / "answers.jsonl"), split="train", cache_dir=folder),
            args=trl.KTOConfig(
                output_dir=folder, beta=beta, desirable_weight=desirable, undesirable_weight=undesirable,
                learning_rate=rate, lr_scheduler_type="linear", max_length=MAX_LENGTH, per_device_train_batch_size=rows,
                gradient_accumulation_steps=accumulation, max_steps=STEPS, max_grad_norm=clip, adam_beta1=0.9,
                adam_beta2=0.999, adam_epsilon=1e-8, weight_decay=0.0, optim="adamw_torch", logging_steps=1,
                save_strategy="no", report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False,
                seed=base.SEED, disable_tqdm=True,
                ddp_backend="gloo" if "WORLD_SIZE" in os.environ else None))
        trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert len(rows) == STEPS
    final = base.final_tensors(trainer.model, start)
    # clipping comes before the callback: undo it
    scale = max(1.0, rows[0]["grad_norm"] / clip) if clip else 1.0
    for name, gradient in gradients.found.items():
        flat = scale * gradient.reshape(-1)
        entry = final[name.removeprefix("module.").removeprefix("base_model.model.").replace(".default.", ".")]
        entry["gradient"] = {"l2": flat.norm().item(), "elements": flat[::entry["stride"]][:base.SAMPLES].tolist()}
    return {**{c: [row.get(c) for row in rows] for c in COLUMNS}, "final": final}


def spread(a, b):
    out = {}
    for c in COLUMNS:
        out[c] = max(abs(x - y) / (max(abs(y), 1e-300) if c in RELATIVE else 1) for x, y in zip(a[c], b[c]) if y is not None)
    error = [math.dist(a["final"][n]["elements"], b["final"][n]["elements"]) / b["final"][n]["moved_l2"] for n in a["final"]]
    return {**out, "final elements of moved_l2": max(error)}


def run(case, dtype):
    name, lora, _, *rest = case
    torch.set_num_threads(1)
    model, reference = base.load(lora, dtype), None if lora else base.load(lora, dtype)
    with Float64() if dtype == torch.float64 else nullcontext():
        return train(model, reference, *rest)


def rank_main(rank, case, dtype, path):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(case[2]), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="29471", ACCELERATE_USE_CPU="true")
    result = run(case, dtype)
    if rank == 0:
        Path(path).write_text(json.dumps(result))


def run_ranks(case, dtype):
    if case[2] == 1:
        return run(case, dtype)
    with tempfile.NamedTemporaryFile() as file:
        torch.multiprocessing.spawn(rank_main, (case, dtype, file.name), case[2])
        return json.loads(Path(file.name).read_text())


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    make_answers()
    lines = []
    for case in RUNS:
        name, lora, ranks, rows, accumulation, rate, beta, desirable, undesirable, clip = case
        results = [run_ranks(case, dtype) for dtype in (torch.float32, torch.float64)]
        assert max(results[0]["kl"]) > 0.01 and min(results[0]["kl"][1:]) == 0, results[0]["kl"]  # both sides of the clamp
        entry = {"name": name, "lora": lora, "ranks": ranks, "rows": rows, "accumulation": accumulation,
                 "learning_rate": rate, "preference_beta": beta, "preference_desirable_weight": desirable,
                 "preference_undesirable_weight": undesirable, "max_grad_norm": clip,
                 "spread": {k: float(f"{v:.2g}") for k, v in spread(*results).items()}, **base.rounded(results[0])}
        print(name, entry["spread"], *(f"\n  {c} {[x and round(x, 5) for x in results[0][c]]}" for c in COLUMNS))
        lines.append(json.dumps(entry, separators=(",", ":")))
    lines = ",\n".join(lines)
    (OUT / "expected.json").write_text(
        f'{{"trl":"{trl.__version__}","transformers":"{transformers.__version__}","steps":{STEPS},'
        f'"max_length":{MAX_LENGTH},"runs":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
