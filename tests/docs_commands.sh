#!/bin/sh
# docs_commands.sh SOURCE BUILD [PAGE...]: runs the commands of README.md and docs/guide as they stand, with ferry in the
# path. One directory with a link to examples/ serves all pages, as for a reader who walks them in README's order: names
# of one page must not collide with those of another. Pages that are named get a directory of their own.
#
# A block of commands is fenced as ```sh. A comment on the line before it, which readers do not see, may say
#     <!-- skip: REASON -->     it is not run here (other hosts, a GPU, a download)
#     <!-- needs: mpirun -->    it is left out where there is no mpirun
#     <!-- exit: N -->          it ends with that code
# <!-- output --> before a ```text block holds the block to the output of the commands before it: every line must be
# there, whatever its numbers and spaces; a line of three points stands for any lines.
set -eu

source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
shift 2
cd "$source"
work=$build/docs_commands
walk=
if [ $# -eq 0 ]; then
	walk=$work/walk
	# in the order of README's links, then what it does not name
	set -- README.md $({
		grep -o '](docs/guide/[^)#]*' README.md | sed 's/^](//'
		ls docs/guide/*.md
	} | awk '!seen[$0]++')
fi
rm -rf "$work"
mkdir -p "$work${walk:+/walk}"
PATH=$build:$PATH
export PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
failed=0 run=0 skipped=0

# Links of pages lead somewhere, and so do names of files that a reader is sent to. docs/results tells of what was.
for page in README.md CONTRIBUTING.md $(ls docs/*/*.md examples/*/README.md); do
	grep -o '](\([^)#:]*\)' "$page" | sed 's/^](//' | grep -v '^https*$' | sort -u | while read -r link; do
		[ -e "$(dirname "$page")/$link" ] || echo "$page: no such file: $link"
	done
	case $page in docs/results/*) continue ;; esac
	grep -oE '\b(base|bench|checkpoint|cli|comm|config|data|device|docs|examples|gpu|host|model|offload|optim|placement|report|scripts|tests|train)/[A-Za-z0-9_/.-]*[a-z]\.(cuh?|[chm]d?|inc|sh|py|ya?ml|txt)\b' "$page" |
		sort -u | while read -r file; do
		[ -e "$file" ] || [ -e "${page%/*}/$file" ] || echo "$page: no such file: $file"
	done
done >"$work/links"
if [ -s "$work/links" ]; then
	cat "$work/links"
	failed=$((failed + 1))
fi

# plain: numbers as N, so that figures of another machine do not matter, nor for what a step waited; one space for several
plain() {
	sed -E 's/[0-9]+([.,][0-9]+)*(e[-+][0-9]+)?k?/N/g; s/N ([KMGT]i)?B\b/N B/g; s/[[:space:]]+/ /g; s/(wait N%) \([^)]*\)/\1/; s/ $//' "$1"
}

# sums: "CHECKSUM BYTES FILE" of all that pages left in the walk
sums() {
	(cd "$walk" && find . -name .blocks -prune -o -type f -exec cksum {} + | sort)
}

for page; do
	folder=$work/$(echo "$page" | tr / _ | sed 's/\.md$//')
	mkdir -p "$folder/.blocks"
	place=${walk:-$folder}
	[ -z "$walk" ] || sums >"$work/before"
	[ -e "$place/examples" ] || ln -s "$source/examples" "$place/examples"
	# each block in a file of its own: NUMBER.sh with what is expected of it in NUMBER.meta, or NUMBER.text
	awk -v out="$folder/.blocks" '
		/^<!-- (skip|needs|exit): .* -->$/ { mark = $0; gsub(/^<!-- | -->$/, "", mark); next }
		/^<!-- output -->$/ { mark = "output"; next }
		!inside && /^```sh$/ { inside = 1; file = sprintf("%s/%03d.sh", out, ++n)
			print (mark == "" ? "exit: 0" : mark) > sprintf("%s/%03d.meta", out, n)
			print NR + 1 > sprintf("%s/%03d.line", out, n); printf "" > file; next }
		!inside && /^```text$/ && mark == "output" { inside = 1; file = sprintf("%s/%03d.text", out, n)
			printf "" > file; next }
		!inside && /^```/ { inside = 1; file = "/dev/null"; next }
		inside && /^```$/ { inside = 0; close(file); mark = ""; next }
		inside { print > file; next }
		/./ { mark = "" }
	' "$page"
	for block in "$folder"/.blocks/*.sh; do
		[ -e "$block" ] || continue
		base=${block%.sh}
		where=$page:$(cat "$base.line")
		meta=$(cat "$base.meta")
		expected=0
		case $meta in
		skip:*) skipped=$((skipped + 1)); continue ;;
		needs:*)
			if [ -z "${FERRY_MPIRUN-$(command -v mpirun || :)}" ]; then
				skipped=$((skipped + 1))
				continue
			fi ;;
		exit:*) expected=${meta#exit: } ;;
		esac
		run=$((run + 1))
		code=0
		(cd "$place" && sh -e "$block") >"$base.out" 2>&1 </dev/null || code=$?
		if [ "$code" != "$expected" ]; then
			echo "$where: exit code $code, not $expected:"
			cat "$base.out"
			failed=$((failed + 1))
		elif [ -e "$base.text" ]; then
			plain "$base.out" >"$base.out.plain"
			plain "$base.text" | while IFS= read -r line; do
				[ "$line" = ... ] || grep -qxF -- "$line" "$base.out.plain" || echo "$line"
			done >"$base.absent"
			if [ -s "$base.absent" ]; then
				echo "$where: the page shows lines that were not printed (N for numbers):"
				cat "$base.absent"
				echo "--- printed:"
				cat "$base.out"
				failed=$((failed + 1))
			fi
		fi
	done
	# what a page replaced was another page's
	if [ -n "$walk" ] && sums >"$work/after" && comm -23 "$work/before" "$work/after" | grep . >"$work/lost"; then
		echo "$page: replaces or removes files of an earlier page:"
		cat "$work/lost"
		failed=$((failed + 1))
	fi
done
echo "$run blocks of commands were run, $skipped left out, $failed failed"
[ "$run" -gt 0 ] && [ "$failed" -eq 0 ]
