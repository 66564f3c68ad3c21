#!/bin/sh
# bundle.sh [OUTPUT]: what a machine with a GPU needs to check and measure ferry there, as a folder that can lie
# anywhere, and packed as OUTPUT.tar.xz (OUTPUT is build/ferry-bundle where nothing is said): the program, the tests
# that run on a GPU, bench/, golden data from ../shared, and the libraries that they link. Not in it, and looked for
# when the program runs: cuBLASLt, cuDNN, NCCL, the driver. Nor MPI, whose libraries want a newer glibc than all else.
# libstdc++ is the machine's (whatever has apt has it). It runs where glibc is 2.35 or newer: Ubuntu 22.04, Debian 12.
# BUNDLE_BUILD names the build directory, CUDA_ARCHITECTURES what kernels are compiled
# for, SHARED where golden/ is.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
output=${1:-build/ferry-bundle}
build=${BUNDLE_BUILD:-build/bundle}
shared=${SHARED:-$root/../shared}
# the last one also as PTX, for what comes after it
architectures=${CUDA_ARCHITECTURES:-80-real;86-real;89-real;90-real;100-real;120}
limit_mib=60

for tool in xz strip ldd cmake ninja; do
	if ! command -v $tool >/dev/null 2>&1; then
		echo "bundle.sh: $tool was not found" >&2
		exit 1
	fi
done

if [ ! -d "$shared/golden" ]; then
	echo "bundle.sh: $shared/golden is not there, which a bundle checks models with; SHARED=DIR names another place" >&2
	exit 1
fi
# shellcheck disable=SC2016 # $ORIGIN is the loader's
cmake -S . -B "$build" -G Ninja -DFERRY_MPI=OFF "-DFERRY_CUDA_ARCHITECTURES=$architectures" '-DCMAKE_BUILD_RPATH=$ORIGIN/../lib' \
	-DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags -DCMAKE_CUDA_FLAGS=-lineinfo
if ! grep -q '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt"; then
	echo "bundle.sh: nvcc was not found (CUDACXX=PATH names it); a bundle without kernels is of no use" >&2
	exit 1
fi
cmake --build "$build" --target ferry test_golden cuda_tests

rm -rf "$output" "$output.tar.xz"
mkdir -p "$output/bin" "$output/lib" "$output/share" "$output/bench"
for program in "$build/ferry" "$build/tests/test_golden" "$build/tests/cuda_tests"; do
	strip -o "$output/bin/$(basename "$program")" "$program"
done

# Libraries: all that the programs load here, but for glibc and what belongs to a driver
ldd "$output"/bin/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u >"$output/libraries"
if ldd "$output"/bin/* | grep 'not found'; then
	echo "bundle.sh: libraries are missing on this machine" >&2
	exit 1
fi
while read -r library; do
	case $(basename "$library") in
	ld-linux* | libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | libresolv.so.* | libutil.so.*) ;;
	libcuda.so* | libnvidia* | libstdc++.so.* | libgcc_s.so.*) ;;
	*)
		cp -L "$library" "$output/lib/"
		file=$(readlink -f "$library")
		# dpkg knows some by /lib and some by /usr/lib
		package=$({ dpkg -S "$file" || dpkg -S "${file#/usr}"; } 2>/dev/null | head -n 1 | cut -d : -f 1) || package=
		if [ -n "$package" ] && [ -f "/usr/share/doc/$package/copyright" ]; then
			mkdir -p "$output/share/copyright"
			cp "/usr/share/doc/$package/copyright" "$output/share/copyright/$package"
		fi
		;;
	esac
done <"$output/libraries"
rm "$output/libraries"
chmod u+w "$output"/lib/*
strip --strip-unneeded "$output"/lib/*

cp -R bench/gpu_check.sh bench/peers "$output/bench/"
cp -R "$shared/golden" "$output/share/golden"
chmod -R u+w "$output/share/golden" # a folder that cannot be written in cannot be removed
sh scripts/bundle_check.sh "$output"

commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
cat >"$output/README.txt" <<EOF
ferry, commit $commit, for $(uname -m) Linux with glibc 2.35 or newer (Ubuntu 22.04, Debian 12).
Kernels for compute capability $architectures (the last also as PTX).

    sh bench/gpu_check.sh -o OUT      checks and measures everything on this machine's GPU, in under 8 minutes
    bin/ferry topo                    what there is, and which of NVIDIA's libraries were found where

If bin/ferry says that libstdc++.so.6 is not there, install the package libstdc++6 (or libstdc++). If it says that a
version of GLIBC or GLIBCXX was not found, the system is older than that.
EOF

# a dictionary that holds one program, so that its kernels cost nothing in the next
tar -C "$(dirname "$output")" -cf - "$(basename "$output")" | xz --lzma2=preset=9,dict=128MiB >"$output.tar.xz"
bytes=$(wc -c <"$output.tar.xz")
du -sk "$output" | awk '{ printf "%s: %.1f MiB unpacked\n", $2, $1 / 1024 }'
echo "$output.tar.xz: $((bytes / 1048576)) MiB"
if [ "$bytes" -gt $((limit_mib * 1048576)) ]; then
	echo "bundle.sh: more than $limit_mib MiB" >&2
	exit 1
fi
