#!/bin/sh
# cuda_ptx.sh FOLDER OBJECTS...: takes the PTX out of the objects of kernels, which hold it as text (--no-compress)
# without its indentation, and reads it by cuda_ptx.awk
set -eu

here=$(dirname "$0")
folder=$1
shift
rm -rf "$folder"
mkdir -p "$folder"
for object; do
	case $object in
	*.cu.o) tr '\000' '\n' <"$object" | LC_ALL=C awk '
		/^\.version / { header = 1; inside = 0 }
		/^\.target / && header { inside = 1 }
		/[^\t -~]/ || /^\t*\.section/ { inside = 0; header = 0 } # behind the text
		inside { print (/^[.{}()]/ ? "" : "\t") $0 }' >"$folder/$(basename "$object" .cu.o).ptx" ;;
	esac
done
exec awk -f "$here/cuda_ptx.awk" "$folder"/*.ptx
