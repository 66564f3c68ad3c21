#!/bin/sh
# gpu_check_stubs.sh SOURCE WORK: bench/gpu_check.sh from end to end with programs that stand for a GPU's. Each step
# hangs, crashes and fails: its own line in the table says so, the others pass, and table, results and logs are there.
# A process that cannot be ended is left behind; a signal leaves the table of what is known, and nothing that runs;
# without a GPU nothing is checked, and with one that does not work everything else still is.
set -u

source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/bin" "$work/path" "$work/golden" || exit 1
: >"$work/nvidia0"
export FERRY="$work/bin/ferry" FERRY_TESTS="$work/bin" FERRY_SHARED="$work" GPU_FILE="$work/nvidia0"
export STUB_HUNG="$work/hung" PATH="$work/path:$PATH"

# act NAME: what a step's program does; FAULT has NAME:hang, NAME:crash or NAME:fail
cat >"$work/act" <<'EOT'
act() {
	case " ${FAULT:-} " in
	*" $1:hang "*) echo $$ >"$STUB_HUNG"; exec sleep 600 ;;
	*" $1:crash "*) kill -SEGV $$ ;;
	*" $1:own "*) echo "it runs on ferry's own kernel" >&2 ;;
	*" $1:fp32 "*) echo "attention in fp32 runs on ferry's own kernel" >&2 ;;
	*" $1:old "*) echo "/lib/libm.so.6: version 'GLIBC_2.34' not found" >&2; exit 1 ;;
	*" $1:fail "*) echo 'a "quoted" \ text' >&2; exit 1 ;;
	esac
	return 0
}
EOT
cat >"$work/bin/ferry" <<EOT
#!/bin/sh
. "$work/act"
case "\$*" in
--version) act version && echo 'ferry 0' && exit ;;
topo) act machine
	printf 'library                cuBLASLt 13.0.2, $work/nvidia0\nlibrary                NCCL 2.28.9, $work/nvidia0\n'
	printf 'library                cuDNN 9.19.0, $work/nvidia0\nGPU 0  one\nGPU 1  two\n'
	exit ;;
topo*) act topo ;;
train*) act ranks ;;
*gpu*) act probe ;;
*attention*) act kernels-cudnn ;;
*kernels*) act kernels ;;
*8b-8l*) act offload-8b-8l ;;
*8b*) act offload-8b-x4 ;;
*copy*) act copy ;;
esac
printf 'a library speaks "first"\n{"is": ["json", 1]}\n'
EOT
cat >"$work/bin/cuda_tests" <<EOT
#!/bin/sh
. "$work/act"
if [ -n "\${MODE:-}" ] && [ -n "\${1:-}" ]; then # on such a GPU the second process fails
	mkdir "$work/alone" || exit 1
	sleep 0.3
	rmdir "$work/alone"
