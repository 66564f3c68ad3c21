#!/bin/sh
# cuda_architectures.sh SOURCE FOLDER: which compute capabilities a build is for, by what nvidia-smi and nvcc say here
set -eu

source=$1
folder=$2
rm -rf "$folder"
mkdir -p "$folder"
failed=0

# expect WHAT NVIDIA-SMI NVCC: each of the two is a script's text
expect() {
	printf '#!/bin/sh\n%s\n' "$2" >"$folder/nvidia-smi"
	printf '#!/bin/sh\n%s\n' "$3" >"$folder/nvcc"
	chmod +x "$folder/nvidia-smi" "$folder/nvcc"
	seen=$(PATH=$folder:$PATH cmake -P "$source/cmake/cuda_architectures.cmake" 2>&1)
	if [ "$seen" != "$1" ]; then
		echo "'$2', '$3': $seen, not $1"
		failed=1
	fi
}

nvcc='printf "sm_75\nsm_80\nsm_86\nsm_89\nsm_90\nsm_90a\nsm_100\nsm_120\n"'
expect '89 ON' 'echo 8.9' "$nvcc"
expect '80;90 ON' 'printf "9.0\n8.0\n9.0\n"' "$nvcc"
expect '90;120 ON' 'printf "12.0\n9.0\n"' "$nvcc"
expect '80 OFF' 'echo 7.5' "$nvcc"           # older than ferry needs
expect '86 ON' 'printf "7.5\n8.6\n"' "$nvcc" # beside one that it can use
expect '80 OFF' 'echo 12.0' 'echo sm_80; echo sm_90'
expect '80 OFF' 'echo 10.3' "$nvcc"          # newer than this nvcc
expect '80 OFF' 'echo "NVIDIA-SMI has failed"; exit 9' "$nvcc"
expect '80 OFF' 'echo "No devices were found"' "$nvcc"
expect '80 OFF' 'echo "[N/A]"' "$nvcc"
expect '80 OFF' 'echo 9.0' 'exit 1'
exit $failed
