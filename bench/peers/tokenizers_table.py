#!/usr/bin/env python3
"""Every tokenizer of a folder: are ferry's ids and texts those of HF tokenizers, and how fast are both, in one run.

    tokenizers_table.py FERRY FOLDER TEXT [--rounds 3] [--mb 8]

FOLDER holds folders with tokenizer.json (or .xz) and maybe golden.jsonl, whose texts and ids are compared, and TEXT is
UTF-8 text, whose documents of 4 KB are compared too and timed; tiktoken is timed where its ids are the same. Ids are
compared without and with special tokens, then decoded text. MB/s are 10^6 bytes per second of processor time on one core, medians of rounds (0: none): ferry's by `ferry
bench tokenize`. Needs `pip install tokenizers tiktoken`.
"""
import argparse, json, lzma, os, statistics, subprocess, sys, tempfile, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tokenizing import documents, read_spec, tiktoken_of


def ferry(command, lines):
    run = subprocess.run(command, input="".join(json.dumps(x) + "\n" for x in lines).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if run.returncode:
        raise SystemExit(run.stderr.decode())
    return run.stdout.decode()


def ferry_ids(binary, spec, texts, special):
    out = ferry([binary, "tokenize", "tokenizer=" + spec, "input_format=json", "add_special_tokens=" + special], texts)
    return [json.loads(line) for line in out.splitlines()]


def ferry_texts(binary, spec, lists):
    out = ferry([binary, "tokenize", "tokenizer=" + spec, "--decode", "--json"], lists)
    return [json.loads(line)["text"] for line in out.split("\n") if line]


def golden_texts(folder):
    path = os.path.join(folder, "golden.jsonl")
    return [json.loads(line)["text"] for line in open(path)] if os.path.exists(path) else []


def same(ours, theirs):
    wrong = sum(a != b for a, b in zip(ours, theirs)) + abs(len(ours) - len(theirs))
    return "equal" if not wrong else f"{wrong} differ"


def rate(call, size, rounds):
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return size / statistics.median(times) / 1e6


def same_ids(tik, docs, ids):
    """tiktoken where its ids are the tokenizer's; it panics where the vocabulary lacks bytes."""
    try:
        return tik if tik and all(tik.encode_ordinary(d) == i for d, i in zip(docs, ids)) else None
    except KeyboardInterrupt:
        raise
    except BaseException:  # pyo3_runtime.PanicException is no Exception
        return None


def measure(o, spec, hf, tik, many, size):
    command = [o.ferry, "bench", "tokenize", "tokenizer=" + spec, "data=" + o.text, f"count={int(o.mb * 1e6)}", "--json"]
    ours = json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)
    theirs = rate(lambda: hf.encode_batch_fast(many, add_special_tokens=False), size, o.rounds)
    tiks = "%.1f" % rate(lambda: [tik.encode_ordinary(d) for d in many], size, o.rounds) if tik else "-"
    return f"{ours['rows'][0]['cpu_MBps']:.1f} | {theirs:.1f} | {tiks}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ferry")
    p.add_argument("folder")
    p.add_argument("text")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--mb", type=float, default=8)
    o = p.parse_args()
    docs = documents(open(o.text, encoding="utf-8").read())
    many = docs * max(1, round(o.mb * 1e6 / sum(len(d.encode()) for d in docs)))
    size = sum(len(d.encode()) for d in many)
    print(f"tokenizers {tokenizers.__version__}; {size / 1e6:.1f} MB in {len(many)} documents\n")
    print("| tokenizer | texts | ids | with special | decoded | ferry MB/s | tokenizers | tiktoken |\n|---|---|---|---|---|---|---|---|")
    for name in sorted(os.listdir(o.folder)):
        folder = os.path.join(o.folder, name)
        if not any(os.path.exists(os.path.join(folder, f)) for f in ("tokenizer.json", "tokenizer.json.xz")):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            text, spec = read_spec(folder), os.path.join(tmp, "tokenizer.json")
            open(spec, "w", encoding="utf-8").write(text)
            hf, tik = tokenizers.Tokenizer.from_str(text), tiktoken_of(json.loads(text))
            texts = golden_texts(folder) + docs
            plain = [e.ids for e in hf.encode_batch_fast(texts, add_special_tokens=False)]
            tik = same_ids(tik, docs, plain[len(texts) - len(docs):])
            special = [e.ids for e in hf.encode_batch_fast(texts)]
            equal = same(ferry_ids(o.ferry, spec, texts, "off"), plain)
            equal_special = same(ferry_ids(o.ferry, spec, texts, "on"), special)
            decoded = same(ferry_texts(o.ferry, spec, plain), [hf.decode(i, skip_special_tokens=False) for i in plain])
            speeds = measure(o, spec, hf, tik, many, size) if o.rounds else "- | - | -"
            print(f"| {name} | {len(texts)} | {equal} | {equal_special} | {decoded} | {speeds} |", flush=True)


main()
