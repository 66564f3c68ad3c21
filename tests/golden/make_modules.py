"""Makes tests/golden/modules: small directories of sentence-transformers, their vectors, and 20 steps of training.

    python tests/golden/make_modules.py [CASE...]        sentence-transformers 6, transformers 5
"""
import json
import pathlib
import shutil
import sys

import torch
from sentence_transformers import SentenceTransformer, models
from tokenizers import Tokenizer, models as tokenizer_models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel, MPNetTokenizer, PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent / "modules"
WORDS = "a bad boat cat day dog egg for good green house in is it long night of on red rain sun the to water".split()
nn = torch.nn

# pooling, layers behind it: N = Normalize, (numbers, activation, bias) = Dense
CASES = {
    "max": ("max", ["N"]),
    "weighted": ("weightedmean", [(6, nn.GELU(), True)]),
    "sides": (("mean", "cls"), ["N", (10, nn.Tanh(), False), (5, nn.Identity(), True), "N"]),
    "mpnet": ("mean", ["N"]),
    "all": (("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"),
            [(12, nn.ReLU(), True), (7, nn.SiLU(), False), (7, nn.Sigmoid(), True)]),
}
OLD_FORM = {"all"}  # settings as versions before 6 write them


SIZES = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12, hidden_dropout_prob=0.0,
             attention_probs_dropout_prob=0.0, initializer_range=0.5)


def mpnet(folder):
    words = ["<s>", "<pad>", "</s>", "[UNK]", *WORDS, *"bcdefghijklmnopqrstuvwxyz",
             *("##" + c for c in "abcdefghijklmnopqrstuvwxyz"), "<mask>"]
    vocab = {w: i for i, w in enumerate(words)}
    MPNetTokenizer(vocab, model_max_length=24).save_pretrained(folder)
    MPNetModel(MPNetConfig(vocab_size=len(vocab), max_position_embeddings=26, **SIZES)).save_pretrained(folder)


def transformer(folder):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *"bcdefghijklmnopqrstuvwxyz",  # "a" is a word
             *("##" + c for c in "abcdefghijklmnopqrstuvwxyz")]
    vocab = {w: i for i, w in enumerate(words)}
    assert len(vocab) == len(words)
    tokenizer = Tokenizer(tokenizer_models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                            sep_token="[SEP]", model_max_length=24).save_pretrained(folder)
    config = BertConfig(vocab_size=len(vocab), max_position_embeddings=24, **SIZES)
    BertModel(config).save_pretrained(folder)


def build(base, modes, layers):
    first = models.Transformer(str(base))
    pooling = models.Pooling(first.get_embedding_dimension(), pooling_mode=modes)
    modules, width = [first, pooling], pooling.get_embedding_dimension()
    for layer in layers:
        if layer == "N":
            modules.append(models.Normalize())
        else:
            modules.append(models.Dense(width, layer[0], bias=layer[2], activation_function=layer[1]))
            width = layer[0]
    return SentenceTransformer(modules=modules, device="cpu")


def make_old(folder):
    modules = json.loads((folder / "modules.json").read_text())
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rsplit(".")[-1]
    (folder / "modules.json").write_text(json.dumps(modules, indent=2) + "\n")
    path = folder / "1_Pooling/config.json"
    settings = json.loads(path.read_text())
    names = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens",
             "mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens",
             "lasttoken": "lasttoken"}
    old = {"word_embedding_dimension": settings["embedding_dimension"]}
    old |= {"pooling_mode_" + flag: mode in settings["pooling_mode"] for mode, flag in names.items()}
    path.write_text(json.dumps(old, indent=2) + "\n")
    for path in folder.glob("*_Dense/config.json"):
        settings = json.loads(path.read_text())
        keys = ("in_features", "out_features", "bias", "activation_function")
        path.write_text(json.dumps({k: settings[k] for k in keys}, indent=2) + "\n")


def loss_of(model, rows):
    def embed(texts):
        return nn.functional.normalize(model(model.preprocess(texts))["sentence_embedding"])
    scores = 20 * embed([r[0] for r in rows]) @ embed([r[1] for r in rows]).T
    return nn.functional.cross_entropy(scores, torch.arange(len(rows)))


def main():
    HERE.mkdir(exist_ok=True)
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(4)
    base, other = HERE / "base", HERE / "other"
    transformer(base)

    def text():
        count = int(torch.randint(1, 9, (1,), generator=generator))
        return " ".join(WORDS[int(i)] for i in torch.randint(0, len(WORDS), (count,), generator=generator))
    pairs = [(text(), text()) for _ in range(80)]
    (HERE / "train.jsonl").write_text("".join(json.dumps({"anchor": a, "positive": b}) + "\n" for a, b in pairs))
    (HERE / "texts.jsonl").write_text("".join(json.dumps({"text": a}) + "\n" for a, _ in pairs[:6]))
    mpnet(other)
    chosen = sys.argv[1:] or list(CASES)
    ref = json.loads((HERE / "ref.json").read_text()) if sys.argv[1:] else {}
    for name in chosen:
        modes, layers = CASES[name]
        model = build(other if name == "mpnet" else base, modes, layers)
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save(str(folder), create_model_card=False)
        if name in OLD_FORM:
            make_old(folder)
        model = SentenceTransformer(str(folder), device="cpu")
        vectors = model.encode([a for a, _ in pairs[:6]], convert_to_numpy=True).tolist()
        model.eval()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
        losses = []
        for step in range(20):
            loss = loss_of(model, [pairs[(step * 4 + i) % len(pairs)] for i in range(4)])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        ref[name] = {"vectors": vectors, "losses": losses,
                     "after": model.encode([a for a, _ in pairs[:6]], convert_to_numpy=True).tolist()}
    shutil.rmtree(base)
    shutil.rmtree(other)
    for path in HERE.glob("*/README.md"):
        path.unlink()
    (HERE / "ref.json").write_text(json.dumps(ref) + "\n")


if __name__ == "__main__":
    main()