fi
case \${FERRY_NCCL:-}\${1:-list} in
list) act list && printf 'engine\nops_one\nops_two\n' ;;
ops_one) act ops-one ;;
1engine) act engine-nccl ;;
engine) act engine-bits ;;
esac
exit 0
EOT
# shellcheck disable=SC2016 # written as it is
printf '#!/bin/sh\n. "%s"\nact "golden-$FERRY_TEST_MODELS"\n' "$work/act" >"$work/bin/test_golden"
cat >"$work/path/python3" <<EOT
#!/bin/sh
. "$work/act"
case "\$*" in
-c*) act torch ;;
*torch_ops*) act peer-ops && echo '{"torch": 2}' ;;
*) act peer-fsdp2-offload-8b-8l && echo '{"torch": 2}' ;;
esac
EOT
# shellcheck disable=SC2016 # written as it is
printf '#!/bin/sh\n. "%s"\nact "memcheck-${6#ops_}"\n' "$work/act" >"$work/path/compute-sanitizer"
printf '#!/bin/sh\n. "%s"\nact nvidia-smi\necho "    Compute Mode                          : ${MODE:-Default}"\n' "$work/act" >"$work/path/nvidia-smi"
chmod +x "$work"/bin/* "$work"/path/*

fail() {
	echo "gpu_check_stubs.sh: ${FAULT:-no fault}: $1" >&2
	cat "$out/table.txt" "$out.said" >&2
	exit 1
}

# has NAME STATUS: the step's line in the table
has() {
	grep -q "^$1 *$2 " "$out/table.txt" || fail "$1 is not told as $2"
}

check_files() {
	[ -s "$out/table.txt" ] || fail 'no table'
	gzip -t "$out/logs.tar.gz" || fail 'no logs'
	tar -tzf "$out/logs.tar.gz" | grep -q logs/system.log || fail 'the machine is not in the logs'
	rm -rf "$out.told" && mkdir "$out.told" && tar -C "$out.told" -xzf "$out/logs.tar.gz"
	awk '/^exit code / && ++told[FILENAME] > 1 { print FILENAME; wrong = 1 } END { exit wrong }' "$out".told/logs/* ||
		fail 'a log has the exit code of another step'
	command -v /usr/bin/python3 >/dev/null 2>&1 || return 0
	/usr/bin/python3 -m json.tool "$out/results.json" >/dev/null || fail 'results.json is not JSON'
}

# check NAME OPTIONS...: one run into $out; sets code
check() {
	out=$work/out-$1
	shift
	code=0
	STEP_SECONDS=${limit:-2} sh "$source/bench/gpu_check.sh" -o "$out" -j 4 "$@" >"$out.said" 2>&1 || code=$?
}

# hangs RUN NAME...: they do, and cost no other step anything
hangs() {
	run=$1
	shift
	FAULT=$(printf ' %s:hang' "$@")
	export FAULT STUB_HUNG="$work/hung-$run"
	check "$run" -b 100
	check_files
	others=" $(awk '$2 ~ /^(failed|cut|stuck|left-out)$/ { print $1 }' "$out/table.txt" | tr '\n' ' ')"
	wanted=1
	for step; do
		case $step in
		version | nvidia-smi | torch) wanted=0 && continue ;; # none of them is a step
		machine) step=libraries ;;                            # it names them
		list) step=cuda_tests ;;                              # it names them
		*) has "$step" cut ;;
		esac
		case $others in
		*" $step "*) others="${others%%" $step "*} ${others#*" $step "}" ;;
		*) fail "$step passed" ;;
		esac
	done
	[ "$code" -eq "$wanted" ] || fail "the exit code is $code"
	[ -z "$(echo "$others" | tr -d ' ')" ] || fail "these did not pass: $others"
}

# ---- nothing is wrong ----

check none -b 100
[ "$code" -eq 0 ] || fail "the exit code is $code"
check_files
for name in topo probe ops-one ops-two ops-attention-cudnn ops-matmul-plain engine-bits engine-save engine-nccl ranks kernels \
	kernels-cudnn peer-ops offload-8b-8l peer-fsdp2-offload-8b-8l offload-8b-x4 copy golden-llama3 memcheck-one; do
	has "$name" passed
done
grep -q '"probe": {"is": \["json", 1\]}' "$out/results.json" || fail 'a result is missing'

# ---- a GPU that takes one process at a time ----

MODE=Exclusive_Process
export MODE
check exclusive -b 100 -s ops,engine
[ "$code" -eq 0 ] || fail "in exclusive mode the exit code is $code"
has ops-one passed
unset MODE

# ---- steps hang, every second one in a run; what other steps need hangs alone. Then all crash and fail by turns ----

steps='topo probe ops-one engine-bits engine-nccl ranks kernels kernels-cudnn peer-ops offload-8b-8l offload-8b-x4
	peer-fsdp2-offload-8b-8l copy golden-llama3 memcheck-one'
for turn in 0 1; do
	turns=
	for step in $steps; do
		turn=$((1 - turn))
		[ $turn -eq 1 ] || turns="$turns $step"
	done
	# shellcheck disable=SC2086 # a list of names
	(hangs turn$turn $turns) || : >"$work/bad" &
done
for step in version nvidia-smi machine list torch; do
	(hangs "$step" "$step") || : >"$work/bad" &
done
wait
[ ! -e "$work/bad" ] || exit 1

for turn in 0 1; do
	FAULT=
	for step in $steps; do
		turn=$((1 - turn))
		FAULT="$FAULT $step:$([ $turn -eq 0 ] && echo fail || echo crash)"
	done
	export FAULT
	check turns$turn -b 100
	[ "$code" -eq 1 ] || fail "the exit code is $code"
	check_files
	for step in $steps; do
		has "$step" failed
	done
	for step in ops-two engine-save golden-qwen3 memcheck-two; do
		has "$step" passed
	done
	grep -q 'a "quoted"' "$out/table.txt" || fail 'the end of a log is missing'
done
unset FAULT

# ---- what was measured is not what the step's name says ----

for FAULT in kernels:own kernels-cudnn:own kernels-cudnn:fp32; do
	export FAULT
	check "own-$FAULT" -b 100 -s kernels
	wanted=1
	case $FAULT in
	kernels:own) has kernels passed && has products failed ;;
	kernels-cudnn:own) has kernels-cudnn failed && has cudnn-refused failed ;;
	*) has kernels-cudnn passed && wanted=0 ;;
	esac
	[ "$code" -eq "$wanted" ] || fail "the exit code is $code"
done
unset FAULT

# ---- a process that the driver holds: nothing ends it, not even timeout ----

cat >"$work/path/timeout" <<'EOT'
#!/bin/sh
shift 3
case "$*" in
*'bench kernels'*) trap '' TERM; echo $$ >>"$STUB_HUNG"; while :; do sleep 1; done ;;
esac
exec "$@"
EOT
chmod +x "$work/path/timeout"
check stuck -b 100 -s kernels,copy
[ "$code" -eq 1 ] || fail "the exit code is $code"
check_files
has kernels stuck
has copy passed
kill -9 $(cat "$STUB_HUNG") 2>/dev/null
rm "$work/path/timeout" "$STUB_HUNG"

# ---- no GPU, and one that does not work ----

export FAULT=probe:fail
GPU_FILE=$work/absent check absent -b 100
[ "$code" -eq 77 ] || fail "without a GPU the exit code is $code"
grep -q 'there is no NVIDIA GPU here' "$out.said" || fail 'it is not said that there is no GPU'
check_files
unset FAULT

# ---- a system that is too old for the program ----

export FAULT=version:old
check old -b 100
[ "$code" -eq 1 ] || fail "the exit code is $code"
grep -q 'needs glibc 2.35 or newer' "$out.said" || fail 'it is not said what is missing'
has start failed
check_files
unset FAULT

# ---- a signal ----

export FAULT=ops-one:hang STUB_HUNG="$work/hung-signal"
out=$work/out-signal
sh "$source/bench/gpu_check.sh" -o "$out" -b 300 -j 4 -s topo,ops >"$out.said" 2>&1 &
check=$!
tries=600
while [ ! -s "$STUB_HUNG" ] || ! grep -q 'ops-two *passed' "$out.said"; do
	tries=$((tries - 1))
	if [ $tries -eq 0 ] || ! kill -0 $check 2>/dev/null; then
		fail 'it did not come to its checks'
	fi
	sleep 0.1
done
[ -s "$out/table.txt" ] || fail 'no table before the end'
kill $check
wait $check
[ $? -eq 1 ] || fail 'the exit code of a run that was stopped is not 1'
has topo passed
has ops-two passed
check_files
tries=100
while kill -0 "$(cat "$STUB_HUNG")" 2>/dev/null; do
	tries=$((tries - 1))
	[ $tries -gt 0 ] || fail 'what hung still runs'
	sleep 0.1
done
