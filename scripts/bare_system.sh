#!/bin/sh
# bare_system.sh RELEASE DIR [TARGET...]: `make demo` and `make test`, or those targets, as README.md gives them, in a
# Debian of that release (bookworm, trixie, ...) that has nothing beside make and git. Root, by debootstrap. DIR gets the
# system (10 GB after the tests), a clone of the last commit here in root/ferry, and the output of each in root/TARGET.log.
# A DIR that has the system already is used again. Each target's time and the end of its output are printed. Ends with 1
# if a target fails.
# MIRROR=URL names where packages come from, APT_CONF=FILE settings that apt needs to get them.
set -eu

if [ $# -lt 2 ]; then
	echo "usage: scripts/bare_system.sh RELEASE DIR [TARGET...]" >&2
	exit 2
fi
release=$1 dir=$2
shift 2
[ $# -gt 0 ] || set -- demo test
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
	echo "bare_system.sh: needs root and debootstrap" >&2
	exit 2
fi

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
if ! [ -e "$dir/root/.made" ]; then
	debootstrap --variant=minbase --include=ca-certificates,git,make "$release" "$dir" ${MIRROR:+"$MIRROR"} >"$dir.log" 2>&1 || {
		tail "$dir.log" >&2
		exit 1
	}
	mv "$dir.log" "$dir/root/debootstrap.log"
	touch "$dir/root/.made"
fi
cp /etc/resolv.conf "$dir/etc/"
# as an installed Debian has it; without it each start of mpirun waits for a name server
printf '127.0.0.1\tlocalhost %s\n' "$(hostname)" >"$dir/etc/hosts"
[ -z "${APT_CONF:-}" ] || cp "$APT_CONF" "$dir/etc/apt/apt.conf.d/99bare"

here=$(cd "$(dirname "$0")/.." && pwd)
ferry=$dir/root/ferry
[ -d "$ferry" ] || git init -q "$ferry"
git -C "$ferry" fetch -q "$here" HEAD
git -C "$ferry" checkout -q -f --detach FETCH_HEAD

# inside COMMAND: in the system, with mounts that end with it
inside() {
	unshare --mount sh -euc '
		mount -t proc proc "$1/proc"
		mount -t sysfs sysfs "$1/sys"
		mount --rbind /dev "$1/dev"
		mount -t tmpfs tmpfs "$1/dev/shm"
		exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin ${http_proxy:+"http_proxy=$http_proxy"} \
			sh -c "$2"' sh "$dir" "$1"
}

inside '. /etc/os-release; echo "$PRETTY_NAME, ferry $(git -C /root/ferry describe --always)"'
failed=0
for target; do
	begin=$(date +%s)
	code=0
	inside "cd /root/ferry && make $target" >"$dir/root/$target.log" 2>&1 </dev/null || code=$?
	seconds=$(($(date +%s) - begin))
	echo "make $target: exit code $code after $((seconds / 60)) min $((seconds % 60)) s; the end of $dir/root/$target.log:"
	if grep -q '^Left out here:' "$dir/root/$target.log"; then
		sed -n '/^Left out here:/,$p' "$dir/root/$target.log"
	else
		tail -n 12 "$dir/root/$target.log"
	fi
	[ "$code" = 0 ] || failed=1
done
exit $failed
