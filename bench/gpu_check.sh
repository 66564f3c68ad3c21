#!/bin/sh
# gpu_check.sh: everything that is to be known about ferry on this machine's GPU, in one go and without a network.
#
#     sh bench/gpu_check.sh [-o OUT] [-b SECONDS] [-j JOBS] [-m BYTES] [-s STEP,STEP...]
#
#     -o OUT      folder for table.txt, results.json and logs.tar.gz (gpu_check_out)
#     -b SECONDS  for everything together (455: with 25 s to unpack a bundle it is 480); steps that would not end in
#                 time are cut or left out
#     -j JOBS     checks that run beside each other (by processors, at most 6); benchmarks run alone
#     -m BYTES    host memory that benchmarks may take (ram_budget), where more can be had than the system says
#     -s STEPS    only these: topo probe ops engine ranks kernels peers offload copy golden memcheck racecheck
#                 (all but racecheck, which takes a run of its own)
#
# From a bundle (scripts/bundle.sh) as it lies there, or from a checkout after
# `cmake --build build --target ferry test_golden cuda_tests`. FERRY names another program, FERRY_TESTS the folder of
# the test programs, FERRY_SHARED the one that has golden/. DEVICE=host tries the script itself where there is no
# GPU: what needs one is left out, shapes are small. SHAPES=small has small shapes on a GPU too.
#
# A step that fails, crashes or hangs costs its own result: the next one runs, and table, logs and results are written
# whatever happens. Nothing is waited for without a limit, not even a process that the driver does not let end.
#
# Exit: 0 all passed; 1 something failed, was cut off or got stuck (table.txt says what); 2 usage; 77 there is no
# NVIDIA GPU (/dev/nvidia0) here, and nothing was checked.
set -u

usage() {
	sed -n '4,14p' "$0" >&2
	exit 2
}

out=gpu_check_out budget=455 jobs='' memory='' steps=topo,probe,ops,engine,ranks,kernels,peers,offload,copy,golden,memcheck
while getopts o:b:j:m:s: option; do
	case $option in
	o) out=$OPTARG ;;
	b) budget=$OPTARG ;;
	j) jobs=$OPTARG ;;
	m) memory=ram_budget=$OPTARG ;;
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
device=${DEVICE:-cuda} gpu_file=${GPU_FILE:-/dev/nvidia0} limit_most=${STEP_SECONDS:-600}
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
mkdir "$work/logs" "$work/steps" "$work/codes"
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

# note NAME STATUS SECONDS [WHY]: one line of the table; statuses: passed, failed, cut (by its time), stuck (it could not
# be ended: it still waits for the driver), absent (what it needs is not on this machine), left-out (no time)
note() {
	printf '%s %s %s %s\n' "$1" "$2" "$3" "${4:-}" >"$work/steps/$1"
	printf '%-28s %-8s %4s s%s\n' "$1" "$2" "$3" "${4:+  $4}"
	[ -n "$is_worker" ] || report # what ends this script from outside leaves a table
}
is_worker=

# limited NAME LIMIT STDOUT STDERR COMMAND...: sets code to its exit code; 124 or 137 cut by its time; stuck: it did not
# end though it was killed, and is left behind. Its end is looked for and not waited for: that may take for ever.
limited() {
	child_name=$1 child_limit=$2 child_out=$3 child_err=$4
	shift 4
	[ "$child_limit" -le "$limit_most" ] || child_limit=$limit_most
	rm -f "$work/codes/$child_name"
	(
		trap - EXIT
		trap '' INT HUP
		$timeout "$child_limit" "$@" >"$child_out" 2>"$child_err" </dev/null &
		echo $! >"$work/codes/$child_name.pid"
		ended=0
		wait $! || ended=$?
		echo $ended >"$work/codes/$child_name.new"
		mv "$work/codes/$child_name.new" "$work/codes/$child_name"
	) >/dev/null 2>&1 &
	child_end=$(($(date +%s) + child_limit + 10)) child_looks=0
	while [ ! -s "$work/codes/$child_name" ]; do
		child_looks=$((child_looks + 1))
		[ $((child_looks % 10)) -ne 0 ] || [ "$(date +%s)" -lt "$child_end" ] || break
		sleep 0.1
	done
	code=$(cat "$work/codes/$child_name" 2>/dev/null || echo stuck)
	rm -f "$work/codes/$child_name.pid"
}
timeout='timeout -k 5'
command -v timeout >/dev/null 2>&1 || timeout=without_timeout

