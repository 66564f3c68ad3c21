#!/bin/sh
# quantized_plans.sh: the plans of docs/results/quantized-bases.md, a line each.
#
#     sh bench/quantized_plans.sh        FERRY names the program
set -eu

ferry=${FERRY:-build/ferry}
here=$(dirname "$0")/../examples
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Llama 3.3 70B: Llama 2's sizes with the vocabulary of Llama 3
sed -e 's/"vocab_size": 32000/"vocab_size": 128256/; s/"rope_theta": 10000.0/"rope_theta": 500000.0/' \
	-e 's/float16/bfloat16/; s/4096,/131072,/' "$here/models/llama-2-70b.json" >"$folder/llama-3.3-70b.json"

# name, model, machine, keys
plan() {
	name=$1 model=$2 machine=$3
	shift 3
	if "$ferry" plan "$model" "machine=$here/machines/$machine.yaml" lora_rank=16 max_length=1024 "$@" \
		>"$folder/out" 2>"$folder/said"; then
		awk -v name="$name, $machine, $*" '
			/^GPU / { gpu = $2 " " $3 } /^host / { host = $2 " " $3 } /^data / { speed = $2 }
			END { sub(";", "", gpu); sub(";", "", host); print name ": " speed " tokens/s, GPU " gpu ", host memory " host }' \
			"$folder/out"
	else
		echo "$name, $machine, $*: $(tail -1 "$folder/said")"
	fi
}

for count in 1 4 16; do
	plan "Llama 3.3 70B" "$folder/llama-3.3-70b.json" pc-rtx-4090 base_format=nf4 ram_budget=48GiB \
		gradient_accumulation_steps=$count
	plan "Llama 3.3 70B" "$folder/llama-3.3-70b.json" pc-rtx-4090 base_format=bf16 gradient_accumulation_steps=$count
done
for count in 1 4 16; do
	plan "Qwen3.5-27B" "$here/models/qwen3.5-27b.json" pc-rtx-4080 base_format=fp8 ram_budget=48GiB \
		gradient_accumulation_steps=$count
done
for count in 4 32; do
	plan "gpt-oss-120b" "$here/models/gpt-oss-120b.json" workstation-rtx-4090 base_format=mxfp4 ram_budget=80GB \
		gradient_accumulation_steps=$count
done
plan "Llama 3.1 405B" "$here/models/llama-3.1-405b.json" h200 base_format=nf4 vram_budget=79GiB \
	per_device_train_batch_size=4 gradient_accumulation_steps=4
