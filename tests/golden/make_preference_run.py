#!/usr/bin/env python3
"""Runs of preference training: what TRL's DPOTrainer logs at each step, and where the weights end.

    python make_preference_run.py           writes preference-run/ beside this script (needs transformers 5, peft, trl 1.16)

preference-run/ holds a tiny Llama in fp32 with a tokenizer of words (model/), an adapter whose B is not zero (adapter/),
pairs of texts (pairs.jsonl) and expected.json. Full fine-tuning starts from the model, LoRA from the adapter, and
the reference is that start. Six steps of 2 x 2 pairs in file order, AdamW, a linear schedule, on the CPU in fp32.

expected.json has, for each run, the columns that the trainer logs, for each pair of a step its reward margin, and of each
trained tensor its norm, how far it moved, and some elements at the end. "spread" is the largest difference between the
run and the same one in float64, relative for loss, grad_norm and logps, absolute for the others.
"""
import json
import math
import os
import shutil
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = os.environ["TQDM_DISABLE"] = "1"

import datasets
import peft
import tokenizers
import torch
import transformers
import trl
from safetensors.torch import load_file, save_file

from make_config_golden import Float64, splitmix

OUT = Path(__file__).with_name("preference-run")
STEPS, PAIRS, ACCUMULATION, SAMPLES, SEED = 6, 2, 2, 4, 5
WORDS = ("the a cat dog bird fox sees hears likes wants has no one two red brown small big . , ? is not where who what in "
         "on under tree house river and then runs sleeps sings it there here yes quick slow").split()
CONFIG = dict(vocab_size=len(WORDS) + 3, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.25, tie_word_embeddings=False,
              bos_token_id=None, eos_token_id=2, pad_token_id=1)
LORA = dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"],
            task_type="CAUSAL_LM")

