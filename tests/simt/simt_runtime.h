/* The fake CUDA runtime: what tests set and ask of it. Its functions are those of include/cuda_runtime_api.h.
 *
 * Mental model. A stream is a queue of pieces of work; nothing runs when it is queued. When somebody waits,
 * one piece after the other runs, in the caller's thread, each taken from the head of a stream that a seed
 * chooses among those that do not wait for an event, until what was waited for is done, and no further: work
 * that nobody waits for stays undone as long as it can. Eager runtimes do all that can be done after every
 * call. Time is virtual: a piece takes time_ns by its kind, streams run beside each other, and a wait takes
 * the later of two, so that times do not depend on the seed. Device memory is host memory between guard
 * zones, which are looked at when it is freed and at every sync.
 *
 * Errors: the sticky ones (illegal address, launch failure, ECC ...) come back from every later call, and
 * what was queued is never run. A call that fails does nothing, but what destroys or frees does so. Streams
 * and events that the caller forgets are counted, not freed.
 *
 * One thread at a time.
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
	int64_t pin_bytes;                            /* how much may be pinned in all; 0: no limit */
	int refuses_register; /* cudaHostRegister is not supported, as on some virtual machines */
	int refuses_alloc;    /* nor is cudaHostAlloc, but for the buffer of gpu/cuda_bounce.h */
	enum simt_schedule schedule;
	uint64_t seed;              /* of the lazy schedule */
	int64_t kernel_ns, call_ns; /* how long a kernel and a host function take */
	double copy_bytes_per_ns;   /* of copies and memsets */
};

/* One GPU of capability 9.0 without limits, lazy, seed 0, a microsecond for everything, 1 byte per ns. */
struct simt_machine_options simt_runtime_defaults(void);

/* From now on. Forgets the last error, sticky or not, and what simt_fail_after said. Before the first call of
 * this, the environment does: FERRY_SIMT_SEED, _EAGER=1, _DEVICES, _CAPABILITY, _MEMORY_BYTES, _PIN_BYTES,
 * _TAKEN_BYTES, _NAME, _NO_REGISTER=1, _NO_ALLOC=1, and _FAIL_WORK, the number of the piece of work at which
 * the GPU is lost. */
void simt_runtime_set(const struct simt_machine_options *options);

/* The n-th call of the runtime from now on (1 is the next) fails with that error; 0: none. Calls that ask for
 * the name of an error do not count. Returns how many calls there were since the last time. */
int64_t simt_fail_after(int64_t n, cudaError_t error);

/* The n-th piece of queued work that is run from now on (1 is the next) is not run and breaks the GPU with
 * that error, which must be a sticky one; 0: none. Returns how many pieces were run since the last time. */
int64_t simt_fail_work_after(int64_t n, cudaError_t error);

/* What is alive: streams, events, allocations, registered ranges; a leak where it should be 0. */
int simt_runtime_live(void);

/* 1, and the range, where the address lies in device memory (guard zones not counted). */
int simt_runtime_find(const void *at, const void **base, int64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
