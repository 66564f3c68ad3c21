/* Pinned host memory, registered in pieces, and the ways around a machine that refuses it. */
#include "gpu/cuda_bounce.h"
#include "gpu/cuda_device.h"

#include "base/log.h"
#include "base/size.h"
#include "host/pool.h"
#include "host/slab.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* The pinned part is a slab's first pinned_bytes, in pieces of CUDA_PIN_BYTES from its base. */
static void unpin(struct device_slab *slab)
{
	for (int64_t at = 0; at < slab->pinned_bytes; at += CUDA_PIN_BYTES)
		cudaHostUnregister((char *)slab->base + at);
	slab->pinned_bytes = 0;
}

/* ---- refused ---- */

static void say_refused(struct cuda_device *d, const struct device_slab *slab, cudaError_t error)
{
	struct rlimit lock;
	char limit[64] = "no limit";

	if (d->said_refused++)
		return;
	if (!getrlimit(RLIMIT_MEMLOCK, &lock) && lock.rlim_cur != RLIM_INFINITY)
		snprintf(limit, sizeof(limit), "%.0f MiB", (double)lock.rlim_cur / (1 << 20));
	log_warn("cuda device: only %" PRId64 " of %" PRId64
	         " MiB of host memory could be pinned (cudaHostRegister: %s); copies of the rest %s. Limits: "
	         "locked memory %s (ulimit -l), the memory of the cgroup or container, free RAM",
	        slab->pinned_bytes >> 20, slab->bytes >> 20, cudaGetErrorString(error),
	        d->bounce_memory ? "go through a pinned buffer and are slower"
	                         : "wait for the GPU and overlap with nothing",
	        limit);
}

struct zero_task {
	char *base;
	int64_t bytes;
};
enum { ZERO_BYTES = 64 << 20 };

static void zero(void *context, int64_t task, int worker)
{
	const struct zero_task *z = context;

	(void)worker;
	memset(z->base + task * ZERO_BYTES, 0, (size_t)min_i64(ZERO_BYTES, z->bytes - task * ZERO_BYTES));
}

/* Gets the whole slab from the driver instead of the mapping. Returns 0 if the driver refuses too. The driver
 * chooses the NUMA nodes; runs have no effect. */
static int alloc_instead(struct cuda_device *d, struct device_slab *slab, cudaError_t error)
{
	struct zero_task z = {.bytes = slab->bytes};
	int64_t tasks = (slab->bytes + ZERO_BYTES - 1) / ZERO_BYTES;
	void *base = NULL;

	slab_unmap(slab->base, slab->bytes); /* first, so that memory is not needed twice */
	slab->base = NULL;
	if (cudaHostAlloc(&base, (size_t)slab->bytes, cudaHostAllocDefault) != cudaSuccess)
		return 0;
	z.base = base;
	if (d->options.pool)
		pool_run(d->options.pool, tasks, zero, &z);
	for (int64_t i = 0; i < tasks && !d->options.pool; i++)
		zero(&z, i, 0);
	slab->base = base;
	slab->pinned_bytes = slab->bytes;
	slab->is_driver_memory = 1;
	if (!d->said_instead++)
		log_warn("cuda device: this machine does not pin memory that ferry allocated "
		         "(cudaHostRegister: %s); the driver allocates it instead. Copies are as fast; NUMA "
		         "nodes are not chosen",
		        cudaGetErrorString(error));
	return 1;
}

static int map(struct device_slab *slab)
{
	return slab_map_runs(&slab->base, slab->bytes, "cuda device: a slab", slab->runs, slab->run_count);
}

/* If nothing was pinned, takes memory of the driver, or copies go through a pinned buffer. If a part was
 * pinned, there is a limit, and the buffer must fit below it. */
static int after_refusal(struct cuda_device *d, struct device_slab *slab, cudaError_t error)
{
	int rc = 0;

	if (!slab->pinned_bytes) {
		if (alloc_instead(d, slab, error))
			return 0;
		rc = map(slab);
	}
	if (!rc && !cuda_bounce_pin(d) && slab->pinned_bytes) {
		slab->pinned_bytes -= CUDA_PIN_BYTES;
		cudaHostUnregister((char *)slab->base + slab->pinned_bytes);
		cuda_bounce_pin(d);
	}
	if (!rc)
		say_refused(d, slab, error);
	return rc;
}

/* ---- open, close ---- */

int cuda_slab_open(struct device *device, struct device_slab *slab)
{
	struct cuda_device *d = (struct cuda_device *)device;
	int rc = cuda_device_error(d);

	if (!rc)
		rc = map(slab);
	if (rc)
		return rc;
	while (slab->kind == SLAB_PINNED && slab->pinned_bytes < slab->bytes) {
		int64_t piece = min_i64(CUDA_PIN_BYTES, slab->bytes - slab->pinned_bytes);
		cudaError_t error;

		/* Registering touches pages too, but on one thread: it takes a minute, the pool's threads
		 * take seconds. If the kernel cannot touch pages this way, registering does it. */
		if (d->options.pool)
			rc = slab_touch(d->options.pool, slab->base, slab->pinned_bytes, piece, slab->runs,
			        slab->run_count);
		if (rc) {
			cuda_slab_close(device, slab);
			return rc;
		}
		error = cudaHostRegister(
		        (char *)slab->base + slab->pinned_bytes, (size_t)piece, cudaHostRegisterDefault);
		if (error != cudaSuccess)
			return after_refusal(d, slab, error);
		slab->pinned_bytes += piece;
	}
	return 0;
}

void cuda_slab_close(struct device *device, struct device_slab *slab)
{
	(void)device;
	if (slab->is_driver_memory) {
		cudaFreeHost(slab->base);
		return;
	}
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
			if (s->is_driver_memory)
				return bytes;
			return min_i64(bytes, CUDA_PIN_BYTES - (int64_t)(offset % CUDA_PIN_BYTES));
		}
	}
	return bytes;
}
