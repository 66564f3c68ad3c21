#!/usr/bin/env python3
"""Runs of TRL's RewardTrainer and of sentence-transformers' CrossEncoder: models, rows, losses and gradient norms.

    python make_rewards.py SHARED_GOLDEN     writes rewards/ beside this script (needs trl 1.16, sentence-transformers 6)

Models are the golden embedders with a head for one number. Settings are those of tests/golden_trace.h, no dropout, rows in
order, float32.
"""
import json
import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from torch.utils.data import SequentialSampler
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer
from trl import RewardConfig, RewardTrainer

OUT = Path(__file__).with_name("rewards")
KEYS = dict(max_steps=20, per_device_train_batch_size=4, learning_rate=1e-3, lr_scheduler_type="cosine_with_min_lr",
            lr_scheduler_kwargs={"min_lr_rate": 0.1}, warmup_steps=4, adam_beta2=0.95, weight_decay=0.1, max_grad_norm=1.0,
            logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True)


def log_of(trainer):
    log = [x for x in trainer.state.log_history if "grad_norm" in x]
    return {"loss": [x["loss"] for x in log], "grad_norm": [x["grad_norm"] for x in log]}


class InOrder:
    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)


class Rewards(InOrder, RewardTrainer):
    pass


def model_make(source, name):
    torch.manual_seed(7)
    zero = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} if name == "bert" else {}
    model = AutoModelForSequenceClassification.from_pretrained(source, num_labels=1, dtype=torch.float32, **zero)
    tokenizer = AutoTokenizer.from_pretrained(source)
    for key, tensor in model.named_parameters():
        if key.startswith(("score", "classifier", "bert.pooler")):
            tensor.data = torch.randn_like(tensor) * 0.1
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(OUT / name)
    tokenizer.save_pretrained(OUT / name)
    return model, tokenizer


def rows_write(name, rows):
    (OUT / f"{name}.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


def rewards(golden, texts, coefficient, margin):
    model, tokenizer = model_make(golden / "modern/embed_qwen3/model", "qwen3")
    rows = [{"prompt": t["anchor"] + " ", "chosen": t["positive"], "rejected": t["negative"]} for t in texts]
    if margin:
        rows = [{**r, "margin": i % 4 / 4} for i, r in enumerate(rows)]
    args = RewardConfig(output_dir=tempfile.mkdtemp(), center_rewards_coefficient=coefficient, max_length=None,
                        gradient_checkpointing=False, bf16=False, disable_dropout=True, **KEYS)
    trainer = Rewards(model=model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    trainer.train()
    return rows, log_of(trainer)


def reranking(golden, texts):
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from torch.utils.data import BatchSampler

    class Batches(DefaultBatchSampler):
        def __init__(self, dataset, batch_size, drop_last, **kwargs):
            BatchSampler.__init__(self, SequentialSampler(dataset), batch_size, drop_last)

    model_make(golden / "embeddings/bert/model", "bert")
    model = CrossEncoder(str(OUT / "bert"), device="cpu")
    rows = [{"sentence1": t["anchor"], "sentence2": t["positive" if i % 3 else "negative"], "label": [0.0, 1.0, 0.25][i % 3]}
            for i, t in enumerate(texts)]
    args = CrossEncoderTrainingArguments(output_dir=tempfile.mkdtemp(), batch_sampler=Batches, **KEYS)
    trainer = CrossEncoderTrainer(model=model, args=args, train_dataset=Dataset.from_list(rows),
                                  loss=BinaryCrossEntropyLoss(model))
    trainer.train()
    return rows, log_of(trainer)


def main():
    golden = Path(sys.argv[1])
    texts = [json.loads(line) for line in (golden / "embeddings/bert/train.jsonl").read_text().splitlines()[:24]]
    OUT.mkdir(exist_ok=True)
    runs = {}
    for name, keys, (rows, log) in [
            ("reward", "objective=reward", rewards(golden, texts, None, False)),
            ("reward_margin", "objective=reward center_rewards_coefficient=0.01", rewards(golden, texts, 0.01, True)),
            ("reranking", "objective=reranking max_length=40", reranking(golden, texts))]:
        rows_write(name, rows)
        runs[name] = {"keys": keys, "model": "bert" if name == "reranking" else "qwen3", **log}
        print(name, log["loss"][:2], log["grad_norm"][:2])
    (OUT / "runs.json").write_text(json.dumps(runs, indent=1) + "\n")


main()
