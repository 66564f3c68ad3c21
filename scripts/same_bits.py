#!/usr/bin/env python3
"""Runs two builds of ferry on the same tiny models and compares all values that they write, byte for byte.

    scripts/same_bits.py BEFORE AFTER              under a minute: each golden model in a few ways
    scripts/same_bits.py --full BEFORE AFTER       every way, and every configuration of tests/golden/config_golden.json
    scripts/same_bits.py --plans BEFORE AFTER      plans of large models: memory, operations and simulated time

BEFORE and AFTER are ferry programs. --only=WORD takes the cases whose name has that word; --list shows the names.
The golden models are those of FERRY_SHARED/golden (default ../shared/golden). Times, memory and random names of runs
are left out of the comparison; so are settings and keys that BEFORE does not write. Exit code 1: something differs."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = pathlib.Path(os.environ.get("FERRY_SHARED", ROOT.parent / "shared")) / "golden"
TRAIN = ("device=host threads=1 shuffle=off learning_rate=1e-3 weight_decay=0.1 per_device_train_batch_size=2 "
         "gradient_accumulation_steps=2 max_steps=2 vram_budget=off export_dtype=fp32")


def train(model, data, keys):
    return f"train model={model} data={data} output_dir=run {TRAIN} {keys}"


class Case:
    """Commands, each a line of ferry's arguments, that run one after the other in a folder with these files."""

    def __init__(self, name, *commands, files=None):
        self.name, self.commands, self.files = name, commands, files or {}


# ---- the cases ----

def model_cases(name, model, data, eval_data, full):
    """Ways to run one model. Each quick case stands for several ways at once."""
    ids = "prompt_ids=5,17,3,8,30,3,9 max_new_tokens=12 temperature=0 device=host threads=1 --json"
    use = [f"generate model={model} compute_dtype=fp32 {ids}",
           f"eval model={model} data={eval_data} compute_dtype=bf16 packing=bfd max_length=128 per_token=on device=host "
           "threads=1 --json"]
    resume = "max_steps=3 resume_from_checkpoint=auto"
    first = "compute_dtype=bf16 cpu_offload=on activations=recompute"
    yield Case(f"{name} bf16 offload resume", train(model, data, first), train(model, data, f"{first} {resume}"))
    yield Case(f"{name} fp32 resident gradients",
               train(model, data, "compute_dtype=fp32 cpu_offload=off activations=keep dump_gradients=gradients.safetensors"))
    yield Case(f"{name} lora offload", train(model, data, f"{first} lora_rank=3 lora_alpha=6"))
    yield Case(f"{name} generate eval", *use)
    if not full:
        return
    for dtype in "bf16", "fp32":
        for offload in "on", "off", "params", "activations,params,gradients,optimizer":
            for order in "layer_major", "micro_batch_major":
                keys = f"compute_dtype={dtype} cpu_offload={offload} schedule={order}"
                if "activations" not in offload:
                    keys += " activations=recompute"
                yield Case(f"{name} {dtype} {offload} {order}", train(model, data, keys))
        yield Case(f"{name} {dtype} lora resident", train(model, data, f"compute_dtype={dtype} cpu_offload=off lora_rank=3"))
    others = {"size": "wrap_policy=size min_num_params=5000", "none": "wrap_policy=none", "8bit": "optimizer_state=8bit",
              "unclipped": "max_grad_norm=off skip_nonfinite=off", "two ranks": "ranks=2", "frozen": "freeze=.*norm.*",
              "frozen matrices": "trainable=.*norm.* compute_dtype=fp32", "no prefetch": "backward_prefetch=NO_PREFETCH",
              "bf16 gradients": "gradient_dtype=bf16 compute_dtype=fp32"}
    for word, keys in others.items():
        yield Case(f"{name} {word}", train(model, data, f"cpu_offload=on activations=recompute {keys}"))


def golden_cases(full):
    for ref in sorted(GOLDEN.glob("*/ref.json")) + sorted(GOLDEN.glob("more/*/ref.json")):
        where = ref.parent
        yield from model_cases(where.relative_to(GOLDEN).as_posix(), where / "hf", where / "train.jsonl",
                               where / "eval.jsonl", full)
    dpo, llama = GOLDEN / "dpo/train.jsonl", GOLDEN / "llama2/hf"
    for word, keys in {"full": "", "lora": f"lora_adapter={GOLDEN / 'dpo/lora'} preference_reference=base"}.items():
        for offload in ("on", "off") if full else ("on",):
            keys += f" preference_loss=sigmoid cpu_offload={offload} activations=recompute"
            yield Case(f"pairs {word} {offload}", train(llama, dpo, keys),
                       train(llama, dpo, f"{keys} max_steps=3 resume_from_checkpoint=auto"))


def config_cases(full):
    """New models of the configurations of which transformers' results are golden: every family."""
    golden = json.loads((ROOT / "tests/golden/config_golden.json").read_text())
    seen = set()
    for case in golden["cases"]:
        kind = case["config"]["model_type"]
        if "losses" not in case or (kind in seen and not full):  # no losses: of full size, or refused
            continue
        seen.add(kind)
        files = {"model/config.json": json.dumps(case["config"]),
                 "rows.jsonl": "".join(json.dumps(row) + "\n" for row in golden["rows"] * 4)}
        random = "init_weights=random seed=3"
        if full:
            yield Case(f"config {case['name']} fp32", train("model", "rows.jsonl", f"{random} compute_dtype=fp32 "
                       "cpu_offload=off dump_gradients=gradients.safetensors"), files=files)
        yield Case(f"config {case['name']} bf16", train("model", "rows.jsonl", f"{random} compute_dtype=bf16 "
                   "cpu_offload=on activations=recompute"),
                   "generate model=run/model prompt_ids=5,17,3 max_new_tokens=6 temperature=0 device=host --json", files=files)


