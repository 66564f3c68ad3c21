#!/bin/sh
# Ends with 0 when clang-format would change no source, 77 (skipped) when there is no clang-format.
set -eu
cd "$(dirname "$0")/.."

for command in clang-format-14 clang-format; do
	if command -v "$command" >/dev/null 2>&1; then
		break
	fi
	command=
done
if [ -z "$command" ]; then
	echo "SKIPPED format: clang-format is not installed"
	exit 77
fi
"$command" --version
if git rev-parse --git-dir >/dev/null 2>&1; then
	git ls-files '*.c' '*.h'
else
	find . -name 'build*' -prune -o -name '*.[ch]' -print
fi | xargs "$command" --dry-run -Werror --ferror-limit=1
