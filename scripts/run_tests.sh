#!/bin/sh
# run_tests.sh BUILD [CTEST OPTIONS...]: all tests of that build directory. Then, because ctest keeps the output of
# tests that pass to itself, the names of what they left out, and ctest's own summary again as the last lines.
set -eu

build=$1
shift
cd "$build"
mkdir -p Testing
jobs=$(nproc 2>/dev/null || echo 2)
{
	status=0
	ctest --parallel "$jobs" --output-on-failure --no-tests=error "$@" || status=$?
	echo "$status" >Testing/status
} | tee Testing/output

if grep -h '^SKIPPED ' Testing/Temporary/LastTest.log 2>/dev/null | sort -u >Testing/skipped && [ -s Testing/skipped ]; then
	echo
	echo "Left out here:"
	cat Testing/skipped
	echo
	sed -n '/tests passed,/,$p' Testing/output
fi
exit "$(cat Testing/status)"
