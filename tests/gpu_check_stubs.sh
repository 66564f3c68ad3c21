#!/bin/sh
# gpu_check_stubs.sh SOURCE WORK: bench/gpu_check.sh with programs that pass, fail, crash and hang: every step has its line
# in the table and in the JSON, benchmarks have their time though a check hangs, and a signal leaves the table of what is
# known, and nothing that runs.
set -u

source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/bin" || exit 1
export STUB_HUNG="$work/hung" FERRY="$work/bin/ferry" FERRY_TESTS="$work/bin" FERRY_SHARED="$work"

cat >"$work/bin/ferry" <<'EOF'
#!/bin/sh
case "$*" in
--version) echo 'ferry 0' ;;
*kernels*--json) echo 'a benchmark that fails' >&2; exit 1 ;;
*--json) printf 'a library speaks "first"\n{"is": ["json", 1]}\n' ;;
*) printf 'GPU 0 none\nlibrary                NCCL 2.28.9, here\nlibrary                cuDNN: not found (here)\n' ;;
esac
EOF
cat >"$work/bin/cuda_tests" <<'EOF'
#!/bin/sh
case ${1:-} in
'') printf 'engine\nops_fails\nops_hangs\nops_passes\nops_crashes\n' ;;
ops_fails) echo 'a "quoted" \ text'; exit 1 ;;
ops_hangs) echo $$ >"$STUB_HUNG"; exec sleep 600 ;;
ops_crashes) kill -SEGV $$ ;;
esac
EOF
chmod +x "$work/bin/ferry" "$work/bin/cuda_tests"

fail() {
	echo "gpu_check_stubs.sh: $1" >&2
	cat "$work/out/table.txt" "$work/said" >&2
	exit 1
}

# has NAME STATUS: the step's line in the table
has() {
	grep -q "^$1 *$2 " "$work/out/table.txt" || fail "$1 is not told as $2"
}

is_json() {
	command -v python3 >/dev/null 2>&1 || return 0
	python3 -m json.tool "$work/out/results.json" >/dev/null || fail 'results.json is not JSON'
}

has_ended() {
	tries=100
	while kill -0 "$(cat "$work/hung")" 2>/dev/null; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || fail 'what hung still runs'
		sleep 0.1
	done
}

sh "$source/bench/gpu_check.sh" -o "$work/out" -b 30 -j 8 -s topo,ops,engine,copy,kernels >"$work/said" 2>&1
[ $? -eq 1 ] || fail 'the exit code is not 1'
has topo passed
has ops-passes passed
has ops-fails failed
has ops-crashes failed
has ops-hangs cut
has engine-bits passed
has engine-save passed
has engine-nccl passed
has ops-attention-cudnn absent
has copy passed
has kernels failed
grep -q 'a "quoted"' "$work/out/table.txt" || fail 'the end of a log is missing'
grep -q '"copy": {"is": \["json", 1\]}' "$work/out/results.json" || fail 'a result is missing'
grep -q '"kernels": null' "$work/out/results.json" || fail 'no result is not null'
[ "$(grep -c '^"[a-z-]*": ' "$work/out/results.json")" -eq 5 ] || fail 'results are not those of topo, copy and kernels'
is_json
has_ended

rm -rf "$work/out" "$work/hung"
sh "$source/bench/gpu_check.sh" -o "$work/out" -b 300 -j 4 -s topo,ops >"$work/said" 2>&1 &
check=$!
while [ ! -s "$work/hung" ] || ! grep -q 'ops-crashes *failed' "$work/said"; do
	kill -0 $check 2>/dev/null || fail 'it ended before it was stopped'
	sleep 0.1
done
[ -s "$work/out/table.txt" ] || fail 'no table before the end'
kill $check
wait $check
[ $? -eq 1 ] || fail 'the exit code of a run that was stopped is not 1'
has topo passed
has ops-fails failed
is_json
has_ended
