#!/bin/sh
# arm64.sh FOLDER [--libraries | --quick] [CTEST OPTIONS...]: builds ferry and its tests for arm64 Linux in FOLDER/build
# and runs the tests under qemu-user. FOLDER/sysroot gets arm64 libraries first: packages of Debian, by this machine's own
# sources of apt, unpacked and not installed. Needs no root.
#     --libraries   only FOLDER/sysroot
#     --quick       fewer cases of a few tests of arithmetic, on one core; downloads nothing
# FERRY_ARM64_CPU=NAME: the CPU that qemu shows (qemu-aarch64 -cpu help). 77 where a tool or FOLDER/sysroot is absent.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
sysroot=$folder/sysroot
shift
mode=all
case ${1:-} in
--libraries | --quick)
	mode=${1#--}
	shift
	;;
esac

skip() {
	echo "SKIPPED arm64: $1"
	exit 77
}

need() {
	for tool; do
		command -v "$tool" >/dev/null 2>&1 || skip "$tool is not installed"
	done
}

# apt-get for arm64 with lists, cache and state of its own
apt_here() {
	apt-get -q -o Dir::State="$folder/apt/state" -o Dir::State::status="$folder/apt/status" \
		-o Dir::Cache="$folder/apt/cache" -o Dir::Etc::SourceList="$folder/apt/sources.list" \
		-o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
		-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Install-Recommends=false \
		-o APT::Sandbox::User= -o Debug::NoLocking=true "$@"
}

packages_get() {
	mkdir -p "$folder/apt/state/lists/partial" "$folder/apt/cache/archives/partial"
	: >"$folder/apt/status"
	# shellcheck disable=SC2016 # the names are apt's
	apt-get indextargets --format 'deb $(SITE) $(RELEASE) main' 'Created-By: Packages' 'Origin: Debian' \
		'Component: main' | sort -u >"$folder/apt/sources.list"
	[ -s "$folder/apt/sources.list" ] || skip "apt knows no archive of Debian; run apt-get update"
	apt_here update
	apt_here install -y --download-only libopenblas-pthread-dev libdnnl-dev libjansson-dev libyaml-dev libpcre2-dev \
		libutf8proc-dev libhwloc-dev libxxhash-dev zlib1g-dev libzstd-dev libsnappy-dev libcmocka-dev
}

# What the installation of these packages would do beside unpacking: /lib is /usr/lib, and OpenBLAS is chosen.
sysroot_make() {
	new=$sysroot.new
	rm -rf "$new"
	for part in lib bin sbin; do
		mkdir -p "$new/usr/$part"
		ln -s "usr/$part" "$new/$part"
	done
	for package in "$folder"/apt/cache/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$package" |
			tar -x -C "$new" --keep-directory-symlink --no-same-owner --exclude='./usr/share/*'
	done
	(
		cd "$new/usr/lib/aarch64-linux-gnu"
		ln -s openblas-pthread/libopenblas.so* .
		cd "$new/usr/include/aarch64-linux-gnu"
		ln -s openblas-pthread/*.h .
	)
	find "$new" -type l -lname '/*' | while read -r link; do
		ln -snrf "$new$(readlink "$link")" "$link"
	done
	mv "$new" "$sysroot"
	rm -rf "$folder/apt"
}

need aarch64-linux-gnu-gcc qemu-aarch64 cmake ninja
if [ ! -d "$sysroot" ]; then
	[ "$mode" != quick ] || skip "$sysroot is absent; make it by: sh scripts/arm64.sh $folder --libraries"
	need apt-get dpkg-deb
	packages_get
	sysroot_make
fi
[ "$mode" != libraries ] || exit 0

cd "$source"
cmake -S . -B "$folder/build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$source/cmake/arm64.cmake" \
	-DFERRY_SYSROOT="$sysroot" -DFERRY_ARM64_CPU="${FERRY_ARM64_CPU:-max}" >"$folder/configure.log" 2>&1 || {
	cat "$folder/configure.log"
	exit 1
}

if [ "$mode" = quick ]; then
	tests="test_ops_matmul test_host_attention_bf16 test_ops_kernels test_ops_attention_cached test_ops_act test_ops_rope"
	# shellcheck disable=SC2086 # names have no blanks
	ninja -C "$folder/build" -j1 $tests >"$folder/build.log" 2>&1 || {
		tail -n 60 "$folder/build.log"
		exit 1
	}
	cd "$folder/build"
	FERRY_TEST_SPARING=${FERRY_TEST_SPARING:-40} ctest --output-on-failure --no-tests=error \
		-R "^($(echo "$tests" | tr ' ' '|'))\$" "$@"
	exit
fi

# Left out, and why
starts="starts its own program, which this machine's kernel cannot run"
bounds="holds seconds or memory to a bound, and qemu needs more of them"
addresses="plans of large models map addresses, and qemu takes gigabytes of memory to keep track of them"
kernel="asks the kernel for what qemu-user does not pass on: places of pages, huge pages, ulimit -v"
left_out=
leave_out() {
	why=$1
	shift
	for name; do
		echo "SKIPPED arm64 $name: $why"
		left_out="$left_out|$name"
	done
}
leave_out "$starts" test_local_ranks test_comm_link test_comm_fail test_ranks test_ranks_fault test_ranks_files \
	test_ranks_inject test_ranks_save test_ranks_stop test_ranks_strategy
leave_out "$bounds" test_safetensors_damage test_run_memory test_host_scratch test_bench
leave_out "$addresses" test_cli_fit test_cli_plan
leave_out "$kernel" test_host_places test_host_slab test_host_topology
ninja -C "$folder/build" checks
FERRY_TEST_SPARING=${FERRY_TEST_SPARING:-4} sh scripts/run_tests.sh "$folder/build" \
	-E "^(local/.*$left_out)\$" "$@"
