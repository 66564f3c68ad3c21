#!/usr/bin/env python3
"""Damaged mixtures: each must be refused by name.

    python3 tests/golden/draw_bad_mixtures.py BUILD/ferry [--draws 400] [--seed 1] [--show]

Takes the small mixtures of expert_adapters/ and damages one thing of config.json, of the weights, or of an adapter: missing
experts, other counts, more experts for a token than there are, tensors of another shape, an expert twice, experts too many.
ferry must end with exit code 2 and one line that names the key or the tensor; never with 0, a signal or another code.
Needs Python alone."""
import argparse, json, random, re, shutil, struct, subprocess, sys, tempfile
from pathlib import Path

HERE = Path(__file__).parent / "expert_adapters"
COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
CHOSEN = ("num_experts_per_tok", "top_k_experts", "experts_per_token")


def read(path):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    meta = header.pop("__metadata__", {"format": "pt"})
    return {k: [v["dtype"], v["shape"], data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]]]
            for k, v in header.items()}, meta


def write(path, tensors, meta, twice=None):
    """`twice`: a name that the header has two times."""
    parts, at, body = [], 0, b""
    for name, (dtype, shape, data) in tensors.items():
        entry = json.dumps({"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]})
        parts.append(f"{json.dumps(twice if name == '#twice' else name)}:{entry}")
        at += len(data)
        body += data
    header = ("{" + f'"__metadata__":{json.dumps(meta)},' + ",".join(parts) + "}").encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + body)


def part_of(config):
    return config.get("text_config", config)


def key_of(config, keys):
    return next(k for k in keys if isinstance(part_of(config).get(k), int))


def is_expert(name):
    return ("experts" in name and "shared" not in name) or "input_linear" in name and "block_sparse" in name \
        or "output_linear" in name and "block_sparse" in name


# each: (rng, work) -> words of which the message must have one, or None where the model has no such thing
def config_damage(change):
    def damage(rng, work):
        path = work / "base/config.json"
        config = json.loads(path.read_text())
        words = change(rng, part_of(config), config)
        path.write_text(json.dumps(config))
        return words
    return damage


def too_many_chosen(rng, part, config):
    k, count = key_of(config, CHOSEN), key_of(config, COUNTS)
    part[k] = part[count] + rng.randint(1, 5)
    return [k]


def bad_count(rng, part, config):
    count = key_of(config, COUNTS)
    part[count] += rng.choice([-1, 1, 2, 7])
    return [count, "experts", "router", "gate", "shape"]


def odd_number(rng, part, config):
    k = rng.choice([key_of(config, CHOSEN), key_of(config, COUNTS)])
    part[k] = rng.choice([-1, 1.5, "4", [3], True, 10**9, 1 << 62])
    return [k]


def no_chosen(rng, part, config):
    k = key_of(config, CHOSEN)
    part[k] = 0
    return [k]


def bad_inner(rng, part, config):
    k = next((k for k in ("moe_intermediate_size", "intermediate_size") if isinstance(part.get(k), int)), None)
    part[k] += rng.choice([-1, 1, 3])
    return [k, "shape"]


def weights_damage(change):
    def damage(rng, work):
        path = work / "base/model.safetensors"
        tensors, meta = read(path)
        names = [n for n in tensors if is_expert(n)]
        words, twice = change(rng, tensors, names)
        write(path, tensors, meta, twice)
        return words
    return damage


def drop_one(rng, tensors, names):
    n = rng.choice(names)
    del tensors[n]
    return [n], None


def drop_kind(rng, tensors, names):
    """All of one expert, or a whole layer's."""
    n = rng.choice(names)
    stem = re.sub(r"(\.experts\.\d+\.).*", r"\1", n)
    gone = [m for m in names if m.startswith(stem)]
    for m in gone:
        del tensors[m]
    return gone + ["mlp.experts.", stem, n.replace("model.language_model.", "model."), stem.rstrip("."), re.sub(r"\.experts\.\d+\.$", ".experts", stem)], None


def reshape(rng, tensors, names):
    n = rng.choice(names)
    dtype, shape, data = tensors[n]
    other = list(shape)
    way = rng.randrange(4)
    if way == 0 and shape[-1] != shape[-2]:
        other[-1], other[-2] = other[-2], other[-1]
    elif way == 1:
        other = [shape[0] * shape[1]] + list(shape[2:])
    elif way == 2:
        other = [1] + list(shape)
    else:
        other[0] += 1
        data += data[:len(data) // shape[0]]
    if other == list(shape):
        other = [1] + list(shape)
    tensors[n] = [dtype, other, data]
    return [n], None


def extra(rng, tensors, names):
    """An expert more than there are, or a fused tensor beside single experts."""
    n = rng.choice(names)
    m = re.search(r"\.experts\.(\d+)\.", n)
    if m:
        new = n.replace(m.group(0), f".experts.{rng.choice([57, 5000])}.") if rng.random() < .7 \
            else n[:m.start()] + ".experts.down_proj"
    else:
        new = n + ".1"
    tensors[new] = list(tensors[n])
    return [new, n], None


def double(rng, tensors, names):
    n = rng.choice(names)
    tensors["#twice"] = list(tensors[n])
    return [n], n


def short(rng, tensors, names):
    n = rng.choice(names)
    dtype, shape, data = tensors[n]
    tensors[n] = [dtype, shape, data[:-4]]
    return [n, "model.safetensors"], None


def not_finite(rng, tensors, names):
    n = rng.choice(names)
    dtype, shape, data = tensors[n]
    at = rng.randrange(len(data) // 4) * 4
    tensors[n] = [dtype, shape, data[:at] + struct.pack("<f", rng.choice([float("nan"), float("inf")])) + data[at + 4:]]
    return [n], None


def adapter_damage(change):
    def damage(rng, work):
        path = work / "adapter/adapter_model.safetensors"
        tensors, meta = read(path)
        config = json.loads((work / "adapter/adapter_config.json").read_text())
        words, twice = change(rng, tensors, [n for n in tensors if ".experts." in n], config)
        write(path, tensors, meta, twice)
        (work / "adapter/adapter_config.json").write_text(json.dumps(config))
        return words
    return damage


def adapter_rank(rng, tensors, names, config):
    config["r"] += 1
    config["rank_pattern"] = {}
    return names + ["shape"], None


def adapter_renamed(rng, tensors, names, config):
    n = rng.choice(names)
    new = n.replace(".experts.", rng.choice([".expert.", ".experts.base_layer.base_layer.", ".experts.3."]))
    tensors[new] = tensors.pop(n)
    return [new, n], None


def adapter_targets(rng, tensors, names, config):
    config["target_parameters"] = [rng.choice(["mlp.experts.gate_proj", "experts", "gate_up_proj.weight", "lm_head.weight", ""])]
    return config["target_parameters"] + names + ["target_parameters"], None


KINDS = {
    "k above the experts": config_damage(too_many_chosen), "other number of experts": config_damage(bad_count),
    "a number of another kind": config_damage(odd_number), "no expert for a token": config_damage(no_chosen),
    "another width": config_damage(bad_inner), "a tensor missing": weights_damage(drop_one),
    "an expert or a layer missing": weights_damage(drop_kind), "another shape": weights_damage(reshape),
    "one too many": weights_damage(extra), "twice": weights_damage(double), "cut short": weights_damage(short),
    "not finite": weights_damage(not_finite),
    "adapter: a tensor missing": adapter_damage(lambda r, t, n, c: drop_one(r, t, n)),
    "adapter: another shape": adapter_damage(lambda r, t, n, c: reshape(r, t, n)),
    "adapter: twice": adapter_damage(lambda r, t, n, c: double(r, t, n)),
    "adapter: not finite": adapter_damage(lambda r, t, n, c: not_finite(r, t, n)),
    "adapter: another rank": adapter_damage(adapter_rank), "adapter: renamed": adapter_damage(adapter_renamed),
    "adapter: other parameters": adapter_damage(adapter_targets),
}


def draw(ferry, seed, kinds):
    rng = random.Random(seed)
    family = rng.choice(sorted(p.name for p in HERE.iterdir() if p.is_dir()))
    kind = rng.choice(sorted(kinds))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "w")
        shutil.copytree(HERE / family, work)
        words = KINDS[kind](rng, work)
        command = [ferry, "eval", f"model={work}/base", f"data={work}/rows.jsonl", "data_format=tokens", "device=host",
                   "threads=1", "compute_dtype=fp32", "per_token=on", "--json"]
        if kind.startswith("adapter"):
            command.append(f"lora_adapter={work}/adapter")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        said = [line for line in done.stderr.strip().split("\n") if line.startswith("ferry eval:")]
        good = done.returncode == 2 and len(said) == 1 and any(word in said[0] for word in words)
        # a tensor that no stage reads is left in the files as it is, and said
        good |= kind == "one too many" and not done.returncode and words[0] in done.stderr and "leaving" in done.stderr
        return good, f"{seed} {family}, {kind}: {done.returncode} {' | '.join(said)[:300].replace(folder, '') or done.stderr[-200:]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ferry")
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    bad = 0
    for seed in range(options.seed, options.seed + options.draws):
        good, text = draw(options.ferry, seed, [k for k in KINDS if options.only in k])
        bad += not good
        if not good or options.show:
            print("" if good else "NOT REFUSED BY NAME: ", text, sep="", flush=True)
    print(f"{options.draws} draws, {bad} not refused by name")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
