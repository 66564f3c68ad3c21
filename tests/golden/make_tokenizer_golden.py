#!/usr/bin/env python3
"""Write tests/golden/tokenizer: small tokenizers of our own, and what HF tokenizers does with them.

    make_tokenizer_golden.py          needs the packages `tokenizers` (0.23.3 was used) and `sentencepiece` (0.2.3)

plain.json is what examples/demo/make_tokenizer.py trains on the demo's corpus; rich.json has the same vocabulary behind a
Sequence of Split and ByteLevel, NFC, added tokens with every flag, and a template. <name>.golden.jsonl has
{"text", "ids", "ids_special", "decoded", "decoded_skip"} per line. The others are one of each kind, in the form of a
published family: fallback (Llama-2), unigram (T5, with a small precompiled_charsmap), wordpiece (BERT), wordlevel, and
affixed (CLIP: BPE with end_of_word_suffix); their training is not the same each time. bpe.model and unigram.model are sentencepiece's own, with {"text", "ids"}.
"""
import base64, io, itertools, json, os, random, struct, subprocess, sys, tempfile
import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

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


CHARSMAP = {"\ufb01": "fi", "\u2460": "1", "\u00a0": " ", "\t": " ", "\n": " ", "\r\n": " ", "e\u0301": "\u00e9", "\u200b": "", "\x00": "", "\u212b": "\u00c5",
            "\u2003": " ", "\uac01": "\u1100\u1161\u11a8", "Z": "z"}
REST = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []}
TRAIN = TEXTS + ["Anna has a cat and the cat of Anna has the capital city in it", "lower newer wider slower the quick brown fox"] * 3


def charsmap(entries):
    """A Darts double-array trie over UTF-8 bytes, and the texts that its values point at."""
    texts, offsets, trie = b"", {}, {}
    for key, text in entries.items():
        offsets[key.encode()] = len(texts)
        texts += text.encode() + b"\0"
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = offsets[key.encode()]
    units, taken = {0: 0}, {0}

    def place(node, at):
        slots = [0 if byte is None else byte for byte in node]
        base = next(b for b in range(1, 1 << 20) if not any(b ^ slot in taken for slot in slots))
        taken.update(base ^ slot for slot in slots)
        units[at] = units.get(at, 0) | (at ^ base) << 10 | (256 if None in node else 0)
        for byte, child in node.items():
            units[base ^ (byte or 0)] = child | 1 << 31 if byte is None else byte
        for byte, child in node.items():
            if byte is not None:
                place(child, base ^ byte)

    place(trie, 0)
    count = (max(units) + 256) // 256 * 256  # HF tokenizers looks at base ^ byte for any byte
    array = struct.pack("<%dI" % count, *(units.get(i, 0) for i in range(count)))
    return base64.b64encode(struct.pack("<I", len(array)) + array + texts).decode()


def trained(model, trainer, steps):
    t = Tokenizer(model)
    t.pre_tokenizer = steps
    t.train_from_iterator(TRAIN, trainer)
    return json.loads(t.to_str())["model"]


def added(at, *contents):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": at + i, "content": c, **flags} for i, c in enumerate(contents)]


def fallback():
    special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, limit_alphabet=60, show_progress=False)
    model = trained(models.BPE(), trainer, pre_tokenizers.Metaspace(split=False))
    model.update(byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    element = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    text = lambda name: {"Sequence": {"id": name, "type_id": 0}}
    return REST | {"added_tokens": added(0, "<unk>", "<s>", "</s>"), "pre_tokenizer": None, "model": model,
                   "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
                   "post_processor": {"type": "TemplateProcessing", "single": [element("<s>"), text("A")], "pair": [element("<s>"), text("A"), element("<s>"), text("B")],
                                      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
                   "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}


def unigram():
    trainer = trainers.UnigramTrainer(vocab_size=220, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    return REST | {"added_tokens": added(0, "<pad>", "</s>", "<unk>"), "model": trained(models.Unigram(), trainer, pre_tokenizers.Metaspace()),
                   "normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": charsmap(CHARSMAP)},
                                                                      {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
                   "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}, "decoder": metaspace,
                   "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                                      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                                      "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}}


def wordpiece():
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False)
    return REST | {"added_tokens": added(0, "[PAD]", "[UNK]", "[CLS]", "[SEP]"), "model": trained(models.WordPiece(unk_token="[UNK]"), trainer, pre_tokenizers.BertPreTokenizer()),
                   "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
                   "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
                   "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}


def wordlevel():
    trainer = trainers.WordLevelTrainer(vocab_size=60, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    return REST | {"model": trained(models.WordLevel(unk_token="<unk>"), trainer, pre_tokenizers.Whitespace()), "decoder": None,
                   "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Nmt"}, {"type": "Strip", "strip_left": True, "strip_right": True}]},
                   "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, {"type": "Digits", "individual_digits": False}, {"type": "CharDelimiterSplit", "delimiter": "_"}]},
                   "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": False}}


def affixed():
    trainer = trainers.BpeTrainer(vocab_size=260, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False)
    model = trained(models.BPE(), trainer, pre_tokenizers.BertPreTokenizer())
    model["unk_token"] = "<unk>"
    return REST | {"added_tokens": added(0, "<unk>"), "model": model, "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]},
                   "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None, "decoder": {"type": "BPEDecoder", "suffix": "</w>"}}


def sentencepiece_models(texts):
    kinds = {"bpe": {"byte_fallback": True, "remove_extra_whitespaces": False}, "unigram": {"character_coverage": 0.98}}
    # special tokens are found in a text here and not there; long runs have many best ways, which floats and doubles tell apart
    texts = [t for t in texts if "<s>" not in t and "\0" not in t and len(t) < 100]
    for kind, options in kinds.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([t for t in TRAIN if "\n" not in t]), model_writer=model, model_type=kind, vocab_size=420 if kind == "bpe" else 150,
                                                 normalization_rule_name="identity", num_threads=1, minloglevel=2, hard_vocab_limit=False, **options)
        with open(os.path.join(OUT, kind + ".model"), "wb") as f:
            f.write(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        with open(os.path.join(OUT, kind + ".model.jsonl"), "w", encoding="ascii") as f:
            for text in texts:
                f.write(json.dumps({"text": text, "ids": processor.encode(text)}, separators=(",", ":")) + "\n")


def main():
    os.makedirs(OUT, exist_ok=True)
    base = plain()
    rng = random.Random(3)
    texts = TEXTS + ["".join(PIECES[int(rng.random() * len(PIECES))] for _ in range(1 + int(rng.random() * 12))) for _ in range(150)]
    kinds = (fallback, unigram, wordpiece, wordlevel, affixed)
    for name, spec in [("plain", base), ("rich", rich(base))] + [(kind.__name__, kind()) for kind in kinds]:
        with open(os.path.join(OUT, name + ".json"), "w", encoding="ascii") as f:
            json.dump(spec, f, separators=(",", ":"))
            f.write("\n")
        tokenizer = Tokenizer.from_str(json.dumps(spec))
        with open(os.path.join(OUT, name + ".golden.jsonl"), "w", encoding="ascii") as f:
            for text in texts if name in ("plain", "rich") else texts[:80]:
                ids = tokenizer.encode(text, add_special_tokens=True).ids
                row = {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids, "ids_special": ids}
                row["decoded"] = tokenizer.decode(row["ids"], skip_special_tokens=False)
                row["decoded_skip"] = tokenizer.decode(row["ids"], skip_special_tokens=True)
                f.write(json.dumps(row, separators=(",", ":")) + "\n")
    sentencepiece_models(texts[:80])


main()
