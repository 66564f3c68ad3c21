#!/usr/bin/env python3
"""Write tests/golden/tokenizer: two small tokenizers of our own, and what HF tokenizers does with them.

    make_tokenizer_golden.py          needs the package `tokenizers` (0.23.3 was used)

plain.json is what examples/demo/make_tokenizer.py trains on the demo's corpus; rich.json has the same vocabulary behind a
Sequence of Split and ByteLevel, NFC, added tokens with every flag, and a template. <name>.golden.jsonl has
{"text", "ids", "ids_special", "decoded", "decoded_skip"} per line.
"""
import itertools, json, os, random, subprocess, sys, tempfile
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "..", "examples", "demo")
OUT = os.path.join(HERE, "tokenizer")
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXTS = ["", " ", "Anna has a cat.", "  The capital of ", "I'm here, you'RE there; they'd 'S", "12345 678 9", "caf\u00e9 cafe\u0301 na\u00efve",
         "\n\n  indented\n\ttab \r\n", "<|endoftext|>", "a<s>b </s> <s>", "word tok0 tok1x xtok1 tok1 tok2 \n tok3  y", "\u65e5\u672c\u8a9e \u4e2d\u6587", "\U0001f600\U0001f44d\U0001f3fd!",
         "a\u0323\u0301 a\u0301\u0323 \u212b", "'\u017f '\u212a", "\u00a0x\u2003y\u180ez", "aaaaaaaaaa" * 12, "The pet of Anna is a cat. " * 9, "\x00\x1c\x7f\x85", "\ua7da\U00031350\U0002ebf0 \U00011f50",
         "\u1112\u1161\u11ab \uac01", "\u0344 \u0958 \u0f73", "x\u08d3\u0301y", "\U00011935\U00011930", "ab\u2028cd\u2029", "...!!! --- ***\n", "A" * 50 + "b" * 61]
PIECES = [" ", "  ", "\n", "a", "the", "Anna", "'s", "'LL", "1", "99", "\u00e9", "e\u0301", "\u4e2d", "<s>", "tok1", "tok2", "tok5", ".", "!?", "\u00a0", "\t", "cap", "ital", "\U0001f600", "_"]


def plain():
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run([sys.executable, os.path.join(DEMO, "make_data.py"), tmp], check=True)
        subprocess.run([sys.executable, os.path.join(DEMO, "make_tokenizer.py"), tmp, "420", os.path.join(tmp, "corpus.jsonl")], check=True)
        with open(os.path.join(tmp, "tokenizer.json")) as f:
            return json.load(f)


def rich(spec):
    spec = json.loads(json.dumps(spec))
    spec["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}]}
    spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False},
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    at = len(spec["model"]["vocab"])
    contents = [("<s>", (True, False, False, False, False)), ("</s>", (True, False, False, False, False)), ("cafe\u0301", (False, True, False, False, False))]
    contents += [("tok%d" % i, flags) for i, flags in enumerate(itertools.product((True, False), repeat=5)) if i < 16]
    for i, (content, (special, normalized, lstrip, rstrip, single)) in enumerate(contents):
        spec["added_tokens"].append({"id": at + i, "content": content, "single_word": single, "lstrip": lstrip, "rstrip": rstrip, "normalized": normalized, "special": special})
    token = lambda name, ids: {"id": name, "ids": ids, "tokens": [name] * len(ids)}
    element = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    spec["post_processor"] = {"type": "Sequence", "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        {"type": "TemplateProcessing", "single": [element("<s>"), text, element("</s>")], "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
         "special_tokens": {"<s>": token("<s>", [at]), "</s>": token("</s>", [at + 1, 0])}}]}
    return spec


def main():
    os.makedirs(OUT, exist_ok=True)
    base = plain()
    rng = random.Random(3)
    texts = TEXTS + ["".join(PIECES[int(rng.random() * len(PIECES))] for _ in range(1 + int(rng.random() * 12))) for _ in range(150)]
    for name, spec in (("plain", base), ("rich", rich(base))):
        with open(os.path.join(OUT, name + ".json"), "w", encoding="ascii") as f:
            json.dump(spec, f, separators=(",", ":"))
            f.write("\n")
        tokenizer = Tokenizer.from_str(json.dumps(spec))
        with open(os.path.join(OUT, name + ".golden.jsonl"), "w", encoding="ascii") as f:
            for text in texts:
                ids = tokenizer.encode(text, add_special_tokens=True).ids
                row = {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids, "ids_special": ids}
                row["decoded"] = tokenizer.decode(row["ids"], skip_special_tokens=False)
                row["decoded_skip"] = tokenizer.decode(row["ids"], skip_special_tokens=True)
                f.write(json.dumps(row, separators=(",", ":")) + "\n")


main()
