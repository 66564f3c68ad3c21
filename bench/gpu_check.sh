#!/bin/sh
# gpu_check.sh: everything that is to be known about ferry on this machine's GPU, in one go and without a network.
#
#     sh bench/gpu_check.sh [-o OUT] [-b SECONDS] [-j JOBS] [-s STEP,STEP...]
#
#     -o OUT      folder for table.txt, results.json and logs.tar.gz (gpu_check_out)
#     -b SECONDS  for everything together (530): steps that would not end in time are cut or left out
#     -j JOBS     checks that run beside each other (by processors, at most 6); benchmarks run alone
#     -s STEPS    only these: topo ops engine golden sanitizer copy kernels offload peers
#
# From a bundle (scripts/bundle.sh) as it lies there, or from a checkout after
# `cmake --build build --target ferry test_golden cuda_tests`. FERRY names another program, FERRY_TESTS the folder of
# the test programs, FERRY_SHARED the one that has golden/. DEVICE=host tries the script itself where there is no
# GPU: what needs one is left out, shapes are small.
#
# Exit: 0 all passed; 1 something failed or was cut off (table.txt says what); 2 usage; 77 no GPU, nothing checked.
set -u

usage() {
	sed -n '4,9p' "$0" >&2
	exit 2
}

out=gpu_check_out budget=530 jobs='' steps=topo,ops,engine,golden,sanitizer,copy,kernels,offload,peers
while getopts o:b:j:s: option; do
	case $option in
	o) out=$OPTARG ;;
	b) budget=$OPTARG ;;
	j) jobs=$OPTARG ;;
	s) steps=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -eq 0 ] || usage
case $budget$jobs in
*[!0-9]* | '') usage ;;
esac

# ---- where things are ----

root=$(cd "$(dirname "$0")/.." && pwd) || exit 2
device=${DEVICE:-cuda}
if [ -x "$root/bin/ferry" ]; then
	ferry=${FERRY:-$root/bin/ferry} tests=${FERRY_TESTS:-$root/bin} shared=${FERRY_SHARED:-$root/share}
else
	ferry=${FERRY:-$root/build/ferry} tests=${FERRY_TESTS:-$root/build/tests} shared=${FERRY_SHARED:-$root/../shared}
fi
if [ ! -x "$ferry" ]; then
	echo "gpu_check.sh: $ferry is not there: build it (make), or name it with FERRY=" >&2
	exit 2
fi
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
work=$(mktemp -d) || exit 2
mkdir "$work/logs" "$work/steps"
trap 'rm -rf "$work"' EXIT
trap 'echo "gpu_check.sh: interrupted; what is known so far:" >&2; finish 1' INT TERM HUP

processors=$(nproc 2>/dev/null || echo 2)
if [ -z "$jobs" ]; then
	jobs=$((processors / 2 > 6 ? 6 : processors / 2))
fi
[ "$jobs" -ge 1 ] || jobs=1
export FERRY_BINARY="$ferry" FERRY_SHARED="$shared" FERRY_SOURCE="$root" FERRY_TEST_DEVICE="$device"
begin=$(date +%s)
kept=0 # seconds of the budget that only later steps may use

left() {
	echo $((budget - ($(date +%s) - begin)))
}

wants() {
	case ,$steps, in
	*,"$1",*) return 0 ;;
	esac
	return 1
}

# ---- steps ----

# note NAME STATUS SECONDS: one line of the table; statuses: passed, failed, cut (by its time), absent (what it needs is
# not on this machine), left-out (no time)
note() {
	printf '%s %s %s\n' "$1" "$2" "$3" >"$work/steps/$1"
	printf '%-28s %-8s %4s s\n' "$1" "$2" "$3"
	[ -n "$is_worker" ] || report # what ends this script from outside leaves a table
}
is_worker=

