/* What there is of GPUs and drivers, for people. Opens nothing that would take device memory. No types of
 * CUDA's: every program may include it, and call it where the CUDA device was built.
 */
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
	int numa_node; /* whose memory is near; -1: there is one, or it is not known */
};

/* Versions as CUDA counts: 12040 is 12.4. */
struct cuda_info {
	int runtime_version;
	int driver_version; /* the newest CUDA that the driver serves; 0: no driver */
	int gpu_count;
	struct cuda_gpu gpu[CUDA_GPUS_MAX];
	char trouble[512]; /* why no GPU can be used, one clause; "" where gpu[0] can */
};
void cuda_info_read(struct cuda_info *info);

/* How many GPUs this process may use, at least one; or ERR_UNSUPPORTED (no driver, one that is too old, no
 * GPU), ERR_DEVICE, and what to do about it. */
int cuda_gpu_count(int *count);

/* ERR_UNSUPPORTED where its compute capability is too low. */
int cuda_gpu_check(const struct cuda_gpu *gpu);

/* 0 or ERR_DEVICE. */
int cuda_gpu_read(struct cuda_gpu *gpu, int index);

#endif
