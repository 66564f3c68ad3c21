#!/usr/bin/env python3
"""Tokenizing on one core: `ferry tokenize` beside HF tokenizers and tiktoken, in turn, on the same text.

    tokenizing.py FERRY TEXT TOKENIZER... [--rounds 5] [--mb 20]

TEXT is UTF-8; it is cut into documents of about 4 KB and repeated up to --mb million bytes. TOKENIZER is a folder with a
tokenizer.json (or tokenizer.json.xz), or such a file. Needs `pip install tokenizers`, and tiktoken for its column, which
byte-level vocabularies have. MB/s are 10^6 bytes of UTF-8 per second of processor time, medians of the rounds; ferry's are
those of the whole program, with ids printed and without opening the tokenizer, which has a column of its own.
"""
import argparse, json, lzma, os, resource, statistics, subprocess, tempfile, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers


def read_spec(path):
    if os.path.isdir(path):
        names = [os.path.join(path, n) for n in ("tokenizer.json", "tokenizer.json.xz")]
        path = next(n for n in names if os.path.exists(n))
    return lzma.open(path).read().decode() if path.endswith(".xz") else open(path, encoding="utf-8").read()


def documents(text, size=4096):
    lines, out, have = text.splitlines(keepends=True), [""], 0
    for line in lines:
        if have + len(line) > size and have:
            out.append("")
            have = 0
        out[-1] += line
        have += len(line)
    return out


def tiktoken_of(spec):
    """The same merges for tiktoken, or None where they are not those of bytes."""
    try:
        import tiktoken
        from tiktoken.load import data_gym_to_mergeable_bpe_ranks as _  # noqa: only that the module is whole
    except ImportError:
        return None
    same = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    byte = {chr(b): b for b in same} | {chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in same)}
    pattern = find_pattern(spec.get("pre_tokenizer") or {})
    special = {a["content"] for a in spec["added_tokens"]}
    if spec["model"].get("type", "BPE") != "BPE" or spec["model"].get("byte_fallback") or not pattern:
        return None
    try:
        ranks = {bytes(byte[c] for c in t): i for t, i in spec["model"]["vocab"].items() if t not in special}
        return tiktoken.Encoding(name="x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    except Exception:
        return None


def find_pattern(step):
    if step.get("type") == "ByteLevel" and step.get("use_regex", True):
        return r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    if step.get("type") == "Split":
        return step["pattern"].get("Regex")
    found = [p for p in map(find_pattern, step.get("pretokenizers", [])) if p]
    return found[0] if len(found) == 1 else None


def child_seconds(command, path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdin=open(path, "rb"), stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def own_seconds(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ferry")
    p.add_argument("text")
    p.add_argument("tokenizer", nargs="+")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--mb", type=float, default=20)
    o = p.parse_args()
    docs = documents(open(o.text, encoding="utf-8").read())
    docs *= max(1, round(o.mb * 1e6 / sum(len(d.encode()) for d in docs)))
    size = sum(len(d.encode()) for d in docs)
    print(f"{size / 1e6:.1f} MB in {len(docs)} documents; MB/s of one core\n\n| tokenizer | ferry | HF encode_batch_fast | tiktoken | ferry opens in |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as tmp:
        rows, empty = os.path.join(tmp, "rows.jsonl"), os.path.join(tmp, "empty")
        with open(rows, "w") as f:
            f.writelines(json.dumps(d) + "\n" for d in docs)
        open(empty, "w").close()
        for path in o.tokenizer:
            text = read_spec(path)
            spec_path = os.path.join(tmp, "tokenizer.json")
            with open(spec_path, "w", encoding="utf-8") as f:
                f.write(text)
            hf, tik = tokenizers.Tokenizer.from_str(text), tiktoken_of(json.loads(text))
            command = [o.ferry, "tokenize", "tokenizer=" + spec_path, "input_format=json", "add_special_tokens=off"]
            times = {"ferry": [], "hf": [], "tiktoken": [], "open": []}
            for _ in range(o.rounds):
                times["open"].append(child_seconds(command, empty))
                times["ferry"].append(child_seconds(command, rows) - times["open"][-1])
                times["hf"].append(own_seconds(lambda: hf.encode_batch_fast(docs, add_special_tokens=False)))
                if tik:
                    times["tiktoken"].append(own_seconds(lambda: [tik.encode_ordinary(d) for d in docs]))
            rate = lambda key: "%.1f" % (size / 1e6 / statistics.median(times[key])) if times[key] else "-"
            name = os.path.basename(os.path.normpath(path))
            print(f"| {name} | {rate('ferry')} | {rate('hf')} | {rate('tiktoken')} | {statistics.median(times['open']):.3f} s |", flush=True)


if __name__ == "__main__":
    main()