# step NAME LIMIT COMMAND...: runs it under its time limit, or what is left of the budget less what is kept for later
# steps; stdout and stderr into logs/NAME.log, but for benchmarks and peers, whose stdout is JSON
step() {
	name=$1 limit=$2
	shift 2
	rest=$(($(left) - kept))
	if [ "$rest" -lt 8 ]; then
		note "$name" left-out 0
		return
	fi
	[ "$limit" -le "$rest" ] || limit=$rest
	at=$(date +%s) code=0
	case $name in
	copy | kernels | kernels-* | offload-* | topo | peer-*)
		$timeout "$limit" "$@" >"$work/$name.json" 2>"$work/logs/$name.log" &
		;;
	*)
		$timeout "$limit" "$@" >"$work/logs/$name.log" 2>&1 &
		;;
	esac
	child=$!
	wait "$child" || code=$? # in the background, so that a signal is heard at once
	child=
	seconds=$(($(date +%s) - at))
	case $code in
	0) note "$name" passed $seconds ;;
	124 | 137) note "$name" cut $seconds ;;
	*) note "$name" failed $seconds ;;
	esac
	printf '\nexit code %s after %s s of at most %s\n' "$code" "$seconds" "$limit" >>"$work/logs/$name.log"
}
child=
timeout='timeout -k 5'
command -v timeout >/dev/null 2>&1 || timeout=without_limit

# shellcheck disable=SC2317 # called by its name in $timeout
without_limit() {
	shift
	"$@"
}

# Lines of $work/queue are NAME LIMIT COMMAND...; so many workers take every jobs-th line each.
queue() {
	echo "$*" >>"$work/queue"
}
drop_child() {
	[ -z "$child" ] || kill "$child" 2>/dev/null
}
workers=
run_queue() {
	[ -f "$work/queue" ] || return 0
	worker=0
	while [ "$worker" -lt "$jobs" ]; do
		(
			is_worker=yes
			trap - EXIT
			trap 'drop_child; exit 1' INT TERM HUP
			awk -v n="$jobs" -v w="$worker" 'NR % n == w' "$work/queue" >"$work/queue.$worker"
			while read -r line; do
				# names and paths of ours have no blanks but where root has them: set by eval
				eval "step $line" </dev/null
			done <"$work/queue.$worker"
		) &
		workers="$workers $!"
		worker=$((worker + 1))
	done
	wait
	workers=
	rm -f "$work"/queue*
	report
}

# ---- the report ----

json_or_null() {
	case $(tail -n 1 "$1") in
	'{'*'}') tail -n 1 "$1" ;; # libraries may have said something before
	*) echo null ;;
	esac
}

