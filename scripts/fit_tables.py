#!/usr/bin/env python3
"""The tables of planned figures in docs/results/plans.md and docs/guide, from `ferry plan`.

    python3 scripts/fit_tables.py build/ferry          writes them anew between their marks
    python3 scripts/fit_tables.py build/ferry guide    only in files with that in their names

What guides show as the output of a plan for a described machine is written anew too.

A row's command is what stands above its table, with what its first column says."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FERRY = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/ferry").resolve()


def plan(model, settings, machine=None):
    words = [str(FERRY), "plan", model if "/" in model else f"examples/models/{model}.json", *settings.split(), "--json"]
    if machine:
        words.append(f"machine=examples/machines/{machine}.yaml")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def gb(bytes_):
    value = bytes_ / 1e9
    return f"{value:.3f}" if value < 0.1 else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(c) for c in r) + " |" for r in rows])


def units(bytes_):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if bytes_ < 1024 or unit == "GiB":
            return f"{bytes_:.2f} {unit}"
        bytes_ /= 1024


def estimates():
    golden = json.loads((ROOT / "tests/golden/estimate_golden.json").read_text())
    rows = []
    for name in ("bert-base-cased", "llama-3-8b"):
        row = next(m for m in golden["models"] if m["name"] == name)
        path = ROOT / "build" / f"{name}.json"
        path.write_text(json.dumps(row["config"]))
        for e, divisor in zip(plan(str(path), "--estimate")["estimate"], (1, 2, 4, 8)):
            rows.append((name, e["dtype"], units(row["total_bytes"] / divisor), units(e["total_bytes"]),
                         units(e["largest_layer_bytes"]), units(e["adam_bytes"])))
    return table(("model", "dtype", "total, accelerate", "total, ferry", "largest layer", "training with Adam"), rows)


IN_BACKWARD = "max_grad_norm=0 skip_nonfinite=off"
GUIDE = "max_length=1024 max_grad_norm=0 skip_nonfinite=off vram_budget=off"


def guide():
    rows = []
    for model, batch, offload, valley, peak in (("llama-2-7b", 10, "off", 8, 74), ("llama-2-7b", 10, "on", 1.4, 68.7),
                                                ("llama-2-70b", 2, "on", 0.3, 72.3)):
        base = f"{GUIDE} per_device_train_batch_size={batch} cpu_offload={offload}"
        for kept in ("keep", "recompute", "offload"):
            p = plan(model, f"{base} optimizer_state=bf16 activations={kept}", "a100-80-x8")
            rows.append((f"{model}, {batch} rows, cpu_offload={offload}, activations={kept}", valley, peak,
                         gb(p["valley_bytes"] - p["reserve_bytes"]), gb(p["arena_bytes"]), gb(p["device_bytes"]),
                         gb(p["host_bytes"])))
    return table(("model and settings", "valley, published", "peak, published", "valley, ferry", "peak, ferry",
                  "peak and libraries", "host, each rank"), rows)


def large():
    rows = []
    asked = (
        ("llama-2-70b", "h200", "max_length=4096 vram_budget=24GiB"),
        ("llama-2-70b", "h200", "max_length=4096 vram_budget=24GiB optimizer_state=8bit"),
        ("llama-2-70b", "h200", "max_length=4096 vram_budget=off"),
        ("llama-2-70b", "h200", "max_length=16384 vram_budget=24GiB activations=offload"),
        ("llama-2-70b", "h200", "max_length=16384 vram_budget=off activations=offload"),
        ("llama-3-8b", "pc-rtx-4090", "max_length=4096 vram_budget=off"),
        ("llama-3-8b", "pc-rtx-4090", "max_length=4096 vram_budget=off activations=offload"),
        ("llama-3.1-405b", "h100-80-x8", "max_length=4096 vram_budget=off"),
        ("llama-3.1-405b", "h100-80-x8", "max_length=4096 vram_budget=off optimizer_state=8bit"),
        ("llama-3.1-405b", "h100-80-x8", "max_length=4096 vram_budget=off optimizer_state=8bit max_grad_norm=0 "
                                         "skip_nonfinite=off activations=offload"),
        ("llama-3.1-405b", "h100-80-x8", "max_length=4096 vram_budget=off optimizer_state=8bit world_size=16"),
    )
    for model, machine, settings in asked:
        p = plan(model, settings, machine)
        rows.append((f"{model} {settings}", machine, f"{p['device_bytes'] / 2**30:.1f}", f"{p['arena_bytes'] / 2**30:.1f}",
                     gb(p["host_need_bytes"]), gb(p["pinned_bytes"] * p["host_need_bytes"] / p["host_bytes"]),
                     gb(p["disk_bytes"]), f"{p['step_ms'] / 1e3:.1f}", p["bound_by"]))
    return table(("model and settings", "machine", "device, GiB", "of it arena, GiB", "host, GB", "pinned, GB",
                  "checkpoint, GB", "step, s", "bound by"), rows)


def bounds():
    rows = []
    for size in ("7b", "13b", "70b"):
        for path in sorted((ROOT / "examples/machines").glob("*.yaml")):
            more = "max_length=4096"
            try:
                ways = [plan(f"llama-2-{size}", f"{more} {way}", path.stem) for way in ("", IN_BACKWARD)]
                if not ways[0]["fits"]:
                    more += " ram_budget=2TB"
                    ways = [plan(f"llama-2-{size}", f"{more} {way}", path.stem) for way in ("", IN_BACKWARD)]
            except SystemExit:  # no settings fit into this GPU
                continue
            cells = [(f"{p['step_ms']:.0f}", f"{p['bound_ms']:.0f}", f"{p['step_ms'] / p['bound_ms']:.3f}") for p in ways]
            rows.append((size.upper(), path.stem + (", `ram_budget=2TB`" if "ram" in more else ""), *cells[0],
                         ways[0]["bound_by"], *cells[1]))
    return table(("model", "machine", "step, ms", "at least, ms", "ratio", "bound by",
                  "updates inside backward: step, ms", "at least, ms", "ratio"), rows)


def states(model, machine, settings):
    """Rows of a guide: what each optimizer state takes."""
    rows = []
    for state in ("fp32", "bf16", "8bit"):
        p = plan(model, f"{settings} optimizer_state={state}", machine)
        rows.append((f"`{state}`" + (" (default)" if state == "fp32" else ""), gib(p["host_need_bytes"]), gib(p["disk_bytes"]),
                     gib(p["device_bytes"]), f"{p['tokens_per_s']:,.0f}"))
    return table(("`optimizer_state`", "host memory", "checkpoint", "GPU memory", "tokens/s, planned"), rows)


def gib(count):
    count /= 2**30
    return f"{1024 * count:.0f} MiB" if count < 1 else f"{count:.1f} GiB" if count < 100 else f"{count:.0f} GiB"


def adapters():
    rows = []
    for name, model in (("Qwen3.5-27B", "qwen3.5-27b"), ("Gemma 4 31B", "gemma-4-31b"),
                        ("Muse Glimmer 30B", "muse-glimmer-30b")):
        for steps in (4, 16):
            p = plan(model, f"ram_budget=64GiB lora_rank=16 max_length=1024 gradient_accumulation_steps={steps}",
                     "pc-rtx-4090")
            rows.append((name if steps == 4 else "", f"{1024 * steps:,}", gib(p["host_need_bytes"]), gib(p["device_bytes"]),
                         f"{p['step_ms'] / 1e3:.1f}", f"{p['tokens_per_s']:,.0f}"))
    return table(("model, adapters of rank 16", "tokens a step", "host memory", "GPU memory", "seconds a step", "tokens/s"),
                 rows)


def adapter_or_all():
    rows = []
    for name, settings in (("all weights", ""), ("`lora_rank=16`", " lora_rank=16")):
        p = plan("llama-3-8b", f"max_length=2048{settings}", "pc-rtx-4070")
        rows.append((name, gib(p["host_need_bytes"]), f"{p['tokens_per_s']:,.0f}", gib(p["disk_bytes"])))
    return table(("8B, 12 GB card, 2,048 tokens a step", "host memory", "tokens/s, planned", "checkpoint"), rows)


def mixture():
    rows = []
    experts = "lora_target_modules=q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
    for name, settings, machine, micros in (
            ("all weights, `optimizer_state=8bit`", "optimizer_state=8bit", "workstation-rtx-4090", 16),
            ("adapters of attention, rank 16", "lora_rank=16", "pc-rtx-4090", 8),
            ("adapters of attention and experts, rank 16", f"lora_rank=16 {experts}", "pc-rtx-4090", 8),
            ("adapters of attention, `base_format=nf4`", "lora_rank=16 base_format=nf4", "pc-rtx-4090", 8)):
        p = plan("qwen3-30b-a3b", f"max_length=2048 gradient_accumulation_steps={micros} {settings}", machine)
        rows.append((name, f"{2048 * micros:,}", gib(p["host_need_bytes"]), gib(p["device_bytes"]),
                     f"{p['tokens_per_s']:,.0f}"))
    return table(("one RTX 4090, 24 GB", "tokens a step", "host memory", "GPU memory", "tokens/s, planned"), rows)


def budgets():
    rows = []
    for budget in ("auto", "8GiB", "6GiB", "4GiB"):
        p = plan("qwen3-30b-a3b", "max_length=4096 gradient_accumulation_steps=8 optimizer_state=8bit "
                 f"vram_budget={budget}", "workstation-rtx-4090")
        rows.append((f"`{budget}`" + (" (default)" if budget == "auto" else ""), gib(p["device_bytes"]),
                     f"{p['tokens_per_s']:,.0f}"))
    return table(("`optimizer_state=8bit`, `vram_budget`", "GPU memory", "tokens/s, planned"), rows)


TABLES = {
    "docs/results/plans.md": {"estimates": estimates, "guide": guide, "large": large, "bounds": bounds},
    "docs/guide/8b-on-12gb.md": {
        "states": lambda: states("llama-3-8b", "pc-rtx-4070", "max_length=2048 gradient_accumulation_steps=8")},
    "docs/guide/70b-on-24gb.md": {
        "states": lambda: states("llama-2-70b", "workstation-rtx-4090", "max_length=2048 gradient_accumulation_steps=16")},
    "docs/guide/27b-on-24gb.md": {
        "adapters": adapters,
        "states": lambda: states("qwen3.5-27b", "workstation-rtx-4090", "max_length=2048 gradient_accumulation_steps=8")},
    "docs/guide/lora.md": {"adapter": adapter_or_all},
    "docs/guide/mixtures.md": {"mixture": mixture, "budgets": budgets},
}


def outputs(text):
    """Renews what a guide shows as a command's output: the commands of the block before it are run again."""
    def again(m):
        said = subprocess.run(["sh", "-ec", m[1]], cwd=ROOT, capture_output=True, text=True, check=True,
                              env=os.environ | {"PATH": f"{FERRY.parent}:{os.environ['PATH']}"})
        return f"```sh\n{m[1]}```\n\n<!-- output -->\n```text\n{said.stdout}```"
    return re.sub(r"```sh\n((?:(?!```).)*?machine=examples(?:(?!```).)*?)```\n\n<!-- output -->\n```text\n.*?```", again, text,
                  flags=re.S)


def main():
    for name, tables in TABLES.items():
        if len(sys.argv) > 2 and sys.argv[2] not in name:
            continue
        path = ROOT / name
        text = path.read_text()
        for title, make in tables.items():
            text = re.sub(rf"(<!-- table {title} -->\n).*?(<!-- end -->)", lambda m: m[1] + make() + "\n" + m[2], text,
                          flags=re.S)
        path.write_text(outputs(text))


main()
