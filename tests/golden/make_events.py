#!/usr/bin/env python3
"""The event file that TensorBoard's own writer makes of rows of metrics.jsonl.

    python make_events.py           writes events/ beside this script (needs tensorboard)

events/ holds metrics.jsonl and events.out.tfevents.ferry: the bytes that ferry must write for these rows. Protocol buffers,
records and checksums are TensorBoard's. The script reads the file back through its EventAccumulator and compares every
scalar, so that the file is also what TensorBoard shows.
"""
import json
import shutil
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

OUT = Path(__file__).with_name("events")
ROWS = [
    {"step": 1, "epoch": 0.0625, "loss": 3.7516, "grad_norm": 1.25, "learning_rate": 1e-3, "target_tokens": 100, "tokens": 120,
     "step_ms": 12.5, "tokens_per_s": 9600.0, "host_peak_bytes": 70000000000, "pinned_bytes": 0, "skipped": False,
     "wait_ms": {"h2d": 0.5, "d2h": 0.0, "comm": None, "cpu": 1.5, "disk": 0.0}, "time": 1795830000.125},
    {"step": 1, "epoch": 0.0625, "eval_loss": 3.5, "eval_perplexity": 33.115451958692312, "eval_tokens": 77,
     "time": 1795830001.5},
    {"step": 300, "epoch": 18.75, "loss": None, "grad_norm": None, "learning_rate": 0, "skipped": True,
     "rewards/margins": -0.25, "time": 1795830100.75},
    {"step": 70000, "epoch": 4375, "eval_loss": 2, "eval_rewards/accuracies": 0.875},
    {"step": 70001, "text": "no number", "time": 1795839999.0},
]


def tags(row):
    out = []
    for key, value in row.items():
        name = f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}"
        for tag, number in ([(f"{name}/{k}", v) for k, v in value.items()] if isinstance(value, dict) else [(name, value)]):
            if key not in ("step", "time") and isinstance(number, (int, float)) and not isinstance(number, bool):
                out.append((tag, number))
    return out


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    (OUT / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    path = OUT / "events.out.tfevents.ferry"
    with open(path, "wb") as file:
        writer, time = RecordWriter(file), ROWS[0]["time"]
        writer.write(Event(wall_time=time, file_version="brain.Event:2").SerializeToString())
        for row in ROWS:
            time = row.get("time", time)
            values = [Summary.Value(tag=tag, simple_value=number) for tag, number in tags(row)]
            event = Event(wall_time=time, step=row["step"])
            if values:
                event.summary.CopyFrom(Summary(value=values))
            writer.write(event.SerializeToString())
    read = EventAccumulator(str(path))
    read.Reload()
    seen = sorted((tag, e.step) for tag in read.Tags()["scalars"] for e in read.Scalars(tag))
    assert seen == sorted((tag, row["step"]) for row in ROWS for tag, _ in tags(row)), seen
    print(len(path.read_bytes()), "bytes,", len(seen), "scalars")


if __name__ == "__main__":
    main()
