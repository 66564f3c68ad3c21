#!/usr/bin/env python3
"""Memory of two long runs on the CPU: that of the plan, and no more after a thousand steps.

    python3 bench/memory.py [--ferry build/ferry] [--cases pairs,steps] [--steps 1000] [--threads 2]

pairs   a small encoder with MultipleNegativesRankingLoss: 1,024 pairs a step, then 4,096, both in micro-batches of 64,
        each with activations kept and computed again. The run may need 32 MiB more than the plan says.
steps   a small mixture of experts, rows of different lengths, ten evaluations and checkpoints. From the fourth of
        them to the end of the run resident memory may grow by 1 MiB.

Fails if either is more. Needs only Python and ferry; models are made by `ferry init`.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

ENCODER = {
    "model_type": "bert", "architectures": ["BertModel"], "vocab_size": 2000, "hidden_size": 128,
    "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4, "hidden_act": "gelu",
    "max_position_embeddings": 128, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "pad_token_id": 0}
MIXTURE = {
    "model_type": "qwen3_moe", "vocab_size": 768, "hidden_size": 128, "intermediate_size": 256,
    "moe_intermediate_size": 64, "num_experts": 16, "num_experts_per_tok": 2, "norm_topk_prob": True,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 0}
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SPARE = {"pairs": 32 << 20, "steps": 1 << 20}


def word_pieces(count):
    """A tokenizer.json that knows the words w5, w6, ..."""
    vocab = {word: i for i, word in enumerate(MARKS + [f"w{i}" for i in range(len(MARKS), count)])}
    around = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    special = {m: {"id": m, "ids": [vocab[m]], "tokens": [m]} for m in ("[CLS]", "[SEP]")}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": m, **flags} for i, m in enumerate(MARKS)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": around, "pair": around, "special_tokens": special},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab}}


def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f)


def make(args, config, folder):
    write(os.path.join(folder, "config.json"), config)
    model = os.path.join(folder, "model")
    subprocess.run([args.ferry, "init", "config=" + os.path.join(folder, "config.json"), "output_dir=" + model],
                   check=True, capture_output=True)
    if config["model_type"] == "bert":
        write(os.path.join(model, "tokenizer.json"), word_pieces(config["vocab_size"]))
        write(os.path.join(model, "tokenizer_config.json"), {"cls_token": "[CLS]", "sep_token": "[SEP]",
                                                            "unk_token": "[UNK]", "pad_token": "[PAD]"})
    return model


def resident(pid, key):
    with open(f"/proc/{pid}/status") as f:
        return next((int(line.split()[1]) * 1024 for line in f if line.startswith(key + ":")), 0)


def train(args, keys, folder, each):
    """Runs ferry; calls each(pid, steps done) now and then. Returns the rows of metrics.jsonl."""
    out = os.path.join(folder, "out")
    errors = os.path.join(folder, "stderr")
    with open(errors, "w") as f:
        process = subprocess.Popen(
            [args.ferry, "train", *keys, "output_dir=" + out, "overwrite_output_dir=on", "device=host",
             f"threads={args.threads}"], stdout=subprocess.DEVNULL, stderr=f)
    metrics = os.path.join(out, "metrics.jsonl")
    while process.poll() is None:
        time.sleep(0.01)
        try:
            with open(metrics) as f:
                each(process.pid, f.read().count('"step_ms"'))
        except OSError:
            pass
    if process.returncode:
        with open(errors) as f:
            sys.exit(f.read()[-2000:])
    with open(metrics) as f:
        return [row for row in map(json.loads, f) if "step_ms" in row]


def mib(count):
    return f"{count / 2**20:.0f}"


def pairs(args, folder):
    model, data, draw = make(args, ENCODER, folder), os.path.join(folder, "pairs.jsonl"), random.Random(1)

    def text():
        return " ".join(f"w{draw.randrange(len(MARKS), ENCODER['vocab_size'])}" for _ in range(30))

    with open(data, "w") as f:
        for _ in range(4096):
            f.write(json.dumps({"anchor": text(), "positive": text()}) + "\n")
    print("| pairs a step | activations | plan MiB | peak MiB | seconds of a step |\n|---|---|---|---|---|")
    worst = 0
    for activations in ("keep", "recompute"):
        for count in (1024, 4096):
            keys = ["model=" + model, "data=" + data, "embedding_loss=mnrl", "pooling=mean", "compute_dtype=fp32",
                    "per_device_train_batch_size=64", f"gradient_accumulation_steps={count // 64}", "max_steps=2",
                    "activations=" + activations, "save_only_model=on"]
            plan = subprocess.run([args.ferry, "plan", *keys, "device=host", f"threads={args.threads}", "--json"],
                                  check=True, capture_output=True, text=True)
            planned, peak = json.loads(plan.stdout)["host_need_bytes"], [0]

            def each(pid, steps):
                peak[0] = max(peak[0], resident(pid, "VmHWM"))

            steps = train(args, keys, folder, each)
            worst = max(worst, peak[0] - planned)
            print(f"| {count} | {activations} | {mib(planned)} | {mib(peak[0])} | {steps[-1]['step_ms'] / 1000:.1f} |",
                  flush=True)
    return worst


def steps(args, folder):
    model, draw = make(args, MIXTURE, folder), random.Random(1)
    for name, count in (("rows", 2000), ("eval", 40)):
        with open(os.path.join(folder, name + ".jsonl"), "w") as f:
            for _ in range(count):
                ids = [draw.randrange(5, MIXTURE["vocab_size"]) for _ in range(draw.randrange(20, 120))]
                f.write(json.dumps({"input_ids": ids}) + "\n")
    tenth, seen = max(args.steps // 10, 1), {}

    def each(pid, done):
        seen[done] = resident(pid, "VmRSS")

    train(args, ["model=" + model, "data=" + os.path.join(folder, "rows.jsonl"),
                 "eval_data=" + os.path.join(folder, "eval.jsonl"), f"eval_steps={tenth}", f"save_steps={tenth}",
                 "save_total_limit=1", "per_device_train_batch_size=4", f"max_steps={args.steps}",
                 "router_aux_loss_coef=0.01"], folder, each)
    at = [max(s for s in seen if s < tenth * n) for n in (1, 2, 3, 4, 5, 6, 8, 10)]
    print("\n| step | resident MiB |\n|---|---|")
    for step in at:
        print(f"| {step} | {seen[step] / 2**20:.2f} |")
    return seen[at[-1]] - seen[at[4]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferry", default="build/ferry")
    parser.add_argument("--cases", default="pairs,steps")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.ferry = os.path.abspath(args.ferry)
    for case in args.cases.split(","):
        with tempfile.TemporaryDirectory() as folder:
            more = {"pairs": pairs, "steps": steps}[case](args, folder)
        if more > SPARE[case]:
            sys.exit(f"{case}: {mib(more)} MiB more than expected; at most {mib(SPARE[case])} MiB")


if __name__ == "__main__":
    main()
