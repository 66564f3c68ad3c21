/* The fake CUDA runtime: settings and queries for tests. include/cuda_runtime_api.h has its functions.
 *
 * Mental model. A stream is a queue of pieces of work; queueing runs nothing. When a caller waits, pieces
 * run one after another in its thread. Each comes from the head of a stream; a seed chooses among the
 * streams that do not wait for an event. This stops once the awaited work is done: other work stays undone
 * as long as possible. An eager runtime does all possible work after every call.
 *
 * Time is virtual: a piece takes time_ns by its kind, streams run in parallel, and a wait ends at the
 * later of two times. So times do not depend on the seed. Device memory is host memory between guard
 * zones; freeing and every sync check the guards.
 *
 * Errors: after a sticky one (illegal address, launch failure, ECC ...), every later call returns it, and
 * queued work never runs. A call that fails does nothing, except that destroying and freeing still happen.
 * Streams and events that the caller forgets are counted, not freed.
 *
 * Not thread-safe.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_RUNTIME_H
#define FERRY_TESTS_SIMT_SIMT_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum simt_schedule { SIMT_LAZY, SIMT_EAGER };

struct simt_machine_options {
	int device_count, driver_version, capability; /* capability 90: 9.0 */
	const char *name;                             /* of the GPU; NULL: "SIMT emulator" */
	int64_t taken_bytes;                          /* of its memory, by another process */
	int64_t memory_bytes;                         /* of the GPU; 0: no limit */
	int64_t refused_first,
	        refused_count; /* allocations of GPU memory that another process comes before, by
	                                         their numbers from 1 */
	int64_t pin_bytes;     /* limit of pinned memory in all; 0: no limit */
	int refuses_register;  /* cudaHostRegister is not supported, as on some virtual machines */
	int refuses_alloc;     /* same for cudaHostAlloc, except for the buffer of gpu/cuda_bounce.h */
	enum simt_schedule schedule;
	uint64_t seed;              /* of the lazy schedule */
	int64_t kernel_ns, call_ns; /* time of a kernel and of a host function */
	double copy_bytes_per_ns;   /* speed of copies and memsets */
	int calls_most; /* host functions that may wait; with so many, whoever queues work blocks. 0: no limit */
	int calls_block;              /* while a host function runs, other streams stand still */
	int has_no_memory_operations; /* the driver lacks cuStreamWaitValue32 */
};

/* One GPU of capability 9.0 without limits, lazy, seed 0, a microsecond for everything, 1 byte per ns. */
struct simt_machine_options simt_runtime_defaults(void);

/* Sets the options from now on. Forgets the last error, also a sticky one, and simt_fail_after. Before the
 * first call, the environment sets them: FERRY_SIMT_SEED, _EAGER=1, _DEVICES, _CAPABILITY, _MEMORY_BYTES,
 * _PIN_BYTES, _TAKEN_BYTES, _REFUSED_FIRST, _REFUSED_COUNT, _NAME, _NO_REGISTER=1, _NO_ALLOC=1, and
 * _FAIL_WORK. The GPU is lost at the piece of work with the number _FAIL_WORK. */
void simt_runtime_set(const struct simt_machine_options *options);

/* The n-th call of the runtime from now on (1 is the next) fails with this error; 0 = none. Calls for the
 * name of an error do not count. Returns the number of calls since the last time. */
int64_t simt_fail_after(int64_t n, cudaError_t error);

/* The n-th piece of queued work from now on (1 is the next) does not run, and breaks the GPU with this sticky
 * error; 0 = none. Returns the number of pieces that ran since the last time. */
int64_t simt_fail_work_after(int64_t n, cudaError_t error);

/* CUDA_DEVICE_MAX_CONNECTIONS at the first call since simt_runtime_set; 0: it was not set. */
int simt_runtime_connections(void);

/* The number of live streams, events, allocations and registered ranges; at the end, more than 0 is a
 * leak. */
int simt_runtime_live(void);

/* 1 with the range if the address is in device memory (without guard zones). */
int simt_runtime_find(const void *at, const void **base, int64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
