#!/usr/bin/env python3
"""Metrics of an evaluation as scikit-learn, SciPy and sentence-transformers compute them.

    python make_scores.py            writes scores.json beside this script (needs scikit-learn, SciPy, sentence-transformers 6)

Classes and numbers are in the file. Vectors are float32 values of sin(k * 0.9 + text * 2.3 + row * 1.7) with
k = (row * each + text) * width + column; text "row, text" has the words of `names`, and equal names have the vector of the first.
"""
import json
import math
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy.stats import pearsonr, spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation as E
from sklearn import metrics as M

warnings.filterwarnings("ignore")
CLASSES = [
    (2, [1, 0, 1, 1, 0, 0, 1], [1, 1, 1, 0, 0, 0, 1]),
    (2, [1, 1, 0], [0, 0, 0]),
    (2, [0, 0, 0], [0, 0, 0]),
    (4, [0, 1, 2, 2, 1, 0, 0, 2, 1, 2], [0, 2, 2, 1, 1, 0, 2, 2, 1, 0]),
    (5, [0, 0, 3, 3, 1], [0, 4, 3, 0, 0]),
    (3, [2, 2], [2, 2]),
]
NUMBERS = [
    ([0.5, 2.0, 2.0, 3.5, -1.0, 4.25], [0.25, 2.5, 1.75, 3.0, 1.75, 1.75]),
    ([1.0, 2.0, 3.0], [3.0, 1.0, 2.0]),
    ([1.0, 1.0, 1.0], [3.0, 1.0, 2.0]),
    ([1.0, 2.0], [0.5, 0.25]),
]
WIDTH = 6


def classes(count, label, found):
    got = {"matthews_correlation": M.matthews_corrcoef(label, found)}
    for mode, end in ([("binary", "")] if count == 2 else [("macro", "_macro"), ("weighted", "_weighted")]):
        for name, score in (("f1", M.f1_score), ("precision", M.precision_score), ("recall", M.recall_score)):
            got[name + end] = score(label, found, average=mode, zero_division=0)
    return {"classes": count, "label": label, "found": found, "scores": got}


def numbers(label, found):
    got = {"mse": M.mean_squared_error(label, found), "pearson": pearsonr(label, found)[0], "spearmanr": spearmanr(label, found)[0]}
    return {"label": label, "found": found, "scores": {k: None if math.isnan(v) else float(v) for k, v in got.items()}}


class Fixed(SentenceTransformer):
    """A model whose vectors are looked up."""

    def __init__(self, table):
        torch.nn.Module.__init__(self)
        self.table = table
        self.model_card_data = type("Card", (), {"set_evaluation_metrics": lambda *a, **k: None})()
        self.similarity_fn_name = "cosine"

    def encode(self, sentences, **kwargs):
        return torch.stack([self.table[s] for s in sentences]).double()

    encode_query = encode_document = encode


def vectors(kind, names, label=None):
    each, table, got = len(names[0]), {}, {}
    for row, texts in enumerate(names):
        for text, name in enumerate(texts):
            k = torch.arange(WIDTH, dtype=torch.float64) + (row * each + text) * WIDTH
            table.setdefault(name, torch.sin(k * 0.9 + text * 2.3 + row * 1.7).float())
    model, a, b = Fixed(table), [t[0] for t in names], [t[1] for t in names]
    if kind == "pairs":
        made = E.EmbeddingSimilarityEvaluator(a, b, label, similarity_fn_names=["cosine"], write_csv=False)
    elif kind == "triplets":
        made = E.TripletEvaluator(a, b, [t[2] for t in names], similarity_fn_names=["cosine"], write_csv=False)
    else:
        relevant = {}
        for q, d in zip(a, b):
            relevant.setdefault(q, set()).add(d)
        made = E.InformationRetrievalEvaluator({q: q for q in relevant}, {d: d for d in b}, relevant, write_csv=False,
                                               score_functions={"cosine": lambda x, y: torch.nn.functional.normalize(x, dim=-1)
                                                                @ torch.nn.functional.normalize(y, dim=-1).T})
    for name, value in made(model).items():
        short = name.split("cosine_")[-1] if kind == "retrieval" else name
        keep = kind != "retrieval" or short.split("@")[0] in ("accuracy", "mrr", "ndcg", "map")
        if keep:
            got["cosine_" + short if kind == "retrieval" else name] = float(value)
    return {"kind": kind, "names": names, "label": label, "scores": got}


def main():
    many = [[f"q{i % 23}", f"d{i * 7 % 31}"] for i in range(60)]
    plain = [[f"q{i}", f"d{i}"] for i in range(130)]
    triples = [[f"a{i}", f"p{i}", f"n{i}"] for i in range(9)]
    pairs = [[f"a{i}", f"b{i}"] for i in range(8)]
    out = {"width": WIDTH, "classes": [classes(*c) for c in CLASSES], "numbers": [numbers(*n) for n in NUMBERS],
           "vectors": [vectors("pairs", pairs, [0.125, 0.875, 0.5, 0.25, 0.5, 0.75, 0.0, 0.5]), vectors("triplets", triples),
                       vectors("retrieval", many), vectors("retrieval", plain), vectors("retrieval", [["q", "d"]])]}
    lines = [f"\"{key}\": " + (json.dumps(value) if key == "width" else "[\n" + ",\n".join(map(json.dumps, value)) + "]")
             for key, value in out.items()]
    Path(__file__).with_name("scores.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