# name, LoRA, peak of the learning rate, loss, beta, clipping
RUNS = [
    ("full sigmoid", False, 4e-3, "sigmoid", 0.3, 1.0),
    ("full ipo", False, 4e-3, "ipo", 0.7, 1.0),
    ("lora sigmoid", True, 2e-2, "sigmoid", 0.5, 0.0),
    ("lora ipo", True, 2e-2, "ipo", 0.2, 1.0),
]
RELATIVE = ("loss", "grad_norm", "logps/chosen", "logps/rejected")
COLUMNS = (*RELATIVE, "learning_rate", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies")


class Draws:
    """Numbers that depend on the seed alone."""

    def __init__(self, seed):
        self.state = seed

    def below(self, count):
        self.state = splitmix(self.state)
        return (self.state >> 20) % count

    def words(self, least, most, choice=WORDS):
        return " ".join(choice[self.below(len(choice))] for _ in range(least + self.below(most - least + 1)))


def make_tokenizer(folder):
    vocab = {word: i for i, word in enumerate(["<unk>", "<pad>", "</s>", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="</s>")
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_pairs():
    """Completions differ in their words, so that steps help."""
    draws, pairs = Draws(SEED), []
    for _ in range(STEPS * PAIRS * ACCUMULATION):
        pairs.append({"prompt": draws.words(2, 9), "chosen": " " + draws.words(1, 12, WORDS[:26]),
                      "rejected": " " + draws.words(1, 12, WORDS[18:])})
    pairs[6]["rejected"] = pairs[6]["chosen"] + pairs[6]["rejected"]  # one begins as the other
    (OUT / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return pairs


def check_tokens(tokenizer, pairs):
    """Prompt and completion give the same ids apart, with end-of-text behind, as together."""
    ids = lambda text: tokenizer(text)["input_ids"]
    for pair in pairs:
        for key in ("chosen", "rejected"):
            apart = ids(pair["prompt"]) + ids(pair[key]) + [tokenizer.eos_token_id]
            assert apart == ids(pair["prompt"] + pair[key] + tokenizer.eos_token), pair
            assert tokenizer.unk_token_id not in apart


def make_models():
    torch.manual_seed(SEED)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(OUT / "model")
    adapted = peft.get_peft_model(model, peft.LoraConfig(**LORA))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.02)
    adapted.save_pretrained(OUT / "adapter")
    (OUT / "adapter" / "README.md").unlink()
    config = json.loads((OUT / "adapter" / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = None
    config["target_modules"].sort()
    (OUT / "adapter" / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")


def final_tensors(model, start):
    out = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            flat = parameter.detach().reshape(-1)
            stride = max(1, flat.numel() // SAMPLES)
            out[name.removeprefix("base_model.model.").replace(".default.", ".")] = {
                "l2": flat.norm().item(), "moved_l2": (flat - start[name].reshape(-1)).norm().item(), "stride": stride,
                "elements": flat[::stride][:SAMPLES].tolist()}
    return out


def load(lora, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        OUT / "model", dtype=torch.float32, attn_implementation="eager")
    return (peft.PeftModel.from_pretrained(model, OUT / "adapter", is_trainable=True) if lora else model).to(dtype)


def train(model, reference, rate, loss, beta, clip):
    """reference: a model, or None: the adapter as it is now."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(OUT / "model")
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl.DPOTrainer(
            model=model, ref_model=reference, processing_class=tokenizer, train_dataset=datasets.load_dataset(
                "json", data_files=str(OUT / "pairs.jsonl"), split="train", cache_dir=folder),
            args=trl.DPOConfig(
                output_dir=folder, loss_type=[loss], beta=beta, learning_rate=rate, lr_scheduler_type="linear",
                per_device_train_batch_size=PAIRS, gradient_accumulation_steps=ACCUMULATION, max_steps=STEPS,
                train_sampling_strategy="sequential", max_grad_norm=clip, adam_beta1=0.9, adam_beta2=0.999,
                adam_epsilon=1e-8, weight_decay=0.0, optim="adamw_torch", logging_steps=1, save_strategy="no",
                report_to="none", use_cpu=True, bf16=False, gradient_checkpointing=False, seed=SEED, disable_tqdm=True))
        gathered, gather = [], trainer.accelerator.gather  # rewards, accuracies, margins, log probabilities

        def record(values):
            if values.dim() == 1:  # the others are sums over tokens
                gathered.append(values.detach())
            return gather(values)

        trainer.accelerator.gather = record
        trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert len(rows) == STEPS and len(gathered) == 6 * STEPS * ACCUMULATION
    margins = torch.cat(gathered[3::6]).reshape(STEPS, -1)
    assert (margins[0] == 0).all() and margins[1:].abs().min() > 1e-4, margins  # no accuracy depends on rounding
    return {**{c: [row[c] for row in rows] for c in COLUMNS}, "pair_margins": margins.tolist(),
            "final": final_tensors(trainer.model, start)}


def spread(a, b):
    out = {}
    for c in COLUMNS:
        out[c] = max(abs(x - y) / (max(abs(y), 1e-300) if c in RELATIVE else 1) for x, y in zip(a[c], b[c]))
    error = [math.dist(a["final"][n]["elements"], b["final"][n]["elements"]) / b["final"][n]["moved_l2"] for n in a["final"]]
    return {**out, "final elements of moved_l2": max(error)}


def rounded(value):
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    shutil.rmtree(OUT, ignore_errors=True)
    (OUT / "model").mkdir(parents=True)
    make_models()
    check_tokens(make_tokenizer(OUT / "model"), make_pairs())
    lines = []
    for name, lora, rate, loss, beta, clip in RUNS:
        results = []
        for dtype, scope in ((torch.float32, nullcontext()), (torch.float64, Float64())):
            model, reference = load(lora, dtype), None if lora else load(lora, dtype)
            with scope:
                results.append(train(model, reference, rate, loss, beta, clip))
        case = {"name": name, "lora": lora, "learning_rate": rate, "preference_loss": loss, "preference_beta": beta,
                "max_grad_norm": clip, "spread": {k: float(f"{v:.2g}") for k, v in spread(*results).items()},
                **rounded(results[0])}
        print(name, case["spread"], *(f"\n  {c} {[round(x, 5) for x in results[0][c]]}" for c in COLUMNS))
        lines.append(json.dumps(case, separators=(",", ":")))
    lines = ",\n".join(lines)
    (OUT / "expected.json").write_text(
        f'{{"trl":"{trl.__version__}","peft":"{peft.__version__}","transformers":"{transformers.__version__}",'
        f'"pairs":{PAIRS},"accumulation":{ACCUMULATION},"runs":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
