"""Makes tests/golden/encoders: small encoders with heads of transformers, rows, and 20 steps of training.

    python tests/golden/make_encoders.py [CASE...]        transformers 5
"""
import json
import pathlib
import shutil
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).parent / "encoders"
VOCAB, STEPS, BATCH = 40, 20, 4
BERT = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, vocab_size=VOCAB,
            max_position_embeddings=24, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3)
DISTIL = dict(dim=16, n_layers=2, n_heads=2, hidden_dim=24, vocab_size=VOCAB, max_position_embeddings=24, dropout=0.0,
              attention_dropout=0.0, seq_classif_dropout=0.0, initializer_range=0.3)
MODERN = dict(hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=24, vocab_size=VOCAB,
              max_position_embeddings=24, local_attention=8, initializer_range=0.3, pad_token_id=0, bos_token_id=1,
              eos_token_id=2, cls_token_id=1, sep_token_id=2)
ODD = dict(MODERN, num_hidden_layers=3, global_attn_every_n_layers=2, local_attention=5, norm_bias=True,
           attention_bias=True, classifier_bias=True, classifier_pooling="mean", classifier_activation="silu",
           global_rope_theta=5000.0, local_rope_theta=100.0)
QWEN = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=24,
            vocab_size=VOCAB, max_position_embeddings=24, initializer_range=0.3, pad_token_id=0)
IDS = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2)
LONG = 150  # tokens: distances that share the last row of MPNet's table

# class, kind, settings
CASES = {
    "bert": ("Bert", "SequenceClassification", BERT),
    "distilbert": ("DistilBert", "SequenceClassification", DISTIL),
    "modernbert": ("ModernBert", "SequenceClassification", MODERN),
    "bert_tokens": ("Bert", "TokenClassification", BERT),
    "roberta_tokens": ("Roberta", "TokenClassification", dict(BERT, max_position_embeddings=26, **IDS)),
    "distilbert_tokens": ("DistilBert", "TokenClassification", DISTIL),
    "modernbert_tokens": ("ModernBert", "TokenClassification", ODD),
    "qwen2_tokens": ("Qwen2", "TokenClassification", QWEN),
    "mpnet": ("MPNet", "SequenceClassification", dict(BERT, max_position_embeddings=26, **IDS)),
    "mpnet_tokens": ("MPNet", "TokenClassification", dict(BERT, max_position_embeddings=LONG + 2,
                                                          relative_attention_num_buckets=34, **IDS)),
    "modernbert_odd": ("ModernBert", "SequenceClassification", ODD),
}
LABELS = 3


def row_of(kind, generator, longest):
    count = int(torch.randint(3, longest, (1,), generator=generator))
    ids = torch.randint(5, VOCAB, (count,), generator=generator).tolist()
    row = {"input_ids": ids}
    if kind == "SequenceClassification":
        row["label"] = int(torch.randint(0, LABELS, (1,), generator=generator))
    else:  # about a third of the tokens have none
        labels = torch.randint(-1, LABELS, (count,), generator=generator).tolist()
        row["labels"] = [-100 if label < 0 else label for label in labels]
    return row


def batch_of(rows, pad):
    width = max(len(r["input_ids"]) for r in rows)
    batch = {"input_ids": torch.tensor([r["input_ids"] + [pad] * (width - len(r["input_ids"])) for r in rows]),
             "attention_mask": torch.tensor([[1] * len(r["input_ids"]) + [0] * (width - len(r["input_ids"]))
                                             for r in rows])}
    if "label" in rows[0]:
        batch["labels"] = torch.tensor([r["label"] for r in rows])
    else:
        batch["labels"] = torch.tensor([r["labels"] + [-100] * (width - len(r["labels"])) for r in rows])
    return batch


def make(name):
    family, kind, settings = CASES[name]
    torch.manual_seed(11)
    generator = torch.Generator().manual_seed(12)
    config = getattr(transformers, family + "Config")(**settings, num_labels=LABELS, attn_implementation="eager")
    model = getattr(transformers, f"{family}For{kind}")(config)
    with torch.no_grad():  # norms and biases too
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    rows = [row_of(kind, generator, LONG if name == "mpnet_tokens" else 18) for _ in range(STEPS * BATCH)]
    (folder / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    model = getattr(transformers, f"{family}For{kind}").from_pretrained(folder, attn_implementation="eager").eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.999), eps=1e-5, weight_decay=0.0)
    losses, norms = [], []
    for step in range(STEPS):
        loss = model(**batch_of(rows[step * BATCH:(step + 1) * BATCH], config.pad_token_id)).loss
        optimizer.zero_grad()
        loss.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        norms.append(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads])).item())
        optimizer.step()
        losses.append(loss.item())
    (folder / "ref.json").write_text(json.dumps({"loss": losses, "grad_norm": norms}) + "\n")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for case in sys.argv[1:] or CASES:
        make(case)
