#!/usr/bin/env python3
"""What transformers does with tokens that stand beside tokenizer.json or tokenizer.model.

    make_added_tokens.py [COUNT] [SEED] [OUT]     needs transformers 5 (5.24 was used), sentencepiece

Draws tokenizer_config.json, special_tokens_map.json and added_tokens.json at random for the tokenizers of
tests/golden/tokenizer, and writes one JSON object a line: {"base", "files", "rows": [[text, ids, ids_special]], "eos"}, or
{"base", "files", "taken": token} where the files give the token an id that another one has, or two ids.
"""
import json, logging, os, random, shutil, sys, tempfile
os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
from transformers import AutoTokenizer
logging.disable(logging.CRITICAL)

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = ["lstrip", "rstrip", "single_word", "normalized", "special"]
TOKENS = ["<tool>", "<|im_end|>", "<|im_start|>", "[PAD]", "Anna", "<image>", "<s>", "</s>", "\u00e9t\u00e9", "a b", "<T>", "<0x41>", "the"]
TEXTS = ["a <tool> b", "<|im_start|>user\tAnna<|im_end|>", " <tool>  <image>x", "the cat<s>a b</s> \u00e9t\u00e9", "Anna has<T>a cat[PAD]", "x<tool>", "  a<|im_end|> b"]
BASES = {"plain.json": ["PreTrainedTokenizerFast", "TokenizersBackend", None], "rich.json": ["PreTrainedTokenizerFast"],
         "fallback.json": ["PreTrainedTokenizerFast"], "wordlevel.json": ["PreTrainedTokenizerFast"], "unigram.json": ["PreTrainedTokenizerFast"],
         "bpe.model": ["LlamaTokenizer", "LlamaTokenizerFast", "TokenizersBackend", "PreTrainedTokenizerFast"], "unigram.model": ["TokenizersBackend"]}


def pick(rng, chance):
    return rng.random() < chance


def token(rng, content, kind):
    flags = {name: pick(rng, 0.3) for name in FLAGS}
    if kind == "decoder":
        return {"content": content, **flags}
    if pick(rng, 0.6):
        return content
    flags.pop("special")
    return {"__type": "AddedToken", "content": content, **flags} if kind == "config" else {"content": content, **flags}


def draw(rng, base):
    with open(os.path.join(HERE, "tokenizer", "plain.json" if base.endswith(".model") else base)) as f:
        spec = json.load(f)
    vocab = {} if base.endswith(".model") else {e["content"]: e["id"] for e in spec["added_tokens"]}
    if not base.endswith(".model"):
        words = spec["model"]["vocab"]
        vocab = {**(words if isinstance(words, dict) else {w[0]: i for i, w in enumerate(words)}), **vocab}
        count = max(len(words), max([e["id"] for e in spec["added_tokens"]], default=-1) + 1)
    else:
        import sentencepiece
        model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(HERE, "tokenizer", base))
        vocab = {model.id_to_piece(i): i for i in range(len(model))}
        count = len(model)
    config, files, taken, at = {}, {}, None, count
    name = rng.choice(BASES[base])
    if name:
        config["tokenizer_class"] = name
    if base.endswith(".model"):
        config["add_bos_token"], config["add_eos_token"] = True, pick(rng, 0.3)
    ids = {}
    for content in rng.sample(TOKENS, rng.randrange(5)):
        ids[content] = vocab.get(content, at + (pick(rng, 0.05) and rng.randrange(4)))
        at = max(at, ids[content] + 1)
    if ids and pick(rng, 0.05):
        taken = rng.choice(list(ids))
        ids[taken] = next(i for c, i in vocab.items() if c != taken and i not in ids.values() and i > 2)
    if pick(rng, 0.5):
        config["added_tokens_decoder"] = {str(i): token(rng, c, "decoder") for c, i in sorted(ids.items(), key=lambda e: rng.random())}
    elif ids:
        files["added_tokens.json"] = ids
    if "added_tokens_decoder" in config and pick(rng, 0.1):
        files["added_tokens.json"] = {"<never>": count}
    for key in ["bos_token", "eos_token", "pad_token", "mask_token", "image_token"]:
        if pick(rng, 0.25):
            config[key] = rng.choice(TOKENS) if key == "image_token" else token(rng, rng.choice(TOKENS), "config")
    for key in ["additional_special_tokens", "extra_special_tokens"]:
        if pick(rng, 0.3) and not base.endswith(".model"):  # beside a tokenizer.model, they make transformers forget its own
            config[key] = [token(rng, c, "config") for c in rng.sample(TOKENS, rng.randrange(4))]
    if pick(rng, 0.15) and not base.endswith(".model"):
        config["extra_special_tokens"] = {"tool_token": rng.choice(TOKENS), "other_token": rng.choice(TOKENS)}
    if pick(rng, 0.15):
        config["split_special_tokens"] = pick(rng, 0.7)
    if pick(rng, 0.2):
        config["add_prefix_space"] = pick(rng, 0.5)
    if pick(rng, 0.2):
        config["legacy"] = pick(rng, 0.5)
    if pick(rng, 0.4):
        files["special_tokens_map.json"] = {key: token(rng, rng.choice(TOKENS), "map") for key in ["bos_token", "eos_token", "cls_token"] if pick(rng, 0.4)}
        if pick(rng, 0.4) and not base.endswith(".model"):
            files["special_tokens_map.json"]["additional_special_tokens"] = rng.sample(TOKENS, rng.randrange(3))
        if pick(rng, 0.2) and not base.endswith(".model"):
            files["special_tokens_map.json"]["extra_special_tokens"] = rng.sample(TOKENS, rng.randrange(3))
    files["tokenizer_config.json"] = config
    if base.endswith(".model") and not name.startswith("Llama"):  # transformers loses the space after such a token
        for value in [v for tree in files.values() for v in tree.values() if isinstance(v, dict) and "normalized" in v]:
            value["normalized"] = False
    return files, taken


def make(rng):
    base = rng.choice(list(BASES))
    files, taken = draw(rng, base)
    row = {"base": base, "files": files}
    folder = tempfile.mkdtemp()
    try:
        shutil.copy(os.path.join(HERE, "tokenizer", base), os.path.join(folder, "tokenizer." + base.split(".")[1]))
        for name, tree in files.items():
            with open(os.path.join(folder, name), "w") as f:
                json.dump(tree, f)
        if taken:
            return row | {"taken": taken}
        t = AutoTokenizer.from_pretrained(folder)
        return row | {"rows": [[text, t.encode(text, add_special_tokens=False), t.encode(text)] for text in TEXTS], "eos": t.eos_token_id}
    except (TypeError, AttributeError, ValueError) as e:
        return None
    finally:
        shutil.rmtree(folder)


def main():
    count, seed = int((sys.argv + ["150"])[1]), int((sys.argv + ["", "7"])[2]) if len(sys.argv) > 2 else 7
    out = sys.argv[3] if len(sys.argv) > 3 else os.path.join(HERE, "added_tokens.jsonl")
    rng = random.Random(seed)
    with open(out, "w", encoding="ascii") as f:
        while count:
            row = make(rng)
            if row:
                f.write(json.dumps(row, separators=(",", ":")) + "\n")
                count -= 1


main()
