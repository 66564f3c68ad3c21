#!/usr/bin/env python3
"""Saving a state: ferry, raw writes, torch.save, safetensors and torch.distributed.checkpoint on the same disk.

    python3 bench/peers/save.py [--dir .] [--bytes 1073741824] [--ferry build/ferry] [--rounds 3]

Each system writes as many bytes of fp32 in tensors of 64 MiB, in a process of its own, in turn, to new files in --dir,
and is timed until they are on the disk: where it does not fsync by itself that is done for it. Imports are not counted.
ferry's own figures are those of `ferry bench save` with the same bytes and directory, which also has the limits
(raw writes and fsync, by way of the page cache and past it), the step beside which it saves, and memory. Prints medians, what
each process needed of memory beyond the state, and the ratio of rates, ferry's / theirs.

Needs: torch, safetensors.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

SYSTEMS = ("raw", "torch_save", "safetensors", "dcp")


def sync(path):
    names = [os.path.join(path, n) for n in os.listdir(path)] if os.path.isdir(path) else [path]
    for name in names:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def peak_kib(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(key))


def save(system, state, path):
    import torch

    if system == "raw":
        with open(path, "wb", buffering=0) as f:
            for tensor in state.values():
                data = memoryview(tensor.numpy()).cast("B")
                for at in range(0, len(data), 4 << 20):
                    f.write(data[at : at + (4 << 20)])
    elif system == "torch_save":
        torch.save(state, path)
    elif system == "safetensors":
        from safetensors.torch import save_file

        save_file(state, path)
    else:
        import torch.distributed.checkpoint as dcp

        dcp.save(state, checkpoint_id=path, no_dist=True)
    sync(path)


def run_one(system, directory, byte_count):
    """One save; one line of JSON."""
    import torch

    if system == "safetensors":
        import safetensors.torch  # noqa: F401
    elif system == "dcp":
        import torch.distributed.checkpoint  # noqa: F401
    count = max(1, byte_count // (64 << 20))
    generator = torch.Generator().manual_seed(1)
    state = {f"t{i}": torch.rand(byte_count // count // 4, generator=generator) for i in range(count)}
    path = os.path.join(directory, "peer-" + system)
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    before = peak_kib("VmRSS")
    begin = time.perf_counter()
    save(system, state, path)
    seconds = time.perf_counter() - begin
    extra = peak_kib("VmHWM") - before
    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    print(json.dumps({"gbps": byte_count / seconds * 1e-9, "extra_mib": extra / 1024}))


def run_ferry(ferry, directory, byte_count):
    out = subprocess.run(
        [ferry, "bench", "save", f"count={byte_count}", f"models={directory}", "--json"],
        check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dir", default=".")
    p.add_argument("--bytes", type=int, default=1 << 30)
    p.add_argument("--ferry", default="build/ferry")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--one", choices=SYSTEMS, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        return run_one(args.one, args.dir, args.bytes)

    rows = {system: [] for system in SYSTEMS}
    own = []
    for _ in range(args.rounds):
        own.append(run_ferry(args.ferry, args.dir, args.bytes))
        for system in SYSTEMS:
            out = subprocess.run(
                [sys.executable, os.path.abspath(__file__), "--one", system, "--dir", args.dir, "--bytes",
                 str(args.bytes)], check=True, capture_output=True, text=True)
            rows[system].append(json.loads(out.stdout.splitlines()[-1]))
    print(f"{'system':14} {'GB/s':>7} {'extra MiB':>10} {'ferry/theirs':>13}")
    extra = statistics.median(r["extra_memory_bytes"] for r in own) / 2**20
    print(f"{'ferry':14} {statistics.median(r['save_gbps'] for r in own):7.2f} {extra:10.0f} {1:13.2f}")
    for system in SYSTEMS:
        ratio = statistics.median(o["save_gbps"] / r["gbps"] for o, r in zip(own, rows[system]))
        rate = statistics.median(r["gbps"] for r in rows[system])
        extra = statistics.median(r["extra_mib"] for r in rows[system])
        print(f"{system:14} {rate:7.2f} {extra:10.0f} {ratio:13.2f}")
    print(f"ferry of the better raw way of its own run: {statistics.median(o['save_of_raw'] for o in own):.2f}")


if __name__ == "__main__":
    sys.exit(main())
