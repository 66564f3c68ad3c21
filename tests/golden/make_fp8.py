#!/usr/bin/env python3
"""Losses and gradients of models whose linear layers multiply in FP8, as compute_dtype=fp8 defines it.

    python make_fp8.py FERRY         writes fp8/golden.json beside this script (needs torch and transformers)

FERRY makes the models (`ferry init seed=1`) from the config.json of fp8/*/. Sides are no multiples of 128. All that is
not a code is fp32, and so are the stages that tests/test_model_fp8.c compares: with bf16 a rounding may give the next
code, and such steps grow from layer to layer. `plain` has the same numbers without codes. Gradients are samples of each
tensor.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

HERE = Path(__file__).parent / "fp8"
BLOCK = 128
SAMPLES = 128
WHOLE = ("embed", "wte", "wpe", "lm_head", "score")


def cuts(first, count):
    """Where blocks of a side end, if its first element is element `first` of a matrix."""
    ends = [e - first for e in range(BLOCK, first + count, BLOCK) if e > first]
    return list(zip([0, *ends], [*ends, count]))


def coded(x, scale):
    """x / scale, rounded to E4M3."""
    return torch.where(scale > 0, x / scale, torch.zeros_like(x)).to(torch.float8_e4m3fn).float()


class Fp8(torch.autograd.Function):
    """y = x w^T + b with w [out, in]. parts: the matrices of a fused tensor, whose gradients of x are separate."""

    @staticmethod
    def forward(ctx, x, w, b, parts, plain):
        ctx.shape = x.shape
        x = x.reshape(-1, x.shape[-1])
        ctx.save_for_backward(x, w)
        ctx.has_bias, ctx.parts, ctx.plain = b is not None, parts, plain
        y = x @ w.T if plain else multiply(x, w)
        if b is not None:
            y = y + b
        return y.reshape(*ctx.shape[:-1], -1)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = dy.reshape(-1, dy.shape[-1])
        dx, at = 0, 0
        for rows in ctx.parts or [w.shape[0]]:
            part = dy[:, at:at + rows]
            dx = dx + (part @ w[at:at + rows] if ctx.plain else multiply_back(part, w, at))
            at += rows
        return dx.reshape(ctx.shape), dy.T @ x, dy.sum(0) if ctx.has_bias else None, None, None


def squares(w):
    """The codes of w as numbers, and the scale of each element's square."""
    codes, scales = torch.zeros_like(w), torch.zeros_like(w)
    for r0, r1 in cuts(0, w.shape[0]):
        for c0, c1 in cuts(0, w.shape[1]):
            scale = w[r0:r1, c0:c1].abs().amax() / 448
            codes[r0:r1, c0:c1] = coded(w[r0:r1, c0:c1], scale)
            scales[r0:r1, c0:c1] = scale
    return codes, scales


def rows_of_codes(x, ends):
    """For each block of columns: where it is, its codes as numbers and the scale of each row."""
    for k0, k1 in ends:
        scale = x[:, k0:k1].abs().amax(dim=1) / 448
        yield k0, k1, coded(x[:, k0:k1], scale[:, None]), scale


def multiply(x, w):
    codes, scales = squares(w)
    y = torch.zeros(x.shape[0], w.shape[0])
    for k0, k1, q, scale in rows_of_codes(x, cuts(0, w.shape[1])):
        y += (q @ codes[:, k0:k1].T) * (scale[:, None] * scales[:, k0][None, :])
    return y


def multiply_back(dy, w, first):
    codes, scales = squares(w)
    dx = torch.zeros(dy.shape[0], w.shape[1])
    for k0, k1, q, scale in rows_of_codes(dy, cuts(first, dy.shape[1])):
        dx += (q @ codes[first + k0:first + k1]) * (scale[:, None] * scales[first + k0][None, :])
    return dx


class Layer(torch.nn.Module):
    def __init__(self, of, parts, plain):
        super().__init__()
        self.weight, self.bias, self.parts, self.plain = of.weight, of.bias, parts, plain
        self.turned = isinstance(of, Conv1D)

    def forward(self, x):
        return Fp8.apply(x, self.weight.T if self.turned else self.weight, self.bias, self.parts, self.plain)


def replace(model, config, plain):
    for name, module in list(model.named_modules()):
        if not isinstance(module, (torch.nn.Linear, Conv1D)) or any(word in name for word in WHOLE):
            continue
        parts = None
        if name.endswith("qkv_proj"):
            kv = config.num_key_value_heads * config.hidden_size // config.num_attention_heads
            parts = [config.hidden_size, 2 * kv]  # ferry multiplies k and v at once
        parent = model.get_submodule(name.rpartition(".")[0])
        setattr(parent, name.rpartition(".")[2], Layer(module, parts, plain))


def run(path, rows, plain):
    model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.float32, attn_implementation="eager")
    for name, p in model.named_parameters():
        if p.ndim == 1 and name.endswith("norm.weight"):  # with weights of 1 many numbers are between two codes
            p.data = (1 + 0.1 * torch.sin(0.7 * torch.arange(p.numel(), dtype=torch.float64))).float()
    replace(model, model.config, plain)
    losses = []
    for row in rows:
        ids = torch.tensor([row])
        logits = model(ids).logits[0, :-1].float()
        losses += [torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")]
    losses = torch.cat(losses)
    losses.mean().backward()
    gradients = {}
    for name, p in model.named_parameters():
        flat = p.grad.reshape(-1)
        step = max(1, flat.numel() // SAMPLES)
        gradients[name] = {"count": flat.numel(), "step": step, "norm": flat.double().norm().item(),
                           "sample": [float(f"{x:.6g}") for x in flat[::step].tolist()]}
    return {"losses": losses.tolist(), "gradients": gradients}


def main():
    ferry = sys.argv[1]
    torch.manual_seed(0)
    rows = [[(7 * i * i + 11 * r + 3 * i) % 320 for i in range(n)] for r, n in enumerate((14, 11, 9))]
    golden = {"rows": rows, "models": {}}
    for config in sorted(HERE.glob("*/config.json")):
        with tempfile.TemporaryDirectory() as temporary:
            subprocess.run([ferry, "init", f"config={config}", f"output_dir={temporary}/m", "seed=1", "export_dtype=bf16"],
                           check=True, stderr=subprocess.DEVNULL)
            golden["models"][config.parent.name] = {
                "fp8": run(f"{temporary}/m", rows, 0), "plain": run(f"{temporary}/m", rows, 1)}
    (HERE / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


main()