# shellcheck disable=SC2317 # called by its name in $timeout
without_timeout() {
	seconds=$1
	shift
	"$@" &
	(sleep "$seconds" && kill -9 $! 2>/dev/null) >/dev/null 2>&1 &
	wait $!
}

# step NAME LIMIT COMMAND...: runs it under its time limit, or what is left of the budget less what is kept for later
# steps; stdout and stderr into logs/NAME.log, but for benchmarks and peers, whose stdout is JSON
step() {
	name=$1 limit=$2
	shift 2
	rest=$(($(left) - kept))
	if [ "$rest" -lt 8 ]; then
		note "$name" left-out 0 'no time was left'
		return
	fi
	[ "$limit" -le "$rest" ] || limit=$rest
	# once a process is stuck in the driver, others will be: they may show otherwise, in little time
	[ ! -f "$work/stuck" ] || [ "$limit" -le 20 ] || limit=20
	at=$(date +%s)
	result=$work/$name.json
	case $name in
	probe | copy | kernels | kernels-* | offload-* | topo | peer-*) ;;
	*) result=$work/logs/$name.out ;;
	esac
	limited "$name" "$limit" "$result" "$work/logs/$name.log" "$@"
	seconds=$(($(date +%s) - at))
	[ "$result" = "$work/$name.json" ] || { cat "$result" >>"$work/logs/$name.log" && rm -f "$result"; }
	case $code in
	0) note "$name" passed $seconds && rm -f "$work/stuck" ;;
	124 | 137) note "$name" cut $seconds ;;
	stuck) note "$name" stuck $seconds && touch "$work/stuck" ;;
	*) note "$name" failed $seconds ;;
	esac
	printf '\nexit code %s after %s s of at most %s\n' "$code" "$seconds" "$limit" >>"$work/logs/$name.log"
}

