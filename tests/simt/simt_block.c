/* Block functions for kernels: thread indices, shared memory, asynchronous copies into it. */
#include "tests/simt/simt_machine.h"

#include <stdlib.h>
#include <string.h>

enum { ARRAY_GAP = 256 };

struct simt_index simt_thread_index(void)
{
	return machine.self->index;
}

struct simt_index simt_block_index(void)
{
	return machine.block;
}

struct simt_index simt_block_size(void)
{
	return machine.block_size;
}

struct simt_index simt_grid_size(void)
{
	return machine.grid_size;
}

/* ---- shared memory ---- */

/* Arrays stand apart, each at an odd multiple of 16: no wider alignment is promised. */
static void *array_find(const void *site, size_t bytes)
{
	struct shared_array *a = machine.arrays;
	int i = 0;

	while (i < machine.array_count && a[i].site != site)
		i++;
	if (i < machine.array_count) {
		if (a[i].bytes != bytes)
			thread_stop(FOUND_FAILURE,
			        "one shared array has %zu bytes for one thread, %zu for another", a[i].bytes,
			        bytes);
		return a[i].at;
	}
	if (site)
		machine.static_bytes += (bytes + 15) / 16 * 16;
	if (i == ARRAYS_MAX || machine.static_bytes > SIMT_SHARED_PLAIN ||
	        machine.static_bytes + machine.launch->dynamic_bytes >
	                (simt_asked_for_dynamic(machine.launch->kernel) ? (size_t)simt_shared_max()
	                                                                : (size_t)SIMT_SHARED_PLAIN))
		thread_stop(FOUND_FAILURE, "too much shared memory: %zu bytes in arrays, %zu dynamic",
		        machine.static_bytes, machine.launch->dynamic_bytes);
	a[i].site = site;
	a[i].bytes = bytes;
	a[i].at = machine.shared + machine.shared_used + ARRAY_GAP + 16;
	machine.shared_used += ARRAY_GAP + (bytes + ARRAY_GAP - 1) / ARRAY_GAP * ARRAY_GAP;
	machine.array_count++;
	return a[i].at;
}

void *simt_shared_at(const void *site, size_t bytes)
{
	return array_find(site, bytes);
}

void *simt_shared_dynamic(void)
{
	return array_find(NULL, machine.launch->dynamic_bytes);
}

/* ---- cp.async: nothing is there before it was waited for ---- */

void simt_async(void *shared, const void *global, int bytes, int valid)
{
	struct thread *self = machine.self;

	if ((uintptr_t)shared % (unsigned)bytes || (uintptr_t)global % (unsigned)bytes)
		thread_stop(FOUND_MISALIGNED, "misaligned: cp.async of %d bytes from %p to %p", bytes, global,
		        shared);
	if (valid < 0 || valid > bytes)
		thread_stop(FOUND_FAILURE, "cp.async of %d bytes", valid);
	if (valid)
		check_access_of(__builtin_return_address(0), global, (size_t)valid, ACCESS_READ, 1);
	machine.at = __builtin_return_address(0);
	check_async_begin(shared, (size_t)bytes);
	machine.at = NULL;
	if (self->copy_count == self->copy_capacity) {
		int capacity = self->copy_capacity ? 2 * self->copy_capacity : 16;
		struct async_copy *more = realloc(self->copies, (size_t)capacity * sizeof(*more));

		if (!more)
			thread_stop(FOUND_FAILURE, "the emulator is out of memory");
		self->copies = more;
		self->copy_capacity = capacity;
	}
	self->copies[self->copy_count++] = (struct async_copy){shared, global, bytes, valid, self->group};
}

void simt_async_commit(void)
{
	machine.self->group++;
}

void simt_async_wait(int pending)
{
	struct thread *self = machine.self;
	int kept = 0;

	for (int i = 0; i < self->copy_count; i++) {
		struct async_copy *c = &self->copies[i];

		if (c->group + (uint32_t)pending >= self->group) {
			self->copies[kept++] = *c;
			continue;
		}
		memset(c->shared, 0, (size_t)c->bytes);
		memcpy(c->shared, c->global, (size_t)c->valid);
		check_async_end(c->shared, (size_t)c->bytes);
	}
	self->copy_count = kept;
}

void simt_atomic(const void *at, int bytes)
{
	if (machine.self)
		check_access_of(__builtin_return_address(0), at, (size_t)bytes, ACCESS_ATOMIC, (size_t)bytes);
}

void simt_atomic_load(void *value, const void *at, int bytes)
{
	memcpy(value, at, (size_t)bytes);
}

void simt_atomic_store(void *at, const void *value, int bytes)
{
	memcpy(at, value, (size_t)bytes);
}

void simt_fail(const char *what, const char *file, int line)
{
	thread_stop(FOUND_ASSERT, "%s at %s:%d", what, file, line);
}
