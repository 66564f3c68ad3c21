/* The CUDA device as a backend: open and close, arena, poison, statistics. */
#include "gpu/cuda_device.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/cuda_bounce.h"
#include "gpu/cuda_info.h"
#include "gpu/cuda_sensors.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

/* ---- open and close ---- */

static int read_properties(struct cuda_device *d, int index)
{
	struct cuda_gpu gpu;
	int rc = cuda_gpu_read(&gpu, index);

	if (!rc)
		rc = cuda_gpu_check(&gpu);
	if (!rc)
		rc = cuda_check(cudaDeviceGetAttribute(&d->launch.shared_bytes_max,
		                        cudaDevAttrMaxSharedMemoryPerBlockOptin, index),
		        "cudaDeviceGetAttribute");
	if (rc)
		return rc;
	log_info("cuda device: %s, %" PRId64 " MiB, compute capability %d.%d", gpu.name,
	        gpu.memory_bytes >> 20, gpu.capability / 10, gpu.capability % 10);
	if (cuda_code_for(gpu.capability, cuda_built_for) == CUDA_CODE_COMPILED_BY_DRIVER)
		log_warn("cuda device: this build has kernels for %s; the driver compiles them for compute "
		         "capability %d.%d at first use and keeps them in ~/.nv/ComputeCache. To avoid the "
		         "wait, build with -DFERRY_CUDA_ARCHITECTURES=%d",
		        cuda_built_for, gpu.capability / 10, gpu.capability % 10, gpu.capability);
	d->launch.capability = gpu.capability;
	d->launch.sm_count = gpu.sm_count;
	memcpy(d->name, gpu.name, sizeof(d->name));
	memcpy(d->pci_bus_id, gpu.pci_bus_id, sizeof(d->pci_bus_id));
	return 0;
}

/* The owning thread sleeps while it waits and does not spin, because the host's cores have other work (the
 * optimizer). */
static int open_gpu(struct cuda_device *d, int index)
{
	int rc = cuda_check(cudaSetDevice(index), "cudaSetDevice");

	if (!rc)
		rc = cuda_check(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), "cudaSetDeviceFlags");
	if (!rc)
		rc = read_properties(d, index);
	if (!rc)
		rc = cuda_clock_open(d);
	if (rc)
		return rc;
	rc = cuda_check(cudaMalloc(&d->workspace, RESERVE_MATMUL_BYTES), "cudaMalloc");
	if (rc)
		return err_note(rc, "workspace of cuBLASLt, %d MiB", RESERVE_MATMUL_BYTES >> 20);
	d->workspace_bytes = RESERVE_MATMUL_BYTES;
	d->stats.reserve_bytes = d->workspace_bytes;
	return cuda_caller_choose(d);
}

static void cuda_close(struct device *device)
{
	struct cuda_device *d = (struct cuda_device *)device;

	cuda_sensors_close(d->sensors);
	cuda_clock_close(d);
	cuda_bounce_unpin(d);
	if (d->workspace)
		cudaFree(d->workspace);
	pthread_mutex_destroy(&d->error_lock);
	mem_free(d);
}

static int cuda_open(struct device **device, const struct device_options *options)
{
	struct cuda_device *d;
	sigset_t all, before;
	int count, gpu = 0, rc = cuda_gpu_count(&count);

	if (!rc)
		rc = cuda_gpu_choose(&gpu, options->index, count);
	if (rc)
		return err_note(rc, "cuda device");
	d = mem_alloc(1, sizeof(*d));
	if (!d)
		return ERR_NOMEM;
	d->options = *options;
	d->opened_at_ns = clock_now_ns();
	pthread_mutex_init(&d->error_lock, NULL);
	sigfillset(&all); /* the driver starts threads here; the program's first thread handles signals */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = open_gpu(d, gpu);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		cuda_close(&d->base);
		return err_note(rc, "cuda device");
	}
	*device = &d->base;
	return 0;
}

/* ---- memory ---- */

/* The free bytes, or -1. */
static int64_t free_now(void)
{
	size_t free_bytes = 0, total_bytes = 0;

	return cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess ? (int64_t)free_bytes : -1;
}

