/* The emulator of GPU kernels: functions for its fake CUDA runtime, its tests and the fake headers.
 *
 * Mental model. A kernel is an ordinary function, compiled by the host's compiler against
 * tests/simt/include. A launch runs block after block. The threads of a block are fibres, which take turns
 * whenever one waits at a barrier or for its warp. A seed decides which block and which thread goes next
 * (simt_set_order): results must not depend on it.
 *
 * If the kernels were compiled with -fsanitize=thread, each of their loads and stores calls the emulator
 * (not ThreadSanitizer's library). It checks bounds, races, alignment, and shared memory that nobody
 * wrote. The first finding ends the launch; its text names kernel, block, thread, address and error.
 * Nothing hangs: threads that wait for one that never comes are a finding.
 *
 * One launch runs at a time in the whole process. docs/design/emulator.md lists what it finds and what
 * not.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_H
#define FERRY_TESTS_SIMT_SIMT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SIMT_WARP = 32, SIMT_THREADS_MAX = 1024, SIMT_ACCESS_MAX = 24 };

/* Bytes of global memory that a launch may read or write. It may read back its own writes. */
struct simt_access {
	uint64_t base;
	int64_t bytes;
	int writes;
};

/* One launch. cudaLaunchKernelEx makes it; it runs when its stream reaches it. */
struct simt_launch {
	void (*run)(void *args);  /* calls the kernel in the running thread */
	void (*drop)(void *args); /* frees args */
	void *args;
	size_t args_bytes;
	const void *kernel;
	uint32_t grid[3], block[3];
	size_t dynamic_bytes; /* of shared memory */
	uint64_t order;       /* the seed of simt_set_order when it was queued */
	uint64_t op;          /* of simt_set_access: launches of one op see the earlier writes */
	int access_count;     /* -1: any address is allowed */
	struct simt_access accesses[SIMT_ACCESS_MAX];
};

/* A launch of the kernel, with the current order and accesses; it owns args. Without memory: NULL, and
 * args are freed. */
struct simt_launch *simt_launch_make(void (*run)(void *args), void (*drop)(void *args), void *args,
        size_t args_bytes, const void *kernel, const uint32_t grid[3], const uint32_t block[3],
        size_t dynamic_bytes);
void simt_launch_free(struct simt_launch *launch); /* NULL is allowed */

/* Runs it to its end: 0, or a cudaError_t after a finding. Thread-safe; waits while another launch runs. */
int simt_run(struct simt_launch *launch);

/* The text of the last finding, or "". simt_forget clears it. */
const char *simt_finding(void);
int simt_finding_error(void); /* its cudaError_t, or 0 */
void simt_forget(void);

/* Findings go to stderr at once; 0 turns that off, for tests with planted bugs. */
void simt_set_loud(int on);

/* The order of blocks and threads for launches queued from now on. 0 is the plain order. */
void simt_set_order(uint64_t seed);

/* The accesses that launches queued from now on may make: those of one op. count -1 allows any address. At
 * most SIMT_ACCESS_MAX. */
void simt_set_access(const struct simt_access *list, int count);

/* The host, a memset or a copy wrote these bytes of global memory, during the op of simt_set_access or after
 * it. */
void simt_note_write(const void *at, size_t bytes);

/* simt_set_dynamic_max is cudaFuncSetAttribute: the maximum dynamic shared memory of a kernel.
 * simt_check_config checks a launch: 0 or a cudaError_t. */
int simt_set_dynamic_max(const void *kernel, int bytes);
/* 1 after simt_set_dynamic_max. Other kernels have SIMT_SHARED_PLAIN for their arrays and dynamic memory. */
int simt_asked_for_dynamic(const void *kernel);
/* The kernel's preferred share of shared memory in percent. Stricter than CUDA: a launch with much
 * dynamic shared memory needs 100. With the driver's own choice a multiprocessor may have room for one
 * block instead of two. */
void simt_set_carveout(const void *kernel, int percent);
int simt_check_config(
        const void *kernel, const uint32_t grid[3], const uint32_t block[3], size_t dynamic_bytes);

/* 1 if the kernels in this program were compiled with checks. */
int simt_has_checks(void);

/* Shared memory of a block: SIMT_SHARED_PLAIN without cudaFuncSetAttribute; at most simt_shared_max() on a
 * GPU with the compute capability of simt_set_capability (90 = 9.0). */
enum { SIMT_SHARED_PLAIN = 48 << 10 };
void simt_set_capability(int capability);
int simt_shared_max(void);

/* In the fake runtime (simt_runtime.c): takes ownership of the launch, and runs it with simt_run when its
 * stream reaches it. A cudaError_t. */
int simt_runtime_queue_launch(void *stream, struct simt_launch *launch);

#ifdef __cplusplus
}
#endif
#endif
