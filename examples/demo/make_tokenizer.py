#!/usr/bin/env python3
"""Train a byte-level BPE tokenizer on the demo's texts, with nothing but Python's standard library.

    make_tokenizer.py OUT_DIR VOCAB_SIZE FILE.jsonl...     writes tokenizer.json and tokenizer_config.json

The result is GPT-2's kind: ByteLevel pre-tokenizer and decoder, one special token <|endoftext|> with id 0, the 256 bytes,
then one entry per merge. Words are cut by the ASCII part of GPT-2's pattern, which is all that an ASCII corpus needs.
"""
import collections, json, os, re, sys

WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
END = "<|endoftext|>"


def byte_alphabet():
    """The character that stands for each byte."""
    own = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    others = [b for b in range(256) if b not in own]
    return {b: chr(b) if b in own else chr(0x100 + others.index(b)) for b in range(256)}


def train(counts, merge_count):
    """Merges of the most frequent pair, again and again; of equally frequent pairs, the smallest."""
    words = [list(word) for word in counts]
    weight = list(counts.values())
    pairs, places = collections.Counter(), collections.defaultdict(set)
    for i, word in enumerate(words):
        for pair in zip(word, word[1:]):
            pairs[pair] += weight[i]
            places[pair].add(i)
    merges = []
    while len(merges) < merge_count and pairs:
        best = min(pairs, key=lambda p: (-pairs[p], p))
        if pairs[best] < 2:
            break
        merges.append(best)
        for i in places.pop(best):
            word = words[i]
            for pair in zip(word, word[1:]):
                pairs[pair] -= weight[i]
            merged, k = [], 0
            while k < len(word):
                if tuple(word[k : k + 2]) == best:
                    merged.append(word[k] + word[k + 1])
                    k += 2
                else:
                    merged.append(word[k])
                    k += 1
            words[i] = merged
            for pair in zip(merged, merged[1:]):
                pairs[pair] += weight[i]
                places[pair].add(i)
        pairs = +pairs
    return merges


def main():
    out, vocab_size = sys.argv[1], int(sys.argv[2])
    alphabet = byte_alphabet()
    counts = collections.Counter()
    for path in sys.argv[3:]:
        with open(path, encoding="utf-8") as f:
            for line in f:
                for text in json.loads(line).values():
                    for word in WORD.findall(text):
                        counts["".join(alphabet[b] for b in word.encode())] += 1
    merges = train(dict(sorted(counts.items())), vocab_size - 257)
    entries = [END] + [alphabet[b] for b in range(256)] + [a + b for a, b in merges]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 0, "content": END, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {entry: i for i, entry in enumerate(dict.fromkeys(entries))}, "merges": [[a, b] for a, b in merges]},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": END, "eos_token": END, "pad_token": END,
              "unk_token": END, "clean_up_tokenization_spaces": False, "model_max_length": 256}
    os.makedirs(out, exist_ok=True)
    for name, value in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(out, name), "w", encoding="ascii", newline="\n") as f:
            json.dump(value, f, indent=None, separators=(",", ":"))
            f.write("\n")
    print("%d entries" % len(tokenizer["model"]["vocab"]))


main()
