/* The fake runtime's memory: GPU memory between guard zones, and registered host memory. */
#include "gpu/cuda_bounce.h"
#include "tests/simt/simt_runtime_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum {
	GUARD_BYTES = 4096,
	GUARD = 0xa5,
	ALIGN_BYTES = 256,
	FILL = 0xcb,              /* of fresh memory, whose contents nobody may rely on */
	FILL_BYTES_MAX = 1 << 20, /* of each allocation */
	RANGES_MAX = 4096,
};

struct range {
	unsigned char *at;
	size_t bytes;
	int is_mapped; /* by cudaHostAlloc */
};
static struct range device[RANGES_MAX], host[RANGES_MAX];
static int device_count, host_count;

static int find(const struct range *list, int count, const void *at)
{
	for (int i = 0; i < count; i++)
		if ((const unsigned char *)at - list[i].at >= 0 &&
		        (size_t)((const unsigned char *)at - list[i].at) < list[i].bytes)
			return i;
	return -1;
}

static size_t room(const struct range *range, const void *at)
{
	return range->bytes - (size_t)((const unsigned char *)at - range->at);
}

/* ---- of the GPU ---- */

static size_t end_guard_bytes(size_t bytes)
{
	return GUARD_BYTES + (ALIGN_BYTES - bytes % ALIGN_BYTES) % ALIGN_BYTES;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
	int64_t total = simt_runtime.options.memory_bytes ? simt_runtime.options.memory_bytes : 80ll << 30;

	*total_bytes = (size_t)total;
	*free_bytes = (size_t)(total - simt_runtime.memory_bytes - simt_runtime.options.taken_bytes);
	return simt_enter();
}

