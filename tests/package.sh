#!/bin/sh
# package.sh BUILD: makes the package and checks what is in it. Exit code 77: not on this system.
set -eu
build=$1
for tool in cpack dpkg-deb dpkg-shlibdeps file; do
	command -v "$tool" >/dev/null || {
		echo "SKIPPED package: no $tool"
		exit 77
	}
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$build"
cpack -B "$dir" >"$dir/log" 2>&1 || {
	cat "$dir/log"
	exit 1
}
deb=$(echo "$dir"/ferry_*.deb)
dpkg-deb -x "$deb" "$dir/root"
version=$("$build/ferry" --version)
for fact in "$("$dir/root/usr/bin/ferry" --version)" "ferry $(dpkg-deb -f "$deb" Version)"; do
	[ "$fact" = "$version" ] || {
		echo "the program is $version, the package has $fact"
		exit 1
	}
done
for file in share/man/man1/ferry.1 share/bash-completion/completions/ferry; do
	[ -s "$dir/root/usr/$file" ] || {
		echo "the package lacks $file"
		exit 1
	}
done
# each library that the program is linked to comes from a package that it depends on
dpkg-deb -f "$deb" Depends | grep -q 'libc6 .*libjansson4' || {
	echo "depends on: $(dpkg-deb -f "$deb" Depends)"
	exit 1
}
