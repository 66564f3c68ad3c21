/* The emulator of GPU kernels: what its fake CUDA runtime, its tests and the fake headers call.
 *
 * Mental model. A kernel is an ordinary function, compiled by the host's compiler against tests/simt/include.
 * A launch runs block after block; the threads of a block are fibres, which take turns whenever one waits at
 * a barrier or for its warp. Which block and which thread goes next follows from a seed (simt_set_order):
 * results may not depend on it. Where the kernels were compiled with -fsanitize=thread, each of their loads
 * and stores calls the emulator (not ThreadSanitizer's library), which checks it: bounds, races, alignment,
 * shared memory that nobody wrote. The first finding ends the launch, with a text that names kernel, block,
 * thread, address and what was wrong. Nothing hangs: threads that wait for one that never comes are a
 * finding.
 *
 * One launch runs at a time in the whole process. docs/design/emulator.md says what is found and what is not.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_H
#define FERRY_TESTS_SIMT_SIMT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SIMT_WARP = 32, SIMT_THREADS_MAX = 1024, SIMT_ACCESS_MAX = 20 };

/* Bytes of global memory that a launch may read, or write (and read back what it wrote). */
struct simt_access {
	uint64_t base;
	int64_t bytes;
	int writes;
};

/* One launch, made by cudaLaunchKernelEx and run when its stream comes to it. */
struct simt_launch {
	void (*run)(void *args);  /* calls the kernel in the running thread */
	void (*drop)(void *args); /* frees args */
	void *args;
	size_t args_bytes;
	const void *kernel;
	uint32_t grid[3], block[3];
	size_t dynamic_bytes; /* of shared memory */
	uint64_t order;       /* of simt_set_order when it was queued */
	uint64_t op;          /* of simt_set_access: launches of one op see what the earlier ones wrote */
	int access_count;     /* -1: any address is allowed */
	struct simt_access accesses[SIMT_ACCESS_MAX];
};

/* A launch of the kernel, with the order and accesses that are set now; it owns args. NULL without memory
 * (args are then freed). */
struct simt_launch *simt_launch_make(void (*run)(void *args), void (*drop)(void *args), void *args,
        size_t args_bytes, const void *kernel, const uint32_t grid[3], const uint32_t block[3],
        size_t dynamic_bytes);
void simt_launch_free(struct simt_launch *launch); /* NULL is allowed */

/* Runs it to its end: 0, or a cudaError_t after a finding. Any thread; waits while another one runs. */
int simt_run(struct simt_launch *launch);

/* The text of the last finding, "" when there was none; simt_forget makes it "" again. */
const char *simt_finding(void);
int simt_finding_error(void); /* its cudaError_t, or 0 */
void simt_forget(void);

/* Findings are printed to stderr as they are made; 0 stops that, for tests that plant them. */
void simt_set_loud(int on);

/* The order of blocks and threads of the launches queued from now on. 0 is the plain one. */
void simt_set_order(uint64_t seed);

/* The accesses of the launches queued from now on: those of one op. count -1 allows any. At most
 * SIMT_ACCESS_MAX. */
void simt_set_access(const struct simt_access *list, int count);

/* The host, or a memset or copy that is not a kernel, wrote these bytes of global memory, as part of the op
 * of simt_set_access or after it. */
void simt_note_write(const void *at, size_t bytes);

/* cudaFuncSetAttribute: how much dynamic shared memory this kernel may ask for; and what a launch with that
 * much gets: 0 or a cudaError_t. */
int simt_set_dynamic_max(const void *kernel, int bytes);
int simt_check_config(
        const void *kernel, const uint32_t grid[3], const uint32_t block[3], size_t dynamic_bytes);

/* 1 where the kernels in this program were compiled with checks. */
int simt_has_checks(void);

/* The shared memory of a block: without cudaFuncSetAttribute, and the most that there is on a GPU of the
 * compute capability of simt_set_capability (90: 9.0). */
enum { SIMT_SHARED_PLAIN = 48 << 10 };
void simt_set_capability(int capability);
int simt_shared_max(void);

/* Of the fake runtime (simt_runtime.c): takes the launch, runs it with simt_run in the order of the stream,
 * and frees it. A cudaError_t. */
int simt_runtime_queue_launch(void *stream, struct simt_launch *launch);

#ifdef __cplusplus
}
#endif
#endif
