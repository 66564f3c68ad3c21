#!/usr/bin/env python3
"""What add_prefix_space of tokenizer_config.json does, by class and by the ByteLevel of tokenizer.json.

    python tests/golden/make_prefix_space.py        writes prefix_space.json beside this script (needs transformers 5)
"""
import json
import os
import shutil
import tempfile

from transformers import AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = "hello, world"
CLASSES = ["GPT2Tokenizer", "GPT2TokenizerFast", "GPTNeoXTokenizerFast", "PreTrainedTokenizerFast",
           "LlamaTokenizerFast"]
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLIT = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}


def byte_level(prefix, regex):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


FORMS = {
    "without": byte_level(False, True),
    "with": byte_level(True, True),
    "sequence": {"type": "Sequence", "pretokenizers": [SPLIT, byte_level(False, False)]},
}


def ids(form, name, prefix):
    folder = tempfile.mkdtemp()
    with open(os.path.join(HERE, "tokenizer", "plain.json")) as f:
        tokenizer = json.load(f)
    tokenizer["pre_tokenizer"] = FORMS[form]
    config = {"eos_token": "<|endoftext|>", "tokenizer_class": name}
    if prefix is not None:
        config["add_prefix_space"] = prefix
    for file, value in [("tokenizer.json", tokenizer), ("tokenizer_config.json", config),
                        ("config.json", {"model_type": "gpt2"})]:
        with open(os.path.join(folder, file), "w") as f:
            json.dump(value, f)
    found = AutoTokenizer.from_pretrained(folder)(TEXT).input_ids
    shutil.rmtree(folder)
    return found


def main():
    rows = []
    for form in ["without", "with"]:
        for name in CLASSES:
            for prefix in [None, True, False]:
                rows.append({"pre_tokenizer": FORMS[form], "tokenizer_class": name, "add_prefix_space": prefix,
                             "text": TEXT, "ids": ids(form, name, prefix)})
    for name in ["Qwen2Tokenizer", "Qwen2TokenizerFast", "PreTrainedTokenizerFast"]:
        for prefix in [None, True, False]:
            rows.append({"pre_tokenizer": FORMS["sequence"], "tokenizer_class": name, "add_prefix_space": prefix,
                         "text": TEXT, "ids": ids("sequence", name, prefix)})
    with open(os.path.join(HERE, "prefix_space.json"), "w") as f:
        f.write("[\n" + ",\n".join(" " + json.dumps(row) for row in rows) + "\n]\n")


main()