static int64_t cuda_free_bytes(const struct device *device)
{
	const struct cuda_device *d = (const struct cuda_device *)device;
	int64_t free_bytes = free_now();

	return free_bytes < 0 ? 0 : free_bytes + d->workspace_bytes + device->arena_bytes;
}

static int arena_refused(cudaError_t error, int64_t bytes)
{
	int64_t free_bytes = free_now();

	if (error != cudaErrorMemoryAllocation)
		return cuda_check(error, "cudaMalloc");
	return err_set(ERR_NOMEM,
	        "cuda device: the plan needs %" PRId64 " MiB of GPU memory in one piece; %" PRId64
	        " MiB are free now: another process may hold some (nvidia-smi lists them); end it, or set "
	        "vram_budget lower",
	        bytes >> 20, free_bytes >> 20);
}

static int cuda_arena_open(struct device *device, dev_addr *base, int64_t bytes)
{
	struct cuda_device *d = (struct cuda_device *)device;
	void *arena = NULL;
	int rc = cuda_device_error(d);
	cudaError_t error;

	if (rc)
		return rc;
	error = cudaMalloc(&arena, (size_t)bytes);
	if (error != cudaSuccess)
		return arena_refused(error, bytes);
	if (d->options.poison) {
		rc = cuda_check(cudaMemset(arena, CUDA_POISON, (size_t)bytes), "cudaMemset");
		if (!rc)
			rc = cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
		if (rc) {
			cudaFree(arena);
			return cuda_device_fail(d, rc);
		}
	}
	d->stats.arena_touched_bytes = 0;
	*base = (dev_addr){(uint64_t)(uintptr_t)arena};
	return 0;
}

static void cuda_arena_close(struct device *device)
{
	cudaFree((void *)(uintptr_t)device->arena_base.value);
}

static void cuda_get_stats(const struct device *device, struct device_stats *stats)
{
	struct cuda_device *d =
	        (struct cuda_device *)(uintptr_t)device; /* reading the clock changes its events */
	struct device_stats all;

	stats->now_ns = cuda_clock_now_ns(d);
	all = d->stats;
	stats->arena_touched_bytes = all.arena_touched_bytes;
	stats->reserve_bytes = all.reserve_bytes;
	stats->copied_in_bytes = all.copied_in_bytes;
	stats->copied_out_bytes = all.copied_out_bytes;
	stats->flops = all.flops;
	stats->sent_node_bytes = all.sent_node_bytes;
	stats->sent_network_bytes = all.sent_network_bytes;
	for (int q = 0; q < QUEUE_COUNT; q++) {
		stats->busy_ns[q] = all.busy_ns[q];
		stats->wait_ns[q] = all.wait_ns[q];
	}
}

static int cuda_get_condition(struct device *device, struct device_condition *condition)
{
	struct cuda_device *d = (struct cuda_device *)device;

	if (!d->looked_for_sensors)
		d->sensors = cuda_sensors_open(d->pci_bus_id);
	d->looked_for_sensors = 1;
	return d->sensors ? cuda_sensors_read(d->sensors, condition) : 0;
}

const struct backend backend_cuda = {
        .kind = DEVICE_CUDA,
        .open = cuda_open,
        .close = cuda_close,
        .arena_open = cuda_arena_open,
        .arena_close = cuda_arena_close,
        .slab_open = cuda_slab_open,
        .slab_close = cuda_slab_close,
        .stream_open = cuda_stream_open,
        .stream_close = cuda_stream_close,
        .stream_sync = cuda_stream_sync,
        .event_open = cuda_event_open,
        .event_close = cuda_event_close,
        .event_record = cuda_event_record,
        .stream_wait = cuda_stream_wait,
        .event_sync = cuda_event_sync,
        .queue = cuda_stream_queue,
        .comm_open = cuda_comm_open,
        .comm_close = cuda_comm_close,
        .sum_host = cuda_comm_sum_host,
        .free_bytes = cuda_free_bytes,
        .get_stats = cuda_get_stats,
        .get_condition = cuda_get_condition,
};
