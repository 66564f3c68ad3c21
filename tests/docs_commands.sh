#!/bin/sh
# docs_commands.sh SOURCE BUILD [PAGE...]: runs the commands of README.md and docs/guide as they stand. Each page gets a
# fresh directory with a link to examples/, and ferry in the path.
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
[ $# -gt 0 ] || set -- README.md docs/guide/*.md
work=$build/docs_commands
rm -rf "$work"
mkdir -p "$work"
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

# plain: numbers as N, so that figures of another machine do not matter; one space for several
plain() {
	sed -E 's/[0-9]+([.,][0-9]+)*(e[-+][0-9]+)?k?/N/g; s/N ([KMGT]i)?B\b/N B/g; s/[[:space:]]+/ /g; s/ $//' "$1"
}

for page; do
	folder=$work/$(echo "$page" | tr / _ | sed 's/\.md$//')
	mkdir -p "$folder/.blocks"
	ln -s "$source/examples" "$folder/examples"
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
		place=$page:$(cat "$base.line")
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
		(cd "$folder" && sh -e "$block") >"$base.out" 2>&1 </dev/null || code=$?
		if [ "$code" != "$expected" ]; then
			echo "$place: exit code $code, not $expected:"
			cat "$base.out"
			failed=$((failed + 1))
		elif [ -e "$base.text" ]; then
			plain "$base.out" >"$base.out.plain"
			plain "$base.text" | while IFS= read -r line; do
				[ "$line" = ... ] || grep -qxF -- "$line" "$base.out.plain" || echo "$line"
			done >"$base.absent"
			if [ -s "$base.absent" ]; then
				echo "$place: the page shows lines that were not printed (N for numbers):"
				cat "$base.absent"
				echo "--- printed:"
				cat "$base.out"
				failed=$((failed + 1))
			fi
		fi
	done
done
echo "$run blocks of commands were run, $skipped left out, $failed failed"
[ "$run" -gt 0 ] && [ "$failed" -eq 0 ]
