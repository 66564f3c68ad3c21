#!/bin/sh
# Installs what the build (deps.sh build) or the build and its tests (deps.sh test) need and is not there, and says
# what before it does. With --check first it installs nothing: it names what is missing and ends with 1.
# It looks for the things themselves, not for packages: where all is there, nothing is installed and no
# network is needed. By apt-get on Debian and Ubuntu, with sudo when not root; elsewhere it names what is missing.
set -eu

check=
if [ "${1:-}" = --check ]; then
	check=1
	shift
fi
what=${1:-build}
cc=${CC:-cc}
missing=

# tool PACKAGE COMMAND...: one of the commands is enough
tool() {
	package=$1
	shift
	for command; do
		if command -v "$command" >/dev/null 2>&1; then
			return
		fi
	done
	missing="$missing $package"
}

# header PACKAGE FILE...: one of the headers is enough
header() {
	package=$1
	shift
	for file; do
		if printf '#if !__has_include(<%s>)\n#error absent\n#endif\n' "$file" | "$cc" -E - >/dev/null 2>&1; then
			return
		fi
	done
	missing="$missing $package"
}

# library PACKAGE NAME: the linker finds it
library() {
	if ! echo 'int main(void) { return 0; }' | "$cc" -x c - -o /dev/null "-l$2" >/dev/null 2>&1; then
		missing="$missing $1"
	fi
}

# libFuzzer and the sanitizers of clang, whose package has clang's number in its name
fuzzer() {
	version=$(clang -dumpversion 2>/dev/null) || version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-//p')
	if ! echo 'int LLVMFuzzerTestOneInput(const char *data, long len) { return data && len ? 0 : 0; }' |
		clang -x c - -o /dev/null -fsanitize=fuzzer,address >/dev/null 2>&1; then
		missing="$missing libclang-rt-${version%%.*}-dev"
	fi
}

look() {
	missing=
	tool build-essential "$cc"
	tool build-essential "${CXX:-c++}"
	tool build-essential make
	tool cmake cmake
	tool ninja-build ninja
	tool pkg-config pkg-config pkgconf
	header build-essential stdio.h
	header libopenblas-dev cblas.h openblas/cblas.h
	library libopenblas-dev openblas # cblas.h may be another BLAS's
	header libdnnl-dev dnnl.h
	header libjansson-dev jansson.h
	header libyaml-dev yaml.h
	header libpcre2-dev pcre2.h
	header libutf8proc-dev utf8proc.h
	header libhwloc-dev hwloc.h
	header libxxhash-dev xxhash.h
	header zlib1g-dev zlib.h
	header libzstd-dev zstd.h
	header libsnappy-dev snappy-c.h
	tool libopenmpi-dev mpicc
	header libcmocka-dev cmocka.h
	if [ "$what" != build ]; then
		tool file file
		tool dpkg-dev dpkg-shlibdeps
	fi
	if [ "$what" = test ]; then
		tool clang-format clang-format-14 clang-format
		tool openmpi-bin mpirun
		tool python3 python3
		header libfuse3-dev fuse3/fuse_common.h
		tool fuse3 fusermount3
		tool clang clang
		tool clang-tidy clang-tidy-14 clang-tidy
		tool gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
		tool libc6-dev-arm64-cross aarch64-linux-gnu-gcc
		tool qemu-user qemu-aarch64
		fuzzer
	fi
	missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
}

case $what in
build | package | test) ;;
*)
	echo "usage: scripts/deps.sh [--check] [build|package|test]" >&2
	exit 2
	;;
esac

look
if [ -z "${missing# }" ]; then
	exit 0
fi
if [ -n "$check" ]; then
	echo "deps.sh: missing here, by their names in Debian: $missing" >&2
	echo "deps.sh: to install them, run: sh scripts/deps.sh $what" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "deps.sh: missing here, by their names in Debian: $missing" >&2
	echo "deps.sh: no apt-get on this system; install them with its own package manager, then run this again" >&2
	exit 1
fi

sudo=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "deps.sh: missing: $missing" >&2
		echo "deps.sh: as root, run: apt-get install $missing" >&2
		exit 1
	fi
	sudo=sudo
fi
echo "deps.sh: installing $missing"
$sudo apt-get update -q
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing

look
if [ -n "${missing# }" ]; then
	echo "deps.sh: installed, and still not found: $missing" >&2
	echo "deps.sh: if CC names another compiler, it must see the system's headers" >&2
	exit 1
fi
