#!/usr/bin/env python3
"""Adapters of experts: ferry's against PEFT, both ways, for each family of mixtures.

    python3 tests/golden/check_experts.py BUILD/ferry [--only NAME]

Needs torch, transformers and peft. A random model as transformers saves it gets an adapter of PEFT by target_parameters;
ferry must compute PEFT's losses with it, merge it to the same, and go on from it. Then ferry trains adapters of experts,
by parameters and by modules, in each form of the file; PEFT must load what ferry says it loads, without a complaint and
with ferry's losses."""
import argparse, json, subprocess, sys, tempfile, warnings
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parent))
from check_wholes import Ferry, class_of, differ, open_config, token_losses
from config_base import BASE, ROWS
from config_wholes import WHOLES

SPARSE = {"qwen2_moe": dict(decoder_sparse_step=2, num_hidden_layers=4), "qwen3_moe": dict(mlp_only_layers=[0], num_hidden_layers=3)}
# family: keys over BASE; the module of all experts' parameters; modules of single experts
FAMILIES = {
    "mixtral": ({}, "mlp.experts", ["w1", "w2", "w3"]),
    "olmoe": ({}, "mlp.experts", ["gate_proj", "up_proj", "down_proj"]),
    "qwen2_moe": (SPARSE["qwen2_moe"], "mlp.experts", ["gate_proj", "up_proj", "down_proj"]),
    "qwen3_moe": (SPARSE["qwen3_moe"], "mlp.experts", ["gate_proj", "up_proj", "down_proj"]),
    "qwen3_5_moe_text": ({}, "mlp.experts", ["gate_proj", "up_proj", "down_proj"]),
    "qwen3_next": ({}, "mlp.experts", ["gate_proj", "up_proj", "down_proj"]),
    "glm4_moe": ({}, "mlp.experts", ["gate_proj", "up_proj", "down_proj"]),
    "deepseek_v2": ({}, "mlp.experts", ["gate_proj", "up_proj", "down_proj"]),
    "deepseek_v3": ({}, "mlp.experts", ["gate_proj", "up_proj", "down_proj"]),
    "gpt_oss": ({}, "mlp.experts", None),
    "gemma4_text": (dict(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=6,
                         hidden_size_per_layer_input=0), "experts", None),
    "granitemoehybrid": ({}, "block_sparse_moe.experts", None),
    "nemotron_h": ({}, "mixer.experts", ["up_proj", "down_proj"]),
    "qwen3_vl_moe": (next(k for n, t, k in WHOLES if n == "qwen3_vl_moe whole"), "mlp.experts", None),
}


def eager(config):
    for part in (config, config.get_text_config()):
        part._experts_implementation = "eager"  # other ways need rows of 16 bytes
    return config


def make(folder, keys):
    torch.manual_seed(1)
    config = eager(open_config(keys))
    auto = class_of(config)
    model = auto.from_config(config) if hasattr(auto, "from_config") else auto._from_config(config)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.2)
    model.save_pretrained(folder)


