/* Kernels with one planted bug each, and the same kernels without it, for the test of the emulator.
 *
 * All work on floats. `in` and `host` have PLANTED_COUNT of them, `out` has room for as many. `host` is
 * host memory, the others are device memory. A launch has two blocks of PLANTED_THREADS threads, except
 * for kernels about one warp.
 */
#ifndef FERRY_TESTS_SIMT_PLANTED_H
#define FERRY_TESTS_SIMT_PLANTED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PLANTED_THREADS = 64, PLANTED_COUNT = 128 };

/* X(sort of bug, part of the text of its finding) */
#define PLANTED(X)                                                                                           \
	X(read_past_end, "out of bounds: reads 4 bytes")                                                     \
	X(write_past_end, "out of bounds: writes 4 bytes")                                                   \
	X(write_before_begin, "4 bytes before the 512 bytes that the op may write")                          \
	X(write_to_input, "write to a read-only operand")                                                    \
	X(read_of_output, "read of a write-only operand")                                                    \
	X(wild_pointer, "which the op may not touch")                                                        \
	X(shared_write_past_end, "writes 4 bytes of shared memory, 4 bytes past the end of an array of 256") \
	X(shared_read_past_end, "reads 4 bytes of shared memory, 4 bytes past the end of an array of 256")   \
	X(dynamic_past_end, "4 bytes past the end of an array of 256")                                       \
	X(missing_barrier, "race in shared memory")                                                          \
	X(missing_second_barrier, "race in shared memory")                                                   \
	X(missing_syncwarp, "with no __syncwarp or barrier in between")                                      \
	X(syncwarp_between_warps, "race in shared memory")                                                   \
	X(missing_async_wait, "missing cp_async_wait")                                                       \
	X(async_wait_too_weak, "missing cp_async_wait")                                                      \
	X(async_without_barrier, "race in shared memory")                                                    \
	X(race_between_blocks, "race in global memory: writes")                                              \
	X(race_between_threads, "race in global memory")                                                     \
	X(race_with_atomic, "race in global memory")                                                         \
	X(divergent_barrier, "divergent barrier")                                                            \
	X(barrier_after_return, "threads wait for others that never come")                                   \
	X(shuffle_missing_lane, "__shfl_xor_sync")                                                           \
	X(shuffle_after_return, "have ended")                                                                \
	X(shuffle_outside_mask, "which is not in mask 0xffff")                                               \
	X(vote_not_in_mask, "is not in its own mask")                                                        \
	X(misaligned, "misaligned: reads 16 bytes")                                                          \
	X(misaligned_async, "misaligned: cp.async of 16 bytes")                                              \
	X(uninitialised_shared, "uninitialised shared memory")                                               \
	X(trap, "__trap")

#define PLANTED_VALUE(name, text) PLANTED_##name,
enum planted { PLANTED(PLANTED_VALUE) PLANTED_KINDS };
#undef PLANTED_VALUE

/* Queues the kernel of this sort, with its bug or without, on the default stream. 0 or ERR_DEVICE. */
int planted_start(enum planted sort, int with_bug, float *out, float *in, float *host);

/* out[32] += results of all shuffles, votes and sums of a warp for each lane's number and value. */
int planted_start_warp(float *out);

/* c[16][8] = a[16][16] * b[16][8] of bf16 with one mma. ldmatrix or plain loads read its fragments. */
enum fragment_load { LOAD_LDMATRIX, LOAD_LDMATRIX_TRANS, LOAD_BY_HAND };
int planted_start_product(float *c, const uint16_t *a, const uint16_t *b, enum fragment_load load);

/* out[i] = e^in[i] for odd i, and 2^in[i] (by exp2_fast) for even i. */
int planted_start_inexact(float *out, const float *in);

/* Launches with `bytes` of dynamic shared memory; asked 1: after cudaFuncSetAttribute; 2: with the
 * carve-out too. */
int planted_start_large(float *out, int bytes, int asked);

/* The same for a kernel with an array of 16 KiB beside. */
int planted_start_beside(float *out, int bytes, int asked);

#ifdef __cplusplus
}
#endif
#endif
