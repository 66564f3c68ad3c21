"""Makes tests/golden/whole_words: small tokenizers of encoders, and the words that transformers sees in texts.

    python tests/golden/make_whole_words.py        transformers 5

Words are those of DataCollatorForLanguageModeling(whole_word_mask=True), which finds them in the offsets of tokens: `begins`
has 1 for the first token of a word, 0 for others, -1 for special tokens. The offsets of `modernbert` have no gaps; its words
are those of the same tokens with offsets that leave out spaces, as RoBERTa's do.
"""
import json
import pathlib
import random

import numpy
import tokenizers
import transformers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent / "whole_words"
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "Don't say \"well-known\" (or e.g. state-of-the-art), please!",
    "  two spaces  before,   three   behind   ",
    "lines\nand\ttabs\r\nand\u00a0hard\u3000wide spaces\n\n",
    "Été à Zürich, naïve façade; Ångström",
    "我爱北京 and 天安门。東京",
    "unaffable antidisestablishmentarianism 3.1415 1,000,000",
    "smile 😀😀 ok 👍🏽!",
    "a [MASK] b[MASK]c <mask> d",
    "x",
    "",
    " ",
    "mixed words: foo_bar, foo.bar@example.com/path?x=1&y=2",
]
PIECES = ["the", "un", "Quick", "fox", "7", "42", ".", ",", "-", "'s", " ", " ", " ", "  ", "\n", "\t", "\u3000", "é", "我", "京", "。",
          "😀", "(", "_", "[MASK]", "<mask>", "ß", "Ⅻ"]
drawn = random.Random(5)
DRAWN = ["".join(drawn.choice(PIECES) for _ in range(drawn.randint(1, 30))) for _ in range(60)]
ROBERTA = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", unk_token="<unk>", pad_token="<pad>",
               mask_token=tokenizers.AddedToken("<mask>", lstrip=True, special=True))
BERT = dict(unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]", cls_token="[CLS]", mask_token="[MASK]")


def template(t, cls, sep):
    return processors.TemplateProcessing(single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B:1 {sep}:1",
                                         special_tokens=[(cls, t.token_to_id(cls)), (sep, t.token_to_id(sep))])


def bert():
    t = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(TEXTS, trainers.WordPieceTrainer(
        vocab_size=220, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    t.post_processor, t.decoder = template(t, "[CLS]", "[SEP]"), decoders.WordPiece()
    return t, BERT


def word_level():
    t = tokenizers.Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(TEXTS[:4], trainers.WordLevelTrainer(
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    t.post_processor = template(t, "[CLS]", "[SEP]")
    return t, BERT


def byte_level():
    t = tokenizers.Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.train_from_iterator(TEXTS, trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def roberta():
    t = byte_level()
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")),
                                                    trim_offsets=True, add_prefix_space=False)
    return t, ROBERTA


def modernbert():
    t = byte_level()
    t.post_processor = template(t, "<s>", "</s>")
    return t, ROBERTA


def xlm_roberta():
    t = tokenizers.Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.decoder = decoders.Metaspace()
    t.train_from_iterator(TEXTS, trainers.UnigramTrainer(
        vocab_size=260, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], unk_token="<unk>", show_progress=False))
    t.post_processor = template(t, "<s>", "</s>")
    return t, ROBERTA


def words_of(fast, text):
    encoded = fast(text, return_offsets_mapping=True)
    special = fast.get_special_tokens_mask(encoded["input_ids"], already_has_special_tokens=True)
    words, _ = transformers.DataCollatorForLanguageModeling._calc_word_ids_and_prob_mask(
        numpy.array([encoded["offset_mapping"]]), numpy.array([special]))
    words = words[0].tolist()
    return {"ids": encoded["input_ids"],
            "begins": [-1 if w < 0 else int(i == 0 or words[i - 1] != w) for i, w in enumerate(words)]}


def main():
    HERE.mkdir(exist_ok=True)
    for make in (bert, word_level, roberta, modernbert, xlm_roberta):
        inside, names = make()
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=inside, **names)
        folder = HERE / make.__name__
        fast.save_pretrained(folder)
        if make is modernbert:
            fast.backend_tokenizer.post_processor = processors.Sequence(
                [processors.ByteLevel(trim_offsets=True, add_prefix_space=False), inside.post_processor])
        (folder / "words.json").write_text(json.dumps(
            [{"text": text, **words_of(fast, text)} for text in TEXTS + DRAWN], ensure_ascii=False, indent=0) + "\n")
        print(make.__name__, fast.vocab_size, flush=True)


if __name__ == "__main__":
    main()
