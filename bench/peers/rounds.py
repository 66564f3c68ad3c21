"""Training steps of ferry and of torch in turn, on the CPU: the same shapes, tokens and clipping.

    python3 bench/peers/rounds.py --ferry build/ferry --models 15m,134m --batches 1x256,8x2048 --dtypes fp32,bf16

Each round runs ferry, then torch eager, then torch compiled (not with --eager); of torch's ways that were tried the best counts (bf16:
autocast and everything in bf16). --before is another ferry binary to run in turn. Figures are CPU seconds of a step on one thread, which neighbours change least;
--threads 2 or more takes wall time instead. Prints a Markdown table, with the share of --peaks that ferry reaches
over the whole step.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
WAYS = {"fp32": ["fp32", "fp32 --compile"], "bf16": ["plain", "plain --compile", "bf16", "bf16 --compile"]}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None, (done.stderr.strip() or "failed").splitlines()[-1]
    return json.loads(done.stdout[done.stdout.index("{"):]), None


def ferry_step(args, binary, model, rows, row_tokens, dtype):
    ways = [w for w in (dtype if dtype == "bf16" else "", args.ways) if w]
    command = [binary, "bench", "step", f"models={model}", f"micro_batch_tokens={rows}x{row_tokens}",
               f"threads={args.threads}", f"count={args.steps}", "--json"]
    return run(command + ([f"ways={','.join(ways)}"] if ways else []))


def torch_step(args, model, rows, row_tokens, way):
    return run([sys.executable, os.path.join(HERE, "torch_train.py"), "--model", model, "--rows", str(rows),
                "--row-tokens", str(row_tokens), "--keep", "--threads", str(args.threads), "--steps", str(args.steps),
                "--device", "cpu", "--mode", *way.split()])


def flags():
    with open("/proc/cpuinfo") as f:
        words = next((line.split() for line in f if line.startswith(("flags", "Features"))), [])
    known = ["avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_bf16", "asimd", "bf16", "i8mm"]
    return " ".join(w for w in known if w in words)


def row(args, model, rows, row_tokens, dtype):
    key = "cpu_s" if args.threads == 1 else "step_s"
    ways = args.torch.split(",") if args.torch else WAYS[dtype]
    ways = [way for way in ways if not (args.eager and "--compile" in way)]
    ours, before, share, theirs = [], [], [], {way: [] for way in ways}
    for _ in range(args.rounds):
        for binary, times in ((args.ferry, ours), (args.before, before)):
            result, error = ferry_step(args, binary, model, rows, row_tokens, dtype) if binary else (None, None)
            if error:
                return f"| {model} | {rows} x {row_tokens} | {dtype} | {error} |"
            if result:
                times.append(result[key])
            if times is ours:
                share.append(result["gflops"] * result["forward_backward_s"] / result[key] / args.peak[dtype])
        for way in list(theirs):
            result, error = torch_step(args, model, rows, row_tokens, way)
            if error:
                print(f"{way}: {error}", file=sys.stderr)
                del theirs[way]
            else:
                theirs[way].append(result[key])
    cells = [model, f"{rows} x {row_tokens}", dtype, f"{statistics.median(ours):.3f}"]
    if args.before:
        cells.append(f"{statistics.median(before):.3f}")
    if theirs:
        best = min(theirs, key=lambda way: statistics.median(theirs[way]))
        ratios = [statistics.median(b / a for a, b in zip(x, theirs[best])) for x in (before, ours) if x]
        cells += [f"{statistics.median(theirs[best]):.3f} ({best.replace('--', '').replace('plain', 'autocast')})",
                  ", ".join(f"{ratio:.2f}" for ratio in ratios)]
    else:
        cells += ["failed", ""]
    return f"| {' | '.join(cells)} | {statistics.median(share):.2f} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ferry", default="build/ferry")
    parser.add_argument("--before", help="another ferry binary")
    parser.add_argument("--eager", action="store_true", help="leave torch.compile out")
    parser.add_argument("--peaks", default="116,231", help="GFLOP/s of fp32, of bf16 that all threads can reach")
    parser.add_argument("--models", default="15m,134m,1b-4l")
    parser.add_argument("--batches", default="1x256,8x256,1x2048", help="rows x tokens")
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--torch", help="only these of torch's ways, as 'bf16 --compile,plain'")
    parser.add_argument("--ways", default="resident", help="of ferry; resident: no offload, as in `ferry train` on a CPU")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    args.peak = dict(zip(("fp32", "bf16"), map(float, args.peaks.split(","))))

    print(f"{flags()}; {args.threads} threads, {args.rounds} rounds of {args.steps} steps\n")
    heads = ["model", "rows", "dtype", "ferry s"] + ["ferry before s"] * bool(args.before)
    heads += ["torch s", "torch / ferry" + " before, now" * bool(args.before), "of peak"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for model in args.models.split(","):
        for batch in args.batches.split(","):
            for dtype in args.dtypes.split(","):
                rows, row_tokens = map(int, batch.split("x"))
                print(row(args, model, rows, row_tokens, dtype), flush=True)


if __name__ == "__main__":
    main()