write_json() {
	printf '{"budget_s": %s, "seconds": %s, "device": "%s",\n"steps": [' "$budget" "$(($(date +%s) - begin))" "$device"
	separator=
	for file in "$work"/steps/*; do
		[ -f "$file" ] || continue
		read -r name status seconds <"$file"
		printf '%s\n  {"name": "%s", "status": "%s", "seconds": %s}' "$separator" "$name" "$status" "$seconds"
		separator=,
	done
	printf '],\n"results": {'
	separator=
	for file in "$work"/*.json; do
		[ -f "$file" ] || continue
		printf '%s\n"%s": ' "$separator" "$(basename "$file" .json)"
		json_or_null "$file"
		separator=,
	done
	printf '}}\n'
}

write_table() {
	echo "ferry on $device: $("$ferry" --version 2>/dev/null | head -n 1), $(date -u '+%Y-%m-%d %H:%M UTC')"
	grep -E '^(GPU|built|driver|library|device|processor|host memory)' "$work/logs/machine.log" 2>/dev/null
	echo
	cat "$work"/steps/* 2>/dev/null | awk '
		{ printf "%-28s %-8s %4s s\n", $1, $2, $3; count[$2]++ }
		END { for (s in count) printf "%s%d %s", n++ ? ", " : "", count[s], s; printf "\n" }'
	for file in "$work"/steps/*; do
		[ -f "$file" ] || continue
		read -r name status seconds <"$file"
		case $status in
		failed | cut)
			[ -f "$work/logs/$name.log" ] || continue
			printf '\n== %s %s; the end of its log:\n' "$name" "$status"
			grep -vE '^\[ +(OK|RUN)' "$work/logs/$name.log" | tail -n 15
			;;
		esac
	done
	for file in "$work/copy.json" "$work/kernels.json" "$work"/kernels-*.json "$work"/offload-*.json; do
		name=$(basename "$file" .json)
		if [ -f "$work/steps/$name" ] && grep -q ' passed ' "$work/steps/$name"; then
			printf '\n== %s\n' "$name"
			sed '/^exit code /d' "$work/logs/$name.log"
		fi
	done
	for file in "$work"/peer-*.json; do
		[ -s "$file" ] || continue
		printf '\n== %s\n' "$(basename "$file" .json)"
		tail -n 1 "$file"
	done
}

report() {
	write_json >"$work/report" && mv "$work/report" "$out/results.json"
	write_table >"$work/report" && mv "$work/report" "$out/table.txt"
}

finish() {
	trap '' INT TERM HUP
	drop_child
	# shellcheck disable=SC2086 # a list of process ids
	[ -z "$workers" ] || kill $workers 2>/dev/null
	report
	tar -C "$work" -cf - logs | gzip >"$out/logs.tar.gz"
	echo
	cat "$out/table.txt"
	echo
	echo "$out: table.txt, results.json, logs.tar.gz; $(($(date +%s) - begin)) s"
	exit "$1"
}

# ---- is there a GPU at all ----

small=
if [ "$device" = cuda ]; then
	if ! $timeout 90 "$ferry" bench copy device=cuda count=65536 --json >/dev/null 2>"$work/logs/device.log"; then
		[ -s "$work/logs/device.log" ] || echo "a copy of 64 KiB did not end in 90 s" >"$work/logs/device.log"
		echo "gpu_check.sh: no GPU can be used here, nothing was checked:" >&2
		sed 's/^/    /' "$work/logs/device.log" >&2
		exit 77
	fi
else
	small=yes
fi

# ---- checks, beside each other ----

# Checks that are slow or hang leave that much of the budget to the benchmarks.
if wants copy || wants kernels || wants offload || wants peers; then
	kept=$((budget * 45 / 100))
fi
ops=$("$tests/cuda_tests" 2>/dev/null | grep '^ops_')
if [ -z "$ops" ] && [ "$device" = cuda ] && { wants ops || wants engine || wants sanitizer; }; then
	echo "gpu_check.sh: $tests/cuda_tests is not there or does not run" >&2
	note cuda_tests failed 0
fi

if wants topo; then
	step topo 60 "$ferry" topo --json
fi
$timeout 60 "$ferry" topo >"$work/logs/machine.log" 2>&1
has_library() {
	grep -q "^library  *$1 [0-9]" "$work/logs/machine.log"
}
# other_way STEP LIBRARY COMMAND...: a check of what only runs on request, where the library is there
other_way() {
	name=$1 library=$2
	shift 2
	if has_library "$library"; then
		queue "$name" 150 env "$@"
	else
		note "$name" absent 0
	fi
}
if wants ops && [ "$device" = cuda ]; then
	for name in $ops; do
		queue "ops-${name#ops_}" 150 "'$tests/cuda_tests'" "$name"
	done
	other_way ops-attention-cudnn cuDNN FERRY_ATTENTION=cudnn "'$tests/cuda_tests'" ops_attention
	other_way ops-matmul-plain cuBLASLt FERRY_MATMUL=plain "'$tests/cuda_tests'" ops_matmul
fi
# on and off, any budget, updates inside backward or not: the same bits; `off` updates with the GPU's AdamW, `on`
# with the host's
if wants engine && [ "$device" = cuda ]; then
	queue engine-bits 150 "'$tests/cuda_tests'" engine
	queue engine-save 150 "'$tests/cuda_tests'" engine_snapshot
	other_way engine-nccl NCCL FERRY_NCCL=1 "'$tests/cuda_tests'" engine
fi
if wants golden; then
	if [ -d "$shared/golden" ]; then
		for model in gpt2 gpt_neox llama2 llama3 mistral qwen2 qwen3; do
			queue "golden-$model" 150 env "FERRY_TEST_MODELS=$model" "'$tests/test_golden'"
		done
	else
		note golden absent 0
	fi
fi
run_queue

sanitizer=
for place in "$(command -v compute-sanitizer || true)" "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
	/usr/local/cuda*/bin/compute-sanitizer /opt/cuda/bin/compute-sanitizer; do
	if [ -n "$place" ] && [ -x "$place" ]; then
		sanitizer=$place
		break
	fi
done
if wants sanitizer && [ "$device" = cuda ]; then
	if [ -z "$sanitizer" ]; then
		note sanitizer absent 0
	else
		for tool in memcheck racecheck; do
			for name in $ops; do
				queue "$tool-${name#ops_}" 75 env FERRY_TEST_SPARING=30 "'$sanitizer'" --tool "$tool" \
					--error-exitcode 86 "'$tests/cuda_tests'" "$name"
			done
		done
		run_queue
	fi
fi

# ---- benchmarks, one at a time ----

kept=0

# offload MODEL TOKENS MICRO_BATCHES LIMIT: tokens of a micro-batch, and how many make a step
offload() {
	name=offload-$1
	[ "$3" = 1 ] || name=$name-x$3
	step "$name" "$4" "$ferry" bench offload "device=$device" "models=$1" "micro_batch_tokens=$2" \
		"gradient_accumulation_steps=$3" count=4 --json
}

python=$(command -v python3 || true)
if [ -n "$python" ] && ! "$python" -c 'import torch' 2>/dev/null; then
	python=
fi
# peer MODEL TOKENS MODE LIMIT
peer() {
	step "peer-$3-$1" "$4" "$python" "$root/bench/peers/torch_train.py" --model "$1" --tokens "$2" --mode "$3" --steps 4 \
		--device "$([ "$device" = cuda ] && echo cuda || echo cpu)"
}

if [ -n "$small" ]; then
	wants copy && step copy 60 "$ferry" bench copy "device=$device" count=1048576 --json
	wants kernels && step kernels 60 "$ferry" bench kernels "device=$device" count=64 --json
	wants offload && offload tiny 64,256 1 60
	wants offload && offload tiny 64 2 60
	if wants peers && [ -n "$python" ]; then
		peer tiny 64 plain 60
		peer tiny 64 fsdp2-offload 60
	fi
else
	wants copy && step copy 60 "$ferry" bench copy "device=$device" --json
	wants kernels && step kernels 90 "$ferry" bench kernels "device=$device" --json
	if wants kernels && has_library cuDNN; then
		step kernels-cudnn 45 env FERRY_ATTENTION=cudnn "$ferry" bench kernels "device=$device" models=attention --json
	fi
	wants offload && offload 8b-8l 16384 1 100
	if wants peers && [ -n "$python" ]; then
		peer 8b-8l 16384 fsdp2-offload 100
	fi
	wants offload && offload 8b-8l 16384 4 100
	# all of it, which needs about 112 GB of host memory, and says so where that is not there
	wants offload && offload 8b 16384 1 200
	if wants peers && [ -n "$python" ]; then
		peer 1b 16384 plain 60
		peer 1b 16384 fsdp2-offload 60
	fi
	wants offload && offload 1b 4096,16384 1 90
fi
if wants peers && [ -z "$python" ]; then
	note peers absent 0
fi
for file in "$work"/offload-*.json; do # losses of on and off, to the bit
	[ -s "$file" ] || continue
	if grep -q '"same_losses": false' "$file"; then
		note "losses-$(basename "$file" .json)" failed 0
	fi
done

if cat "$work"/steps/* 2>/dev/null | awk '$2 != "passed" && $2 != "absent" { bad = 1 } END { exit !bad }'; then
	finish 1
fi
finish 0
