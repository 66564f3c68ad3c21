"""Matrix products and attention of torch beside `ferry bench kernels`: the same shapes, in some seconds.

    python3 torch_ops.py [--small] [--device cuda]

Products are those of a block of Llama 3 8B at 4 x 4096 tokens, forward (TFLOP/s of 2mnk). Attention is causal, bf16,
32 heads over 8 of keys and values, forward and backward, by each of torch's backends that takes it (FLOPs of half the
square; backward 2.5 times forward). Prints one JSON object; what a backend refuses is a row with `why`.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def seconds_of(run, device, limit_s):
    """The median of calls for about limit_s, after one that loads what it needs."""
    times = []
    run()
    end = time.monotonic() + limit_s
    while not times or (time.monotonic() < end and len(times) < 100):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.monotonic()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.monotonic() - begin)
    return sorted(times)[len(times) // 2]


def product(m, n, k, device, limit_s):
    a = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    b = torch.randn(n, k, device=device, dtype=torch.bfloat16)
    s = seconds_of(lambda: a @ b.t(), device, limit_s)
    return {"op": "matmul", "m": m, "n": n, "k": k, "ms": 1e3 * s, "tflops": 2e-12 * m * n * k / s}


def attention(rows, tokens, heads, kv_heads, dim, backend, device, limit_s):
    def random(count):
        x = torch.randn(rows, count, tokens, dim, device=device, dtype=torch.bfloat16)
        return x.requires_grad_()

    row = {"op": "attention", "backend": backend.name.lower(), "rows": rows, "tokens": tokens}
    q, k, v = random(heads), random(kv_heads), random(kv_heads)
    repeat = heads // kv_heads
    flops = 2.0 * rows * heads * tokens * tokens * dim

    def forward():
        wide_k, wide_v = (x.repeat_interleave(repeat, dim=1) for x in (k, v))
        return F.scaled_dot_product_attention(q, wide_k, wide_v, is_causal=True)

    try:
        with sdpa_kernel(backend):
            forward_s = seconds_of(forward, device, limit_s)
            out = forward()
            grad = torch.randn_like(out)
            backward_s = seconds_of(lambda: out.backward(grad, retain_graph=True), device, limit_s)
    except RuntimeError as error:
        return {**row, "why": str(error).splitlines()[0]}
    return {
        **row,
        "forward_ms": 1e3 * forward_s,
        "forward_tflops": 1e-12 * flops / forward_s,
        "backward_ms": 1e3 * backward_s,
        "backward_tflops": 2.5e-12 * flops / backward_s,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    device, limit_s = args.device, 0.1 if args.small else 0.7
    tokens = 64 if args.small else 16384
    hidden, wide, kv = (64, 128, 16) if args.small else (4096, 14336, 1024)
    shapes = [(tokens, hidden, hidden), (tokens, kv, hidden), (tokens, wide, hidden), (tokens, hidden, wide)]
    rows = [product(*shape, device, limit_s) for shape in shapes]
    length = 32 if args.small else 4096
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        rows.append(attention(tokens // length, length, 32, 8, 128, backend, device, limit_s))
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    print(json.dumps({"torch": torch.__version__, "device": name, "rows": rows}))


if __name__ == "__main__":
    main()
