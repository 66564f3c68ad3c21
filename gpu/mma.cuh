/* Matrix instructions and asynchronous copies into shared memory (compute capability 8.0 and later), as
 * functions, so that kernels hold no assembly. All lanes of a warp call them together.
 *
 * Layout of fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix". With group = lane / 4 and
 * pair = lane % 4:
 *   a  16x16 row-major, 4 registers of 2: rows group, group + 8; columns 2 pair, 2 pair + 8 (a[0] row group,
 *      a[1] row group + 8, a[2] and a[3] the same rows at columns + 8)
 *   b  16x8 (k x n), 2 registers of 2: rows 2 pair (b[0]), 2 pair + 8 (b[1]); column group
 *   d  16x8, 4 floats: row group columns 2 pair, 2 pair + 1 (d[0], d[1]), row group + 8 (d[2], d[3])
 */
#ifndef FERRY_GPU_MMA_CUH
#define FERRY_GPU_MMA_CUH

#include "gpu/kernel.cuh"

#ifndef FERRY_SIMT

/* d += a * b, of bf16, accumulated in fp32 */
static __device__ __forceinline__ void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
	asm volatile(
	        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
	        "{%0,%1,%2,%3};"
	        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ uint32_t shared_address(const void *at)
{
	return (uint32_t)__cvta_generic_to_shared(at);
}

/* clang-format off */
/* Four 8x8 matrices of 16-bit elements from shared memory. Lane l gives the address of row l % 8 of matrix
 * l / 8, 16 bytes, aligned to 16; lane l receives elements 2 (l % 4) and the next of row l / 4 of each
 * matrix.
 */
static __device__ __forceinline__ void ldmatrix_x4(uint32_t r[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
	             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
	             : "r"(shared_address(row))
	             : "memory");
}

/* The same, each matrix transposed as it is read. */
static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t r[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
	             : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
	             : "r"(shared_address(row))
	             : "memory");
}

/* Starts copying 16 bytes from global to shared memory, both aligned to 16; the first `valid` of them are
 * read, the rest become 0. They are there after cp_async_wait and a barrier. */
static __device__ __forceinline__ void cp_async_16(void *shared, const void *global, int valid)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
	             :
	             : "r"(shared_address(shared)), "l"(global), "r"(valid)
	             : "memory");
}

/* The same for 4 bytes, both aligned to 4; valid is 4 or 0. */
static __device__ __forceinline__ void cp_async_4(void *shared, const void *global, int valid)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
	             :
	             : "r"(shared_address(shared)), "l"(global), "r"(valid)
	             : "memory");
}
/* clang-format on */

/* Ends a group of this thread's copies. */
static __device__ __forceinline__ void cp_async_commit()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `pending` of this thread's groups are not done. */
template <int pending> static __device__ __forceinline__ void cp_async_wait()
{
	asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}

#endif

/* Returns x in a way that the compiler cannot trace. So results of x are computed here each time and do not
 * occupy registers since before a loop. */
static __device__ __forceinline__ int in_place(int x)
{
#ifndef FERRY_SIMT
	asm volatile("" : "+r"(x));
#endif
	return x;
}

template <class T> static __device__ __forceinline__ const T *in_place(const T *x)
{
#ifndef FERRY_SIMT
	asm volatile("" : "+l"(x));
#endif
	return x;
}

#endif
