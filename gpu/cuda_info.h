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
	int numa_node;        /* whose memory is near; -1: there is one, or it is not known */
	char processors[128]; /* that are near, as the kernel lists them: "0-15,32-47"; "" where it does not
	                       */
};

/* From one GPU to another. */
struct cuda_link {
	int can_copy;    /* without host memory between */
	int has_atomics; /* on the other's memory: over NVLink, not over PCIe */
	int rank;        /* by CUDA's count, the fastest is 0 */
};

/* Replaces /sys: the system's word on where GPUs are, for tests. */
#define CUDA_SYSFS_ENVIRONMENT "FERRY_SYSFS"

/* Versions as CUDA counts: 12040 is 12.4. */
struct cuda_info {
	int runtime_version;
	int driver_version; /* the newest CUDA version of the driver; 0: no driver */
	int gpu_count;
	struct cuda_gpu gpu[CUDA_GPUS_MAX];
	struct cuda_link link[CUDA_GPUS_MAX][CUDA_GPUS_MAX];
	char trouble[512]; /* why no GPU can be used, one clause; "" where gpu[0] can */
};
void cuda_info_read(struct cuda_info *info);

/* Number of GPUs that this process may use, at least one; or ERR_UNSUPPORTED (no driver, too old a driver,
 * no GPU) or ERR_DEVICE, with the remedy in the text. */
int cuda_gpu_count(int *count);

/* ERR_UNSUPPORTED where its compute capability is too low, or nothing in this build runs on it. */
int cuda_gpu_check(const struct cuda_gpu *gpu);

/* What of this build runs on a GPU of that capability. `built` lists the capabilities that it was compiled
 * for as CMake has them, "80,90-real" (-real: no code for the driver to compile, -virtual: no other): machine
 * code of one runs on those of the same major version and a minor one not below; for
 * later GPUs the driver compiles what the build has for the highest capability below theirs. */
enum cuda_code { CUDA_CODE_NONE, CUDA_CODE_COMPILED_BY_DRIVER, CUDA_CODE_READY };
enum cuda_code cuda_code_for(int capability, const char *built);
extern const char cuda_built_for[]; /* of this build */

/* Which GPU is a rank's own: its index among the ranks of its host, of `count` that the process sees. A
 * launcher that gave each rank one GPU (CUDA_VISIBLE_DEVICES) is obeyed. ERR_INPUT where there are more ranks
 * than GPUs. */
int cuda_gpu_choose(int *gpu, int rank_here, int count);

/* 0 or ERR_DEVICE. */
int cuda_gpu_read(struct cuda_gpu *gpu, int index);

#endif
