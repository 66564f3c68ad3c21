#!/bin/sh
# make_model.sh FERRY OUT: the demo's data, tokenizer and pretrained model from nothing (half an hour on two cores).
set -eu

ferry=$1
out=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
python3 "$here/make_data.py" "$out"
python3 "$here/make_tokenizer.py" "$out" 768 "$out/corpus.jsonl" "$out/train.jsonl"
"$ferry" init "$here/config.json" "output_dir=$out/start" seed=1
cp "$out/tokenizer.json" "$out/tokenizer_config.json" "$out/start/"
"$ferry" train "model=$out/start" "data=$out/corpus.jsonl" "output_dir=$out/pretrain" data_format=text packing=bfd max_length=128 \
	per_device_train_batch_size=16 num_train_epochs=16 learning_rate=3e-3 lr_scheduler_type=cosine_with_min_lr min_lr_rate=0.05 \
	warmup_steps=50 adam_beta2=0.95 weight_decay=0.01 compute_dtype=fp32 activations=keep logging_steps=20 save_total_limit=1 \
	resume_from_checkpoint=auto
checkpoint=$(ls -d "$out"/pretrain/checkpoint-* | tail -n 1)
"$ferry" export "$checkpoint" "output_dir=$out/model" export_dtype=bf16