# Lines of $work/queue are NAME LIMIT COMMAND...; so many workers take every jobs-th line each.
queue() {
	echo "$*" >>"$work/queue"
}
drop_children() {
	cat "$work"/codes/*.pid 2>/dev/null | while read -r pid; do
		kill "$pid" 2>/dev/null
	done
}
workers=
run_queue() {
	[ -f "$work/queue" ] || return 0
	worker=0
	while [ "$worker" -lt "$jobs" ]; do
		(
			is_worker=yes
			trap - EXIT
			trap 'exit 1' INT TERM HUP
			awk -v n="$jobs" -v w="$worker" 'NR % n == w' "$work/queue" >"$work/queue.$worker"
			while read -r line; do
				# names and paths of ours have no blanks but where root has them: set by eval
				eval "step $line" </dev/null
			done <"$work/queue.$worker"
			: >"$work/worker.$worker"
		) &
		workers="$workers $!"
		worker=$((worker + 1))
	done
	while [ "$worker" -gt 0 ]; do
		worker=$((worker - 1))
		while [ ! -f "$work/worker.$worker" ] && [ "$(left)" -gt -30 ]; do # each step has its limit
			sleep 0.3
		done
	done
	workers=
	rm -f "$work"/queue* "$work"/worker.*
	report
}

# ---- the report ----

write_json() {
	printf '{"budget_s": %s, "seconds": %s, "device": "%s",\n"steps": [' "$budget" "$(($(date +%s) - begin))" "$device"
	separator=
	for file in "$work"/steps/*; do
		[ -f "$file" ] || continue
		read -r name status seconds why <"$file"
		printf '%s\n  {"name": "%s", "status": "%s", "seconds": %s, "why": "%s"}' "$separator" "$name" "$status" \
			"$seconds" "$why"
		separator=,
	done
	printf '],\n"results": {'
	set -- "$work"/*.json
	[ -f "$1" ] || set -- /dev/null
	awk '
		{ last[FILENAME] = $0 } # libraries may have said something before
		END { for (i = 1; i < ARGC; i++) { name = ARGV[i]
			if (!sub(/\.json$/, "", name)) continue
			sub(/.*\//, "", name)
			printf "%s\n\"%s\": %s\n", n++ ? "," : "", name, last[ARGV[i]] ~ /^[{].*[}]$/ ? last[ARGV[i]] : "null" } }' "$@"
	printf '}}\n'
}

# the columns that people read first; logs and results.json have all of them
for_people() {
	awk '
		BEGIN { split("model tokens micro_batches way fits step_s tokens_per_s model_tflops of_matmul busy.compute" \
			" wait_ms.h2d device_plan_bytes store_bytes", list); for (i in list) wanted[list[i]] = 1 }
		/^exit code / || /^cuda device: / { next }
		/^settings$/ { print; getline; n = 0; at = 1; is_settings = 1
			while (match(substr($0, at), /[^ ]+/)) { name[++n] = substr($0, at + RSTART - 1, RLENGTH)
				at += RSTART + RLENGTH - 1; end[n] = at - 1 } }
		/^[^ ]/ { is_settings = 0 }
		is_settings { line = why = ""
			for (i = 1; i <= n; i++) { cell = substr($0, end[i - 1] + 1, end[i] - end[i - 1])
				if (name[i] in wanted) line = line cell
				if (name[i] == "why" && cell ~ /[a-z]/) { sub(/^ +/, "", cell); why = cell } }
			print line
			if (why != "why" && why != "") print "    " why
			next }
		{ print }' "$1"
}

write_table() {
	echo "ferry on $device: $version, $(date -u '+%Y-%m-%d %H:%M UTC')"
	grep -E '^(GPU|built|driver|library|device|processor|host memory)' "$work/logs/machine.log" 2>/dev/null
	echo
	cat "$work"/steps/* 2>/dev/null | awk '
		{ why = $0; sub(/^[^ ]* [^ ]* [^ ]* /, "", why)
			printf "%-28s %-8s %4s s%s\n", $1, $2, $3, why == "" ? "" : "  " why; count[$2]++ }
		END { for (s in count) printf "%s%d %s", n++ ? ", " : "", count[s], s; printf "\n" }'
	for file in "$work"/steps/*; do
		[ -f "$file" ] || continue
		read -r name status seconds why <"$file"
		case $status in
		failed | cut | stuck)
			[ -f "$work/logs/$name.log" ] || continue
			printf '\n== %s %s; the end of its log:\n' "$name" "$status"
			awk '!/^\[ +(OK|RUN)/ { line[n++ % 15] = $0 }
				END { for (i = n > 15 ? n - 15 : 0; i < n; i++) print line[i % 15] }' "$work/logs/$name.log"
			;;
		esac
	done
	for file in "$work/probe.json" "$work/kernels.json" "$work"/kernels-*.json "$work"/offload-*.json "$work/copy.json"; do
		name=${file##*/} name=${name%.json}
		status=
		[ ! -f "$work/steps/$name" ] || read -r _ status _ <"$work/steps/$name"
		if [ "$status" = passed ]; then
			printf '\n== %s\n' "$name"
			for_people "$work/logs/$name.log"
		fi
	done
	for file in "$work"/peer-*.json; do
		[ -s "$file" ] || continue
		key=${file##*/}
		printf '\n== %s\n' "${key%.json}"
		tail -n 1 "$file"
	done
}

report() { # in subshells: the caller has variables of the same names
	(write_json) >"$work/report" && mv "$work/report" "$out/results.json"
	(write_table) >"$work/report" && mv "$work/report" "$out/table.txt"
}

finish() {
	trap '' INT TERM HUP
	# shellcheck disable=SC2086 # lists of process ids
	kill $workers $beside 2>/dev/null
	drop_children
	report
	tar -C "$work" -cf - logs | gzip >"$out/logs.tar.gz"
	echo
	cat "$out/table.txt"
	echo
	echo "$out: table.txt, results.json, logs.tar.gz; $(($(date +%s) - begin)) s"
	exit "$1"
}

