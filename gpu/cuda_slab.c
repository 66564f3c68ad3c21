/* Pinned host memory: registered in pieces, within the limits of the process. */
#include "gpu/cuda_device.h"

#include "base/log.h"
#include "base/size.h"
#include "host/pool.h"
#include "host/slab.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

/* The pinned part is a slab's first pinned_bytes, in pieces of CUDA_PIN_BYTES from its base. */
static void unpin(struct device_slab *slab)
{
	for (int64_t at = 0; at < slab->pinned_bytes; at += CUDA_PIN_BYTES)
		cudaHostUnregister((char *)slab->base + at);
	slab->pinned_bytes = 0;
}

static void say_refused(const struct device_slab *slab, cudaError_t error)
{
	struct rlimit lock;
	char limit[64] = "no limit";

	if (!getrlimit(RLIMIT_MEMLOCK, &lock) && lock.rlim_cur != RLIM_INFINITY)
		snprintf(limit, sizeof(limit), "%.0f MiB", (double)lock.rlim_cur / (1 << 20));
	log_warn("cuda device: only %" PRId64 " of %" PRId64
	         " MiB of host memory could be pinned (cudaHostRegister: %s); copies of the rest are staged "
	         "and slower. Limits: locked memory %s (ulimit -l), the memory of the cgroup or container, "
	         "free RAM",
	        slab->pinned_bytes >> 20, slab->bytes >> 20, cudaGetErrorString(error), limit);
}

int cuda_slab_open(struct device *device, struct device_slab *slab)
{
	struct cuda_device *d = (struct cuda_device *)device;
	int rc = cuda_device_error(d);

	if (!rc)
		rc = slab_map_runs(
		        &slab->base, slab->bytes, "cuda device: a slab", slab->runs, slab->run_count);
	if (rc)
		return rc;
	while (slab->kind == SLAB_PINNED && slab->pinned_bytes < slab->bytes) {
		int64_t piece = min_i64(CUDA_PIN_BYTES, slab->bytes - slab->pinned_bytes);
		cudaError_t error;

		/* Registering touches pages too, but on one thread, which takes a minute for what the
		 * host's threads zero in seconds. Where the kernel does not know how, registering does. */
		if (d->options.pool)
			rc = slab_touch(d->options.pool, slab->base, slab->pinned_bytes, piece, slab->runs,
			        slab->run_count);
		if (rc) {
			cuda_slab_close(device, slab);
			return rc;
		}
		error = cudaHostRegister(
		        (char *)slab->base + slab->pinned_bytes, (size_t)piece, cudaHostRegisterDefault);

		if (error != cudaSuccess) {
			say_refused(slab, error);
			break;
		}
		slab->pinned_bytes += piece;
	}
	return 0;
}

void cuda_slab_close(struct device *device, struct device_slab *slab)
{
	(void)device;
	unpin(slab);
	slab_unmap(slab->base, slab->bytes);
}

int64_t cuda_slab_reach(int *is_pinned, const struct cuda_device *device, const void *host, int64_t bytes)
{
	*is_pinned = 0;
	for (int i = 0; i < device->base.slab_count; i++) {
		const struct device_slab *s = &device->base.slabs[i];
		uint64_t offset = (uint64_t)(uintptr_t)host - (uint64_t)(uintptr_t)s->base;

		if (offset < (uint64_t)s->pinned_bytes) {
			*is_pinned = 1;
			return min_i64(bytes, CUDA_PIN_BYTES - (int64_t)(offset % CUDA_PIN_BYTES));
		}
	}
	return bytes;
}
