#!/bin/sh
# bundle_check_test.sh SOURCE WORK FERRY: scripts/bundle_check.sh passes a folder whose parts all run elsewhere, and names
# what does not: a library of too new a glibc, one that is missing, no golden data.
set -u

source=$1 work=$2 ferry=$3
rm -rf "$work"
mkdir -p "$work/bin" "$work/lib" "$work/share/golden" || exit 1

fail() {
	echo "bundle_check_test.sh: $1" >&2
	cat "$work/said" >&2
	exit 1
}

# refused PART OPTIONS...: it is, and the reason has that part
refused() {
	part=$1
	shift
	sh "$source/scripts/bundle_check.sh" "$work" "$@" >"$work/said" 2>&1 && fail "no refusal: $part"
	grep -q "$part" "$work/said" || fail "the reason is not: $part"
}

cp "$ferry" "$work/bin/ferry"
: >"$work/share/golden/model"
refused 'which is not in'
for library in $(ldd "$ferry" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'); do
	cp -L "$library" "$work/lib/"
done
sh "$source/scripts/bundle_check.sh" "$work" 99.9 99.9 >"$work/said" 2>&1 || fail 'a whole folder is refused'
refused 'bin/ferry needs GLIBC_' 2.3 99.9
refused 'needs GLIBCXX_' 99.9 3.3
rm "$work/share/golden/model"
refused 'golden is empty' 99.9 99.9
