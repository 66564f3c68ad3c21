/* The state of the one launch that runs, for the files of the emulator.
 *
 * A thread is ready, waits at the block's barrier, waits for lanes of its warp, or has ended. Whoever arrives
 * last where threads wait does the work for all of them (what a shuffle exchanges, a matrix product) and
 * makes them ready; nothing else moves a thread on. Order in memory is told by `time`, a number that grows at
 * each barrier, each __syncwarp and each new block: an access at an earlier time than what the barrier set is
 * over.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_MACHINE_H
#define FERRY_TESTS_SIMT_SIMT_MACHINE_H

#include "tests/simt/simt.h"
#include "tests/simt/simt_device.h"
#include "tests/simt/simt_fibre.h"

enum { WARPS_MAX = SIMT_THREADS_MAX / SIMT_WARP, ARRAYS_MAX = 64, SHARED_REGION_BYTES = 512 << 10 };

enum thread_state { THREAD_READY, THREAD_AT_BARRIER, THREAD_IN_WARP, THREAD_ENDED };

struct warp;

/* What lanes of a warp do together. complete() runs once all lanes of the mask wait with their slots. */
struct meeting {
	const char *name;
	void (*complete)(struct warp *warp, uint32_t mask);
	int aligned; /* at one place in the source */
};

/* One cp.async that was not waited for. */
struct async_copy {
	char *shared;
	const char *global;
	int bytes, valid;
	uint32_t group;
};

struct thread {
	struct fibre fibre;
	struct warp *warp;
	struct simt_index index;
	int number, lane;
	enum thread_state state;
	const struct meeting *meeting; /* of a thread that waits in its warp */
	void *slot;
	uint32_t mask;
	const char *file; /* where it waits */
	int line;
	int predicate, vote_result; /* of a barrier */
	struct async_copy *copies;
	int copy_count, copy_capacity;
	uint32_t group; /* groups of copies ended so far */
};

struct warp {
	struct thread *lanes; /* lane_count of them, in a row */
	int lane_count;
	uint32_t ended, waiting; /* lanes */
	uint32_t time;           /* of the last barrier or __syncwarp */
};

/* A shared array of the running block. */
struct shared_array {
	const void *site; /* NULL: the dynamic one */
	char *at;
	size_t bytes;
};

struct machine {
	struct fibre main;
	struct thread *self; /* NULL: no kernel runs */
	struct simt_launch *launch;
	struct simt_index block, block_size, grid_size;
	struct thread threads[SIMT_THREADS_MAX];
	struct warp warps[WARPS_MAX];
	int thread_count, ended_count, barrier_count;
	enum simt_vote vote;
	struct thread *ready[SIMT_THREADS_MAX];
	int ready_first, ready_count;
	uint64_t random;
	char *shared; /* SHARED_REGION_BYTES */
	struct shared_array arrays[ARRAYS_MAX];
	int array_count;
	size_t shared_used; /* of the region, gaps included */
	size_t static_bytes;
	uint32_t time;                                           /* now */
	uint32_t op_time, launch_time, block_time, barrier_time; /* when these began */
	uint32_t end_time;                                       /* after the launch before this one */
	const void *at; /* the code of the access that is looked at, or NULL */
	int error;      /* of the finding that ended the launch, or 0 */
	int checks;     /* 1: kernels are instrumented */
};

extern struct machine machine;

/* Errors of CUDA that findings become: cudaErrorIllegalAddress and so on. */
enum { FOUND_BAD_ADDRESS = 700, FOUND_MISALIGNED = 716, FOUND_FAILURE = 719, FOUND_ASSERT = 710 };

/* Takes note of a finding, unless there is one: in front of the text come kernel, block and, unless NULL,
 * thread.
 */
void finding_set(int error, const struct thread *thread, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* The same of the running thread, and ends the launch. */
void thread_stop(int error, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));

/* Lets others run until somebody made this thread ready. */
void thread_wait(enum thread_state state, const char *file, int line);
void thread_ready(struct thread *thread);

/* The running thread meets the lanes of mask, itself among them. */
void warp_meet(uint32_t mask, const struct meeting *meeting, void *slot, const char *file, int line);

/* ---- simt_check.c; all of it does nothing without checks ---- */

void check_block_begin(void);
void check_launch_begin(void);

/* The running thread is about to read or write; `align` is what the address must be a multiple of. */
enum access_kind { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC, ACCESS_ASYNC };
void check_access(const void *at, size_t bytes, enum access_kind kind, size_t align);

/* The same, by the code that returns to `caller`. */
static inline __attribute__((always_inline)) void check_access_of(
        const void *caller, const void *at, size_t bytes, enum access_kind kind, size_t align)
{
	machine.at = caller;
	check_access(at, bytes, kind, align);
	machine.at = NULL;
}

/* A cp.async into these bytes of shared memory begins and ends. */
void check_async_begin(const void *at, size_t bytes);
void check_async_end(const void *at, size_t bytes);

/* "kernel(args)+0x12" of an address in this program; the text is static. */
const char *symbol_name(const void *address);

/* An address as the program's file has it, for addr2line. */
size_t symbol_offset(const void *address);

#endif
