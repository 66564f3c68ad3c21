#!/bin/sh
# arm64_bits.sh SOURCE BUILD: builds optim_bits and kernel_bits for aarch64 and runs them under qemu; they have to
# print what the programs of this machine print. 77 where Debian's gcc-aarch64-linux-gnu or qemu-user is not there.
set -eu
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
	if ! command -v $tool >/dev/null; then
		echo "SKIPPED arm64_bits: $tool is not installed"
		exit 77
	fi
done
mkdir -p "$2/arm64"
cd "$1"
for program in optim_bits kernel_bits; do
	case $program in
	optim_bits) sources="optim/adamw.c optim/adamw_scalar.c optim/adamw_neon.c optim/plane.c base/dtype.c base/err.c base/num.c" ;;
	kernel_bits) sources="host/cpu/kernels.c host/cpu/kernels_scalar.c base/num.c" ;;
	esac
	aarch64-linux-gnu-gcc -static -std=gnu11 -O3 -D_GNU_SOURCE -Wall -Wextra -Werror -ffp-contract=off \
		-fno-math-errno -fno-trapping-math -I. tests/$program.c $sources -lm -o "$2/arm64/$program"
	there=$(qemu-aarch64 "$2/arm64/$program")
	here=$("$2/tests/$program")
	echo "arm64 $there"
	echo "here  $here"
	[ "$there" = "$here" ]
done
