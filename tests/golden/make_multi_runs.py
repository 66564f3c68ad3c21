#!/usr/bin/env python3
"""Runs of sentence-transformers' trainer on several data sets with a loss each: losses and gradient norms of 20 steps, and the
losses of each set evaluated at the end.

    python make_multi_runs.py MODEL_DIR     writes multi_runs/ beside this script (needs sentence-transformers 6)

MODEL_DIR is golden/embeddings/bert of the shared data. Each run is a file of ferry's keys beside its rows. Settings are those of
tests/golden_trace.h, no dropout, rows in order, float32. round_robin is the library's sampler; proportional takes the sets in
ferry's order (data/turns.h), which is written again here, and as many batches of each as the library's sampler says.
"""
import json
import sys
import tempfile
from pathlib import Path

from datasets import Dataset, DatasetDict
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import (
    DefaultBatchSampler, MultiDatasetDefaultBatchSampler, ProportionalBatchSampler, RoundRobinBatchSampler)
from sentence_transformers.sentence_transformer import losses as L
from torch.utils.data import BatchSampler, ConcatDataset, SequentialSampler

OUT = Path(__file__).with_name("multi_runs")
BATCH, STEPS, SEED, EVAL_ROWS = 8, 20, 42, 16
M64 = (1 << 64) - 1


def philox(seed, stream, index):
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    c0, c1, c2, c3 = index & 0xFFFFFFFF, index >> 32, stream & 0xFFFFFFFF, stream >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c1 << 32 | c0


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & M64
    return x ^ x >> 31


def place(seed, stream, n, x):
    """The swap-or-not shuffle of data/permutation.c."""
    key, rounds, reach = philox(seed, stream, 0), 24, 1
    while reach < n:
        rounds, reach = rounds + 4, reach * 2
    for i in range(rounds):
        own = mix((key + 2 * i * 0x9E3779B97F4A7C15) & M64)
        partner = ((own * n >> 64) - x) % n
        if mix(own ^ (max(partner, x) * 0xD6E8FEB86659FD93 & M64)) >> 63:
            x = partner
    return x


class InOrder(DefaultBatchSampler):
    def __init__(self, dataset, batch_size, drop_last, **kwargs):
        BatchSampler.__init__(self, SequentialSampler(dataset), batch_size, drop_last)


class Turns(MultiDatasetDefaultBatchSampler):
    def __iter__(self):
        of = [i for i, s in enumerate(self.batch_samplers) for _ in range(len(s))]
        first = [sum(len(d) for d in self.dataset.datasets[:i]) for i in range(len(self.batch_samplers))]
        batches = [iter(s) for s in self.batch_samplers]
        for i in range(len(of)):
            turn = of[place(SEED, (1 << 60) + self.epoch, len(of), i)]
            yield [row + first[turn] for row in next(batches[turn])]

    def __len__(self):
        return len(ProportionalBatchSampler(self.dataset, self.batch_samplers))


