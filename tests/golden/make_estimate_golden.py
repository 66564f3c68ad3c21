#!/usr/bin/env python3
"""What accelerate estimates of models, for tests/test_cli_plan.c.

    python make_estimate_golden.py         writes estimate_golden.json beside this script

Needs accelerate and transformers 5. The functions are those behind `accelerate estimate-memory`
(commands/estimate.py): AutoModel in float32 on the meta device, calculate_maximum_sizes of it.
"""
import json
from pathlib import Path

import accelerate
import torch
import transformers
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes

HERE = Path(__file__).parent
EXAMPLES = HERE / "../../examples/models"

BERT = dict(model_type="bert", hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
            max_position_embeddings=512, type_vocab_size=2)
SMALL = dict(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
             max_position_embeddings=64)
MODELS = {
    "bert-base-cased": dict(BERT, vocab_size=28996),
    "bert-large-uncased": dict(BERT, vocab_size=30522, hidden_size=1024, intermediate_size=4096, num_hidden_layers=24,
                               num_attention_heads=16),
    "gpt2": dict(model_type="gpt2", vocab_size=50257, n_embd=768, n_layer=12, n_head=12, n_positions=1024),
    "gpt_neox, a quarter rotary": dict(SMALL, model_type="gpt_neox", rotary_pct=0.25),
    "mistral": dict(SMALL, model_type="mistral", num_key_value_heads=2),
    "qwen2, tied": dict(SMALL, model_type="qwen2", num_key_value_heads=2, tie_word_embeddings=True),
    "qwen3": dict(SMALL, model_type="qwen3", num_key_value_heads=2, head_dim=32),
    "llama with biases": dict(SMALL, model_type="llama", attention_bias=True, mlp_bias=True),
}
for path in sorted(EXAMPLES.glob("*.json")):
    MODELS[path.stem] = json.loads(path.read_text())

rows = []
for name, config in MODELS.items():
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(
            transformers.AutoConfig.for_model(**config), dtype=torch.float32)
    total, (largest, _) = calculate_maximum_sizes(model)
    adam = {d: max(estimate_training_usage(total, d).values()) for d in ("float32", "float16")}
    rows.append(dict(name=name, config=config, total_bytes=total, largest_layer_bytes=largest, adam_bytes=adam))
    print(name, total, largest, adam)

head = dict(accelerate=accelerate.__version__, transformers=transformers.__version__)
text = json.dumps(head)[:-1] + ', "models": [\n' + ",\n".join(json.dumps(r) for r in rows) + "\n]}\n"
(HERE / "estimate_golden.json").write_text(text)
