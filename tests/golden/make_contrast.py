#!/usr/bin/env python3
"""Losses of vectors as sentence-transformers computes them, with gradients.

    python make_contrast.py               writes contrast.json beside this script (needs sentence-transformers 6)

Vectors are float32 values of sin((k % 97) * 0.9 + text * 2.3 + row * 1.7) with k = (row * each + text) * width + column,
labels are float32, the arithmetic is float64. A case has the options, the mean loss and its gradient by each component. Cases with "dims"
are MatryoshkaLoss over the loss.
"""
import json
import math
import warnings
from pathlib import Path

import torch
from sentence_transformers.sentence_transformer import losses as L
from sentence_transformers.util import cos_sim, dot_score, pairwise_cos_sim, pairwise_dot_score

warnings.filterwarnings("ignore")
torch.set_default_dtype(torch.float64)
ROWS = 5
SCORES = [0.1, 0.9, 0.5, 0.3, 0.5]
LABELS = [1, 0, 0, 1, 1]


class Vectors(torch.nn.Module):
    """A model whose features are its embeddings."""

    def __init__(self, width):
        super().__init__()
        self.width = width

    def get_embedding_dimension(self):
        return self.width

    def forward(self, features, **kwargs):
        return {"sentence_embedding": features["x"]}


def vectors(each, width):
    k = torch.arange(ROWS * each * width).reshape(ROWS, each, width)
    row, text = torch.arange(ROWS)[:, None, None], torch.arange(each)[None, :, None]
    return torch.sin((k % 97) * 0.9 + text * 2.3 + row * 1.7).float().double()


def triplet(model, o):
    metric = {"cosine": L.TripletDistanceMetric.COSINE, "manhattan": L.TripletDistanceMetric.MANHATTAN,
              "euclidean": L.TripletDistanceMetric.EUCLIDEAN}[o.get("similarity", "euclidean")]
    return L.TripletLoss(model, distance_metric=metric, triplet_margin=o.get("margin", 5))


def distances(cls):
    def make(model, o):
        metric = {"cosine": L.SiameseDistanceMetric.COSINE_DISTANCE, "euclidean": L.SiameseDistanceMetric.EUCLIDEAN,
                  "manhattan": L.SiameseDistanceMetric.MANHATTAN}[o.get("similarity", "cosine")]
        return cls(model, distance_metric=metric, margin=o.get("margin", 0.5))
    return make


def mnrl(model, o):
    return L.MultipleNegativesRankingLoss(
        model, scale=o.get("scale", 20.0), similarity_fct=dot_score if o.get("similarity") == "dot" else cos_sim,
        directions=tuple(o.get("directions", ["query_to_doc"])), partition_mode=o.get("partition", "joint"),
        hardness_mode=o.get("hardness"), hardness_strength=o.get("strength", 0.0))


def pairwise(o, usual):
    return pairwise_dot_score if o.get("similarity", usual) == "dot" else pairwise_cos_sim


MAKERS = {
    "mnrl": mnrl,
    "symmetric_mnrl": lambda m, o: L.MultipleNegativesSymmetricRankingLoss(m, scale=o.get("scale", 20.0)),
    "cosent": lambda m, o: L.CoSENTLoss(m, scale=o.get("scale", 20.0), similarity_fct=pairwise(o, "cosine")),
    "angle": lambda m, o: L.AnglELoss(m, scale=o.get("scale", 20.0)),
    "cosine": lambda m, o: L.CosineSimilarityLoss(m),
    "contrastive": distances(L.ContrastiveLoss),
    "online_contrastive": distances(L.OnlineContrastiveLoss),
    "triplet": triplet,
    "margin_mse": lambda m, o: L.MarginMSELoss(m, similarity_fct=pairwise(o, "dot")),
    "mse": lambda m, o: L.MSELoss(m),
}
ALL = ["query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc"]


