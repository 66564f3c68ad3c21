#!/bin/sh
# Fills a real disk while a model trains and saves: a small tmpfs, larger by STEP_KIB each time. Needs root.
#
#   scripts/campaign_disk_full.sh FERRY MODEL DATA [STEP_KIB [MOST_KIB [SETTING...]]]
#
# FERRY is the program, MODEL a small HuggingFace directory, DATA rows of tokens; other rows and kinds of runs by
# settings, such as data_format=auto preference_loss=sigmoid. DISK in a setting is the disk. Every run must end with 0
# (all fitted), 5 (there is not even room for one checkpoint), 1 or 2 (a message); what is committed must verify;
# nothing temporary may stay. A run that cannot save in the end tries for 15 s.
set -eu

if [ $# -lt 3 ]; then
	sed -n '2,9p' "$0" >&2
	exit 2
fi
ferry=$1 model=$2 data=$3 step=${4:-64} most=${5:-6144}
if [ $# -gt 5 ]; then shift 5; else shift $#; fi
place=$(mktemp -d)
more=$(echo "$*" | sed "s,DISK,$place/disk,g")
trap 'umount "$place/disk" 2>/dev/null || true; rm -rf "$place"' EXIT
mkdir "$place/disk"
runs=0 full=0 refused=0 committed=0 size=$step
while [ "$size" -le "$most" ]; do
	mount -t tmpfs -o size="${size}k" ferry-disk-full "$place/disk"
	code=0
	"$ferry" train model="$model" data="$data" data_format=tokens output_dir="$place/disk/run" max_steps=6 \
		save_steps=2 save_total_limit=2 device=host $more >"$place/log" 2>&1 || code=$?
	runs=$((runs + 1))
	if [ "$code" -gt 2 ] && [ "$code" != 5 ]; then
		echo "disk of $size KiB: exit $code" >&2
		tail -3 "$place/log" >&2
		exit 1
	fi
	case $code in
	0) ;;
	5) refused=$((refused + 1)) ;;
	*) full=$((full + 1)) ;;
	esac
	if ls "$place/disk/run" "$place/disk" 2>/dev/null | grep -q '\.tmp'; then
		echo "disk of $size KiB: left something temporary" >&2
		exit 1
	fi
	for checkpoint in "$place/disk/run"/checkpoint-*; do
		[ -d "$checkpoint" ] || continue
		"$ferry" verify "$checkpoint" >/dev/null 2>&1 || {
			echo "disk of $size KiB: $checkpoint does not verify" >&2
			exit 1
		}
		committed=$((committed + 1))
	done
	umount "$place/disk"
	size=$((size + step))
done
echo "$runs runs, $refused refused beforehand, $full ended because the disk was full, $committed checkpoints committed and whole"