# ---- the machine: before anything can fail ----

version=unknown beside=
echo "gpu_check.sh: at most $budget s; what is known so far is in $out/table.txt"
limited version 20 "$work/version" "$work/logs/version.log" "$ferry" --version
started=$code
[ ! -s "$work/version" ] || version=$(head -n 1 "$work/version")
(sleep $((budget + 20)) && kill -TERM $$) >/dev/null 2>&1 & # whatever is wrong with the limits below
beside=$!

{
	uname -a
	cat /etc/os-release /proc/meminfo /proc/cmdline 2>/dev/null
	cat /proc/self/limits
	cat /sys/fs/cgroup/memory.max /sys/kernel/mm/transparent_hugepage/enabled /proc/driver/nvidia/version 2>/dev/null
	ls -l /dev/nvidia* 2>&1
	env | grep -E '^(CUDA|NVIDIA|LD_LIBRARY|FERRY|VIRTUAL_ENV|CONDA_PREFIX|PATH)' || true
} >"$work/logs/system.log" 2>&1
if [ "$started" = 126 ] || [ "$started" = 127 ] ||
	grep -qE 'GLIBC(XX)?_|shared librar' "$work/logs/version.log"; then
	{
		cat "$work/logs/version.log"
		echo "$ferry does not start: it needs glibc 2.35 or newer (Ubuntu 22.04, Debian 12) and libstdc++;" \
			"this system has $(getconf GNU_LIBC_VERSION 2>/dev/null || echo 'another C library')"
	} >"$work/logs/start.log"
	note start failed 0
	echo "gpu_check.sh: nothing was checked:" >&2
	tail -n 1 "$work/logs/start.log" >&2
	finish 1
fi
if [ "$device" = cuda ] && command -v nvidia-smi >/dev/null 2>&1; then
	limited nvidia-smi 20 "$work/logs/nvidia-smi.log" "$work/logs/nvidia-smi.err" nvidia-smi -q
	limited nvidia-smi 20 "$work/logs/nvidia-topo.log" "$work/logs/nvidia-smi.err" nvidia-smi topo -m
fi
case $([ "$device" = cuda ] && sed -n 's/^ *Compute Mode *: *//p' "$work/logs/nvidia-smi.log" 2>/dev/null) in
*Exclusive*) # a second process on the GPU would be refused
	jobs=1
	echo 'the GPU is in exclusive compute mode: checks run one at a time'
	;;
esac
if wants topo; then
	step topo 60 "$ferry" topo --json
fi
limited machine 60 "$work/logs/machine.log" "$work/logs/machine.err" "$ferry" topo
has_library() {
	grep -q "^library  *$1 [0-9]" "$work/logs/machine.log"
}

small=yes
if [ "$device" = cuda ]; then
	[ "${SHAPES:-}" = small ] || small=
	# the first use of a library reads it from a cold disk
	sed -n 's/^library  *[a-zA-Z]* [0-9.]*, \(\/[^ ]*\).*/\1/p' "$work/logs/machine.log" | while read -r file; do
		cat "$file" >/dev/null 2>&1
	done &
	beside="$beside $!"
	probe_bytes=
	[ -z "$small" ] || probe_bytes=count=65536
	if wants probe || [ ! -e "$gpu_file" ]; then
		step probe 60 "$ferry" bench gpu $probe_bytes --json
		if [ ! -e "$gpu_file" ] && ! grep -q passed "$work/steps/probe"; then
			echo "gpu_check.sh: there is no NVIDIA GPU here, nothing was checked:" >&2
			sed -n '/./ { s/^/    /p; q; }' "$work/logs/probe.log" >&2
			finish 77
		fi
	fi
	if ! has_library cuBLASLt; then
		{
			echo 'Without cuBLASLt every matrix product runs on a plain kernel, many times slower: no figure below'
			echo 'says anything about ferry on this GPU. Install it, or set FERRY_LIBRARY_PATH to its directory.'
			grep -i 'cuBLASLt' "$work/logs/machine.log"
		} >"$work/logs/libraries.log"
		note libraries failed 0
	fi
