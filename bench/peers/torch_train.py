"""A training step of torch beside `ferry bench offload`: the same shapes, tokens, recomputation and clipping.

    python3 torch_train.py --model 1b --tokens 16384 --mode plain
    python3 torch_train.py --model 1b --tokens 16384 --mode fsdp2-offload
    python3 torch_train.py --model 15m --rows 8 --row-tokens 256 --mode fp32 --keep --threads 1 --compile
    python3 torch_train.py --model hybrid --rows 1 --row-tokens 2048 --mode fp32 --keep --threads 2

plain: fp32 weights, bf16 autocast, AdamW fused, all on the device. fp32: the same without autocast. bf16: weights,
gradients and optimizer state in bf16. --keep keeps activations, --compile compiles the model. fsdp2-offload:
fully_shard with CPUOffloadPolicy and bf16 parameters for compute, AdamW fused on the CPU, in a world of one. The head's
logits are formed in pieces of rows, as ferry does. hybrid: transformers' Qwen3.5 with the sizes of `ferry bench step`,
and transformers' head. Weights are random, the batch is fixed and must be learned. Prints one JSON object with the keys
of `ferry bench offload`.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

# hidden, layers, heads, kv_heads, intermediate, vocab, row tokens, tied
MODELS = {
    "tiny": (64, 2, 4, 2, 128, 500, 32, False),
    "0.1b": (768, 12, 12, 12, 2048, 32000, 1024, False),
    "15m": (288, 6, 6, 6, 768, 32000, 256, True),
    "134m": (768, 12, 12, 12, 2048, 32000, 512, False),
    "1b-4l": (2048, 4, 32, 8, 8192, 128256, 512, True),
    "hybrid": (1024, 4, 8, 2, 3584, 1024, 2048, True),
    "1b": (2048, 16, 32, 8, 8192, 128256, 4096, True),
    "3b": (3072, 28, 24, 8, 8192, 128256, 4096, True),
    "8b-8l": (4096, 8, 32, 8, 14336, 128256, 4096, False),
    "8b": (4096, 32, 32, 8, 14336, 128256, 4096, False),
}
HEAD_ROWS = 2048


class Block(nn.Module):
    def __init__(self, hidden, heads, kv_heads, intermediate):
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, hidden // heads
        self.norm1 = nn.RMSNorm(hidden, eps=1e-6)
        self.norm2 = nn.RMSNorm(hidden, eps=1e-6)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * self.dim, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * intermediate, bias=False)
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x, cos, sin):
        rows, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, tokens, -1, self.dim).transpose(1, 2).split(
            [self.heads, self.kv_heads, self.kv_heads], 1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(rows, tokens, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat([-b, a], -1) * sin).to(x.dtype)


class Llama(nn.Module):
    def __init__(self, shape, keep):
        super().__init__()
        self.call = (lambda f, *args: f(*args)) if keep else (lambda f, *args: checkpoint(f, *args, use_reentrant=False))
        hidden, layers, heads, kv_heads, intermediate, vocab, _, tied = shape
        self.embed = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList([Block(hidden, heads, kv_heads, intermediate) for _ in range(layers)])
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.dim = hidden // heads

    def forward(self, ids):
        at = torch.arange(ids.shape[1], device=ids.device, dtype=torch.float32)
        angle = torch.outer(at, 10000 ** (-torch.arange(0, self.dim, 2, device=ids.device) / self.dim))
        cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
        x = self.embed(ids)
        for block in self.blocks:
            x = self.call(block, x, cos, sin)
        x, labels = self.norm(x)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
        total = 0
        for a, b in zip(x.split(HEAD_ROWS), labels.split(HEAD_ROWS)):
            total = total + self.call(self.piece, a, b)
        return total / labels.numel()

    def piece(self, x, labels):
        return F.cross_entropy(self.head(x).float(), labels, reduction="sum")


class Hybrid(nn.Module):
    """Three layers of the gated delta rule and one of gated attention, by transformers."""

    def __init__(self, shape, keep):
        from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

        super().__init__()
        hidden, layers, heads, kv_heads, intermediate, vocab, _, tied = shape
        self.model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(
            hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
            head_dim=256, intermediate_size=intermediate, vocab_size=vocab, linear_num_key_heads=16,
            linear_num_value_heads=16, linear_key_head_dim=128, linear_value_head_dim=128, tie_word_embeddings=tied,
            use_cache=False))
        if not keep:
            self.model.gradient_checkpointing_enable()

    def forward(self, ids):
        return self.model(input_ids=ids, labels=ids).loss


def make_model(shape, mode, device, keep, name):
    torch.manual_seed(1)
    if name == "hybrid":
        model = Hybrid(shape, keep).to(device)
        return model.to(torch.bfloat16) if mode == "bf16" else model
    with torch.device("meta"):
        model = Llama(shape, keep)
    if mode == "fsdp2-offload":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

        options = {
            "mesh": init_device_mesh(device.type, (1,)),
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
            "offload_policy": CPUOffloadPolicy(pin_memory=device.type == "cuda"),
        }
        for block in model.blocks:
            fully_shard(block, **options)
        fully_shard(model, **options)
        model.to_empty(device="cpu")
    else:
        model.to_empty(device=device)
    if shape[-1]:  # to_empty unties
        model.head.weight = model.embed.weight
    for p in model.parameters():
        with torch.no_grad():
            if p.ndim == 1:
                p.fill_(1)
            else:
                p.uniform_(-0.035, 0.035)
    return model.to(torch.bfloat16) if mode == "bf16" else model


def host_bytes(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key + ":"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="0.1b")
    parser.add_argument("--tokens", type=int, default=4096, help="of a step, which is one micro-batch")
    parser.add_argument("--mode", choices=["plain", "fp32", "bf16", "fsdp2-offload"], default="plain")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, help="instead of --tokens, with --row-tokens")
    parser.add_argument("--row-tokens", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--keep", action="store_true", help="activations are kept, not recomputed")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    if args.model == "hybrid" and args.mode == "fsdp2-offload":
        parser.error("hybrid is not sharded here; use another --mode")
    if args.threads:
        torch.set_num_threads(args.threads)
    shape = MODELS[args.model]
    hidden, layers, heads, kv_heads, intermediate, vocab, row_tokens, tied = shape
    if args.rows:
        rows, row_tokens = args.rows, args.row_tokens or row_tokens
    else:
        row_tokens = min(row_tokens, args.tokens)
        rows = args.tokens // row_tokens
    device = torch.device(args.device)
    if args.mode == "fsdp2-offload":
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29517")
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        torch.distributed.init_process_group(backend, rank=0, world_size=1)
    before = host_bytes("VmRSS")
    model = make_model(shape, args.mode, device, args.keep, args.model)
    run = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), weight_decay=0.01, fused=True)
    ids = torch.randint(vocab, (rows, row_tokens), generator=torch.Generator().manual_seed(2)).to(device)

    times, cpu_times, losses = [], [], []
    for _ in range(2 + args.steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        with torch.autocast(device.type, torch.bfloat16, enabled=args.mode == "plain"):
            loss = run(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
    cpu_s = statistics.median(cpu_times[2:])
    assert losses[-1] < losses[0] - 0.02, f"the loss of a fixed batch did not fall: {losses}"

    step_s = statistics.median(times[2:])
    tokens = rows * row_tokens
    block = hidden * (hidden + 2 * kv_heads * (hidden // heads)) + hidden * hidden + 3 * hidden * intermediate
    flops = tokens * (6 * layers * block + 6 * hidden * vocab + 6 * layers * hidden * row_tokens)
    print(json.dumps({
        "system": f"torch {torch.__version__} {args.mode}", "model": args.model,
        "parameters": sum(p.numel() for p in model.parameters()), "tokens": tokens, "row_tokens": row_tokens,
        "cpu_offload": args.mode == "fsdp2-offload", "steps": args.steps, "step_s": step_s, "cpu_s": cpu_s,
        "tokens_per_s": tokens / step_s,
        # the formula is that of Llama's layers
        "model_tflops": None if args.model == "hybrid" else flops / step_s * 1e-12,
        "device_peak_bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else 0,
        "host_peak_bytes": host_bytes("VmHWM") - before, "loss_first": losses[0], "loss_last": losses[-1],
    }))
    if args.mode == "fsdp2-offload":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
