#!/bin/sh
# load_quantized.sh: what quantizing while loading takes, and what a published quantized model takes in memory.
#
#     sh bench/load_quantized.sh [-n BYTES] [-d DIR]
#
#     -n BYTES  of the bf16 files that are quantized to nf4 (4400000000)
#     -d DIR    for the files (a new folder in /tmp), which are deleted at the end
#
# Prints processor and load, raw reads beside loading (`ferry bench load-nf4`), then the peak memory of `ferry eval` over
# a model of 1.1B parameters in block FP8 (make_fp8.py): its codes kept, and expanded. FERRY names the program.
set -eu

bytes=4400000000 folder=
while getopts n:d: option; do
	case $option in
	n) bytes=$OPTARG ;;
	d) folder=$OPTARG ;;
	*) sed -n '4,7p' "$0" >&2; exit 2 ;;
	esac
done
ferry=${FERRY:-build/ferry}
here=$(dirname "$0")
folder=${folder:-$(mktemp -d /tmp/load-quantized-XXXXXX)}
trap 'rm -rf "$folder"' EXIT

echo "processor: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) processors"
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
[ "$bytes" -eq 0 ] || "$ferry" bench load-nf4 count="$bytes"

python3 "$here/make_fp8.py" "$folder/model"
echo '{"input_ids": [1, 2, 3, 4, 5, 6, 7, 8], "labels": [1, 2, 3, 4, 5, 6, 7, 8]}' >"$folder/rows.jsonl"
ls -l "$folder/model/model.safetensors" | awk '{printf "files of the model in FP8: %.0f MiB\n", $5 / 1048576}'
for keys in "base_format=auto compute_dtype=bf16" "base_format=bf16 compute_dtype=bf16" \
	"base_format=auto compute_dtype=fp32" "base_format=bf16 compute_dtype=fp32"; do
	python3 - "$ferry" eval "model=$folder/model" "data=$folder/rows.jsonl" $keys --json <<'PEAK'
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
if done.returncode:
    sys.exit(done.stderr)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
print(" ".join(sys.argv[5:7]) + f": peak memory {peak} MiB, {done.stdout.strip()[:60]}")
PEAK
done