def load(folder):
    config = eager(transformers.AutoConfig.from_pretrained(folder))
    model, info = class_of(config).from_pretrained(folder, config=config, dtype=torch.float32,
                                                   attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"] and not info["unexpected_keys"], info
    return model.eval()


def load_adapter(model, folder):
    """With every warning an error: PEFT warns where keys are missing or left over."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        out = peft.PeftModel.from_pretrained(model, folder).eval()
    # PEFT says so of keys of its patterns that fit parameters, its own conversion's too; losses show that they count
    complaints = [str(w.message)[:300] for w in said if ("adapter" in str(w.message) or "key" in str(w.message))
                  and "did not match any targeted module" not in str(w.message)]
    return out, complaints


def check(ferry, name):
    more, module, parts = FAMILIES[name]
    keys = dict({} if "text_config" in more else BASE[name], model_type=name, **more)
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        make(work / "m", keys)
        rows = work / "rows.jsonl"
        rows.write_text("".join(json.dumps({"input_ids": i, "labels": l or i}) + "\n" for i, l in ROWS))
        data = [f"data={rows}", "data_format=tokens"]
        common = [*data, "device=host", "threads=1", "max_steps=2", "learning_rate=1e-1", "compute_dtype=fp32",
                  "max_length=64", "per_device_train_batch_size=2", "export_dtype=fp32", f"model={work}/m", "lora_rank=3",
                  "lora_alpha=6", "overwrite_output_dir=on",
                  *(["lora_exclude_modules=out_proj"] if name == "nemotron_h" else [])]  # PEFT refuses it
        plain = token_losses(load(work / "m"))
        up = "up_proj" if name == "nemotron_h" else "gate_up_proj"
        fused = f"lora_target_parameters={module}.{up},{module}.down_proj"

        def compare(what, adapter, more=()):
            ours = ferry.losses(f"model={work}/m", f"lora_adapter={adapter}", *data)
            model, complaints = load_adapter(load(work / "m"), adapter)
            theirs = token_losses(model)
            ferry("merge", f"model={work}/m", f"lora_adapter={adapter}", f"output_dir={work}/merged", "export_dtype=fp32",
                  "overwrite_output_dir=on")
            merged = token_losses(load(work / "merged"))
            ok = differ(ours, theirs) < 1e-4 and not complaints and differ(ours, merged) < 1e-4
            moved = differ(ours, plain)
            print(f"  {name} {what}: peft {differ(ours, theirs):.1e}, merged {differ(ours, merged):.1e}, moved {moved:.1e}"
                  f"{'' if ok and moved > 1e-4 else '  <-- ' + '; '.join(complaints)}", flush=True)
            return ok and moved > 1e-4

        # PEFT's adapters
        good = True
        for what, names, extra in (("both", [f"{module}.{up}", f"{module}.down_proj"], dict(target_modules=["q_proj"])),
                                   ("up", [f"{module}.{up}"], dict(rank_pattern={f".*{up}": 2}, use_rslora=True)),
                                   ("down", ["experts.down_proj"], {})):
            if "target_modules" in extra and name in ("deepseek_v2", "deepseek_v3"):
                extra = dict(target_modules=["q_a_proj"])
            torch.manual_seed(2)
            model = peft.get_peft_model(load(work / "m"), peft.LoraConfig(
                r=3, lora_alpha=5, target_parameters=names, task_type="CAUSAL_LM", **dict(dict(target_modules=[]), **extra)))
            with torch.no_grad():
                for n, p in model.named_parameters():
                    if "lora_" in n:
                        p.copy_(torch.randn_like(p) * 0.3)
            model.save_pretrained(work / "peft")
            good &= compare(f"of PEFT, {what}", work / "peft")
            ferry("train", *(w for w in common if not w.startswith("lora_")), f"lora_adapter={work}/peft", "learning_rate=0",
                  f"output_dir={work}/same")
            a, b = (load_file(d / "adapter_model.safetensors") for d in (work / "peft", work / "same/adapter"))
            if a.keys() != b.keys() or any(not torch.equal(a[k], b[k]) for k in a):
                print(f"  {name} {what}: the adapter that goes on is another: {sorted(a.keys() ^ b.keys())[:4]}")
                good = False
            good &= compare(f"of PEFT, {what}, gone on", work / "same/adapter")
        # ferry's
        runs = [("parameters", [fused], 1), ("parameters alone", [fused, "lora_target_modules="], 1),
                ("down alone", [f"lora_target_parameters={module}.down_proj", "lora_target_modules="], 1)]
        if parts:
            ends = parts[:1] if name == "nemotron_h" else [parts[0]]
            runs += [("modules", [f"lora_target_modules={','.join(parts)}"], 1),
                     ("modules and attention", [f"lora_target_modules={','.join(parts)},o_proj"], 1),
                     ("one module", [f"lora_target_modules={ends[0]}"], 1),
                     ("modules, fused", [f"lora_target_modules={','.join(parts)}", "lora_expert_form=fused"], 1),
                     ("modules, per expert", [f"lora_target_modules={','.join(parts)}", "lora_expert_form=per_expert"], 0),
                     ("parameters, per expert", [fused, "lora_expert_form=per_expert"], 0)]
        for what, words, must in runs:
            done = subprocess.run([ferry.binary, "train", *common, f"output_dir={work}/out", *words], capture_output=True, text=True)
            assert not done.returncode, done.stderr
            warned = "PEFT loads no such" in done.stderr
            if not must and warned:
                print(f"  {name} {what}: ferry warns", flush=True)
                continue
            good &= compare(what, work / "out/adapter")
        return good


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    parser = argparse.ArgumentParser()
    parser.add_argument("ferry")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    bad = [name for name in FAMILIES if options.only in name and not check(Ferry(options.ferry), name)]
    print("differs: " + ", ".join(bad) if bad else "all agree")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
