#!/bin/sh
# bundle_check.sh FOLDER [GLIBC [GLIBCXX]]: may this bundle go to other machines? No program or library of it needs a
# symbol of a glibc newer than GLIBC (2.35: Ubuntu 22.04) or of a libstdc++ newer than GLIBCXX (3.4.30: the same); what
# programs need is in lib/ or is glibc's, libstdc++ or a driver's; golden data are there. Exit 1 says what is not so.
set -eu

folder=$1 bad=0
set -- "GLIBC_${2:-2.35}" "GLIBCXX_${3:-3.4.30}"

say() {
	echo "bundle_check.sh: $*" >&2
	bad=1
}

for file in "$folder"/bin/* "$folder"/lib/*.so*; do
	[ -f "$file" ] || continue
	for most in "$@"; do
		newest=$(readelf -V "$file" 2>/dev/null | grep -o "${most%_*}_[0-9][0-9.]*" | sort -u -V | tail -n 1)
		if [ -n "$newest" ] && [ "$(printf '%s\n%s\n' "$newest" "$most" | sort -V | tail -n 1)" != "$most" ]; then
			say "$file needs $newest, which is newer than $most"
		fi
	done
	for needed in $(readelf -d "$file" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
		case $needed in
		ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | libutil.so.*) ;;
		libstdc++.so.* | libgcc_s.so.* | libcuda.so.*) ;;
		*) [ -f "$folder/lib/$needed" ] || say "$file needs $needed, which is not in $folder/lib" ;;
		esac
	done
done
[ -x "$folder/bin/ferry" ] || say "$folder/bin/ferry is not there"
[ -n "$(ls "$folder/share/golden" 2>/dev/null)" ] || say "$folder/share/golden is empty: golden models cannot be checked"
exit $bad