fi

# ---- checks, beside each other ----

# Checks that are slow or hang leave that much of the budget to the benchmarks.
if wants kernels || wants offload || wants peers; then
	kept=$((budget * 55 / 100))
fi
limited list 20 "$work/list" "$work/logs/list.log" "$tests/cuda_tests"
ops=$(grep '^ops_' "$work/list" 2>/dev/null)
if { [ "$code" != 0 ] || [ -z "$ops" ]; } && [ "$device" = cuda ] && { wants ops || wants engine || wants memcheck || wants racecheck; }; then
	echo "gpu_check.sh: $tests/cuda_tests is not there or does not run" >&2
	cp "$work/logs/list.log" "$work/logs/cuda_tests.log"
	note cuda_tests failed 0
fi

# other_way STEP LIBRARY COMMAND...: a check of what only runs on request, where the library is there
other_way() {
	name=$1 library=$2
	shift 2
	if has_library "$library"; then
		queue "$name" 100 env "$@"
	else
		note "$name" absent 0 "$library was not found"
	fi
}
if wants ops && [ "$device" = cuda ]; then
	for name in $ops; do
		queue "ops-${name#ops_}" 100 "'$tests/cuda_tests'" "$name"
	done
	other_way ops-attention-cudnn cuDNN FERRY_TEST_ATTENTION=cudnn "'$tests/cuda_tests'" ops_attention
	other_way ops-matmul-plain cuBLASLt FERRY_MATMUL=plain "'$tests/cuda_tests'" ops_matmul
fi
# on and off, any budget, updates inside backward or not: the same bits; `off` updates with the GPU's AdamW, `on`
# with the host's
if wants engine && [ "$device" = cuda ]; then
	queue engine-bits 100 "'$tests/cuda_tests'" engine
	queue engine-save 100 "'$tests/cuda_tests'" engine_snapshot
	other_way engine-nccl NCCL FERRY_NCCL=1 "'$tests/cuda_tests'" engine
fi
run_queue

# Two ranks on two GPUs: NCCL between devices, which nothing else here does
if wants ranks && [ "$device" = cuda ]; then
	if [ "$(grep -c '^GPU [0-9]' "$work/logs/machine.log")" -lt 2 ]; then
		note ranks absent 0 'there is one GPU'
	elif ! has_library NCCL; then
		note ranks absent 0 'NCCL was not found'
	elif [ ! -d "$shared/golden" ]; then
		note ranks absent 0 "no $shared/golden"
	else
		step ranks 60 "$ferry" train "model=$shared/golden/llama3/hf" "data=$shared/golden/llama3/train.jsonl" \
			"output_dir=$work/ranks" max_steps=3 ranks=2 device=cuda
	fi
fi

# ---- benchmarks, one at a time ----

kept=0

# offload MODEL TOKENS MICRO_BATCHES LIMIT WAYS: tokens of a micro-batch, how many make a step, and what is compared
offload() {
	name=offload-$1
	[ "$3" = 1 ] || name=$name-x$3
	# shellcheck disable=SC2086 # a key or nothing
	step "$name" "$4" "$ferry" bench offload "device=$device" "models=$1" "micro_batch_tokens=$2" \
		"gradient_accumulation_steps=$3" "ways=$5" count=4 $memory --json
}

python=
if wants peers && command -v python3 >/dev/null 2>&1; then
	limited torch 60 /dev/null "$work/logs/torch.log" python3 -c 'import torch'
	[ "$code" != 0 ] || python=python3
fi
# peer MODEL TOKENS MODE LIMIT
peer() {
	step "peer-$3-$1" "$4" "$python" "$root/bench/peers/torch_train.py" --model "$1" --tokens "$2" --mode "$3" --steps 4 \
		--device "$device_of_torch"
}
device_of_torch=$([ "$device" = cuda ] && [ -z "${SHAPES:-}" ] && echo cuda || echo cpu)

