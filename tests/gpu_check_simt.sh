#!/bin/sh
# gpu_check_simt.sh SOURCE WORK: bench/gpu_check.sh with the program itself on the emulated GPU, which FERRY names: real
# output of a probe, kernels and offload; what refuses to pin; and an emulated GPU that is lost under the benchmark.
set -u

source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/bin" || exit 1
# shellcheck disable=SC2016 # written as it is
printf '#!/bin/sh\n[ -n "${1:-}" ] || printf "engine\\nops_one\\n"\n' >"$work/bin/cuda_tests"
chmod +x "$work/bin/cuda_tests"
export FERRY_TESTS="$work/bin" GPU_FILE=/dev/null SHAPES=small

fail() {
	echo "gpu_check_simt.sh: $1" >&2
	cat "$out/table.txt" >&2
	exit 1
}

# check NAME STEPS
check() {
	out=$work/$1
	sh "$source/bench/gpu_check.sh" -o "$out" -b 300 -s "$2" >"$out.said" 2>&1
}

has() {
	grep -q "^$1 *$2 " "$out/table.txt" || fail "$1 is not told as $2"
}

check whole topo,probe,ops,engine,ranks,kernels,offload,copy
for step in topo probe ops-one engine-bits engine-save kernels offload-tiny offload-tiny-x2 copy; do
	has $step passed
done
has ranks absent
grep -q '^h2d_bounced .*GB/s' "$out/table.txt" || fail 'the probe is not in the table'
grep -q '"name": "product_again"' "$out/results.json" || fail 'the probe has no end'
gzip -t "$out/logs.tar.gz" || fail 'no logs'

FERRY_SIMT_NO_REGISTER=1 FERRY_SIMT_NO_ALLOC=1 check unpinned probe,copy
has probe passed
has copy passed
grep -q '^pin_huge .*cudaHostRegister: operation not supported' "$out/table.txt" || fail 'the reason is not in the table'

FERRY_SIMT_FAIL_WORK=300 check lost probe,copy
has probe failed
has copy failed
grep -q 'uncorrectable ECC error' "$out/table.txt" || fail 'the error is not in the table'