def plan_cases():
    machines = sorted((ROOT / "examples/machines").glob("*.yaml"))
    for model in sorted((ROOT / "examples/models").glob("*")):
        for machine in machines[:3]:
            for keys in "", "lora_rank=16", "ranks=8", "compute_dtype=fp32 activations=recompute vram_budget=24GiB":
                yield Case(f"plan {model.name} {machine.stem} {keys}",
                           f"plan model={model} machine={machine} max_length=2048 gradient_accumulation_steps=4 {keys} --json")


# ---- running and comparing ----

def run(program, case, folder):
    """Exit codes of the commands, up to the first that fails; what they print is among the folder's files."""
    folder.mkdir(parents=True)
    for name, text in case.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    codes, said = [], b""
    for n, command in enumerate(case.commands):
        done = subprocess.run([str(program), *command.split()], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True)
        (folder / f"printed-{n}.json").write_bytes(done.stdout)
        codes.append(done.returncode)
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else b""
            break
    return codes, said.decode(errors="replace")


def is_measured(key):
    return key.endswith(("_ms", "_per_s", "_s", "_bytes")) or key in ("branch", "settings", "checksum", "speed", "time")


def without_measures(value, drops=is_measured):
    if isinstance(value, dict):
        return {k: without_measures(v, drops) for k, v in value.items() if not drops(k)}
    return [without_measures(v, drops) for v in value] if isinstance(value, list) else value


def known_before(new, old):
    """`new` without the keys that the older build does not write."""
    if isinstance(new, dict) and isinstance(old, dict):
        return {k: known_before(v, old[k]) for k, v in new.items() if k in old}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [known_before(*pair) for pair in zip(new, old)]
    return new


def comparable(path, is_plan):
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        header.pop("__metadata__", None)
        return [header, data[8 + size:]]
    if path.name == "run.json":  # the rest is when, where and by which command
        return [json.loads(data)["data_hash"]]
    if path.name in ("metrics.jsonl", "manifest.json") or path.name.startswith("printed-"):
        try:
            drops = (lambda key: key in ("device_why",)) if is_plan else is_measured
            return [without_measures(json.loads(line), drops) for line in
                    (data.splitlines() if path.suffix == ".jsonl" else [data]) if line.strip()]
        except ValueError:
            pass  # text for readers: not compared
        return None
    return data


def files_of(folder):
    skipped = ("branch.json", "config.yaml")
    return {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file() and p.name not in skipped}


def first_difference(a, b, at=""):
    if isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() | b.keys():
            if a.get(key) != b.get(key):
                return first_difference(a.get(key), b.get(key), f"{at}.{key}")
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, pair in enumerate(zip(a, b)):
            if pair[0] != pair[1]:
                return first_difference(*pair, f"{at}[{i}]")
    return f"{at}: {str(a)[:60]} before, {str(b)[:60]} after"


def compare(case, folder, programs):
    """(status, what): same, differs or skipped."""
    sides = [folder / "before", folder / "after"]
    (before, said), (after, said_after) = (run(program, case, side) for program, side in zip(programs, sides))
    if before != after:
        return "differs", f"exit codes {before} before, {after} after: {said or said_after}"
    if any(before):
        return "skipped", said
    old, new = (files_of(side) for side in sides)
    if old.keys() != new.keys():
        return "differs", f"other files: {' '.join(sorted(old.keys() ^ new.keys()))}"
    compared = 0
    for name in sorted(old):
        a, b = (comparable(files[name], case.name.startswith("plan ")) for files in (old, new))
        b = known_before(b, a)
        if a != b:
            return "differs", f"{name} {first_difference(a, b) if isinstance(a, list) else ''}"
        compared += len(old[name].read_bytes())
    return "same", compared


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("before", nargs="?")
    p.add_argument("after", nargs="?")
    p.add_argument("--full", action="store_true")
    p.add_argument("--plans", action="store_true")
    p.add_argument("--only", default="")
    p.add_argument("--list", action="store_true")
    p.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    a = p.parse_args()
    cases = list(plan_cases()) if a.plans else []
    if not a.plans:
        if not GOLDEN.is_dir():
            print(f"SKIPPED golden models: {GOLDEN} absent")
        cases = list(golden_cases(a.full)) + list(config_cases(a.full))
    cases = [c for c in cases if a.only in c.name]
    if a.list:
        print("\n".join(c.name for c in cases))
        return 0
    programs = [pathlib.Path(x or p.error("BEFORE and AFTER are needed")).resolve() for x in (a.before, a.after)]
    counts, compared, skipped = {"same": 0, "differs": 0, "skipped": 0}, 0, {}
    with tempfile.TemporaryDirectory(prefix="ferry-same-bits-") as work, \
            concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        def one(numbered):
            folder = pathlib.Path(work) / str(numbered[0])
            result = compare(numbered[1], folder, programs)
            shutil.rmtree(folder, ignore_errors=True)
            return result
        for case, (status, what) in zip(cases, pool.map(one, enumerate(cases))):
            counts[status] += 1
            if status == "same":
                compared += what
            elif status == "differs":
                print(f"DIFFERS {case.name}: {what}", flush=True)
            else:
                skipped.setdefault(what, []).append(case.name)
    for why, names in skipped.items():
        print(f"SKIPPED {len(names)} cases, {names[0]} ...: {why[:160]}")
    print(f"{counts['same']} cases the same ({compared / 1e6:.1f} MB compared), {counts['differs']} differ, "
          f"{counts['skipped']} skipped because both builds refuse them")
    return 1 if counts["differs"] or not counts["same"] else 0


if __name__ == "__main__":
    sys.exit(main())
