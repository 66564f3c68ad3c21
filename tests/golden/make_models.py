#!/usr/bin/env python3
"""Golden models of families that ../shared/golden/modern lacks, in its format.

    python make_models.py SHARED_GOLDEN      writes models/ beside this script (transformers 5.24, peft)

SHARED_GOLDEN is the folder with make_modern.py, which reads MODELS below.
"""
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve()
    script = Path(sys.argv[1]).resolve() / "make_modern.py"
    command = [sys.executable, script, here.with_name("models"), "--set", here, *sys.argv[2:]]
    raise SystemExit(subprocess.call(command))

from make_modern import Modern, Train

EMBEDDINGS = []


def falcon_h1(name, note, lora=(), **more):
    config = {
        "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "vocab_size": 128, "hidden_size": 32,
        "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 100000000000.0,
        "rope_scaling": None, "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0, "projectors_bias": False,
        "embedding_multiplier": 5.656854249492381, "lm_head_multiplier": 0.4, "attention_in_multiplier": 1.0,
        "attention_out_multiplier": 0.9375, "key_multiplier": 0.39, "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.6,
        "mlp_multipliers": [0.88, 0.59], "ssm_multipliers": [0.35, 0.5, 0.7, 0.6, 0.8], "mamba_d_ssm": 48,
        "mamba_n_heads": 6, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2,
        "mamba_chunk_size": 32, "mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_rms_norm": False,
        "mamba_norm_before_gate": True, "initializer_range": 0.02, "tie_word_embeddings": False, "use_cache": True,
        "bos_token_id": 1, "eos_token_id": 11, "pad_token_id": 0, "torch_dtype": "bfloat16",
        "transformers_version": "4.55.0", **more}
    return Modern(name, note=note, config=config, eval_lengths=(90, 41, 60), document_lengths=(50, 45), std=0.1,
                  train=Train(lengths=(20, 40)), lora_targets=lora)


MODELS = [
    falcon_h1("falcon_h1", "attention beside Mamba-2, multipliers as published, no norm behind the scan, untied",
              lora=("q_proj", "k_proj", "in_proj", "gate_proj")),
    falcon_h1("falcon_h1_norm", "a norm of 2 groups before the gate, all biases, steps within limits, tied",
              mamba_rms_norm=True, mamba_n_groups=2, attention_bias=True, mlp_bias=True, projectors_bias=True,
              mamba_proj_bias=True, tie_word_embeddings=True, attention_in_multiplier=0.8, time_step_limit=[0.1, 0.9]),
]
