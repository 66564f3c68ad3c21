#!/usr/bin/env python3
"""Small models of every family with odd config.json files, and what transformers computes for them.

    python make_config_golden.py            writes config_golden.json beside this script (needs transformers 5)
    python make_config_golden.py TYPE ...   runs only the cases of these model_types, and keeps the other lines

Each case is a config.json. Where transformers takes it, the case has the parameters in its order, token losses
and gradients in float64 of the rows below, and the settings that it ended up with. Weights are a formula of the
tensor's name and the element's index (see weight_of), so that no file has to hold them; where a model would be
large ("shapes" cases: what absent keys mean) only names and shapes are recorded.
"""
import json
import math
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import safetensors
import torch
import transformers

from config_base import ABSENT, BASE, ROWS
from config_cases import CASES, LAYERED, SHAPES
from config_wholes import WHOLES

OUT = Path(__file__).with_name("config_golden.json")
MASK64 = (1 << 64) - 1


def splitmix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def weight_of(name, shape, norm=1):
    """Multiples of 2^-24 in [-0.5, 0.5); norm weights and scalars lie around `norm`."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & MASK64
    count = math.prod(shape)
    values = [(splitmix((seed + i) & MASK64) >> 40) / (1 << 24) - 0.5 for i in range(count)]
    is_norm = name.endswith(("weight", "layer_scalar")) and len(shape) == 1
    return torch.tensor(values, dtype=torch.float64).reshape(shape) + (norm if is_norm else 0)


class Float64:
    """What transformers pins to float32 becomes float64."""

    def __enter__(self):
        self.saved = torch.float32, torch.float, torch.Tensor.float
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *_):
        torch.float32, torch.float, torch.Tensor.float = self.saved
        torch.set_default_dtype(torch.float32)


def of_all_layers(config, key):
    """The value for layers that have none of their own, which transformers hides where some have."""
    hidden = getattr(config, "_getattr_without_heterogeneous_validation", None)
    return hidden(key, None) if hidden else getattr(config, key, None)


def settings_of(config):
    """What the program's own reader must find."""
    out = {}
    kind = config.model_type
    heads = config.num_attention_heads
    out["H"] = heads
    out["KV"] = of_all_layers(config, "num_key_value_heads") or heads
    if kind in ("falcon", "gpt_bigcode"):
        is_new = getattr(config, "new_decoder_architecture", False)
        out["KV"] = 1 if config.multi_query and not is_new else getattr(config, "num_kv_heads", heads)
    head_dim = None if kind == "gpt_neox" else of_all_layers(config, "head_dim")
    out["D"] = head_dim or config.hidden_size // heads
    epsilons = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
    fixed = {"opt": 1e-5, "olmo": 1e-5}  # the others have one of these keys
    out["norm_epsilon"] = fixed.get(kind) or next(getattr(config, k) for k in epsilons if hasattr(config, k))
    out["initializer_range"] = config.init_std if kind == "opt" else config.initializer_range
    out["max_positions"] = config.max_position_embeddings
    out["tied"] = int(bool(getattr(config, "tie_word_embeddings", False)) and kind != "nemotron_h")
    layers = config.num_hidden_layers
    window = getattr(config, "sliding_window", None) or 0
    if kind == "mistral":
        out["window"] = [window] * layers
    elif kind in ("phi3", "starcoder2", "ministral3", "mixtral", "qwen3_moe"):
        out["window"] = [window] * layers
    elif kind in LAYERED or kind.startswith("qwen"):
        out["window"] = [window if t == "sliding_attention" else 0 for t in getattr(config, "layer_types", [None] * layers)]
    elif kind == "gpt_neo":
        out["window"] = [config.window_size if t == "local" else 0 for t in config.attention_layers]
    else:
        out["window"] = [0] * layers
    rope = getattr(config, "rope_parameters", None)
    if rope:
        out["theta"] = float(rope.get("full_attention", rope)["rope_theta"])
        if rope.get("rope_type") == "dynamic" and "alpha" in rope:  # Hunyuan's, with alpha: another theta
            out["theta"] *= rope["alpha"] ** (out["D"] / (out["D"] - 2))
    eos = config.eos_token_id
    eos = [] if eos is None else eos if isinstance(eos, list) else [eos]
    out["eos"] = [i for i in eos if 0 <= i < config.vocab_size]
    bos = config.bos_token_id
    out["bos"] = bos if bos is not None and 0 <= bos < config.vocab_size else -1
    return out