def runs(rows):
    triples = [{k: r[k] for k in ("anchor", "positive", "negative")} for r in rows]
    pairs = [{"one": r["anchor"], "other": r["positive"], "score": round(i * 37 % 11 / 10, 1)} for i, r in enumerate(rows)]
    sides = [{**r, "score": int(r["score"] > 0.5)} for r in pairs]
    two = [{"query": r["anchor"], "answer": r["positive"]} for r in rows]
    yield ("two_proportional", "proportional", {
        "triples": (triples[:43], triples[60:], lambda m: L.MatryoshkaLoss(
            m, L.MultipleNegativesRankingLoss(m, scale=10.0), matryoshka_dims=[48, 16], matryoshka_weights=[1, 0.5]),
            {}, "embedding_loss: mnrl, embedding_scale: 10, matryoshka_dims: [48, 16], matryoshka_weights: [1, 0.5]"),
        "scored": (pairs[20:47], pairs[60:], L.CoSENTLoss, {}, "embedding_loss: cosent")})
    yield ("three_round_robin", "round_robin", {
        "two": (two[:40], two[60:], lambda m: L.MultipleNegativesRankingLoss(m, directions=("query_to_doc", "doc_to_query")),
                {"query": "query: ", "answer": "passage: "},
                "embedding_loss: mnrl, embedding_directions: [query_to_doc, doc_to_query], query_prompt: 'query: ', "
                "document_prompt: 'passage: '"),
        "sides": (sides[10:30], sides[60:], lambda m: L.ContrastiveLoss(
            m, distance_metric=L.SiameseDistanceMetric.EUCLIDEAN, margin=0.9),
            {}, "embedding_loss: contrastive, embedding_similarity: euclidean, embedding_margin: 0.9"),
        "triples": (triples[:33], triples[60:], lambda m: L.TripletLoss(m, triplet_margin=0.7), {},
                    "embedding_loss: triplet, embedding_margin: 0.7")})
    yield ("three_proportional", "proportional", {
        "cosine": (pairs[:16], pairs[60:], L.CosineSimilarityLoss, {}, "embedding_loss: cosine"),
        "online": (sides[24:48], sides[60:], L.OnlineContrastiveLoss, {}, "embedding_loss: online_contrastive"),
        "symmetric": (triples[10:50], triples[60:], L.MultipleNegativesSymmetricRankingLoss, {},
                      "embedding_loss: symmetric_mnrl")})


def train(model_dir, sampler, sets):
    model = SentenceTransformer(str(model_dir), device="cpu", config_kwargs={
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    args = SentenceTransformerTrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=STEPS, per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH,
        learning_rate=1e-3, lr_scheduler_type="cosine_with_min_lr", lr_scheduler_kwargs={"min_lr_rate": 0.1}, warmup_steps=4,
        adam_beta2=0.95, weight_decay=0.1, max_grad_norm=1.0, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True,
        batch_sampler=InOrder, multi_dataset_batch_sampler=sampler if sampler == "round_robin" else Turns,
        prompts={name: s[3] for name, s in sets.items() if s[3]} or None, disable_tqdm=True)
    data = DatasetDict({name: Dataset.from_list(s[0]) for name, s in sets.items()})
    trainer = SentenceTransformerTrainer(
        model=model, args=args, train_dataset=data, loss={name: s[2](model) for name, s in sets.items()},
        eval_dataset=DatasetDict({name: Dataset.from_list(s[1]) for name, s in sets.items()}))
    trainer.train()
    log = [x for x in trainer.state.log_history if "grad_norm" in x]
    lists = [InOrder(d, BATCH, False) for d in data.values()]
    of = ConcatDataset(list(data.values()))
    kind = RoundRobinBatchSampler if sampler == "round_robin" else ProportionalBatchSampler
    return {"epoch_steps": len(kind(of, lists)), "loss": [x["loss"] for x in log], "grad_norm": [x["grad_norm"] for x in log],
            "eval_loss": {name: trainer.evaluate()[f"eval_{name}_loss"] for name in sets}}


def jsonl(rows):
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)


def main():
    model_dir, out = Path(sys.argv[1]), {}
    rows = [json.loads(line) for line in (model_dir / "train.jsonl").read_text().splitlines()[:60 + EVAL_ROWS]]
    OUT.mkdir(exist_ok=True)
    for name, sampler, sets in runs(rows):
        text = "data:\n"
        for own, s in sets.items():
            (OUT / f"{name}.{own}.jsonl").write_text(jsonl(s[0]))
            (OUT / f"{name}.{own}.eval.jsonl").write_text(jsonl(s[1]))
            text += f"  - {{name: {own}, path: {name}.{own}.jsonl, {s[4]}}}\n"
        text += "eval_data:\n" + "".join(
            f"  - {{name: {own}, path: {name}.{own}.eval.jsonl}}\n" for own in reversed(sets)) + (
            f"multi_dataset_batch_sampler: {sampler}\n")
        (OUT / f"{name}.yaml").write_text(text)
        out[name] = train(model_dir / "model", sampler, sets)
        print(name, out[name], flush=True)
    (OUT / "runs.json").write_text(json.dumps(out, indent=1) + "\n")


main()
