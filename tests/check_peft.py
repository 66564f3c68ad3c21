#!/usr/bin/env python3
"""Adapters of every family, there and back: what ferry trains computes the same in peft, and the reverse.

    python check_peft.py FERRY [MODEL_TYPE...]      needs transformers 5 and peft; prints a line for each model

Trains adapters of all linear modules, and the head whole where it is not tied, with `ferry train` on a small model of
the family; then adapters of embedding and head there. Compares the losses of each token in peft and in `ferry eval`.
Then makes such an adapter in peft and compares again. Exit code 1 where they differ by more than 2e-5.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
sys.path.insert(0, str(Path(__file__).with_name("golden")))
import peft
import torch
import transformers

from config_base import BASE
from config_wholes import WHOLES

ROWS = [[5, 17, 3, 8, 30, 3, 3, 12, 25, 1, 9, 33, 7, 2, 19, 28, 4, 11, 6, 21], [36, 3, 1, 20, 5, 5, 13, 31, 35]]
TEXT_MODULES = r".*(language_model|text_model)\..*\.(q_proj|v_proj|down_proj)"
ATTENTION = r".*\.(q_proj|k_proj|v_proj|o_proj)"  # PEFT's all-linear has all experts in one tensor, and the router
TOLERANCE = 2e-5


class Check:
    def __init__(self, ferry, work):
        self.ferry, self.work = ferry, Path(work)
        self.rows = self.work / "rows.jsonl"
        self.rows.write_text("".join(json.dumps({"input_ids": r, "labels": r}) + "\n" for r in ROWS))

    def run(self, *args):
        done = subprocess.run([self.ferry, *map(str, args)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        return done.stdout

    def ferry_losses(self, adapter):
        out = self.run("eval", f"model={self.work}/m", f"lora_adapter={adapter}", f"data={self.rows}", "per_token=on",
                       "--json", "compute_dtype=fp32", "per_device_eval_batch_size=1")
        return torch.tensor([x for row in json.loads(out)["token_losses"] for x in row])

    def open(self, whole):
        kind = transformers.AutoModelForMultimodalLM if whole else transformers.AutoModelForCausalLM
        return kind.from_pretrained(self.work / "m", dtype=torch.float32, experts_implementation="eager")

    def make(self, kind, keys, whole):
        for name in ("c", "m", "out", "made"):
            shutil.rmtree(self.work / name, ignore_errors=True)
        (self.work / "c").mkdir()
        (self.work / "c/config.json").write_text(json.dumps(dict(keys, model_type=kind)))
        config = transformers.AutoConfig.from_pretrained(self.work / "c")
        auto = transformers.AutoModelForMultimodalLM if whole else transformers.AutoModelForCausalLM
        model = auto.from_config(config).float()
        for value in model.parameters():
            if value.dim() > 1:
                value.data.normal_(0, 0.3)
        model.save_pretrained(self.work / "m")
        return bool(getattr(config, "tie_word_embeddings", False))

    def tables(self):
        """The names of the embedding and the head among the modules."""
        model = self.open(False)
        names = {id(m): n for n, m in model.named_modules()}
        return [names[id(m)].rsplit(".")[-1] for m in (model.get_input_embeddings(), model.get_output_embeddings())]

    def there(self, saved, whole, targets="all-linear"):
        keys = [f"lora_modules_to_save={saved[0]}"] if saved else []
        self.run("train", f"model={self.work}/m", f"data={self.rows}", f"output_dir={self.work}/out", "lora_rank=3",
                 f"lora_target_modules={targets}", "learning_rate=0.05", "max_steps=3", "threads=1",
                 "compute_dtype=fp32", "save_steps=0", "overwrite_output_dir=on", *keys)
        adapter = self.work / "out/adapter"
        return peft_losses(peft.PeftModel.from_pretrained(self.open(whole), adapter)), self.ferry_losses(adapter)

    def back(self, saved, whole, targets=None):
        base = self.open(whole)
        has_experts = any(".experts" in name for name, _ in base.named_parameters())
        targets = targets or (ATTENTION if has_experts else TEXT_MODULES if whole else "all-linear")
        model = peft.get_peft_model(base, peft.LoraConfig(
            r=3, lora_alpha=6, target_modules=targets, modules_to_save=saved or None,
            task_type="CAUSAL_LM"))
        for name, value in model.named_parameters():
            if "lora_B" in name or "lora_embedding_A" in name or "modules_to_save" in name:
                value.data.normal_(0, 0.2)
        model.save_pretrained(self.work / "made")
        return peft_losses(model), self.ferry_losses(self.work / "made")


def peft_losses(model):
    out = []
    for row in ROWS:
        ids = torch.tensor([row])
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].float()
        out.append(torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:], reduction="none"))
    return torch.cat(out)


def main():
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    models = [(k, k, v, False) for k, v in BASE.items()]
    models += [(name, kind, keys, True) for name, kind, keys in WHOLES if "whole" in name and "text_config" in keys]
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        check = Check(os.path.abspath(sys.argv[1]), work)
        for name, kind, keys, whole in models:
            if sys.argv[2:] and kind not in sys.argv[2:]:
                continue
            saved = [] if check.make(kind, keys, whole) else ["lm_head"]
            pairs = [check.there(saved, whole), check.back(saved, whole)]
            if saved and not whole:
                tables = check.tables()
                pairs += [check.there([], False, ",".join(tables)), check.back([], False, tables)]
            worst = [float((a - b).abs().max()) for a, b in pairs]
            failed |= not all(w <= TOLERANCE for w in worst)
            print(f"{name}: ferry's in peft {worst[0]:.1e}, peft's in ferry {worst[1]:.1e}",
                  *(f"of embedding and head {w:.1e}" for w in worst[2:]), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
