/* Facts about GPUs and drivers, for display. Takes no device memory. Uses no CUDA types: every program may
 * include it, and call it in a build with the CUDA device. */
#ifndef FERRY_GPU_CUDA_INFO_H
#define FERRY_GPU_CUDA_INFO_H

#include <stdint.h>

enum { CUDA_GPUS_MAX = 32, CUDA_CAPABILITY_MIN = 80 };

struct cuda_gpu {
	char name[128];
	char pci_bus_id[32]; /* "0000:0f:00.0" */
	int64_t memory_bytes;
	int capability; /* 90 is 9.0 */
	int sm_count, copy_engine_count;
	int numa_node;        /* with memory next to the GPU; -1: there is one, or unknown */
	char processors[128]; /* next to the GPU, as the kernel lists them: "0-15,32-47"; "": unknown */
};

/* From one GPU to another. */
struct cuda_link {
	int can_copy;    /* without host memory between */
	int has_atomics; /* on the other's memory: over NVLink, not over PCIe */
	int rank;        /* by CUDA's count, the fastest is 0 */
};

/* Replaces /sys, where the system tells the places of GPUs; for tests. */
#define CUDA_SYSFS_ENVIRONMENT "FERRY_SYSFS"

/* Versions as CUDA counts: 12040 is 12.4. */
struct cuda_info {
	int runtime_version;
	int driver_version; /* the newest CUDA version of the driver; 0: no driver */
	int gpu_count;
	struct cuda_gpu gpu[CUDA_GPUS_MAX];
	struct cuda_link link[CUDA_GPUS_MAX][CUDA_GPUS_MAX];
	char trouble[512]; /* why no GPU can be used, one clause; "": gpu[0] can be used */
};
void cuda_info_read(struct cuda_info *info);

/* Number of GPUs that this process may use, at least one; or ERR_UNSUPPORTED (no driver, too old a driver,
 * no GPU) or ERR_DEVICE, with the remedy in the text. */
int cuda_gpu_count(int *count);

/* ERR_UNSUPPORTED if its compute capability is too low or nothing in this build runs on it. */
int cuda_gpu_check(const struct cuda_gpu *gpu);

/* The code of this build that runs on a GPU of that capability. `built` lists the capabilities of the build
 * in CMake's form, "80,90-real" (-real: only machine code; -virtual: only code for the driver to compile).
 * Machine code runs on GPUs of the same major version with the same or a later minor version. For later GPUs
 * the driver compiles the code for the highest capability below theirs. */
enum cuda_code { CUDA_CODE_NONE, CUDA_CODE_COMPILED_BY_DRIVER, CUDA_CODE_READY };
enum cuda_code cuda_code_for(int capability, const char *built);
extern const char cuda_built_for[]; /* of this build */

/* Chooses a rank's GPU among the `count` that the process sees: the one with the rank's index on its host. If
 * a launcher gave each rank one GPU (CUDA_VISIBLE_DEVICES), chooses that one. ERR_INPUT if there are more
 * ranks than GPUs. */
int cuda_gpu_choose(int *gpu, int rank_here, int count);

/* 0 or ERR_DEVICE. */
int cuda_gpu_read(struct cuda_gpu *gpu, int index);

#endif
