"""Makes tests/golden/masked: small encoders of transformers with heads for masked words, rows, and 12 steps of training
with the tokens hidden that ferry hides (objective/masked.c), after device/noise.h. Of *_words whole words are hidden, as
transformers finds them in offsets; some are several tokens.

    python tests/golden/make_masked.py [CASE...]        transformers 5
"""
import json
import pathlib
import shutil
import sys

import numpy
import tokenizers
import torch
import transformers

HERE = pathlib.Path(__file__).parent / "masked"
SEED, SHARE, VOCAB, STEPS, BATCH, ROWS = 42, 0.3, 40, 12, 4, 22
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BERT = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, vocab_size=VOCAB + 3,
            max_position_embeddings=26, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3,
            pad_token_id=0)
DISTIL = dict(dim=16, n_layers=2, n_heads=2, hidden_dim=24, vocab_size=VOCAB, max_position_embeddings=26, dropout=0.0,
              attention_dropout=0.0, initializer_range=0.3, pad_token_id=0)
MODERN = dict(hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=24, vocab_size=VOCAB,
              max_position_embeddings=26, local_attention=8, initializer_range=0.3, pad_token_id=0, bos_token_id=2,
              eos_token_id=3, cls_token_id=2, sep_token_id=3)
CASES = {
    "bert": ("Bert", dict(BERT, hidden_act="gelu_new")),
    "bert_words": ("Bert", BERT),
    "bert_untied": ("Bert", dict(BERT, tie_word_embeddings=False)),
    "roberta": ("Roberta", dict(BERT, hidden_act="relu", bos_token_id=2, eos_token_id=3)),
    "xlm_roberta": ("XLMRoberta", dict(BERT, bos_token_id=2, eos_token_id=3)),
    "distilbert": ("DistilBert", DISTIL),
    "mpnet": ("MPNet", dict(BERT, vocab_size=VOCAB, max_position_embeddings=28, pad_token_id=1,
                            bos_token_id=2, eos_token_id=3)),
    "modernbert": ("ModernBert", MODERN),
    "modernbert_odd": ("ModernBert", dict(MODERN, norm_bias=True, attention_bias=True, classifier_bias=True,
                                          decoder_bias=False, classifier_activation="silu")),
}
BITS = (1 << 64) - 1


def mix(x):
    x = (x + 0x9e3779b97f4a7c15) & BITS
    x = ((x ^ x >> 30) * 0xbf58476d1ce4e5b9) & BITS
    x = ((x ^ x >> 27) * 0x94d049bb133111eb) & BITS
    return x ^ x >> 31


def token_key(key, row, position):
    return mix((mix(key ^ mix(row)) + position) & BITS)


def bits(row, column):
    two = mix((row + (column >> 1) * 0xd1342543de82ef95) & BITS)
    return two >> 32 if column & 1 else two & 0xffffffff


def module(name):
    value = 0xcbf29ce484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001b3) & BITS
    return value


def starts_of(tokenizer, text):
    """1 for the tokens that begin a word."""
    encoded = tokenizer(text, return_offsets_mapping=True)
    special = tokenizer.get_special_tokens_mask(encoded["input_ids"], already_has_special_tokens=True)
    _, goes_on = transformers.DataCollatorForLanguageModeling._calc_word_ids_and_prob_mask(
        numpy.array([encoded["offset_mapping"]]), numpy.array([special]))
    return [not g for g in goes_on[0]]


def hide(ids, row, epoch, pad, starts=None):
    """ids and labels of a row in an epoch; starts: words are hidden."""
    key = mix(mix(SEED) ^ mix((module("masked words") + epoch) & BITS))
    number, seen, labels = 0, list(ids), [-100] * len(ids)
    for t, own in enumerate(ids):
        if own < len(SPECIAL):
            continue
        if not starts or starts[t]:
            token = token_key(key, row, number)
            number += 1
        if not bits(token, 0) < SHARE * 2 ** 32:
            continue
        labels[t] = own
        of_ten = bits(token, 1) * 10 >> 32
        another = bits(token, 2) * (VOCAB - 1) >> 32
        another += another >= pad  # any but [PAD]
        seen[t] = SPECIAL.index("[MASK]") if starts or of_ten < 8 else another if of_ten < 9 else own
    return seen, labels


def batch_of(rows, pad):
    width = max(len(ids) for ids, _ in rows)
    return {"input_ids": torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in rows]),
            "attention_mask": torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows]),
            "labels": torch.tensor([labels + [-100] * (width - len(labels)) for _, labels in rows])}


def tokenizer_make(folder, pad, has_words):
    special = list(SPECIAL)
    special[0], special[pad] = special[pad], special[0]
    words = {word: i for i, word in enumerate(
        (special + ["-"] * has_words + [f"w{i}" for i in range(VOCAB)])[:VOCAB])}
    t = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    t.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    t.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=t, **names)
    tokenizer.save_pretrained(folder)
    return tokenizer


def make(name):
    family, settings = CASES[name]
    torch.manual_seed(11)
    generator = torch.Generator().manual_seed(12)
    config = getattr(transformers, family + "Config")(**settings, attn_implementation="eager")
    model = getattr(transformers, f"{family}ForMaskedLM")(config)
    with torch.no_grad():  # norms and biases too
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        if name == "bert_untied":  # transformers does not use the first
            model.cls.predictions.bias.copy_(model.cls.predictions.decoder.bias)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    has_words = name.endswith("_words")
    tokenizer = tokenizer_make(folder, config.pad_token_id, has_words)
    texts = ["".join(f"w{int(i)}" + " --"[int(i) % 3 * has_words] for i in
                     torch.randint(0, VOCAB - 4, (int(n),), generator=generator)).strip()
             for n in torch.randint(3, 12 if has_words else 20, (ROWS,), generator=generator)]  # w35 is unknown
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    rows = tokenizer(texts)["input_ids"]
    starts = [starts_of(tokenizer, text) if has_words else None for text in texts]
    hidden = lambda row, epoch: hide(rows[row], row, epoch, config.pad_token_id, starts[row])
    model = getattr(transformers, f"{family}ForMaskedLM").from_pretrained(folder, attn_implementation="eager").eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.999), eps=1e-5, weight_decay=0.0)
    steps = [(epoch, list(range(at, min(at + BATCH, ROWS)))) for epoch in range(3) for at in range(0, ROWS, BATCH)]
    everything = batch_of([hidden(row, 0) for row in range(ROWS)], config.pad_token_id)
    with torch.no_grad():
        ref = {"eval": model(**everything).loss.item(), "hidden": int((everything["labels"] >= 0).sum()),
               "loss": [], "grad_norm": []}
    for epoch, step in steps[:STEPS]:
        loss = model(**batch_of([hidden(row, epoch) for row in step], config.pad_token_id)).loss
        optimizer.zero_grad()
        loss.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads])).item()
        optimizer.step()
        ref["loss"].append(loss.item())
        ref["grad_norm"].append(norm)
    (folder / "ref.json").write_text(json.dumps(ref) + "\n")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for case in sys.argv[1:] or CASES:
        make(case)
