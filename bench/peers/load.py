#!/usr/bin/env python3
"""Loading a model: ferry, raw reads, transformers and safetensors on the same files.

    python3 bench/peers/load.py --model DIR [--ferry build/ferry] [--rounds 3]

DIR is a HuggingFace directory in safetensors, of its own dtype; `ferry init` makes one of any size. Each system
loads in a process of its own, in turn, cold (the files put out of the page cache; a virtual machine's host may
still have them) and warm. What is timed ends with weights in memory of the process's own, because a trainer
writes to them: transformers and safetensors only map files until then, so their tensors are copied once; the
time without that copy stands beside it. Imports are not counted. Prints medians, resident peaks, and the ratio
of rates, ferry's / theirs. ferry's own figures are those of `ferry bench load` on the same directory, which
also has the limit: raw reads into fresh memory.

Needs: torch, transformers, safetensors.
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import time

SYSTEMS = ("safetensors", "transformers_bf16", "transformers_fp32")


def files_of(model):
    return sorted(glob.glob(os.path.join(model, "*.safetensors")))


def set_cache(files, state):
    for name in files:
        with open(name, "rb") as f:
            if state == "cold":
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while f.read(1 << 22):
                    pass


def peak_kib(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(key))


def load_safetensors(files):
    from safetensors.torch import load_file

    tensors = {}
    for name in files:
        tensors.update(load_file(name))
    return list(tensors.values())


def load_transformers(model, dtype):
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, torch_dtype=getattr(torch, dtype))
    return list(loaded.parameters()), loaded


def run_one(system, model, state):
    import torch

    if system != "safetensors":
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        from transformers import AutoModelForCausalLM  # noqa: F401  the import is not counted

    files = files_of(model)
    set_cache(files, state)
    before = peak_kib("VmRSS")
    begin = time.monotonic()
    if system == "safetensors":
        tensors, keep = load_safetensors(files), None
    else:
        tensors, keep = load_transformers(model, "bfloat16" if system.endswith("bf16") else "float32")
    mapped = time.monotonic() - begin
    own = [torch.empty_like(t).copy_(t.detach()) for t in tensors]
    seconds = time.monotonic() - begin
    del keep
    print(json.dumps({"seconds": seconds, "mapped_seconds": mapped, "tensors": len(own),
                      "peak_bytes": (peak_kib("VmHWM") - before) * 1024}))


def rate(size, runs, key):
    return size / statistics.median(run[key] for run in runs) * 1e-9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--ferry", default="build/ferry")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", choices=SYSTEMS)
    parser.add_argument("--state", choices=("cold", "warm"))
    args = parser.parse_args()
    if args.one:
        run_one(args.one, args.model, args.state)
        return
    size = sum(os.path.getsize(name) for name in files_of(args.model))
    ours = json.loads(subprocess.run([args.ferry, "bench", "load", "models=" + args.model, "--json"],
                                     check=True, stdout=subprocess.PIPE).stdout)
    result = {"files_bytes": size, "runs": []}
    for row in ours["runs"]:
        state = row["page_cache"]
        runs = {system: [] for system in SYSTEMS}
        for _ in range(args.rounds):
            for system in SYSTEMS:
                out = subprocess.run([sys.executable, __file__, "--model", args.model, "--one", system,
                                      "--state", state], check=True, stdout=subprocess.PIPE).stdout
                runs[system].append(json.loads(out.splitlines()[-1]))
        entry = {"page_cache": state, "raw_gbps": row["raw_gbps"], "ferry_gbps": row["load_gbps"],
                 "ferry_of_raw": row["of_raw"],
                 "ferry_peak_bytes": ours["planes_bytes"] + row["peak_over_planes_bytes"]}
        for system, measured in runs.items():
            entry[system] = {"gbps": rate(size, measured, "seconds"),
                             "gbps_without_copy": rate(size, measured, "mapped_seconds"),
                             "peak_bytes": max(run["peak_bytes"] for run in measured),
                             "ferry_ratio": row["load_gbps"] / rate(size, measured, "seconds")}
        result["runs"].append(entry)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
