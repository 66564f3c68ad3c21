/* The state of the running launch, for the files of the emulator.
 *
 * A thread is ready, waits at the block's barrier, waits for lanes of its warp, or has ended. The last thread
 * to arrive at a wait does the work for all of them, such as the exchange of a shuffle. Then it makes them
 * ready; nothing else does.
 *
 * `time` orders accesses to memory. It is a number that grows at each barrier, each __syncwarp and each
 * new block. An access with an earlier time than the barrier's is over: it cannot race.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_MACHINE_H
#define FERRY_TESTS_SIMT_SIMT_MACHINE_H

#include "tests/simt/simt.h"
#include "tests/simt/simt_device.h"
#include "tests/simt/simt_fibre.h"

enum { WARPS_MAX = SIMT_THREADS_MAX / SIMT_WARP, ARRAYS_MAX = 64, SHARED_REGION_BYTES = 512 << 10 };

enum thread_state { THREAD_READY, THREAD_AT_BARRIER, THREAD_IN_WARP, THREAD_ENDED };

struct warp;

/* A joint operation of lanes of a warp. complete() runs once all lanes of the mask wait with their slots. */
struct meeting {
	const char *name;
	void (*complete)(struct warp *warp, uint32_t mask);
	int aligned; /* all lanes must be at one place in the source */
};

/* One cp.async without a wait so far. */
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
	const struct meeting *meeting; /* for a thread that waits in its warp */
	void *slot;
	uint32_t mask;
	const char *file; /* the place where it waits */
	int line;
	int predicate, vote_result; /* of a barrier */
	struct async_copy *copies;
	int copy_count, copy_capacity;
	uint32_t group; /* groups of copies ended so far */
};

struct warp {
	struct thread *lanes; /* [lane_count] */
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
	struct thread *self; /* the running thread; NULL: no kernel runs */
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
	size_t shared_used; /* with gaps */
	size_t static_bytes;
	uint32_t time;                                           /* now */
	uint32_t op_time, launch_time, block_time, barrier_time; /* start of each */
	uint32_t end_time;                                       /* time at the end of the previous launch */
	const void *at; /* the code of the access being checked, or NULL */
	int error;      /* of the finding that ended the launch, or 0 */
	int checks;     /* 1: kernels are instrumented */
};

extern struct machine machine;

/* CUDA errors for findings: cudaErrorIllegalAddress and so on. */
enum { FOUND_BAD_ADDRESS = 700, FOUND_MISALIGNED = 716, FOUND_FAILURE = 719, FOUND_ASSERT = 710 };

/* Stores a finding, unless there is one already. Its text begins with kernel, block and (unless NULL) thread.
 */
void finding_set(int error, const struct thread *thread, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/* Stores a finding of the running thread, and ends the launch. */
void thread_stop(int error, const char *fmt, ...) __attribute__((noreturn, format(printf, 2, 3)));

/* Runs other threads until one of them makes this thread ready. */
void thread_wait(enum thread_state state, const char *file, int line);
void thread_ready(struct thread *thread);

/* The running thread joins the lanes of mask, which include it. */
void warp_meet(uint32_t mask, const struct meeting *meeting, void *slot, const char *file, int line);

/* ---- simt_check.c; without checks these do nothing ---- */

void check_block_begin(void);
void check_launch_begin(void);

/* Call it before the running thread reads or writes. The address must be a multiple of `align`. */
enum access_kind { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC, ACCESS_ASYNC };
void check_access(const void *at, size_t bytes, enum access_kind kind, size_t align);

/* check_access for the code that returns to `caller`. */
static inline __attribute__((always_inline)) void check_access_of(
        const void *caller, const void *at, size_t bytes, enum access_kind kind, size_t align)
{
	machine.at = caller;
	check_access(at, bytes, kind, align);
	machine.at = NULL;
}

/* A cp.async to these bytes of shared memory begins, and ends. */
void check_async_begin(const void *at, size_t bytes);
void check_async_end(const void *at, size_t bytes);

/* "kernel(args)+0x12" of an address in this program; the text is static. */
const char *symbol_name(const void *address);

/* An address of this program as an offset in its file, for addr2line. */
size_t symbol_offset(const void *address);

#endif
