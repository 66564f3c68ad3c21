#!/usr/bin/env python3
"""Preference losses of small models, and what TRL computes for them.

    python make_preference.py               writes preference.json beside this script (needs transformers 5 and trl 1.16)

Weights follow the formula of make_config_golden.py, everything is float64. "pairs" are token ids. "models" have the token
losses of all completions (chosen and rejected of pair 0, of pair 1, ...) and the reference: log probabilities near those
of the model. A case has the mean loss over the pairs and its gradients by all parameters. "points" are losses of single
pairs with their derivatives by the log probability of the chosen and of the rejected completion, also far from 0.

The losses are those of trl's DPOTrainer, for simpo, cpo and smoothed sigmoid of its CPOTrainer, for orpo of its ORPOTrainer ("by" says which). Smoothed
sigmoid_norm is in neither; its formula stands here.
"""
import json
import os
import types
import warnings
from collections import defaultdict
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
import trl

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # its CPOTrainer is experimental
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

from config_base import BASE
from make_config_golden import Float64, gradient_entry, load_config, open_model, parameters_of, weight_of

OUT = Path(__file__).with_name("preference.json")

PAIRS = [
    {"prompt": [5, 17, 3, 8, 30], "chosen": [3, 3, 12, 25, 1, 9], "rejected": [33, 7, 2]},
    {"prompt": [19, 28], "chosen": [4], "rejected": [11, 6, 21, 36, 14, 10, 0]},
    {"prompt": [36, 3, 1, 20, 5, 5, 13, 31, 36], "chosen": [7, 29, 15, 2], "rejected": [7, 29, 22, 18, 2]},
]
# policy minus reference of the chosen and the rejected completion
RATIOS = [(1.3, -0.7), (-0.9, 0.4), (2.2, 1.7)]

# loss, beta, label smoothing, gamma, weight of the chosen completion's own loss (0 unless it is said)
LOSSES = [
    ("sigmoid", 0.1, 0, 0), ("sigmoid", 0.3, 0.1, 0), ("hinge", 0.1, 0, 0), ("hinge", 1.5, 0, 0), ("ipo", 0.1, 0, 0),
    ("ipo", 0.7, 0, 0), ("robust", 0.1, 0.1, 0), ("robust", 0.5, 0.3, 0), ("exo_pair", 0.1, 0, 0),
    ("exo_pair", 0.5, 0.1, 0), ("nca_pair", 0.2, 0, 0), ("bco_pair", 0.2, 0, 0), ("sppo_hard", 0.1, 0, 0),
    ("apo_zero", 0.2, 0, 0), ("apo_down", 0.2, 0, 0), ("discopop", 0.05, 0, 0), ("discopop", 0.3, 0, 0),
    ("sigmoid_norm", 2, 0, 0), ("sigmoid_norm", 2, 0.1, 0), ("simpo", 2, 0, 0.5), ("simpo", 2.5, 0.1, 1),
    ("simpo", 2, 0, 0.5, 1), ("cpo", 0.1, 0, 0, 1), ("cpo", 0.5, 0.1, 0, 0.3), ("cpo", 0.2, 0, 0, 0), ("orpo", 0.1, 0, 0, 1),
    ("orpo", 1.5, 0, 0, 0.7), ("sigmoid", 0.1, 0, 0, 0.5),
]
SOME = [loss for loss in LOSSES if loss[:3] in (("sigmoid", 0.1, 0), ("ipo", 0.1, 0), ("robust", 0.5, 0.3), ("simpo", 2, 0),
                                                ("cpo", 0.1, 0), ("orpo", 0.1, 0))]

# name, model_type, keys over BASE, losses
MODELS = [
    ("llama", "llama", dict(num_key_value_heads=2), LOSSES),
    ("gpt2", "gpt2", {}, SOME),  # tied, biases
    ("gemma2", "gemma2", {}, SOME),  # tied, logits are capped
    ("granite", "granite", {}, SOME),  # logits are divided
]