if [ -n "$small" ]; then
	wants kernels && step kernels 60 "$ferry" bench kernels "device=$device" count=64 --json
	[ -z "$python" ] || step peer-ops 60 "$python" "$root/bench/peers/torch_ops.py" --small --device "$device_of_torch"
	wants offload && offload tiny 64,256 1 60 all
	wants offload && offload tiny 64 2 60 filled
	[ -z "$python" ] || peer tiny 64 fsdp2-offload 60
	wants copy && step copy 60 "$ferry" bench copy "device=$device" count=1048576 --json
else
	wants kernels && step kernels 75 "$ferry" bench kernels "device=$device" --json
	if wants kernels && has_library cuDNN; then
		step kernels-cudnn 30 "$ferry" bench kernels "device=$device" attention=cudnn models=attention --json
		# figures of ferry's own kernel must not stand under cuDNN's name; the rows in fp32 are never cuDNN's
		if grep "ferry's own kernel" "$work/logs/kernels-cudnn.log" | grep -v 'in fp32 runs' \
			>"$work/logs/cudnn-refused.log"; then
			rm -f "$work/kernels-cudnn.json"
			note kernels-cudnn failed 0
			note cudnn-refused failed 0
		fi
	fi
	[ -z "$python" ] || step peer-ops 45 "$python" "$root/bench/peers/torch_ops.py" --device cuda
	wants offload && offload 8b-8l 16384 1 75 all
	# all of it, which needs about 112 GB of host memory, and says so where that is not there
	wants offload && offload 8b 16384 4 150 filled
	[ -z "$python" ] || peer 8b-8l 16384 fsdp2-offload 60
	wants copy && step copy 20 "$ferry" bench copy "device=$device" --json
fi
if wants peers && [ -z "$python" ]; then
	note peers absent 0 'python3 has no torch'
fi

# ---- checks again: what is left of the time ----

if wants golden; then
	if [ -d "$shared/golden" ]; then
		for model in llama3 qwen3 gpt2 mistral qwen2 gpt_neox llama2; do
			queue "golden-$model" 100 env "FERRY_TEST_MODELS=$model" "'$tests/test_golden'"
		done
	else
		echo "$shared/golden is not there: a bundle made with SHARED=DIR has it" >"$work/logs/golden.log"
		note golden absent 0 "no $shared/golden"
	fi
	run_queue
fi

sanitizer=
for place in "$(command -v compute-sanitizer || true)" "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
	/usr/local/cuda*/bin/compute-sanitizer /opt/cuda/bin/compute-sanitizer; do
	if [ -n "$place" ] && [ -x "$place" ]; then
		sanitizer=$place
		break
	fi
done
for tool in memcheck racecheck; do
	if [ "$device" != cuda ] || ! wants $tool; then
		continue
	fi
	if [ -z "$sanitizer" ]; then
		note $tool absent 0 'compute-sanitizer was not found'
		continue
	fi
	for name in $ops; do
		queue "$tool-${name#ops_}" 75 env FERRY_TEST_SPARING=30 "'$sanitizer'" --tool "$tool" \
			--error-exitcode 86 "'$tests/cuda_tests'" "$name"
	done
	run_queue
done

for file in "$work"/offload-*.json; do # losses of on and off, to the bit
	[ -s "$file" ] || continue
	if grep -q '"same_losses": false' "$file"; then
		note "losses-$(basename "$file" .json)" failed 0
	fi
done

# a product that ran on the plain kernel though cuBLASLt is there: what was measured is not what users get
if [ "$device" = cuda ] && has_library cuBLASLt &&
	cat "$work/logs/kernels.log" "$work"/logs/offload-*.log 2>/dev/null |
	grep "ferry's own kernel" >"$work/logs/products.log"; then
	note products failed 0
fi

if cat "$work"/steps/* 2>/dev/null | awk '$2 != "passed" && $2 != "absent" { bad = 1 } END { exit !bad }'; then
	finish 1
fi
finish 0
