#!/usr/bin/env python3
"""Compare `ferry tokenize` with HF tokenizers on random tokenizers and random texts.

    attack_tokenizers.py FERRY [--seed 1] [--seconds 60] [--text FILE]... [--charsmap FILE]... [--keep DIR]

FERRY is the program. --text files (UTF-8) give words to train small tokenizers on and to make texts of; --charsmap files
hold a precompiled_charsmap in base64. Each round builds a tokenizer.json out of random normalizers, pre-tokenizers, models,
added tokens, post-processors and decoders, and compares ids, ids with special tokens and decoded texts. The first
differences are printed, and their tokenizer.json is left in --keep (default: a temporary folder). Needs `pip install
tokenizers`. Exit code 1 when something differed; what either side refuses is counted and printed.
"""
import argparse, base64, collections, json, os, random, subprocess, sys, tempfile, time

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

WORDS = ["the", "of", "a", "don't", "I'LL", "naïve", "e\u0301a\u0323\u0301", "Ǆ", "İstanbul", "ΑΣ", "中文", "日本語テキスト", "한국어", "\u1112\u1161\u11ab",
         "مرحبا", "हिन्दी", "ไทย", "𝔘𝔫𝔦", "ﬁ", "①②", "½", "٣٤", "123", "4567.89", "😀", "👩\u200d👧", "\u1100\u1161", "U+", "--", "...", "?!", "«»", "“q”",
         "\u2581", "\u2581\u2581x", "<s>", "[CLS]", "##a", "<0x41>", "a_b", "\u200b", "\ufeff", "\u00a0", "\u3000", "\x00", "\x01\x7f", "\x85", "\u2028",
         "\t", "\n", "\r\n", "  ", "     ", "\ufffd", "ｱｲｳ", "Å", "\U00011935\U00011930", "\u0344", "\u1e9e", "ﷺ", "\U0001d15e", "ಠ", "Ⅷ", "\u30fc", "\u4e00\u4e8c"]