# policy minus reference, tokens: of the chosen and the rejected completion
POINTS = [((1, -0.5), (5, 7)), ((-3.25, 4.5), (1, 3)), ((0, 0), (2, 2)), ((0.01, 0.02), (9, 4)), ((60, -45), (8, 1)),
          ((-45, 60), (3, 3)), ((700, -900), (20, 30)), ((-900, 700), (1, 50)), ((5000, 4990), (100, 120)),
          ((-45, -60), (3, 3)), ((-900, -700), (1, 50))]


def by_formula(beta, smoothing, policy, reference):
    """Smoothed sigmoid_norm."""
    means = [(sum(p) - r) / len(p) for p, r in zip(policy, reference)]
    x = beta * (torch.stack(means[::2]) - torch.stack(means[1::2]))
    return (-(1 - smoothing) * F.logsigmoid(x) - smoothing * F.logsigmoid(-x)).mean()


def by_cpo(kind, beta, smoothing, gamma, policy, reference):
    """trl's CPOTrainer has no reference; for smoothed sigmoid it gets ratios instead of log probabilities."""
    trainer = types.SimpleNamespace(alpha=0.0, loss_type=kind, beta=beta, label_smoothing=smoothing, simpo_gamma=gamma,
                                    accelerator=types.SimpleNamespace(device="cpu"))
    if kind == "simpo":
        values = torch.stack([sum(p) / len(p) for p in policy])
    else:
        values = torch.stack([sum(p) - r for p, r in zip(policy, reference)])
    return CPOTrainer.cpo_loss(trainer, values[::2], values[1::2])[0].mean()


def by_dpo(kind, beta, smoothing, policy, reference):
    """trl's DPOTrainer, as an object with no more than what its loss reads: the model's output is given."""
    order = [*range(0, len(policy), 2), *range(1, len(policy), 2)]  # chosen first, then rejected
    longest = max(map(len, policy))
    log_probs = torch.stack([F.pad(torch.stack(list(policy[i])), (0, longest - len(policy[i]))) for i in order])
    mask = torch.tensor([[0] + [1] * len(policy[i]) + [0] * (longest - len(policy[i])) for i in order])
    trainer = types.SimpleNamespace(
        model=types.SimpleNamespace(training=True), aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=True,
        f_divergence_type="reverse_kl", loss_types=[kind], loss_weights=[1.0], beta=beta, label_smoothing=smoothing,
        use_weighting=False, _metrics={"train": defaultdict(list)}, _total_train_tokens=0, _tp_size=1,
        args=types.SimpleNamespace(discopop_tau=0.05),
        accelerator=types.SimpleNamespace(device="cpu", gather=lambda x: x, gather_for_metrics=lambda x: x))
    zeros = torch.zeros_like(log_probs)
    output = types.SimpleNamespace(log_probs=log_probs, entropy=zeros, mean_logits=zeros, is_top1=mask[:, 1:].bool())
    inputs = {"input_ids": mask, "attention_mask": mask, "completion_mask": mask,
              "ref_chosen_logps": torch.tensor(reference[::2]), "ref_rejected_logps": torch.tensor(reference[1::2])}
    return trl.DPOTrainer._compute_loss(trainer, lambda **_: output, inputs, False)


def by_orpo(beta, policy):
    """trl's ORPOTrainer, which gets mean log probabilities."""
    trainer = types.SimpleNamespace(beta=beta, accelerator=types.SimpleNamespace(device="cpu"))
    means = torch.stack([sum(p) / len(p) for p in policy])
    return -Double.call(ORPOTrainer.odds_ratio_loss, trainer, means[::2], means[1::2])[0].mean()


class Double:
    """trl's ORPO rounds to float32; here it does not."""

    @staticmethod
    def call(function, *args):
        kept, torch.Tensor.float = torch.Tensor.float, lambda x: x
        try:
            return function(*args)
        finally:
            torch.Tensor.float = kept


