#!/bin/sh
# fuzz.sh BUILD SECONDS [NAME...]: runs the fuzz targets of that build (FERRY_SANITIZE=fuzz), SECONDS each, or only
# these. What is found goes on in BUILD/corpus/NAME the next time; an input that breaks something is
# BUILD/found-NAME-*, to be tried alone with BUILD/tests/fuzz/fuzz_NAME FILE.
set -eu

build=$1
seconds=$2
shift 2
if [ $# = 0 ]; then
	# shellcheck disable=SC2046 # names have no blanks
	set -- $(ls "$build/tests/fuzz" | sed -n 's/\.seeds$//p')
fi
export ASAN_OPTIONS="allocator_may_return_null=1:detect_stack_use_after_return=1"
export UBSAN_OPTIONS="print_stacktrace=1"
status=0
for name; do
	mkdir -p "$build/corpus/$name"
	log=$build/corpus/$name.log
	(
		IFS=';'
		# shellcheck disable=SC2046 # the list is CMake's
		"$build/tests/fuzz/fuzz_$name" "-max_total_time=$seconds" -timeout=25 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 \
			"-artifact_prefix=$build/found-$name-" "$build/corpus/$name" $(cat "$build/tests/fuzz/$name.seeds")
	) >"$log" 2>&1 || {
		status=1
		echo "fuzz: $name failed"
		tail -n 60 "$log"
		continue
	}
	counters=$(sed -n 's/.*inline 8-bit counters.*(\([0-9]*\) inline.*/\1/p; s/.*modules *(\([0-9]*\) inline 8-bit counters).*/\1/p' "$log" | head -n 1)
	covered=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
	runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
	echo "fuzz: $name: $runs inputs in $seconds s, $covered of $counters edges"
done
exit $status