cudaError_t cudaMalloc(void **at, size_t bytes)
{
	int64_t limit = simt_runtime.options.memory_bytes;
	cudaError_t error = simt_enter();
	size_t end_bytes = end_guard_bytes(bytes);
	unsigned char *map;

	*at = NULL;
	if (error || !bytes)
		return error;
	simt_runtime.malloc_count++;
	if (simt_runtime.malloc_count >= simt_runtime.options.refused_first &&
	        simt_runtime.malloc_count - simt_runtime.options.refused_first <
	                simt_runtime.options.refused_count)
		return simt_leave(cudaErrorMemoryAllocation);
	if (device_count == RANGES_MAX ||
	        (limit && simt_runtime.memory_bytes + simt_runtime.options.taken_bytes + (int64_t)bytes >
	                          limit))
		return simt_leave(cudaErrorMemoryAllocation);
	map = mmap(NULL, GUARD_BYTES + bytes + end_bytes, PROT_READ | PROT_WRITE,
	        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return simt_leave(cudaErrorMemoryAllocation);
	memset(map, GUARD, GUARD_BYTES);
	memset(map + GUARD_BYTES + bytes, GUARD, end_bytes);
	memset(map + GUARD_BYTES, FILL, bytes < FILL_BYTES_MAX ? bytes : FILL_BYTES_MAX);
	ASAN_POISON_MEMORY_REGION(map, GUARD_BYTES);
	ASAN_POISON_MEMORY_REGION(map + GUARD_BYTES + bytes, end_bytes);
	*at = map + GUARD_BYTES;
	device[device_count++] = (struct range){.at = map + GUARD_BYTES, .bytes = bytes};
	simt_runtime.memory_bytes += (int64_t)bytes;
	simt_runtime.live_count++;
	return cudaSuccess;
}

static int is_whole(const unsigned char *at, size_t bytes)
{
	while (bytes && at[bytes - 1] == GUARD)
		bytes--;
	return !bytes;
}

static int guards_are_whole(const struct range *r)
{
	unsigned char *begin = r->at - GUARD_BYTES, *end = r->at + r->bytes;
	int is_right;

	ASAN_UNPOISON_MEMORY_REGION(begin, GUARD_BYTES);
	ASAN_UNPOISON_MEMORY_REGION(end, end_guard_bytes(r->bytes));
	is_right = is_whole(begin, GUARD_BYTES) && is_whole(end, end_guard_bytes(r->bytes));
	ASAN_POISON_MEMORY_REGION(begin, GUARD_BYTES);
	ASAN_POISON_MEMORY_REGION(end, end_guard_bytes(r->bytes));
	if (!is_right)
		fprintf(stderr, "simt: something wrote beyond the %zu bytes of device memory at %p\n",
		        r->bytes, (void *)r->at);
	return is_right;
}

cudaError_t simt_check_guards(void)
{
	for (int i = 0; i < device_count; i++)
		if (!guards_are_whole(&device[i]))
			return cudaErrorIllegalAddress;
	return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
	cudaError_t error = simt_enter(), finished;
	int i = find(device, device_count, at);

	if (!at)
		return error;
	finished = simt_finish_all();
	error = error ? error : finished;
	if (i < 0 || device[i].at != at)
		return simt_leave(cudaErrorInvalidValue);
	if (!guards_are_whole(&device[i]))
		error = cudaErrorIllegalAddress;
	ASAN_UNPOISON_MEMORY_REGION(device[i].at - GUARD_BYTES, GUARD_BYTES);
	ASAN_UNPOISON_MEMORY_REGION(device[i].at + device[i].bytes, end_guard_bytes(device[i].bytes));
	munmap(device[i].at - GUARD_BYTES, GUARD_BYTES + device[i].bytes + end_guard_bytes(device[i].bytes));
	simt_runtime.memory_bytes -= (int64_t)device[i].bytes;
	simt_runtime.live_count--;
	device[i] = device[--device_count];
	return simt_leave(error);
}

int simt_runtime_find(const void *at, const void **base, int64_t *bytes)
{
	int i = find(device, device_count, at);

	if (i < 0)
		return 0;
	*base = device[i].at;
	*bytes = (int64_t)device[i].bytes;
	return 1;
}

cudaError_t simt_check_device_range(const void *at, size_t bytes)
{
	int i = find(device, device_count, at);

	return i < 0 || bytes > room(&device[i], at) ? cudaErrorInvalidValue : cudaSuccess;
}

/* ---- of the host ---- */

cudaError_t simt_check_host_range(const void *at, size_t bytes)
{
	int i = find(host, host_count, at);

	return i >= 0 && bytes > room(&host[i], at) ? cudaErrorInvalidValue : cudaSuccess;
}

int simt_is_registered(const void *at)
{
	return find(host, host_count, at) >= 0;
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
	int64_t limit = simt_runtime.options.pin_bytes;
	cudaError_t error = simt_enter();

	if (error)
		return error;
	if (!at || !bytes || flags)
		return simt_leave(cudaErrorInvalidValue);
	if (simt_runtime.options.refuses_register)
		return simt_leave(cudaErrorNotSupported);
	for (int i = 0; i < host_count; i++)
		if ((unsigned char *)at < host[i].at + host[i].bytes &&
		        host[i].at < (unsigned char *)at + bytes)
			return simt_leave(cudaErrorHostMemoryAlreadyRegistered);
	if (host_count == RANGES_MAX || (limit && simt_runtime.pinned_bytes + (int64_t)bytes > limit))
		return simt_leave(cudaErrorMemoryAllocation);
	host[host_count++] = (struct range){.at = at, .bytes = bytes};
	simt_runtime.pinned_bytes += (int64_t)bytes;
	simt_runtime.live_count++;
	return cudaSuccess;
}

static cudaError_t host_forget(void *at, int is_mapped)
{
	cudaError_t error = simt_enter(), finished = simt_finish_all();
	int i = find(host, host_count, at);

	error = error ? error : finished;
	if (i < 0 || host[i].at != at || host[i].is_mapped != is_mapped)
		return simt_leave(error       ? error
		                  : is_mapped ? cudaErrorInvalidValue
		                              : cudaErrorHostMemoryNotRegistered);
	simt_runtime.pinned_bytes -= (int64_t)host[i].bytes;
	simt_runtime.live_count--;
	if (is_mapped)
		munmap(host[i].at, host[i].bytes);
	host[i] = host[--host_count];
	return error;
}

cudaError_t cudaHostUnregister(void *at)
{
	return host_forget(at, 0);
}

cudaError_t cudaFreeHost(void *at)
{
	return at ? host_forget(at, 1) : simt_enter();
}

/* Not zero: nobody promises that. */
cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags)
{
	int64_t limit = simt_runtime.options.pin_bytes;
	cudaError_t error = simt_enter();

	*at = NULL;
	if (error)
		return error;
	if (!bytes || flags)
		return simt_leave(cudaErrorInvalidValue);
	if (host_count == RANGES_MAX || (limit && simt_runtime.pinned_bytes + (int64_t)bytes > limit) ||
	        (simt_runtime.options.refuses_alloc && bytes != CUDA_BOUNCE_BYTES))
		return simt_leave(cudaErrorMemoryAllocation);
	*at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (*at == MAP_FAILED) {
		*at = NULL;
		return simt_leave(cudaErrorMemoryAllocation);
	}
	memset(*at, FILL, bytes < FILL_BYTES_MAX ? bytes : FILL_BYTES_MAX);
	host[host_count++] = (struct range){.at = *at, .bytes = bytes, .is_mapped = 1};
	simt_runtime.pinned_bytes += (int64_t)bytes;
	simt_runtime.live_count++;
	return cudaSuccess;
}
