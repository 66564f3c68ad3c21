#!/bin/sh
# run_tests.sh [--quick | --every] BUILD [CTEST OPTIONS...]: runs the tests of that build directory. If a sanitizer runs
# all cases of a test, the usual build builds and runs it only with --every. --quick runs the format, and those tests of
# the usual build that took at most 3 seconds the last time or never ran. Then it prints the names of skipped tests,
# because ctest hides the output of tests that pass, and ctest's own summary again as the last lines.
set -eu

quick=
again='^again$'
case $1 in
--quick) quick=3 && shift ;;
--every) again='^$' && shift && cmake --build "$1" --target checks ;;
esac
build=$1
shift
cd "$build"
mkdir -p Testing
touch Testing/seconds # each test that passed, and how long its last run took
if [ -n "$quick" ]; then
	slow=$(awk -v most="$quick" '$2 > most && $1 != "format" { gsub(/[^a-z0-9_\/]/, "", $1); printf "%s%s", n++ ? "|" : "", $1 }' Testing/seconds)
	set -- -LE '^(simt|asan|tsan|fuzz|tidy)$' "$@"
	if [ -n "$slow" ]; then
		set -- -E "^($slow)\$" "$@"
	fi
else
	set -- -LE "$again" "$@"
fi
jobs=$(($(nproc 2>/dev/null || echo 2) + 2)) # many tests wait for processes of theirs
{
	status=0
	ctest --parallel "$jobs" --output-on-failure --no-tests=error "$@" || status=$?
	echo "$status" >Testing/status
} | tee Testing/output
awk 'NR == FNR { if ($0 ~ /Test +#.* Passed /) { sub(/.*Test +#[0-9]+: /, ""); now[$1] = $(NF - 1); print $1, now[$1] } next }
	!($1 in now)' Testing/output Testing/seconds >Testing/seconds.new
mv Testing/seconds.new Testing/seconds

if grep -h '^SKIPPED ' Testing/Temporary/LastTest.log 2>/dev/null | sort -u >Testing/skipped && [ -s Testing/skipped ]; then
	echo
	echo "Left out here:"
	cat Testing/skipped
	echo
	sed -n '/tests passed,/,$p' Testing/output
fi
exit "$(cat Testing/status)"
