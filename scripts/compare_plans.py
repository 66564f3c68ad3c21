#!/usr/bin/env python3
"""Plans a seeded draw of models, machines and settings with two builds of ferry, and compares what they choose.

    scripts/compare_plans.py BEFORE AFTER [COUNT [SEED]]

BEFORE and AFTER are ferry programs. One line each: processor seconds of both, the simulated steps, and whether AFTER
chose the same plan, a faster or a slower one, by its own clock, or fits where the other does not. The models and
machines are those of examples/. Exit code 1: a step of AFTER is longer by more than a thousandth, or does not fit where
BEFORE does. A plan that takes BEFORE more than 30 seconds counts as not answered."""

import json
import pathlib
import random
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 30


def draw(dice):
    models = sorted(p.stem for p in (ROOT / "examples/models").glob("*.json"))
    machines = sorted(p.stem for p in (ROOT / "examples/machines").glob("*.yaml"))
    words = [f"examples/models/{dice.choice(models)}.json", f"machine=examples/machines/{dice.choice(machines)}.yaml",
             f"gradient_accumulation_steps={dice.choice((1, 1, 2, 4, 6, 12, 16, 24, 40, 64))}",
             f"max_length={dice.choice((128, 512, 1024, 2048, 4096))}"]
    some = ("lora_rank=16", "optimizer_state=8bit", "activations=recompute", "activations=offload", "prefetch_units=1",
            "per_device_train_batch_size=4", "max_grad_norm=0 skip_nonfinite=off", "schedule=micro_batch_major",
            "vram_budget=16GiB", "ram_budget=100GB", "ram_budget=400GB", "ram_budget=2TB")
    for word in dice.sample(some, dice.choice((0, 1, 2))):
        words += word.split()
    return words


def plan(program, words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run([program, "plan", *words, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return LIMIT_S, None, "no answer"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = (done.stderr.strip().split("\n") or [""])[-1]
    figures = json.loads(done.stdout) if done.stdout else {}
    return seconds, figures if "step_ms" in figures else None, said


def verdict(a, b, said):
    if a is None and b is None:
        return "same answer" if said[0] == said[1] else "other refusal"
    if a is None or b is None:
        return "only AFTER fits" if a is None else "only BEFORE fits"
    if a["fits"] != b["fits"]:
        return "only AFTER fits" if b["fits"] else "only BEFORE fits"
    if not a["fits"]:
        return "neither fits"
    ratio = b["step_ms"] / a["step_ms"]
    return "same" if abs(ratio - 1) < 1e-6 else "faster" if ratio < 1 else "as fast" if ratio < 1.001 else "slower"


def main():
    programs = [str(pathlib.Path(p).resolve()) for p in sys.argv[1:3]]
    if len(programs) < 2:
        raise SystemExit(__doc__)
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    dice = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    counts, worst = {}, [0, 0]
    for _ in range(count):
        words = draw(dice)
        (t0, a, said0), (t1, b, said1) = (plan(p, words) for p in programs)
        what = verdict(a, b, (said0, said1))
        counts[what] = counts.get(what, 0) + 1
        worst = [max(worst[0], t0), max(worst[1], t1)]
        steps = [f"{x['step_ms']:.1f}" if x else "-" for x in (a, b)]
        print(f"{t0:6.2f} {t1:6.2f} s  {steps[0]:>10} {steps[1]:>10} ms  {what:16} {' '.join(words)}", flush=True)
    print(f"longest: {worst[0]:.2f} and {worst[1]:.2f} s;", ", ".join(f"{v} {k}" for k, v in sorted(counts.items())))
    sys.exit(1 if counts.get("slower") or counts.get("only BEFORE fits") else 0)


main()
