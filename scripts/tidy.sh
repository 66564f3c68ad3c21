#!/bin/sh
# tidy.sh BUILD [--deep]: clang-tidy over the sources of that build, as .clang-tidy says; with --deep clang's static
# analyzer, which takes many times as long. Ends with 0 where nothing is found, and 77 (skipped) without clang-tidy 14
# or newer. Not over tests, whose macros end functions, nor kernels, which clang reads only with CUDA's headers.
# misc-include-cleaner, which clang-tidy 17 and newer have, may only name includes that are not needed. It also wants
# every header of every name, of those that a file's own headers bring and under the names that libc has inside.
set -eu

build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
for tidy in clang-tidy-14 clang-tidy; do
	if command -v "$tidy" >/dev/null 2>&1; then
		break
	fi
	tidy=
done
if [ -z "$tidy" ]; then
	echo "SKIPPED tidy: clang-tidy is not installed"
	exit 77
fi
checks=
if [ "${2:-}" = --deep ]; then
	checks=--checks=-*,clang-analyzer-*,-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling
fi
list=$build/tidy.txt
sed -n 's/^  "file": "\(.*\)",*$/\1/p' "$build/compile_commands.json" | sort -u |
	sed -n "s|^$(pwd)/\([a-z].*\.c\)\$|\1|p" | grep -v '^tests/' >"$list"
if ! [ -s "$list" ]; then
	echo "tidy: $build/compile_commands.json names no sources" >&2
	exit 1
fi
# -w: warnings are the compiler's. The flags of another compiler would be errors
status=0
xargs -P "$(nproc 2>/dev/null || echo 2)" -n 8 "$tidy" -p "$build" --quiet ${checks:+"$checks"} --extra-arg=-w \
	--extra-arg=-Qunused-arguments <"$list" >"$build/tidy.log" 2>"$build/tidy.err" || status=$?
if awk '/: (error|warning): / { found = !/: no header providing "/ } found' "$build/tidy.log" |
	grep -v '^[0-9]* warnings\|^Suppressed\|^Use -header'; then
	exit 1
fi
case $status in
0) ;;
123) # clang-tidy found something: in its log, or else it says in its errors why it found nothing
	if ! grep -q ': error: no header providing "' "$build/tidy.log"; then
		cat "$build/tidy.err"
		exit 1
	fi ;;
*)
	cat "$build/tidy.err"
	exit 1 ;;
esac
echo "tidy: $(wc -l <"$list") files without a finding, by $("$tidy" --version | sed -n 's/.*version */clang-tidy /p' | head -n 1)"
