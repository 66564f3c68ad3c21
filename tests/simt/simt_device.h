/* Functions for the code of a kernel, through include/cuda_runtime.h: the current thread, its block's
 * barrier and shared memory, its warp.
 *
 * Each may end the launch with a finding; then it does not return. `file` and `line` are the place of the
 * call.
 */
#ifndef FERRY_TESTS_SIMT_SIMT_DEVICE_H
#define FERRY_TESTS_SIMT_SIMT_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct simt_index {
	unsigned x, y, z;
};

/* Constant within a thread: the compiler may reuse the result. */
__attribute__((const)) struct simt_index simt_thread_index(void);
__attribute__((const)) struct simt_index simt_block_index(void);
__attribute__((const)) struct simt_index simt_block_size(void);
__attribute__((const)) struct simt_index simt_grid_size(void);

enum simt_vote { SIMT_COUNT, SIMT_AND, SIMT_OR };

/* All threads of the block must call it at the same place. By `vote`, it returns the number of threads
 * with a true predicate, or 1 if all or any have one. */
int simt_block_sync(int predicate, enum simt_vote vote, const char *file, int line);

/* `site` is one place in the source, in one instance of a template: each has its own array. */
void *simt_shared_at(const void *site, size_t bytes);
void *simt_shared_dynamic(void);

enum simt_shuffle { SIMT_IDX, SIMT_UP, SIMT_DOWN, SIMT_XOR };

/* The lanes in `mask` take part. */
uint64_t simt_warp_shuffle(
        uint32_t mask, uint64_t value, enum simt_shuffle how, int by, int width, const char *file, int line);
uint32_t simt_warp_ballot(uint32_t mask, int predicate, const char *file, int line);
uint32_t simt_warp_match(uint32_t mask, uint64_t value, const char *file, int line);
void simt_warp_sync(uint32_t mask, const char *file, int line);
uint32_t simt_warp_active(void); /* lanes that have not ended */

enum simt_reduce { SIMT_ADD, SIMT_MIN, SIMT_MAX, SIMT_UMIN, SIMT_UMAX, SIMT_BITAND, SIMT_BITOR, SIMT_BITXOR };
uint32_t simt_warp_reduce(uint32_t mask, uint32_t value, enum simt_reduce how, const char *file, int line);

/* Checks an atomic access of this many bytes. The two functions below are its halves, without another
 * check. */
void simt_atomic(const void *at, int bytes);
void simt_atomic_load(void *value, const void *at, int bytes);
void simt_atomic_store(void *at, const void *value, int bytes);

/* Ends the launch for an assert or a trap of the kernel. */
void simt_fail(const char *what, const char *file, int line);

/* For gpu/mma.cuh. */
uint32_t simt_bf16_pack(float low, float high);
void simt_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line);
void simt_ldmatrix_x4(uint32_t r[4], const void *row, int transposed, const char *file, int line);
void simt_async(void *shared, const void *global, int bytes, int valid);
void simt_async_commit(void);
void simt_async_wait(int pending);

#ifdef __cplusplus
}
#endif
#endif
