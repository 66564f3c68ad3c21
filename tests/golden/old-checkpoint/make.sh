#!/bin/sh
# A run of ferry at commit ae4b4d4 (FERRY names that program), whose checkpoints say nothing of a shuffle: checkpoint-000004,
# and model/, which that program reached at step 8. test_run_state resumes the one and wants the other.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
"$FERRY" train model=config.json init_weights=random data=rows.jsonl output_dir="$work/run" device=host threads=1 seed=7 \
	compute_dtype=fp32 per_device_train_batch_size=2 max_steps=8 save_steps=4 learning_rate=0.01 eval_split=3
mv "$work/run/checkpoint-000004" .
mv "$work/run/model/model.safetensors" reached.safetensors
rm -r "$work"