def load_config(keys):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(keys))
        return transformers.AutoConfig.from_pretrained(folder, attn_implementation="eager")


NAMES = [("mixtral", ".mlp.", ".block_sparse_moe."), ("nemotron_h", "model.", "backbone."),
         ("granitemoehybrid", "block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"),
         ("granitemoehybrid", "block_sparse_moe.experts.down_proj", "block_sparse_moe.output_linear.weight"),
         ("granitemoehybrid", "router.weight", "router.layer.weight")]


def table_name(kind, name):
    """As files have it, where that is not the module's name."""
    if kind == "gpt_neox" and name == "lm_head.weight":
        return "embed_out.weight"
    for kinds, old, new in NAMES:
        if kind == kinds:
            name = name.replace(old, new)
    return name


class Rows:
    """Some rows of a parameter, as a parameter."""

    def __init__(self, whole, rows):
        self.whole, self.rows, self.shape = whole, rows, whole[rows].shape

    def copy_(self, values):
        self.whole[self.rows] = values

    @property
    def grad(self):
        return None if self.whole.grad is None else self.whole.grad[self.rows]


class Turned:
    """The matrices of all experts [in, out], as files have them where the class has [out, in]."""

    def __init__(self, whole):
        self.whole, self.shape = whole, whole.transpose(1, 2).shape

    def copy_(self, values):
        self.whole.copy_(values.transpose(1, 2))

    @property
    def grad(self):
        return None if self.whole.grad is None else self.whole.grad.transpose(1, 2)


def unwoven(config, named):
    """Qwen3-Next's linear attention by the names of Qwen3.5, whose rows are not woven by heads of keys."""
    keys, dim = config.linear_num_key_heads, config.linear_key_head_dim
    each = config.linear_num_value_heads // keys
    values = each * config.linear_value_head_dim
    by_head = torch.arange(keys * (2 * dim + 2 * values)).reshape(keys, -1)
    q, k, v, z = (part.reshape(-1) for part in by_head.split([dim, dim, values, values], 1))
    b, a = (part.reshape(-1) for part in torch.arange(keys * 2 * each).reshape(keys, -1).split(each, 1))
    out = {}
    for name, p in named.items():
        if "in_proj_" in name:
            continue
        out[name] = p
        if name.endswith("linear_attn.out_proj.weight"):
            start = name.removesuffix("out_proj.weight")
            qkvz, ba = named[start + "in_proj_qkvz.weight"], named[start + "in_proj_ba.weight"]
            for part, whole, rows in (("qkv", qkvz, torch.cat([q, k, v])), ("z", qkvz, z), ("b", ba, b), ("a", ba, a)):
                out[f"{start}in_proj_{part}.weight"] = Rows(whole, rows)
    return out


def parameters_of(model):
    """Names as they stand in files, each parameter once, in module order."""
    kind = model.config.model_type
    named = dict(model.named_parameters())  # a tied head is not repeated
    scalars = {n: p for n, p in model.named_buffers() if n.endswith(("layer_scalar", "e_score_correction_bias"))}
    named = {n: p for n, p in {n: {**named, **scalars}.get(n) for n in model.state_dict(keep_vars=True)}.items()
             if p is not None} if scalars else named
    if kind == "qwen3_next":
        named = unwoven(model.config, named)
    if kind == "qwen3_vl_moe":
        named = {n: Turned(p) if ".experts." in n else p for n, p in named.items()}
    return [(table_name(kind, n), p) for n, p in named.items()]


def text_name(name):
    """A parameter of the text part of a whole model, as a text model names it; None: of another part."""
    if name == "lm_head.weight":
        return name
    for prefix in ("language_model.model.", "model.language_model.", "model.text_model."):
        if name.startswith(prefix):
            return "model." + name[len(prefix):]
    return "lm_head.weight" if name == "language_model.lm_head.weight" else None


def open_model(config):
    for part in (config, config.get_text_config()):
        if hasattr(part, "num_local_experts") or hasattr(part, "num_experts"):
            part._experts_implementation = "eager"  # others multiply in fp32 at most
    autos = [transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText]
    for auto in reversed(autos) if config.model_type in ("qwen3_5", "qwen3_5_moe") else autos:  # else its text class
        if type(config) in auto._model_mapping:
            return auto.from_config(config, attn_implementation="eager")
    return transformers.Qwen2AudioForConditionalGeneration._from_config(config, attn_implementation="eager")