def loss_of(kind, beta, smoothing, gamma, *rest):
    """The mean over pairs, and who computed it. policy: the token log probabilities of each completion."""
    *own, policy, reference = rest
    value, by = loss_apart(kind, beta, smoothing, gamma, policy, reference)
    for weight in own:  # the mean over pairs of the chosen completions' token losses
        value = value - weight * sum(sum(p) / len(p) for p in policy[::2]) / (len(policy) // 2)
    return value, by


def loss_apart(kind, beta, smoothing, gamma, policy, reference):
    if kind == "cpo":
        return by_cpo("sigmoid", beta, smoothing, gamma, policy, [0.0] * len(policy)), "CPOTrainer"
    if kind == "orpo":
        return by_orpo(beta, policy), "ORPOTrainer"
    if kind == "sigmoid_norm" and smoothing:
        return by_formula(beta, smoothing, policy, reference), "formula"
    if kind == "simpo" or kind == "sigmoid" and smoothing:
        return by_cpo(kind, beta, smoothing, gamma, policy, reference), "CPOTrainer"
    if kind == "exo_pair":
        smoothing = smoothing or 1e-3  # as DPOTrainer's constructor does
    return by_dpo(kind, beta, smoothing, policy, reference), "DPOTrainer"


def settings(loss):
    return dict(zip(("loss", "beta", "label_smoothing", "gamma", "own"), loss))


def log_probabilities(model):
    """Of the tokens of each completion: chosen and rejected of pair 0, then of pair 1, ..."""
    out = []
    for pair in PAIRS:
        for key in ("chosen", "rejected"):
            ids = pair["prompt"] + pair[key]
            log_probs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
            out.append([log_probs[t - 1, ids[t]] for t in range(len(pair["prompt"]), len(ids))])
    return out


def run(name, model_type, keys, losses):
    keys = dict(BASE[model_type], model_type=model_type, **keys)
    model = open_model(load_config(keys)).to(torch.float64).eval()
    with torch.no_grad():
        for n, p in parameters_of(model):
            p.copy_(weight_of(n, p.shape, 0 if model_type == "gemma2" else 1))  # that one scales by 1 + w
        start = log_probabilities(model)
    ratios = [x for pair in RATIOS for x in pair]
    reference = [round(sum(p).item() - x, 3) for p, x in zip(start, ratios)]
    cases = []
    for loss in losses:
        model.zero_grad()
        value, by = loss_of(*loss, log_probabilities(model), reference)
        value.backward()
        cases.append({"name": f"{name}, {loss[0]}, beta {loss[1]}, smoothing {loss[2]}, gamma {loss[3]}{f', own {loss[4]}' if loss[4:] else ''}", "model": name,
                      "by": by, **settings(loss), "mean": value.item(),
                      "tensors": [gradient_entry(n, p) for n, p in parameters_of(model)]})
    return {"name": name, "config": keys, "losses": [round(-x.item(), 10) for p in start for x in p],
            "reference": reference}, cases


def points(loss):
    out = []
    for ratio, counts in POINTS:
        reference = [-20.25, -31.5]
        sums = [torch.tensor(r + x, requires_grad=True) for r, x in zip(reference, ratio)]
        policy = [[s] + [torch.zeros(())] * (n - 1) for s, n in zip(sums, counts)]
        value, _ = loss_of(*loss, policy, reference)
        value.backward()
        numbers = [value.item(), *(0.0 if s.grad is None else s.grad.item() for s in sums)]
        if all(map(lambda x: abs(x) < 1e300, numbers)):  # discopop overflows
            out.append({"policy": [s.item() for s in sums], "reference": reference, "count": list(counts),
                        "mean": numbers[0], "gradient": numbers[1:]})
    return {**settings(loss), "pairs": out}


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    with Float64():
        results = [run(*args) for args in MODELS]
        single = [points(loss) for loss in LOSSES]
    dump = lambda values: ",\n".join(json.dumps(v, separators=(",", ":"), allow_nan=False) for v in values)
    OUT.write_text(f'{{"trl":"{trl.__version__}","transformers":"{transformers.__version__}","pairs":{json.dumps(PAIRS)},\n'
                   f'"models":[\n{dump(m for m, _ in results)}],\n"points":[\n{dump(single)}],\n'
                   f'"cases":[\n{dump(c for _, cases in results for c in cases)}\n]}}\n')


if __name__ == "__main__":
    main()
