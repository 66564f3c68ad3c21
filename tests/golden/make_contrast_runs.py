#!/usr/bin/env python3
"""Runs of sentence-transformers' trainer: rows, losses and gradient norms of 20 steps.

    python make_contrast_runs.py MODEL_DIR [NAME...]     writes contrast_runs/ beside this script (needs sentence-transformers 6)

MODEL_DIR is golden/embeddings/bert of the shared data. Rows are its training rows, with labels from formulas. Settings are
those of tests/golden_trace.h, no dropout, rows in order, float32.
"""
import json
import math
import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer import losses as L
from torch.utils.data import BatchSampler, SequentialSampler

OUT = Path(__file__).with_name("contrast_runs")
ROWS, BATCH, STEPS, WIDTH = 48, 8, 20, 48


class InOrder(DefaultBatchSampler):
    def __init__(self, dataset, batch_size, drop_last, **kwargs):
        BatchSampler.__init__(self, SequentialSampler(dataset), batch_size, drop_last)


def vector(i, k):
    return [round(math.sin(i * 0.7 + k + 0.31 * j), 4) for j in range(WIDTH)]


def runs(rows):
    triples = [{k: r[k] for k in ("anchor", "positive", "negative")} for r in rows]
    pairs = [{"anchor": r["anchor"], "positive": r["positive"], "score": round(i * 37 % 11 / 10, 1)} for i, r in enumerate(rows)]
    every = ("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
    dims = dict(matryoshka_dims=[48, 32, 16], matryoshka_weights=[1, 1, 0.5])
    yield ("mnrl_matryoshka", triples, lambda m: L.MatryoshkaLoss(m, L.MultipleNegativesRankingLoss(m, directions=every), **dims),
           "embedding_loss=mnrl embedding_directions=" + ",".join(every) + " matryoshka_dims=48,32,16 matryoshka_weights=1,1,0.5")
    yield ("hardness", triples, lambda m: L.MultipleNegativesRankingLoss(
        m, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction", hardness_mode="all_negatives",
        hardness_strength=5.0),
           "embedding_loss=mnrl embedding_directions=query_to_doc,doc_to_query embedding_partition=per_direction "
           "embedding_hardness=all_negatives embedding_hardness_strength=5")
    yield "angle", pairs, L.AnglELoss, "embedding_loss=angle"
    yield ("margin_mse", [{**r, "label": [i % 5 / 4]} for i, r in enumerate(triples)], L.MarginMSELoss,
           "embedding_loss=margin_mse")
    yield ("triplet_matryoshka", triples, lambda m: L.MatryoshkaLoss(m, L.TripletLoss(m, triplet_margin=0.7), **dims),
           "embedding_loss=triplet embedding_margin=0.7 matryoshka_dims=48,32,16 matryoshka_weights=1,1,0.5")
    yield ("mse", [{"anchor": r["anchor"], "positive": r["positive"], "label": vector(i, 0)} for i, r in enumerate(rows)],
           L.MSELoss, "embedding_loss=mse")
    yield ("mse_one", [{"anchor": r["anchor"], "label": vector(i, 0)} for i, r in enumerate(rows)], L.MSELoss,
           "embedding_loss=mse")
    yield ("mse_each", [{**r, "label": [vector(i, k) for k in range(3)]} for i, r in enumerate(triples)], L.MSELoss,
           "embedding_loss=mse")
    yield "symmetric_mnrl", triples, L.MultipleNegativesSymmetricRankingLoss, "embedding_loss=symmetric_mnrl"
    yield "cosent", pairs, L.CoSENTLoss, "embedding_loss=cosent"
    yield "cosine", pairs, L.CosineSimilarityLoss, "embedding_loss=cosine"
    sides = [{**r, "score": int(r["score"] > 0.5)} for r in pairs]
    yield "contrastive", sides, L.ContrastiveLoss, "embedding_loss=contrastive"
    yield "online_contrastive", sides, L.OnlineContrastiveLoss, "embedding_loss=online_contrastive"
    yield "triplet", triples, L.TripletLoss, "embedding_loss=triplet"
    yield ("contrastive_euclidean", [{**r, "score": int(r["score"] > 0.5)} for r in pairs], lambda m: L.ContrastiveLoss(
        m, distance_metric=L.SiameseDistanceMetric.EUCLIDEAN, margin=0.9),
           "embedding_loss=contrastive embedding_similarity=euclidean embedding_margin=0.9")


def train(model_dir, rows, make):
    model = SentenceTransformer(str(model_dir), device="cpu", config_kwargs={
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    args = SentenceTransformerTrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=STEPS, per_device_train_batch_size=BATCH, learning_rate=1e-3,
        lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs={"min_lr_rate": 0.1}, warmup_steps=4, adam_beta2=0.95,
        weight_decay=0.1, max_grad_norm=1.0, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True,
        batch_sampler=InOrder, disable_tqdm=True)
    trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=Dataset.from_list(rows), loss=make(model))
    trainer.train()
    log = [x for x in trainer.state.log_history if "grad_norm" in x]
    return {"loss": [x["loss"] for x in log], "grad_norm": [x["grad_norm"] for x in log]}


def main():
    model_dir = Path(sys.argv[1])
    rows = [json.loads(line) for line in (model_dir / "train.jsonl").read_text().splitlines()[:ROWS]]
    OUT.mkdir(exist_ok=True)
    chosen = sys.argv[2:]
    out = json.loads((OUT / "runs.json").read_text()) if chosen else {}
    for name, data, make, keys in runs(rows):
        if chosen and name not in chosen:
            continue
        (OUT / f"{name}.jsonl").write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in data))
        out[name] = {"keys": keys, **train(model_dir / "model", data, make)}
        print(name, out[name]["loss"][:2], out[name]["grad_norm"][:2], flush=True)
    (OUT / "runs.json").write_text(json.dumps(out, indent=1) + "\n")


main()
