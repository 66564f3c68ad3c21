#!/bin/sh
# optim_neon.sh SOURCE BUILD: builds optim_bits for aarch64 and runs it under qemu; it has to print what the
# program of this machine prints. 77 where Debian's gcc-aarch64-linux-gnu or qemu-user is not there.
set -eu
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
	if ! command -v $tool >/dev/null; then
		echo "SKIPPED optim_neon: $tool is not installed"
		exit 77
	fi
done
mkdir -p "$2/neon"
cd "$1"
aarch64-linux-gnu-gcc -static -std=gnu11 -O3 -D_GNU_SOURCE -Wall -Wextra -Werror -ffp-contract=off \
	-fno-math-errno -fno-trapping-math -I. tests/optim_bits.c optim/adamw.c optim/adamw_scalar.c \
	optim/adamw_neon.c base/err.c base/num.c -lm -o "$2/neon/optim_bits"
neon=$(qemu-aarch64 "$2/neon/optim_bits")
here=$("$2/tests/optim_bits")
echo "neon $neon"
echo "here $here"
[ "$neon" = "$here" ]
