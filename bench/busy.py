#!/usr/bin/env python3
"""A training step beside busy neighbours: a spinning process on each core, or those that are there already.

    python3 bench/busy.py build/ferry models=15m micro_batch_tokens=4x256 count=12

Runs `ferry bench step` alone, then beside the spinners (--spinners N, 0: none, for a machine that is busy already),
and prints for each the time of a step and, of --threads cores: the share of time that ferry's threads ran, that they
waited for a core (/proc/PID/task/TID/schedstat), and the rest, idle. What neighbours take shows as waiting; only idle
time is ferry's own loss, and 1 / (1 - idle) - 1 is what a step takes longer than the cores lost explain.
"""
import argparse
import glob
import os
import subprocess
import sys
import time


def tasks(pid):
    found = {}
    for path in glob.glob(f"/proc/{pid}/task/*"):
        try:
            with open(path + "/schedstat") as f:
                ran, waited, _ = map(int, f.read().split())
        except (OSError, ValueError):
            continue
        found[path] = (ran * 1e-9, waited * 1e-9)
    return found


def measure(command, threads):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    samples = []
    while process.poll() is None:
        samples.append((time.monotonic(), tasks(process.pid)))
        time.sleep(0.05)
    lines = dict(line.split(None, 1) for line in process.stdout.read().splitlines() if len(line.split()) > 1)
    if process.returncode or "step_s" not in lines:
        sys.exit(f"busy.py: {' '.join(command)} failed")
    # the second half: before it the model is made and warms up
    (begin, first), (end, last) = samples[len(samples) // 2], samples[len(samples) * 19 // 20]
    spent = end - begin
    ran, waited = (sum(last[t][i] - first[t][i] for t in last if t in first) / spent / threads for i in (0, 1))
    idle = max(0.0, 1 - ran - waited)
    print(f"step {float(lines['step_s']):.3f} s; of {threads} cores ran {ran:.2f}, waited {waited:.2f}, "
          f"idle {idle:.2f}: loss {1 / (1 - idle) - 1:.0%}", flush=True)
    return float(lines["step_s"])


def main():
    parser = argparse.ArgumentParser(usage="busy.py [--spinners N] [--threads N] FERRY [key=value]...")
    parser.add_argument("--spinners", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("ferry")
    parser.add_argument("keys", nargs="*")
    args = parser.parse_args()

    command = [args.ferry, "bench", "step", f"threads={args.threads}", *args.keys]
    alone = measure(command, args.threads)
    if args.spinners:
        spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.spinners)]
        try:
            beside = measure(command, args.threads)
        finally:
            for spinner in spinners:
                spinner.kill()
                spinner.wait()
        print(f"beside {args.spinners} spinning processes a step takes {beside / alone:.2f} times as long")


if __name__ == "__main__":
    main()