CHARS = [" ", " ", "a", "b", "A", "e", "\u0301", "\u0323", "0", "9", ".", ",", "'", "-", "_", "\n", "é", "中", "\u2581", "😀", "ß", "\u00ad", "\u0130", "Ⅷ", "\u0f71\u0f72", "\u11935"]
SPLITS = [r"\s+", r"\d", r"\p{L}+|\p{N}+", r"[^\s]+", r"\w+|[^\w\s]+", r"'s|'t| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r"[0-9]{1,3}", r"a|b", r"\s",
          r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+", r"\p{Han}+", r"(?=[A-Z])", r"[\p{P}\p{S}]"]
REPLACES = [({"String": " "}, "\u2581"), ({"Regex": " {2,}"}, "\u2581"), ({"Regex": r"\s+"}, " "), ({"String": "``"}, '"'), ({"String": "a"}, "bb"), ({"Regex": "[0-9]"}, ""), ({"String": "\n"}, " ")]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def maybe(rng, p=0.5):
    return rng.random() < p


def random_text(rng, lines):
    kind = rng.random()
    if kind < 0.3:
        line = rng.choice(lines)
        start = rng.randrange(len(line) + 1)
        return line[start : start + rng.randrange(120)]
    if kind < 0.35:
        return rng.choice(WORDS + CHARS) * rng.randrange(1, 4000)
    if kind < 0.45:
        return "".join(chr(rng.choice([rng.randrange(0x20, 0xD7FF), rng.randrange(0xE000, 0x110000), rng.randrange(0x250)])) for _ in range(rng.randrange(12)))
    parts = [rng.choice(CHARS) if maybe(rng) else rng.choice(WORDS) if maybe(rng, 0.7) else rng.choice(rng.choice(lines).split() or ["x"]) for _ in range(rng.randrange(14))]
    return rng.choice(["", " "]).join(parts)


def normalizer(rng, maps, depth=0):
    kind = rng.randrange(14 if depth == 0 else 12)
    if kind >= 12:
        return {"type": "Sequence", "normalizers": [normalizer(rng, maps, 1) for _ in range(rng.randrange(4))]}
    if kind == 0:
        return {"type": "BertNormalizer", "clean_text": maybe(rng), "handle_chinese_chars": maybe(rng), "strip_accents": rng.choice([None, True, False]), "lowercase": maybe(rng)}
    if kind == 1:
        return {"type": "Strip", "strip_left": maybe(rng), "strip_right": maybe(rng)}
    if kind == 2:
        pattern, content = rng.choice(REPLACES)
        return {"type": "Replace", "pattern": pattern, "content": content}
    if kind == 3:
        return {"type": "Prepend", "prepend": rng.choice(["\u2581", "x ", " "])}
    if kind == 4 and maps:
        return {"type": "Precompiled", "precompiled_charsmap": rng.choice(maps)}
    return {"type": rng.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"])}


def metaspace(rng):
    m = {"type": "Metaspace", "replacement": rng.choice(["\u2581", "\u2581", "\u2581", "_"])}
    if maybe(rng, 0.8):
        m["prepend_scheme"] = rng.choice(["always", "first", "never"])
        m["split"] = maybe(rng)
    else:
        m["add_prefix_space"] = True
        m["str_rep"] = m["replacement"]
    return m


def pre_tokenizer(rng, depth=0):
    kind = rng.randrange(15 if depth == 0 else 10)
    if kind >= 10:
        return {"type": "Sequence", "pretokenizers": [pre_tokenizer(rng, 1) for _ in range(rng.randrange(4))]}
    if kind <= 1:
        return {"type": "ByteLevel", "add_prefix_space": maybe(rng), "trim_offsets": True, "use_regex": maybe(rng)}
    if kind <= 3:
        return metaspace(rng)
    if kind <= 5:
        pattern = {"Regex": rng.choice(SPLITS)} if maybe(rng, 0.8) else {"String": rng.choice([" ", "a", "--", "\n"])}
        return {"type": "Split", "pattern": pattern, "behavior": rng.choice(BEHAVIORS), "invert": maybe(rng, 0.3)}
    if kind == 6:
        return {"type": "Digits", "individual_digits": maybe(rng)}
    if kind == 7:
        return {"type": "Punctuation", "behavior": rng.choice(BEHAVIORS)}
    if kind == 8:
        return {"type": "CharDelimiterSplit", "delimiter": rng.choice([" ", "a", "中"])}
    if maybe(rng, 0.1):
        return {"type": "FixedLength", "length": rng.randrange(1, 6)}
    return {"type": rng.choice(["Whitespace", "WhitespaceSplit", "BertPreTokenizer"])}


def decoder(rng, depth=0):
    kind = rng.randrange(13 if depth == 0 else 9)
    if kind >= 9:
        return {"type": "Sequence", "decoders": [decoder(rng, 1) for _ in range(rng.randrange(5))]}
    if kind == 0:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    if kind == 1:
        return metaspace(rng)
    if kind == 2:
        return {"type": "WordPiece", "prefix": "##", "cleanup": maybe(rng)}
    if kind == 3:
        pattern, content = rng.choice(REPLACES + [({"String": "\u2581"}, " ")] * 4)
        return {"type": "Replace", "pattern": pattern, "content": content}
    if kind == 4:
        return {"type": "Strip", "content": rng.choice([" ", "a"]), "start": rng.randrange(3), "stop": rng.choice([0, 0, 1])}
    if kind == 5:
        return {"type": "BPEDecoder", "suffix": rng.choice(["</w>", "e"])}
    if kind == 6:
        return {"type": "CTC", "pad_token": "a", "word_delimiter_token": "|", "cleanup": maybe(rng)}
    return {"type": rng.choice(["ByteFallback", "Fuse"])}


def train(rng, lines, model, trainer, prefix_steps):
    t = Tokenizer(model)
    t.pre_tokenizer = prefix_steps
    t.train_from_iterator(rng.sample(lines, min(len(lines), 60)), trainer)
    return json.loads(t.to_str())["model"]


def bpe(rng, lines):
    prefix, suffix = rng.choice([("", "")] * 5 + [("##", ""), ("", "</w>"), ("##", "</w>")])
    affixes = {"continuing_subword_prefix": prefix, "end_of_word_suffix": suffix}
    steps = rng.choice([pre_tokenizers.ByteLevel(), pre_tokenizers.Metaspace(), pre_tokenizers.Metaspace(split=False), pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit()])
    special = ["<unk>"] + (["<0x%02X>" % b for b in range(256)] if maybe(rng, 0.4) else [])
    trainer = trainers.BpeTrainer(vocab_size=rng.choice([500, 1500]), special_tokens=special, show_progress=False, limit_alphabet=rng.choice([30, 100, 1000]), **{k: v for k, v in affixes.items() if v})
    m = train(rng, lines, models.BPE(), trainer, steps)
    m["byte_fallback"] = len(special) > 1 and not prefix and not suffix
    if m["byte_fallback"] and maybe(rng, 0.3):
        for b in rng.sample(range(256), 20):
            m["vocab"].pop("<0x%02X>" % b, None)
    m["unk_token"] = rng.choice([None, "<unk>", "<unk>"])
    m["fuse_unk"], m["ignore_merges"] = maybe(rng), maybe(rng, 0.3)
    if maybe(rng, 0.2):
        rng.shuffle(m["merges"])
    if maybe(rng, 0.3):
        m["merges"] = [" ".join(pair) for pair in m["merges"]]
    return m


def unigram(rng, lines):
    if maybe(rng):
        trainer = trainers.UnigramTrainer(vocab_size=rng.choice([300, 800]), special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
        m = train(rng, lines, models.Unigram(), trainer, rng.choice([pre_tokenizers.Metaspace(), pre_tokenizers.WhitespaceSplit()]))
    else:
        pieces, seen = [["<unk>", 0.0]], {"<unk>"}
        for _ in range(rng.randrange(50, 600)):
            word = rng.choice(WORDS + CHARS) if maybe(rng) else random_text(rng, lines)[: rng.randrange(1, 5)]
            if word and word not in seen:
                seen.add(word)
                pieces.append([word, rng.choice([-1.0, -2.0, -3.0, -rng.random() * 12])])
        m = {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": False}
    if maybe(rng, 0.4):
        m["byte_fallback"] = True
        m["vocab"] += [["<0x%02X>" % b, 0.0 if maybe(rng) else -9.0] for b in range(256) if maybe(rng, 0.995)]
    return m


def wordpiece(rng, lines):
    trainer = trainers.WordPieceTrainer(vocab_size=rng.choice([300, 1000]), special_tokens=["[UNK]"], show_progress=False)
    m = train(rng, lines, models.WordPiece(unk_token="[UNK]"), trainer, pre_tokenizers.BertPreTokenizer())
    m["max_input_chars_per_word"] = rng.choice([100, 100, 5])
    return m


def wordlevel(rng, lines):
    trainer = trainers.WordLevelTrainer(vocab_size=500, special_tokens=["<unk>"], show_progress=False)
    return train(rng, lines, models.WordLevel(unk_token="<unk>"), trainer, rng.choice([pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace()]))


def added_tokens(rng, model, lines):
    vocab = model["vocab"]
    contents = {entry[0] for entry in vocab} if isinstance(vocab, list) else set(vocab)
    count, out, seen = len(contents), [], set()
    for _ in range(rng.choice([0, 0, 2, 6])):
        content = rng.choice(WORDS + ["<s>", "</s>", "<pad>", "new york", " lead", "trail ", "ab", "A", "é"]) if maybe(rng, 0.8) else rng.choice(sorted(contents))
        if content and content not in seen:
            seen.add(content)
            out.append({"id": count + len(out), "content": content, "single_word": maybe(rng, 0.3), "lstrip": maybe(rng, 0.3), "rstrip": maybe(rng, 0.3), "normalized": maybe(rng), "special": maybe(rng)})
    return out


def post_processor(rng, tokenizer):
    ids = tokenizer.get_vocab(with_added_tokens=True)
    names = rng.sample(sorted(ids), min(2, len(ids)))
    if len(names) < 2 or maybe(rng, 0.3):
        return None
    first, second = names
    kind = rng.randrange(4)
    if kind == 0:
        return {"type": "BertProcessing", "sep": [second, ids[second]], "cls": [first, ids[first]]}
    if kind == 1:
        return {"type": "RobertaProcessing", "sep": [second, ids[second]], "cls": [first, ids[first]], "trim_offsets": True, "add_prefix_space": False}
    special = {n: {"id": n, "ids": [ids[n]], "tokens": [n]} for n in names}
    text = lambda name: {"Sequence": {"id": name, "type_id": 0}}
    token = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    single = [token(first), text("A")] + ([token(second)] if maybe(rng) else [])
    template = {"type": "TemplateProcessing", "single": single, "pair": single + [text("B"), token(second)], "special_tokens": special}
    if kind == 2:
        return template
    return {"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template]}


def ferry(program, folder, args, rows):
    run = subprocess.run([program, "tokenize", "--json", "tokenizer=" + folder] + args, input="".join(json.dumps(r) + "\n" for r in rows).encode(), capture_output=True)
    return [json.loads(line) for line in run.stdout.splitlines()], run.stderr.decode(), run.returncode


def hf(call):
    try:
        return call()
    except BaseException as e:  # a panic of Rust is no Exception
        if isinstance(e, KeyboardInterrupt):
            raise
        return None


class Attack:
    def __init__(self, options):
        self.options, self.counts, self.bad = options, collections.Counter(), 0
        self.lines = [l for path in options.text for l in open(path, encoding="utf-8").read().splitlines() if l.strip()] or ["the quick brown fox"]
        self.maps = [open(path).read().strip() for path in options.charsmap]
        self.folder = options.keep or tempfile.mkdtemp(prefix="attack_tokenizers_")

    def report(self, seed, what, detail):
        self.bad += 1
        self.counts["different: " + what] += 1
        if self.bad <= 12:
            print(f"seed {seed}: {what}: {detail}"[:700], flush=True)

    def compare(self, seed, folder, args, rows, want, key):
        rows = [r for r, w in zip(rows, want) if w is not None]
        want = [w for w in want if w is not None]
        got, errors, code = ferry(self.options.ferry, folder, args, rows)
        for i, (row, expected) in enumerate(zip(rows, want)):
            if i >= len(got):
                self.report(seed, "stopped", (code, errors[-300:], row))
                return
            self.counts["rows"] += 1
            if got[i][key] != expected:
                self.report(seed, " ".join([key] + args), f"{row!r}\n  want {expected!r}\n  got  {got[i][key]!r}")
                return

    def round(self, seed):
        rng = random.Random(seed)
        model = rng.choice([bpe, bpe, unigram, wordpiece, wordlevel])(rng, self.lines)
        spec = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens(rng, model, self.lines),
                "normalizer": normalizer(rng, self.maps) if maybe(rng, 0.7) else None, "pre_tokenizer": pre_tokenizer(rng) if maybe(rng, 0.8) else None,
                "post_processor": None, "decoder": decoder(rng) if maybe(rng, 0.8) else None, "model": model}
        t = hf(lambda: Tokenizer.from_str(json.dumps(spec)))
        if t is not None:
            spec["post_processor"] = post_processor(rng, t)
            t = hf(lambda: Tokenizer.from_str(json.dumps(spec)))
        folder = os.path.join(self.folder, "%d" % seed)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "tokenizer.json"), "w") as f:
            json.dump(spec, f)
        _, errors, code = ferry(self.options.ferry, folder, ["input_format=json"], [])
        if t is None or code != 0:
            self.counts["refused by HF" if t is None else "refused: " + errors.strip().split(": ", 3)[-1][:90]] += 1
        if t is not None and code == 0:
            before = self.bad
            texts = [random_text(rng, self.lines) for _ in range(60)]
            plain = [hf(lambda: t.encode(x, add_special_tokens=False).ids) for x in texts]
            self.compare(seed, folder, ["input_format=json", "add_special_tokens=off"], texts, plain, "ids")
            self.compare(seed, folder, ["input_format=json"], texts, [hf(lambda: t.encode(x).ids) for x in texts], "ids")
            known = list(t.get_vocab().values())
            lists = [p for p in plain if p is not None][:30] + [[rng.choice(known) for _ in range(rng.randrange(1, 8))] for _ in range(30)]
            lists = [l for l in lists if l]
            for skip in (False, True):
                self.compare(seed, folder, ["--decode", "skip_special_tokens=" + ("on" if skip else "off")], lists, [hf(lambda: t.decode(l, skip_special_tokens=skip)) for l in lists], "text")
            self.counts["tokenizers"] += 1
            if self.bad > before:
                return
        os.remove(os.path.join(folder, "tokenizer.json"))
        os.rmdir(folder)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ferry")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--rounds", type=int, default=10**9)
    p.add_argument("--text", action="append", default=[])
    p.add_argument("--charsmap", action="append", default=[])
    p.add_argument("--keep")
    attack = Attack(p.parse_args())
    end, seed = time.time() + attack.options.seconds, attack.options.seed
    while time.time() < end and seed < attack.options.seed + attack.options.rounds:
        attack.round(seed)
        seed += 1
    for what, count in attack.counts.most_common():
        print(f"{count:8} {what}")
    print(f"seeds {attack.options.seed} to {seed - 1}, tokenizers {tokenizers.__version__}; what differed is in {attack.folder}")
    sys.exit(attack.bad > 0)


main()