def cases():
    for each in (2, 3, 4):
        yield {"loss": "mnrl", "each": each}
        yield {"loss": "mnrl", "each": each, "directions": ALL}
        yield {"loss": "mnrl", "each": each, "directions": ["query_to_doc", "doc_to_query"], "partition": "per_direction"}
        for hardness in ("in_batch_negatives", "hard_negatives", "all_negatives"):
            yield {"loss": "mnrl", "each": each, "hardness": hardness, "strength": 5.0}
    for other in ALL[1:]:
        yield {"loss": "mnrl", "each": 3, "directions": ["query_to_doc", other], "scale": 7.0}
    yield {"loss": "mnrl", "each": 3, "similarity": "dot", "scale": 1.0}
    yield {"loss": "mnrl", "each": 3, "similarity": "dot", "scale": 0.5, "hardness": "all_negatives", "strength": 0.3}
    yield {"loss": "mnrl", "each": 4, "directions": ALL, "hardness": "in_batch_negatives", "strength": 9.0}
    yield {"loss": "symmetric_mnrl", "each": 3}
    yield {"loss": "cosent", "each": 2, "labels": SCORES}
    yield {"loss": "cosent", "each": 2, "labels": SCORES, "similarity": "dot", "scale": 2.0}
    yield {"loss": "angle", "each": 2, "labels": SCORES}
    yield {"loss": "angle", "each": 2, "labels": SCORES, "width": 9}
    yield {"loss": "angle", "each": 4, "labels": SCORES}
    yield {"loss": "angle", "each": 3}
    yield {"loss": "cosine", "each": 2, "labels": SCORES}
    for loss in ("contrastive", "online_contrastive"):
        yield {"loss": loss, "each": 2, "labels": LABELS, **({"margin": 1.7} if loss != "contrastive" else {})}
        yield {"loss": loss, "each": 2, "labels": LABELS, "similarity": "euclidean", "margin": 5.0}
        yield {"loss": loss, "each": 2, "labels": LABELS, "similarity": "manhattan", "margin": 12.0}
        yield {"loss": loss, "each": 2, "labels": [0] * ROWS, "margin": 1.7}
    for similarity in ("euclidean", "cosine", "manhattan"):
        yield {"loss": "triplet", "each": 3, "similarity": similarity, "margin": 9.0}
    yield {"loss": "margin_mse", "each": 3, "labels": SCORES}
    yield {"loss": "margin_mse", "each": 4, "labels": [[s, -s] for s in SCORES]}
    yield {"loss": "margin_mse", "each": 4, "labels": [[1, s, -s] for s in SCORES], "similarity": "cosine"}
    teacher = [[round(math.cos(0.6 * i + 1.1 * k), 3) for k in range(10)] for i in range(ROWS * 3)]
    yield {"loss": "mse", "each": 1, "labels": teacher[:ROWS]}
    yield {"loss": "mse", "each": 3, "labels": teacher[:ROWS]}
    yield {"loss": "mse", "each": 3, "labels": [teacher[3 * i:3 * i + 3] for i in range(ROWS)]}
    dims = {"dims": [3, 10, 6], "weights": [0.5, 1.0, 2.0]}
    yield {"loss": "mnrl", "each": 3, "dims": [10, 6, 3]}
    yield {"loss": "mnrl", "each": 3, "directions": ALL, **dims}
    yield {"loss": "mnrl", "each": 2, "similarity": "dot", "scale": 3.0, **dims}
    yield {"loss": "triplet", "each": 3, "margin": 3.0, **dims}
    yield {"loss": "angle", "each": 2, "labels": SCORES, **dims}
    yield {"loss": "cosine", "each": 2, "labels": SCORES, **dims}
    yield {"loss": "margin_mse", "each": 3, "labels": SCORES, **dims}


def rounded(tensor):
    return [float(f"{x:.10g}") for x in tensor.flatten().tolist()]


def main():
    out = []
    for case in cases():
        width = case.get("width", 10)
        x = vectors(case["each"], width)
        columns = [x[:, i].clone().requires_grad_() for i in range(case["each"])]
        model = Vectors(width)
        loss = MAKERS[case["loss"]](model, case)
        if "dims" in case:
            loss = L.MatryoshkaLoss(model, loss, case["dims"], case.get("weights"))
        labels = torch.tensor(case["labels"], dtype=torch.float32) if "labels" in case else None
        value = loss([{"x": c} for c in columns], labels)
        value.backward()
        gradient = torch.stack([c.grad for c in columns], dim=1)
        out.append({**case, "width": width, "value": float(f"{value.item():.12g}"), "gradient": rounded(gradient)})
    text = ",\n".join(json.dumps(c, separators=(",", ":")) for c in out)
    Path(__file__).with_name("contrast.json").write_text(f'{{"rows": {ROWS}, "cases": [\n{text}\n]}}\n')
    print(len(out), "cases")


main()
