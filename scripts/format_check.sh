#!/bin/sh
# Ends with 0 when clang-format would change no source and with 1 when it would. 77 (skipped, and said) without
# clang-format, or when one of another version than the project's would change something: versions differ.
set -eu
cd "$(dirname "$0")/.."
wanted=14

for command in clang-format-$wanted clang-format; do
	if command -v "$command" >/dev/null 2>&1; then
		break
	fi
	command=
done
if [ -z "$command" ]; then
	echo "SKIPPED format: clang-format is not installed"
	exit 77
fi
version=$("$command" --version)
echo "$version"

if git rev-parse --git-dir >/dev/null 2>&1; then
	git ls-files '*.c' '*.h' '*.cu' '*.cuh'
else
	find . -name 'build*' -prune -o '(' -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' ')' -print
fi | xargs "$command" --dry-run -Werror --ferror-limit=1 && exit 0

case $version in
*"version $wanted."*)
	echo "make format puts this right"
	exit 1
	;;
esac
echo "SKIPPED format: the sources are for clang-format $wanted; this is $version"
exit 77
