"""Do HuggingFace directories hold the same numbers under the same names, pair by pair? Exit 0 when they do.

    python3 check_same_weights.py [--bf16] ORIGINAL EXPORTED [ORIGINAL EXPORTED]...

With --bf16 the exported weights may differ from the original by one rounding to bf16. Read by the safetensors
library itself, so that a file that only ferry can read is found out; config.json must be the same bytes.
"""

import glob
import json
import os
import sys

import torch
from safetensors import safe_open


def tensors(directory):
    found = {}
    for path in sorted(glob.glob(os.path.join(directory, "*.safetensors"))):
        with safe_open(path, "pt") as file:
            assert (file.metadata() or {}).get("format", "pt") == "pt", path
            for name in file.keys():
                assert name not in found, f"{name} twice"
                found[name] = (os.path.basename(path), file.get_tensor(name))
    index = os.path.join(directory, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index) as file:
            listed = json.load(file)
        assert listed["weight_map"] == {name: path for name, (path, _) in found.items()}, index
        total = sum(t.numel() * t.element_size() for _, t in found.values())
        assert listed["metadata"]["total_size"] == total, index
    return {name: tensor for name, (_, tensor) in found.items()}


def compare(original, exported, bf16):
    a, b = tensors(original), tensors(exported)
    assert a.keys() == b.keys(), set(a) ^ set(b)
    for name in a:
        assert a[name].shape == b[name].shape, name
        left, right = a[name].double(), b[name].double()
        if bf16:
            assert b[name].dtype == torch.bfloat16, name
            assert bool(((left - right).abs() <= left.abs() * 2.0**-8).all()), name
        else:
            assert torch.equal(left, right), name
    with open(os.path.join(original, "config.json"), "rb") as x:
        with open(os.path.join(exported, "config.json"), "rb") as y:
            assert x.read() == y.read(), "config.json"


def main():
    paths = [argument for argument in sys.argv[1:] if argument != "--bf16"]
    assert paths and len(paths) % 2 == 0, __doc__
    for original, exported in zip(paths[::2], paths[1::2]):
        compare(original, exported, "--bf16" in sys.argv)


main()
