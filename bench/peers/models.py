#!/usr/bin/env python3
"""Training steps of ferry and of transformers in turn on the CPU: the same weights, rows and AdamW.

    python3 bench/peers/models.py [--ferry build/ferry] [--cases mixture,bert,pairs] [--dtypes fp32,bf16] [--threads 2]
                                  [--rounds 3] [--steps 4] [--dir DIR]

mixture    a mixture of experts (Qwen3's kind), next token
mixture-16 the same with half the experts, two of them for a token
bert       BERT base, sequence classification
pairs      an encoder of MiniLM's size, pairs (MultipleNegativesRankingLoss), beside sentence-transformers' trainer

`ferry init` makes each model, with random weights. ferry is `ferry train` without offload; a step is the step_ms of its
metrics. The peer is a plain loop: forward, loss, backward, clipping, fused AdamW, over batches that are tensors before
the clock starts; for pairs it is the trainer, which tokenizes in the step. Experts run by each way of transformers that
the CPU has, bf16 in autocast and with everything in bf16; the best counts. Each is a process of its own. The losses of
the steps are compared: fp32 within 1e-3, or the script fails. Rows have one length, so nobody pads.

Prints a Markdown table: medians over all steps but the first two of each run, and the median over the rounds of
peer / ferry. With --cpu figures are CPU seconds of a step, which neighbours change least on a busy machine; take
--threads 1 then, because threads of torch that wait use the processor.

Needs: torch, transformers; for pairs sentence-transformers and datasets.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

QWEN3_MOE = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 4096, "hidden_size": 768,
    "intermediate_size": 1536, "moe_intermediate_size": 384, "num_experts": 32, "num_experts_per_tok": 4,
    "norm_topk_prob": True, "num_hidden_layers": 4, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64,
    "max_position_embeddings": 1024, "bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
BERT = {
    "model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "pad_token_id": 0}
MINILM = {**BERT, "architectures": ["BertModel"], "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6}
CASES = {  # config, rows of a step, their tokens
    "mixture": (QWEN3_MOE, 8, 256),
    "mixture-16": ({**QWEN3_MOE, "num_experts": 16, "num_experts_per_tok": 2}, 8, 256),
    "bert": ({**BERT, "architectures": ["BertForSequenceClassification"]}, 16, 128),
    "bert-32": ({**BERT, "architectures": ["BertForSequenceClassification"]}, 32, 128),
    "pairs": (MINILM, 64, 32),
}
RATE, BETAS, EPSILON, NORM = 1e-4, (0.9, 0.999), 1e-8, 1.0
WARMUP = 2


def kind(case):
    return case.split("-")[0]


def ways(case, dtype, only):
    modes = ["fp32"] if dtype == "fp32" else ["autocast", "bf16"]
    if kind(case) == "pairs":
        modes = ["trainer"]
    elif kind(case) == "mixture":
        modes = [f"{mode} {way}" for mode in modes for way in ("eager", "grouped_mm")]
    return [way for way in modes if not only or way in only.split(",")]


def write_rows(case, count, tokens, path):
    draw = random.Random(1)

    def text():  # words of the vocabulary, two tokens around them
        return " ".join(f"w{draw.randrange(1000, 30000)}" for _ in range(tokens - 2))

    with open(path, "w") as f:
        for _ in range(count):
            if kind(case) == "pairs":
                row = {"anchor": text(), "positive": text()}
            else:
                row = {"input_ids": [draw.randrange(5, CASES[case][0]["vocab_size"]) for _ in range(tokens)]}
            if kind(case) == "bert":
                row = {**row, "token_type_ids": [0] * tokens, "label": draw.randrange(2)}
            f.write(json.dumps(row) + "\n")


def make(args, case, root):
    """The directory of a case: its model and rows."""
    config, rows, tokens = CASES[case]
    folder = os.path.join(root, case)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    model = os.path.join(folder, "model")
    subprocess.run([args.ferry, "init", "config=" + os.path.join(folder, "config.json"), "output_dir=" + model,
                    "export_dtype=fp32", "overwrite=on"], check=True, capture_output=True)
    if kind(case) == "pairs":
        from transformers import BertTokenizerFast

        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        vocab = words + [f"w{i}" for i in range(len(words), config["vocab_size"])]
        with open(os.path.join(folder, "vocab.txt"), "w") as f:
            f.write("\n".join(vocab) + "\n")
        BertTokenizerFast(os.path.join(folder, "vocab.txt"), model_max_length=512).save_pretrained(model)
    write_rows(case, rows * (WARMUP + args.steps), tokens, os.path.join(folder, "rows.jsonl"))
    return folder


# ---- peers, each in a process of its own ----


def batches(case, folder):
    import torch

    _, rows, _ = CASES[case]
    with open(os.path.join(folder, "rows.jsonl")) as f:
        table = [json.loads(line) for line in f]
    for at in range(0, len(table), rows):
        part = table[at : at + rows]
        batch = {k: torch.tensor([row[k] for row in part]) for k in ("input_ids", "token_type_ids") if k in part[0]}
        batch["labels"] = torch.tensor([row["label"] for row in part]) if "label" in part[0] else batch["input_ids"]
        yield {**batch, "attention_mask": torch.ones_like(batch["input_ids"])}


def run_plain(case, folder, way, clock):
    import torch
    import transformers

    mode, _, experts = way.partition(" ")
    classes = {"mixture": "Qwen3MoeForCausalLM", "bert": "BertForSequenceClassification"}
    options = {"experts_implementation": experts} if experts else {}
    model = getattr(transformers, classes[kind(case)]).from_pretrained(
        os.path.join(folder, "model"), dtype=torch.bfloat16 if mode == "bf16" else torch.float32, **options)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPSILON, weight_decay=0, fused=True)
    times, losses = [], []
    for batch in list(batches(case, folder)):
        start = clock()
        with torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), NORM)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        times.append(clock() - start)
    return times, losses


def run_trainer(case, folder, dtype, clock):
    import torch
    from datasets import load_dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    _, rows, _ = CASES[case]
    times, losses = [], []

    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            times.append(clock())

        def on_log(self, args, state, control, logs=None, **kwargs):
            if "loss" in logs:
                losses.append(float(logs["loss"]))

    model = SentenceTransformer(os.path.join(folder, "model"))
    data = load_dataset("json", data_files=os.path.join(folder, "rows.jsonl"), split="train",
                        cache_dir=os.path.join(folder, "cache"))
    arguments = Arguments(
        output_dir=os.path.join(folder, "trainer"), per_device_train_batch_size=rows, learning_rate=RATE,
        lr_scheduler_type="constant", max_steps=len(data) // rows, bf16=dtype == "bf16", logging_steps=1,
        max_grad_norm=NORM, optim="adamw_torch_fused", save_strategy="no", report_to="none", use_cpu=True,
        disable_tqdm=True, batch_sampler=Sequential())
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, callbacks=[Clock()],
                               loss=MultipleNegativesRankingLoss(model)).train()
    return [0.0] + [b - a for a, b in zip(times, times[1:])], losses


class Sequential:
    """A batch sampler of sentence-transformers that keeps the order of the file."""

    def __call__(self, dataset, batch_size, drop_last, **kwargs):
        from torch.utils.data import BatchSampler, SequentialSampler

        return BatchSampler(SequentialSampler(dataset), batch_size, drop_last)


def run_one(args):
    import torch

    torch.set_num_threads(args.threads)
    case, dtype, way = args.one.split(",")
    clock = time.process_time if args.cpu else time.perf_counter
    run = (run_trainer, dtype) if way == "trainer" else (run_plain, way)
    times, losses = run[0](case, args.dir, run[1], clock)
    print(json.dumps({"step_s": times[WARMUP:], "losses": losses}))


def peer(args, case, folder, dtype, way):
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--one", f"{case},{dtype},{way}", "--dir", folder, "--threads",
         str(args.threads), *["--cpu"] * args.cpu], capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    if done.returncode:
        sys.exit(f"{case}, {dtype}, {way}: {(done.stderr.strip() or 'failed')[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        return sum(map(int, f.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def watch(process, path):
    """CPU seconds of a run of ferry when it has logged each step."""
    seen = []
    while process.poll() is None:
        time.sleep(0.002)
        if os.path.exists(path):
            with open(path) as f:
                steps = f.read().count('"step_ms"')
            try:
                seen += [cpu_seconds(process.pid)] * (steps - len(seen))
            except OSError:
                break  # it has ended
    return seen


def ferry(args, binary, case, folder, dtype):
    _, rows, _ = CASES[case]
    out = os.path.join(folder, "out")
    objective = {"bert": ["objective=classification"], "pairs": ["embedding_loss=mnrl", "pooling=mean"]}
    process = subprocess.Popen(
        [binary, "train", "model=" + os.path.join(folder, "model"), "data=" + os.path.join(folder, "rows.jsonl"),
         "output_dir=" + out, "overwrite_output_dir=on", f"per_device_train_batch_size={rows}", "shuffle=off",
         f"max_steps={WARMUP + args.steps}", f"compute_dtype={dtype}", f"threads={args.threads}", "device=host",
         f"learning_rate={RATE}", "lr_scheduler_type=constant", "warmup_steps=0", "weight_decay=0",
         f"max_grad_norm={NORM}", "save_only_model=on", *objective.get(kind(case), [])],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    metrics = os.path.join(out, "metrics.jsonl")
    cpu = watch(process, metrics)
    error = process.communicate()[1].strip()
    if process.returncode:
        sys.exit(f"{case}, {dtype}: {error[-2000:]}")
    with open(metrics) as f:
        steps = [step for step in map(json.loads, f) if "step_ms" in step]
    shutil.rmtree(out)
    step_s = [b - a for a, b in zip(cpu, cpu[1:])] if args.cpu else [step["step_ms"] * 1e-3 for step in steps[1:]]
    return {"step_s": step_s[WARMUP - 1 :], "losses": [step["loss"] for step in steps]}


# ---- the table ----


def differ(a, b):
    return max(abs(x - y) / max(abs(y), 1) for x, y in zip(a, b, strict=True))


def progress(name, step_s):
    print(f"{name}: {', '.join(f'{s:.3f}' for s in step_s)}", file=sys.stderr, flush=True)


def row(args, case, folder, dtype):
    ours, before, theirs = [], [], {way: [] for way in ways(case, dtype, args.ways)}
    apart = 0
    for _ in range(args.rounds):
        own = ferry(args, args.ferry, case, folder, dtype)
        ours.append(statistics.median(own["step_s"]))
        progress("ferry", own["step_s"])
        if args.before:
            before.append(statistics.median(ferry(args, args.before, case, folder, dtype)["step_s"]))
        for way, times in theirs.items():
            result = peer(args, case, folder, dtype, way)
            times.append(statistics.median(result["step_s"]))
            progress(way, result["step_s"])
            apart = max(apart, differ(result["losses"], own["losses"]))
    if dtype == "fp32" and not apart < 1e-3:
        sys.exit(f"{case}: losses differ by {apart:g}")
    best = min(theirs, key=lambda way: statistics.median(theirs[way]))
    ratios = [b / a for a, b in zip(ours, theirs[best])]
    cells = [case, "{} x {}".format(*CASES[case][1:]), dtype, f"{statistics.median(ours):.3f}"]
    if args.before:
        cells += [f"{statistics.median(before):.3f}"]
    cells += ["; ".join(f"{statistics.median(t):.3f} ({way})" for way, t in theirs.items()),
              f"{statistics.median(ratios):.2f} ({', '.join(f'{r:.2f}' for r in ratios)})", f"{apart:.0e}"]
    return f"| {' | '.join(cells)} |"


def processor():
    with open("/proc/cpuinfo") as f:
        lines = f.read().splitlines()
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "CPU")
    flags = next((line.split() for line in lines if line.startswith(("flags", "Features"))), [])
    known = ["avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "asimd", "bf16", "i8mm"]
    return f"{name}: {' '.join(w for w in known if w in flags)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ferry", default="build/ferry")
    parser.add_argument("--before", help="another ferry binary, run in turn")
    parser.add_argument("--cases", default="mixture,bert,pairs", help=", ".join(CASES))
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help=f"timed steps of a run, after {WARMUP}")
    parser.add_argument("--ways", help="only these of the peers' ways, as 'fp32 eager,bf16 grouped_mm'")
    parser.add_argument("--cpu", action="store_true", help="CPU seconds instead of time")
    parser.add_argument("--dir", help="where models are made; default: a folder in the temporary directory")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return run_one(args)
    args.ferry = os.path.abspath(args.ferry)
    with tempfile.TemporaryDirectory(dir=args.dir) as root:
        print(f"{processor()}; {args.threads} threads, {args.rounds} rounds of {args.steps} steps\n")
        heads = ["case", "rows", "dtype", "ferry s"] + ["before s"] * bool(args.before)
        heads += ["peer s", "peer / ferry", "losses differ"]
        print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
        for case in args.cases.split(","):
            folder = make(args, case, root)
            for dtype in args.dtypes.split(","):
                print(row(args, case, folder, dtype), flush=True)


if __name__ == "__main__":
    sys.exit(main())