def names_in_files(model):
    """What a directory written by transformers calls the text part."""
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safetensors.safe_open(Path(folder, "model.safetensors"), "pt") as file:
            return [n for n in file.keys() if text_name(n) or n.startswith(("model.embed_tokens", "model.layers", "model.norm"))]


def gradient_entry(name, parameter):
    """Name, shape, the gradient's norm, and some of its elements."""
    if parameter.grad is None:  # a buffer
        return [name, list(parameter.shape), 0.0, [0], [0.0]]
    g = parameter.grad.reshape(-1).numpy()
    index = sorted({int(np.abs(g).argmax()), int(np.abs(g).argmin()), len(g) // 2})
    return [name, list(parameter.shape), float(f"{np.sqrt((g * g).sum()):.10g}"), index,
            [float(f"{g[i]:.10g}") for i in index]]


def norm_of(model_type, name):
    """What a norm's weights lie around: some scale by 1 + w."""
    if model_type == "muse_glimmer":
        return 1 if name == "model.norm.weight" else 0
    if model_type.startswith(("qwen3_5", "qwen3_next")):
        return int(".linear_attn." in name)
    return int(model_type.startswith("gemma4") or not model_type.startswith(("gemma", "vaultgemma")) and model_type != "nemotron")


def run(name, model_type, keys, whole=False):
    keys = {k: v for k, v in dict({} if whole else BASE[model_type], **keys).items() if v is not ABSENT}
    keys = dict(model_type=model_type, **keys)
    case = {"name": name, "config": keys}
    with Float64():
        config = load_config(keys)
        model = open_model(config).to(torch.float64).eval()
        parameters = parameters_of(model)
        if whole:
            parameters = [(text_name(n), p) for n, p in parameters if text_name(n)]
        with torch.no_grad():
            for n, p in parameters:
                p.copy_(weight_of(n, p.shape, norm_of(model_type, n)))
        targets, loss_sum, losses = 0, 0, []
        for ids, labels in ROWS:
            labels = ids if labels is None else labels
            logits = model(torch.tensor([ids]), use_cache=False).logits[0]
            for t in range(1, len(ids)):
                if labels[t] != -100:
                    loss = torch.logsumexp(logits[t - 1], 0) - logits[t - 1, labels[t]]
                    loss_sum, targets = loss_sum + loss, targets + 1
                    losses.append(round(loss.item(), 10))
        (loss_sum / targets).backward()
    case["settings"] = settings_of(config.get_text_config())
    if whole:
        case["settings"]["tied"] = int("lm_head.weight" not in dict(parameters))
        case["files"] = names_in_files(model)
    case["losses"] = losses
    case["tensors"] = [gradient_entry(n, p) for n, p in parameters]
    return case


def shapes(name, model_type, keys):
    keys = dict(model_type=model_type, **keys)
    config = load_config(keys)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    parameters = [[n, list(p.shape)] for n, p in parameters_of(model)]
    last = f".{config.num_hidden_layers - 1}."
    return {"name": name, "config": keys, "settings": settings_of(config), "parameter_count": len(parameters),
            "element_count": sum(math.prod(s) for _, s in parameters),
            "shapes": [p for p in parameters if ".0." in p[0] or last in p[0] or "." not in p[0].replace(".weight", "")
                       or not any(c.isdigit() for c in p[0])]}


def main():
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    cases, refused, kept = [], [], {}
    if sys.argv[1:]:
        kept = {c["name"]: c for c in json.loads(OUT.read_text())["cases"]}
    wanted = lambda args: args[1] in sys.argv[1:] or args[0] not in kept
    for args in CASES + [(*args, True) for args in WHOLES]:
        try:
            cases.append(run(*args) if wanted(args) else kept[args[0]])
        except Exception as error:  # a case that transformers does not take is a mistake here: name them all
            refused.append(f"{args[0]}: {error!r}")
    if refused:
        raise SystemExit("\n".join(refused))
    cases += [shapes(*args) if wanted(args) else kept[args[0]] for args in SHAPES]
    rows = [{"input_ids": ids, "labels": labels or ids} for ids, labels in ROWS]
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    OUT.write_text(f'{{"transformers":"{transformers.__version__}","rows":{json.dumps(rows)},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
