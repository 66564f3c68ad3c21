#!/usr/bin/env python3
"""Models that also read images or sound: ferry's results against transformers and PEFT.

    python3 tests/golden/check_wholes.py BUILD/ferry [--only NAME] [--models DIR...]

Needs torch, transformers and peft. For each case of WHOLES (config_wholes.py) a random model as transformers saves it,
with tensors besides that no class reads, or each of the directories, is trained, exported, merged. The result must have all tensors of the model
under their names, those of other parts byte for byte; transformers must load it by the model's class without a
complaint, and its losses of texts must be ferry's. PEFT must load the adapter on that class, with the same losses."""
import argparse, json, subprocess, sys, tempfile, warnings
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))
from config_base import ABSENT, ROWS
from config_wholes import WHOLES

SIDE = {"preprocessor_config.json": '{"do_resize": true,\n "size":{"height":14}}', "processor_config.json": "{ }",
        "video_preprocessor_config.json": "{\"fps\":2}", "chat_template.jinja": "{{ messages }}"}


def open_config(keys):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(keys))
        return transformers.AutoConfig.from_pretrained(folder)


def class_of(config):
    autos = (transformers.AutoModelForImageTextToText, transformers.AutoModelForCausalLM)
    return next((a for a in autos if type(config) in a._model_mapping), transformers.Qwen2AudioForConditionalGeneration)


def tensors_of(folder):
    """name -> bytes, dtype, shape; checks the index."""
    index = Path(folder, "model.safetensors.index.json")
    files = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else ["model.safetensors"]
    found, where = {}, {}
    for name in files:
        for key, t in load_file(Path(folder, name)).items():
            assert key not in found, key
            found[key] = (t.contiguous().flatten().view(torch.uint8).numpy().tobytes(), t.dtype, tuple(t.shape))
            where[key] = name
    if index.exists():
        assert json.loads(index.read_text())["weight_map"] == where
    return found


def make(folder, keys):
    torch.manual_seed(1)
    config = open_config(keys)
    auto = class_of(config)
    model = (auto.from_config(config) if hasattr(auto, "from_config") else auto._from_config(config)).to(torch.bfloat16)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.2)
    model.save_pretrained(folder)
    file = Path(folder, "model.safetensors")
    tensors = load_file(file)
    tensors["mtp.layers.0.mlp.up_proj.weight"] = torch.randn(3, 5)  # nobody reads them
    tensors["model.visual.position_ids"] = torch.arange(7).reshape(1, 7)
    save_file(tensors, file, {"format": "pt"})


def copy(folder, to):
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())


def token_losses(model):
    out = []
    for ids, labels in ROWS:
        labels = ids if labels is None else labels
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0].float()
        out += [(torch.logsumexp(logits[t - 1], 0) - logits[t - 1, labels[t]]).item()
                for t in range(1, len(ids)) if labels[t] != -100]
    return torch.tensor(out)


def load(folder):
    """As the model's class; nothing missing, and nothing unexpected but what no class reads."""
    config = transformers.AutoConfig.from_pretrained(folder)
    if hasattr(config.get_text_config(), "num_experts"):  # other ways need rows of 16 bytes
        config._experts_implementation = config.get_text_config()._experts_implementation = "eager"
    model, info = class_of(config).from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager",
                                                   output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    assert all(k.startswith("mtp.") or k.endswith("position_ids") for k in info["unexpected_keys"]), info
    return model.eval()


def differ(a, b):
    return ((a - b).abs().max() / b.abs().max()).item() if len(a) == len(b) else float("inf")


class Ferry:
    def __init__(self, binary):
        self.binary = binary

    def __call__(self, *words):
        done = subprocess.run([self.binary, *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"ferry {' '.join(map(str, words))}: {done.returncode}\n{done.stderr}")
        return done.stdout

    def losses(self, *words):
        report = json.loads(self("eval", *words, "device=host", "compute_dtype=fp32", "per_token=on", "--json"))
        return torch.tensor([x for row in report["token_losses"] for x in row])


TEXT = ("language_model.", "text_model.", "lm_head.", "model.layers.", "model.embed_tokens.", "model.norm.")


def check(ferry, name, fill):
    """`fill` makes the model in a directory."""
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        fill(work / "m")
        for side, text in SIDE.items():
            Path(work, "m", side).write_text(text)
        rows = work / "rows.jsonl"
        rows.write_text("".join(json.dumps({"input_ids": i, "labels": l or i}) + "\n" for i, l in ROWS))
        common = [f"data={rows}", "data_format=tokens", "device=host", "threads=1", "max_steps=2", "learning_rate=1e-2",
                  "compute_dtype=fp32", "max_length=64", "per_device_train_batch_size=2"]
        before = tensors_of(work / "m")
        first = ferry.losses(f"model={work}/m", *common[:2])
        print(f"{name}: original {differ(first, token_losses(load(work / 'm'))):.1e}", end="", flush=True)
        ferry("train", f"model={work}/m", f"output_dir={work}/out", *common, "max_shard_size=20KB")
        results = {"train": work / "out/model"}
        ferry("export", f"checkpoint={work}/out", f"output_dir={work}/exported", "export_dtype=fp32")
        results["export"] = work / "exported"
        ferry("train", f"model={work}/m", f"output_dir={work}/lora", *common, "lora_rank=3", "learning_rate=1e-1")
        ferry("merge", f"model={work}/m", f"lora_adapter={work}/lora/adapter", f"output_dir={work}/merged")
        results["merge"] = work / "merged"
        for verb, folder in results.items():
            after = tensors_of(folder)
            assert after.keys() == before.keys(), set(after) ^ set(before)
            changed = {k for k in before if after[k][0] != before[k][0] or after[k][1:] != before[k][1:]}
            others = [k for k in changed if k.startswith("mtp.") or not any(part in k for part in TEXT)]
            assert changed and not others, others
            for side, text in SIDE.items():
                assert (folder / side).read_text() == text, side
            theirs, ours = token_losses(load(folder)), ferry.losses(f"model={folder}", *common[:2])
            assert differ(theirs, first) > 1e-3, "nothing was trained"
            print(f", {verb} {differ(ours, theirs):.1e}", end="", flush=True)
            assert differ(ours, theirs) < 1e-4
        from peft import PeftModel
        base = load(work / "m")
        plain = token_losses(base)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            theirs = token_losses(PeftModel.from_pretrained(base, work / "lora/adapter").eval())
        assert not [w for w in said if "adapter" in str(w.message)], [str(w.message) for w in said]
        ours = ferry.losses(f"model={work}/m", f"lora_adapter={work}/lora/adapter", *common[:2])
        print(f", peft {differ(ours, theirs):.1e}", flush=True)
        assert differ(ours, theirs) < 1e-4 and differ(plain, theirs) > 1e-3


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    parser = argparse.ArgumentParser()
    parser.add_argument("ferry")
    parser.add_argument("--only", default="")
    parser.add_argument("--models", nargs="*", default=[], type=Path)
    options = parser.parse_args()
    for folder in options.models:
        check(Ferry(options.ferry), folder.parent.name, lambda to: copy(folder, to))
    for name, model_type, keys in () if options.models else WHOLES:
        keys = dict({k: v for k, v in keys.items() if v is not ABSENT}, model_type=model_type)
        if "whole" in name and options.only in name:
            check(Ferry(options.ferry), name, lambda to: make(to, keys))


if __name__ == "__main__":
    main()
