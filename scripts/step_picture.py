#!/usr/bin/env python3
"""docs/step.svg: where the time of a planned step goes, from the trace that `ferry plan trace_file=FILE` writes.

    python3 scripts/step_picture.py build/ferry docs/step.svg
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ("plan examples/models/llama-3-8b.json machine=examples/machines/pc-rtx-4070.yaml max_length=2048 "
           "gradient_accumulation_steps=4 vram_budget=off")
STAGES = 4  # of a block: attention, gate, up, down
LAYER = 21  # the unit that stands out: block 20
WIDTH, LEFT, TOP, BAR, GAP = 900, 150, 64, 30, 14
ROWS = (("GPU computes", 0), ("copies to the GPU", 1), ("copies from the GPU", 2), ("CPU runs AdamW", 4))
KINDS = {"FORWARD": "forward", "HEAD": "head", "RECOMPUTE": "backward", "BACKWARD": "backward", "FETCH": "fetch",
         "RETURN": "return", "UPDATE": "update", "SPILL": "spill", "REFILL": "spill"}
COLOURS = {"forward": ("#4f7cac", "#6f98c4"), "head": ("#35556f", "#35556f"), "backward": ("#5f9e6e", "#7fb88c"),
           "fetch": ("#8d86b8", "#aaa4cc"), "return": ("#8d86b8", "#aaa4cc"), "spill": ("#d8d6e6", "#d8d6e6"),
           "update": ("#a9968a", "#c2b2a8")}
ACCENT = "#e4572e"


def events(ferry):
    """(row, kind, unit, start, end) in seconds of the step; what is shorter than a pixel joins its neighbour."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "step.json"
        subprocess.run([ferry, *COMMAND.split(), f"trace_file={trace}"], cwd=ROOT, check=True, capture_output=True)
        raw = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X" and e["name"] in KINDS]
    zero = min(e["ts"] for e in raw)
    raw.sort(key=lambda e: (e["tid"], e["ts"]))
    merged = []
    for e in raw:
        start, end = (e["ts"] - zero) / 1e6, (e["ts"] + e["dur"] - zero) / 1e6
        unit, stage = e["args"]["unit"], e["args"]["stage"]
        key = (e["tid"], KINDS[e["name"]], unit if unit >= 0 else (stage + STAGES - 1) // STAGES)
        if merged and merged[-1][:3] == key and start - merged[-1][4] < 0.004:
            merged[-1] = (*key, merged[-1][3], end)
        else:
            merged.append((*key, start, end))
    return merged


def picture(bars):
    end = max(b[4] for b in bars)
    scale = (WIDTH - LEFT - 20) / end
    height = TOP + len(ROWS) * (BAR + GAP) + 60
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#333">',
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>']
    x = lambda t: round(LEFT + t * scale, 1)
    forward = max(b[4] for b in bars if b[1] == "forward")
    head = max(b[4] for b in bars if b[1] == "head")
    out.append(f'<text x="{LEFT}" y="22" font-size="15" font-weight="bold">One training step of Llama 3 8B on a 12 GB '
               'card, as planned</text>')
    for name, a, b in (("forward", 0, forward), ("backward", head, end)):
        out.append(f'<path d="M{x(a)} 54V48H{x(b)}V54" fill="none" stroke="#999"/>')
        out.append(f'<text x="{(x(a) + x(b)) / 2}" y="43" text-anchor="middle">{name}</text>')
    for i, (label, tid) in enumerate(ROWS):
        y = TOP + i * (BAR + GAP)
        out.append(f'<text x="{LEFT - 10}" y="{y + 18}" text-anchor="end">{label}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{end * scale:.1f}" height="{BAR}" fill="#f4f4f4"/>')
        for t, kind, unit, start, stop in bars:
            if t == tid:
                colour = ACCENT if unit == LAYER and kind != "spill" else COLOURS[kind][unit % 2]
                out.append(f'<rect x="{x(start)}" y="{y}" width="{max((stop - start) * scale, 0.6):.1f}" '
                           f'height="{BAR}" fill="{colour}"/>')
    y = TOP + len(ROWS) * (BAR + GAP)
    for second in range(int(end) + 1):
        out.append(f'<path d="M{x(second)} {TOP}V{y - 8}" stroke="#999" stroke-width="0.5" stroke-dasharray="2 3"/>')
        out.append(f'<text x="{x(second)}" y="{y + 8}" text-anchor="middle" fill="#777">{second} s</text>')
    out.append(f'<rect x="{LEFT}" y="{y + 24}" width="12" height="12" fill="{ACCENT}"/>')
    out.append(f'<text x="{LEFT + 18}" y="{y + 35}">one layer: the CPU updates it, it is copied in and used; later it '
               'is copied in again and its gradient leaves</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_text(picture(events(Path(sys.argv[1]).resolve())))
