#!/bin/sh
# demo.sh: fine-tunes the small model of examples/demo with everything offloaded, and shows what it answers before and
# after to questions that are not among the training rows. Then the same run without offload: its losses must be the same.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
ferry=${FERRY:-$root/build/ferry}
work=${DEMO_DIR:-$root/build/demo}
demo=$root/examples/demo
mkdir -p "$work"

# answers MODEL FILE: one line per question of questions.tsv, what the model says to it
answers() {
	: >"$2"
	while IFS="$(printf '\t')" read -r question answer; do
		"$ferry" generate "model=$1" "prompt=Question: $question
Answer:" max_new_tokens=24 temperature=0 </dev/null >"$work/answer.txt" 2>"$work/generate.log" || {
			cat "$work/generate.log" >&2
			return 1
		}
		sed -n '1s/^ *//p' "$work/answer.txt" >>"$2"
	done <"$demo/questions.tsv"
}

# right FILE: how many lines equal the expected answer
right() {
	cut -f 2 "$demo/questions.tsv" | paste -d '\t' - "$1" | awk -F '\t' '$1 == $2 { n++ } END { print n + 0 }'
}

total=$(wc -l <"$demo/questions.tsv" | tr -d ' ')
echo "== The pretrained model knows its little world, and not what a question is."
answers "$demo/model" "$work/before.txt"

echo "== Fine-tuning with weights, gradients and optimizer in host memory (cpu_offload=on)"
"$ferry" train "$demo/demo.yaml" "model=$demo/model" "data=$demo/train.jsonl" "output_dir=$work/on" cpu_offload=on \
	overwrite_output_dir=on
answers "$work/on/model" "$work/after.txt"

echo
echo "== Questions that are not among the training rows"
cut -f 1 "$demo/questions.tsv" | paste -d '\t' - "$work/before.txt" "$work/after.txt" | head -n 8 |
	awk -F '\t' '{ printf "%s\n  before: %s\n  after:  %s\n", $1, $2, $3 }'
echo "right: $(right "$work/before.txt") of $total before, $(right "$work/after.txt") of $total after"

echo
echo "== The same run with everything on the device (cpu_offload=off)"
"$ferry" train "$demo/demo.yaml" "model=$demo/model" "data=$demo/train.jsonl" "output_dir=$work/off" cpu_offload=off \
	overwrite_output_dir=on >"$work/off.log" 2>&1
for side in on off; do
	sed -n 's/.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2/p' "$work/$side/metrics.jsonl" >"$work/$side.losses"
done
if ! cmp -s "$work/on.losses" "$work/off.losses" || [ ! -s "$work/on.losses" ] ||
	! cmp -s "$work/on/model/model.safetensors" "$work/off/model/model.safetensors"; then
	echo "with and without offload differ: see $work/on and $work/off" >&2
	exit 1
fi
echo "losses and gradient norms of all $(wc -l <"$work/on.losses" | tr -d ' ') logged steps are equal to the last digit,"
echo "and so are the trained weights, byte for byte"
echo "the result is a HuggingFace directory: $work/on/model"
