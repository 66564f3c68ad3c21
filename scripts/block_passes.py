#!/usr/bin/env python3
"""Operations of one block in a step, and the bytes of GPU memory that they move: figures of the meta device.

    scripts/block_passes.py [--ferry build/ferry] [--json FILE]

For each case it plans a model twice, with two and with three blocks, and prints the difference. The plan executes
every operation on the meta device, which counts operations and the bytes that each must read and write at least.
So caches do not matter, and the figures are the same on every machine.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

BLOCKS = (2, 3)
LLAMA_8B = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False}
QWEN_7B = dict(LLAMA_8B, model_type="qwen2", vocab_size=152064, hidden_size=3584, intermediate_size=18944,
               num_attention_heads=28, num_key_value_heads=4)
ROWS = "max_length=4096 per_device_train_batch_size=4 gradient_accumulation_steps=1"
CASES = (
    ("Llama 8B, kept", LLAMA_8B, "activations=keep"),
    ("Llama 8B, recomputed", LLAMA_8B, "activations=recompute"),
    ("Llama 8B, LoRA r=16, recomputed", LLAMA_8B, "activations=recompute lora_rank=16"),
    ("Qwen2 7B (biases of q, k, v), recomputed", QWEN_7B, "activations=recompute"),
)


def plan(ferry, machine, config, blocks, keys):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_text(json.dumps(dict(config, num_hidden_layers=blocks)))
        words = [ferry, "plan", f"model={folder}", f"machine={machine}", *ROWS.split(), *keys.split(),
                 "prefetch_units=1", "cpu_offload=on", "vram_budget=off", "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if not done.stdout:
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferry", default=str(root / "build/ferry"))
    parser.add_argument("--machine", default=str(root / "examples/machines/h100-vm.yaml"))
    parser.add_argument("--json", help="also write the figures here")
    args = parser.parse_args()
    found = {}
    print(f"{'case':42} {'ops':>5} {'GB moved':>9}")
    for name, config, keys in CASES:
        two, three = (plan(args.ferry, args.machine, config, blocks, keys) for blocks in BLOCKS)
        ops = three["op_count"] - two["op_count"]
        moved = (three["op_bytes"] - two["op_bytes"]) * 1e-9
        found[name] = {"ops": ops, "gb": round(moved, 3)}
        print(f"{name:42} {ops:5d} {moved:9.3f}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
