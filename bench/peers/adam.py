#!/usr/bin/env python3
"""AdamW on the CPU: ferry, torch's fused step and DeepSpeed's, the whole job of an offloaded update.

    python3 bench/peers/adam.py [--ferry build/ferry] [--log2-params 26] [--threads 2] [--rounds 3]

The job: a bf16 gradient comes in and a bf16 weight goes out. ferry's is one pass, because the upper plane of its
fp32 master is the bf16 weight (26 bytes a parameter cross the bus). Others keep fp32 weights, m, v and gradients:
g32.copy_(g16); step; p16.copy_(p32), which is what ZeRO-Offload does with a shard (46 bytes with write-allocate).
With clipping they add a norm and a scaling pass over g32; ferry takes the norm where the gradient is rounded, before it
comes to host memory, and scales it inside the same pass: `ferry bench adam` always does. `step` is their step alone,
in fp32. Everything is checked against AdamW in fp64 on a sample.

Each job is a process of its own, in turn; prints medians of rounds, and of the ratios within a round.

Needs: torch; deepspeed (its cpu_adam is compiled at first use) is left out, and said so, where it is not installed.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

JOBS = [f"{system}_{job}" for system in ("torch", "deepspeed") for job in ("step", "whole", "whole_clip")]
RATE, BETAS, EPSILON, DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01


def reference(p, g, steps):
    """AdamW in fp64 with the same gradient every step."""
    p, g = p.double(), g.double()
    m, v = g * 0, g * 0
    for t in range(1, steps + 1):
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g * g
        d = (v / (1 - BETAS[1] ** t)).sqrt() + EPSILON
        p = p * (1 - RATE * DECAY) - RATE * (m / (1 - BETAS[0] ** t)) / d
    return p


def huge(count, dtype):
    """Memory that asks for huge pages, as ferry's does."""
    import ctypes

    import torch

    bytes_each = torch.empty(0, dtype=dtype).element_size()
    raw = torch.empty(count * bytes_each + (2 << 20), dtype=torch.uint8)
    start = -raw.data_ptr() % (2 << 20)
    ctypes.CDLL(None).madvise(ctypes.c_void_p(raw.data_ptr() + start), ctypes.c_size_t(count * bytes_each), 14)
    return raw[start : start + count * bytes_each].view(dtype)


def run_one(job, log2_params, threads, reps):
    """One process: seconds of the median step as JSON."""
    import torch

    torch.set_num_threads(threads)
    system, kind = job.split("_", 1)
    count = 1 << log2_params
    whole, clip = kind.startswith("whole"), kind.endswith("clip")

    def fill(dtype, scale):
        piece = (torch.randn(1 << 20, generator=torch.Generator().manual_seed(7)) * scale).to(dtype)
        out = huge(count, dtype)
        out.view(-1, 1 << 20).copy_(piece)
        return out

    p = torch.nn.Parameter(fill(torch.float32, 1.0))
    p.grad = fill(torch.float32, 0.01)
    g16 = fill(torch.bfloat16, 0.01)
    p16 = fill(torch.bfloat16, 1.0)
    if whole:
        p.grad.copy_(g16)
    sample = torch.randint(0, count, (1 << 16,), generator=torch.Generator().manual_seed(1))
    p_before, g_before = p.detach()[sample].clone(), p.grad[sample].clone()
    options = dict(lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=DECAY)
    if system == "deepspeed":
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        optimizer = DeepSpeedCPUAdam([p], **options)
    else:
        optimizer = torch.optim.AdamW([p], fused=True, **options)

    @torch.no_grad()
    def step():
        if whole:
            p.grad.copy_(g16)
        if clip:
            norm = p.grad.norm()
            p.grad.mul_(torch.clamp(1e12 / (norm + 1e-6), max=1.0))  # never binds: the pass costs the same
        optimizer.step()
        if whole:
            p16.copy_(p.detach())

    times = []
    for i in range(2 + reps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    expected = reference(p_before, g_before, 2 + reps)
    worst = ((p.detach()[sample].double() - expected).abs() / expected.abs().clamp(min=1e-3)).max().item()
    if not worst < 1e-4 or (whole and not torch.equal(p16[sample], p.detach()[sample].bfloat16())):
        sys.exit(f"{job} is not AdamW: {worst:g} off")
    print(json.dumps({"rate": count / statistics.median(times[2:])}))


def run_ferry(ferry, name, count, threads):
    out = subprocess.run(
        [ferry, "bench", name, f"count={count}", f"threads={threads}", "--json"], check=True, capture_output=True,
        text=True)
    return next(r for r in json.loads(out.stdout)["runs"] if r["threads"] == threads)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ferry", default="build/ferry")
    p.add_argument("--log2-params", type=int, default=26)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--reps", type=int, default=5)
    p.add_argument("--states", default="adam,adam-bf16", help="of ferry: adam, adam-bf16, adam-8bit")
    p.add_argument("--jobs", default=",".join(JOBS))
    p.add_argument("--one", choices=JOBS, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        return run_one(args.one, args.log2_params, args.threads, args.reps)
    jobs, states = args.jobs.split(","), args.states.split(",")
    if importlib.util.find_spec("deepspeed") is None:
        print("deepspeed is not installed: left out")
        jobs = [j for j in jobs if not j.startswith("deepspeed")]
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    own, theirs = {s: [] for s in states}, {j: [] for j in jobs}
    for _ in range(args.rounds):
        for name in states:
            own[name].append(run_ferry(args.ferry, name, 1 << args.log2_params, args.threads))
        for job in jobs:
            out = subprocess.run(
                [sys.executable, os.path.abspath(__file__), "--one", job, "--log2-params", str(args.log2_params),
                 "--threads", str(args.threads), "--reps", str(args.reps)], check=True, capture_output=True, text=True)
            theirs[job].append(json.loads(out.stdout.splitlines()[-1])["rate"])
    print(f"{1 << args.log2_params} parameters, {args.threads} threads, {args.rounds} rounds; Gparameters/s, and ferry's / theirs")
    print(f"{'':22}{'':>8}" + "".join(f"{name:>12}" for name in states))
    print(f"{'ferry':30}" + "".join(
        f"{statistics.median(r['parameters_per_s'] for r in own[name]) * 1e-9:12.2f}" for name in states))
    print(f"{'  of RMWx3':30}" + "".join(
        f"{statistics.median(r['of_rmw3'] for r in own[name]):12.2f}" for name in states))
    for job in jobs:
        ratios = [statistics.median(o["parameters_per_s"] / t for o, t in zip(own[name], theirs[job])) for name in states]
        print(f"{job:22}{statistics.median(theirs[job]) * 1e-9:8.2f}" + "".join(f"{r:12.2f}" for r in ratios))


if __name__ == "__main__":
    sys.exit(main())
