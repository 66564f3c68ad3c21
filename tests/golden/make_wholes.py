#!/usr/bin/env python3
"""Small models that also read images, as transformers saves them, and an adapter as PEFT saves it for their class.

    python3 tests/golden/make_wholes.py

Needs torch, transformers 5 and peft. Writes wholes/NAME: the model with tensors besides that no class reads, in one file
or in shards, rows.jsonl, adapter/ and losses.json: the token losses of the model, and with the adapter."""
import json, shutil, sys, warnings
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))
from check_wholes import SIDE, load, make, token_losses
from config_base import ROWS
from config_wholes import WHOLES

OUT = Path(__file__).with_name("wholes")
# case, parts of names that go to a shard of their own
CASES = {"gemma3": ("gemma3 whole", ("vision_tower", "layers.1.")), "qwen2_5_vl": ("qwen2_5_vl whole", ()),
         "llava": ("llava whole", ())}


def older_names(name):
    """As the files on the hub have them, which transformers 5 still reads."""
    for new, old in (("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head."),
                     ("model.vision_tower.", "vision_tower."), ("model.multi_modal_projector.", "multi_modal_projector.")):
        if name.startswith(new):
            return old + name[len(new):]
    return name


def divide(folder, parts):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, shards = {}, [{} for _ in range(len(parts) + 1)]
    for key, t in tensors.items():
        shard = next((i for i, part in enumerate(parts) if part in key), len(parts))
        names[key] = f"model-{shard + 1:05d}-of-{len(shards):05d}.safetensors"
        shards[shard][key] = t
    for i, shard in enumerate(shards):
        save_file(shard, folder / f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors", {"format": "pt"})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": names}))


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    shutil.rmtree(OUT, ignore_errors=True)
    for name, (case, parts) in CASES.items():
        model_type, keys = next((t, k) for n, t, k in WHOLES if n == case)
        folder = OUT / name
        folder.mkdir(parents=True)
        make(folder, dict(keys, model_type=model_type))
        for side, text in SIDE.items():
            (folder / side).write_text(text)
        if name == "llava":
            config = json.loads((folder / "config.json").read_text())
            config.pop("dtype"), config["text_config"].pop("dtype", None), config["vision_config"].pop("dtype", None)
            (folder / "config.json").write_text(json.dumps(config, indent=1))
            tensors = {older_names(k): t for k, t in load_file(folder / "model.safetensors").items()}
            save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        if parts:
            divide(folder, parts)
        (folder / "rows.jsonl").write_text("".join(json.dumps({"input_ids": i, "labels": l or i}) + "\n" for i, l in ROWS))
        model = load(folder)
        losses = {"model": token_losses(model).tolist()}
        torch.manual_seed(2)
        peft = get_peft_model(model, LoraConfig(r=2, lora_alpha=6, target_modules=r".*language_model.*(q_proj|down_proj)"))
        with torch.no_grad():
            for n, p in peft.named_parameters():
                if "lora_" in n:
                    p.copy_(torch.randn_like(p) * 0.3)
        losses["adapter"] = token_losses(peft.eval()).tolist()
        peft.save_pretrained(folder / "adapter")
        (folder / "adapter/README.md").unlink(missing_ok=True)
        (folder / "losses.json").write_text(json.dumps({k: [float(f"{x:.7g}") for x in v] for k, v in losses.items()}) + "\n")


if __name__ == "__main__":
    main()
