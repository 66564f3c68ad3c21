# Builds for arm64 Linux on another machine, with Debian's cross compiler and the libraries of scripts/arm64.sh:
#     cmake -S . -B build/arm64/build -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/arm64.cmake -DFERRY_SYSROOT=FOLDER
# FERRY_ARM64_CPU is the CPU that qemu-aarch64 shows to tests: one of `qemu-aarch64 -cpu help`.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(FERRY_SYSROOT "" CACHE PATH "Folder with arm64 libraries and headers")
set(FERRY_ARM64_CPU max CACHE STRING "CPU that qemu shows")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES FERRY_SYSROOT FERRY_ARM64_CPU)
set(CMAKE_SYSROOT ${FERRY_SYSROOT})
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu ${FERRY_ARM64_CPU} -L ${FERRY_SYSROOT})

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${FERRY_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${FERRY_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(FERRY_CUDA OFF CACHE STRING "nvcc of this machine has no libraries for arm64")
