#!/bin/sh
# The long form of the checkpoint tests, by hand: more kills, flipped bits and power losses, and a fault at
# every single system call and allocation instead of at some. test_checkpoint_saver does the same to saves on a
# thread of their own, with a tenth of the kills, because its files are long.
#
#   scripts/campaign_checkpoint.sh BUILD [KILLS [FLIPS [POWER_STATES [SEED]]]]
#
# BUILD is a build directory with its test programs (cmake --build BUILD --target checks). The same seed gives
# the same faults. docs/results/reliability.md has the results so far.
set -eu

if [ $# -lt 1 ]; then
	sed -n '2,10p' "$0" >&2
	exit 2
fi
build=$1
export FERRY_CAMPAIGN_KILLS="${2:-10000}"
export FERRY_CAMPAIGN_FLIPS="${3:-10000}"
export FERRY_CAMPAIGN_POWER="${4:-12000}"
export FERRY_CAMPAIGN_SEED="${5:-1}"

date
"$build/tests/test_checkpoint_power"
"$build/tests/test_checkpoint_faults"
"$build/tests/test_checkpoint_saver"
date
