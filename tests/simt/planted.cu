/* Kernels with one planted bug each. */
#include "tests/simt/planted.h"

#include "gpu/mma.cuh"

enum { COUNT = PLANTED_COUNT, THREADS = PLANTED_THREADS };

static __device__ __forceinline__ int me()
{
	return (int)(blockIdx.x * blockDim.x + threadIdx.x);
}

/* ---- bounds ---- */

template <int bug> static __global__ void read_past_end(float *out, const float *in)
{
	out[me()] = in[me() + bug];
}

template <int bug> static __global__ void write_past_end(float *out, const float *in)
{
	out[me() + bug] = in[me()];
}

template <int bug> static __global__ void write_before_begin(float *out, const float *in)
{
	out[me() - bug] = in[me()];
}

template <int bug> static __global__ void write_to_input(float *out, float *in)
{
	out[me()] = in[me()];
	if (bug && me() == 77)
		in[77] = 0;
}

template <int bug> static __global__ void read_of_output(float *out, const float *in)
{
	float was = bug ? out[me()] : 0;

	out[me()] = in[me()] + was;
	out[me()] += 1; /* its own, after it was written: allowed */
}

template <int bug> static __global__ void wild_pointer(float *out, const float *in, const float *host)
{
	out[me()] = bug && me() == 3 ? host[me()] : in[me()];
}

template <int bug> static __global__ void shared_write_past_end(float *out, const float *in)
{
	SHARED(float, a, THREADS);
	SHARED(float, b, THREADS);

	a[threadIdx.x + bug] = in[me()];
	b[threadIdx.x] = in[me()];
	__syncthreads();
	out[me()] = a[63 - threadIdx.x] + b[63 - threadIdx.x];
}

template <int bug> static __global__ void shared_read_past_end(float *out, const float *in)
{
	SHARED(float, a, THREADS);

	a[threadIdx.x] = in[me()];
	__syncthreads();
	out[me()] = a[threadIdx.x + bug];
}

template <int bug> static __global__ void dynamic_past_end(float *out, const float *in)
{
	SHARED_DYNAMIC(float, a);

	a[threadIdx.x + bug] = in[me()];
	__syncthreads();
	out[me()] = a[63 - threadIdx.x];
}

/* ---- barriers and races ---- */

template <int bug> static __global__ void missing_barrier(float *out, const float *in)
{
	SHARED(float, a, THREADS);

	a[threadIdx.x] = 0;
	__syncthreads();
	a[threadIdx.x] = in[me()];
	if (!bug)
		__syncthreads();
	out[me()] = a[63 - threadIdx.x];
}

/* The array is used again, while others may still read what was in it. */
template <int bug> static __global__ void missing_second_barrier(float *out, const float *in)
{
	SHARED(float, a, THREADS);
	float sum = 0;

	for (int round = 0; round < 2; round++) {
		a[threadIdx.x] = in[me()] * (float)round;
		__syncthreads();
		sum += a[63 - threadIdx.x];
		if (!bug)
			__syncthreads();
	}
	out[me()] = sum;
}

template <int bug> static __global__ void missing_syncwarp(float *out, const float *in)
{
	SHARED(float, a, THREADS);
	int first = (int)threadIdx.x / WARP * WARP;

	a[threadIdx.x] = 0;
	__syncwarp();
	a[threadIdx.x] = in[me()];
	if (!bug)
		__syncwarp();
	out[me()] = a[first + 31 - threadIdx.x % WARP];
}

/* It orders no other warp. */
template <int bug> static __global__ void syncwarp_between_warps(float *out, const float *in)
{
	SHARED(float, a, THREADS);

	a[threadIdx.x] = in[me()];
	if (bug)
		__syncwarp();
	else
		__syncthreads();
	out[me()] = a[63 - threadIdx.x];
}

template <int bug> static __global__ void missing_async_wait(float *out, const float *in)
{
	SHARED(float, a, THREADS);

	if (threadIdx.x < THREADS / 4)
		cp_async_16(a + 4 * threadIdx.x, in + blockIdx.x * THREADS + 4 * threadIdx.x, 16);
	cp_async_commit();
	if (!bug)
		cp_async_wait<0>();
	__syncthreads();
	out[me()] = a[threadIdx.x];
}

template <int bug> static __global__ void async_wait_too_weak(float *out, const float *in)
{
	SHARED(float, a, 2 * THREADS);
	float sum;

	if (threadIdx.x < THREADS / 4)
		cp_async_16(a + 4 * threadIdx.x, in + 4 * threadIdx.x, 16);
	cp_async_commit();
	if (threadIdx.x < THREADS / 4)
		cp_async_16(a + THREADS + 4 * threadIdx.x, in + 4 * threadIdx.x, 8); /* and 8 bytes of 0 */
	cp_async_commit();
	cp_async_wait<1>();
	__syncthreads();
	sum = a[63 - threadIdx.x];
	cp_async_wait<bug>();
	__syncthreads();
	out[me()] = sum + a[THREADS + 63 - threadIdx.x];
}

template <int bug> static __global__ void async_without_barrier(float *out, const float *in)
{
	SHARED(float, a, THREADS);

	a[threadIdx.x] = 0;
	__syncthreads();
	if (threadIdx.x < THREADS / 4)
		cp_async_16(a + 4 * threadIdx.x, in + 4 * threadIdx.x, 16);
	cp_async_commit();
	cp_async_wait<0>();
	if (!bug)
		__syncthreads();
	out[me()] = a[63 - threadIdx.x];
}

template <int bug> static __global__ void race_between_blocks(float *out, const float *in)
{
	out[bug ? (int)threadIdx.x : me()] = in[threadIdx.x];
}

template <int bug> static __global__ void race_between_threads(float *out, const float *in)
{
	float *mine = out + blockIdx.x * THREADS;
	float other;

	mine[threadIdx.x] = 0;
	__syncthreads();
	mine[threadIdx.x] = in[me()];
	if (!bug)
		__syncthreads();
	other = mine[63 - threadIdx.x];
	__syncthreads();
	mine[threadIdx.x] = other;
}

template <int bug> static __global__ void race_with_atomic(float *out, const float *in)
{
	int *count = (int *)out + blockIdx.x * THREADS;

	(void)in;
	if (!threadIdx.x)
		count[0] = 0;
	__syncthreads();
	atomicAdd(count, 1);
	if (!bug)
		__syncthreads();
	if (threadIdx.x == 1)
		count[1] = count[0];
}

/* ---- those who do not come ---- */

template <int bug> static __global__ void divergent_barrier(float *out, const float *in)
{
	if (bug && threadIdx.x < WARP)
		__syncthreads();
	else
		__syncthreads();
	out[me()] = in[me()];
}

template <int bug> static __global__ void barrier_after_return(float *out, const float *in)
{
	if (bug && threadIdx.x == 63)
		return;
	__syncthreads();
	out[me()] = in[me()];
}

template <int bug> static __global__ void shuffle_missing_lane(float *out, const float *in)
{
	float x = in[me()];

	if (!bug || threadIdx.x != 37)
		x += __shfl_xor_sync(0xffffffffu, x, 1);
	__syncthreads();
	out[me()] = x;
}

template <int bug> static __global__ void shuffle_after_return(float *out, const float *in)
{
	if (bug && threadIdx.x == 5)
		return;
	__syncwarp(bug && threadIdx.x < WARP ? 0xffffffdfu : 0xffffffffu);
	for (int i = 0; i < 2; i++) /* of the lanes that are still there, first */
		__syncwarp(bug && threadIdx.x < WARP ? 0xffffffdfu : 0xffffffffu);
	out[me()] = __shfl_xor_sync(0xffffffffu, in[me()], 16);
}

template <int bug> static __global__ void shuffle_outside_mask(float *out, const float *in)
{
	float x = in[me()];

	if (threadIdx.x % WARP < 16)
		x += __shfl_xor_sync(0xffffu, x, bug ? 16 : 8);
	out[me()] = x;
}

template <int bug> static __global__ void vote_not_in_mask(float *out, const float *in)
{
	out[me()] = (float)__any_sync(bug ? 0xfffffffeu : 0xffffffffu, in[me()] > 0);
}

/* ---- the rest ---- */

template <int bug> static __global__ void misaligned(float *out, const float *in)
{
	if (threadIdx.x < 8)
		*(vec<float, 4> *)(out + blockIdx.x * THREADS + 4 * threadIdx.x) =
		        *(const vec<float, 4> *)(in + 4 * threadIdx.x + (bug ? 2 : 0));
}

template <int bug> static __global__ void misaligned_async(float *out, const float *in)
{
	SHARED(float, a, THREADS);

	if (threadIdx.x % 16 == 0)
		cp_async_16(a + threadIdx.x, in + (bug ? 1 : 0), 16);
	cp_async_commit();
	cp_async_wait<0>();
	__syncthreads();
	out[me()] = a[threadIdx.x / 16 * 16];
}

template <int bug> static __global__ void uninitialised_shared(float *out, const float *in)
{
	SHARED(float, a, THREADS);

	if (!bug || threadIdx.x != 40)
		a[threadIdx.x] = in[me()];
	__syncthreads();
	out[me()] = a[63 - threadIdx.x];
}

template <int bug> static __global__ void trap(float *out, const float *in)
{
	if (bug && in[me()] > -1e30f)
		__trap();
	out[me()] = in[me()];
}

/* ---- starting them ---- */

static const cuda_launch here = {};

extern "C" int planted_start(enum planted sort, int with_bug, float *out, float *in, float *host)
{
	const float *constant = in;

	switch (sort) {
#define PLANTED_CASE(name)                                                                                   \
	case PLANTED_##name:                                                                                 \
		return cuda_start(                                                                           \
		        &here, #name, with_bug ? name<1> : name<0>, dim3(2), THREADS, 0, out, constant);
		PLANTED_CASE(read_past_end)
		PLANTED_CASE(write_past_end)
		PLANTED_CASE(write_before_begin)
		PLANTED_CASE(read_of_output)
		PLANTED_CASE(shared_write_past_end)
		PLANTED_CASE(shared_read_past_end)
		PLANTED_CASE(missing_barrier)
		PLANTED_CASE(missing_second_barrier)
		PLANTED_CASE(missing_syncwarp)
		PLANTED_CASE(syncwarp_between_warps)
		PLANTED_CASE(missing_async_wait)
		PLANTED_CASE(async_wait_too_weak)
		PLANTED_CASE(async_without_barrier)
		PLANTED_CASE(race_between_blocks)
		PLANTED_CASE(race_between_threads)
		PLANTED_CASE(race_with_atomic)
		PLANTED_CASE(divergent_barrier)
		PLANTED_CASE(barrier_after_return)
		PLANTED_CASE(shuffle_missing_lane)
		PLANTED_CASE(shuffle_after_return)
		PLANTED_CASE(shuffle_outside_mask)
		PLANTED_CASE(vote_not_in_mask)
		PLANTED_CASE(misaligned)
		PLANTED_CASE(misaligned_async)
		PLANTED_CASE(uninitialised_shared)
		PLANTED_CASE(trap)
#undef PLANTED_CASE
	case PLANTED_write_to_input:
		return cuda_start(&here, "write_to_input", with_bug ? write_to_input<1> : write_to_input<0>,
		        dim3(2), THREADS, 0, out, in);
	case PLANTED_wild_pointer:
		return cuda_start(&here, "wild_pointer", with_bug ? wild_pointer<1> : wild_pointer<0>,
		        dim3(2), THREADS, 0, out, constant, (const float *)host);
	case PLANTED_dynamic_past_end:
		return cuda_start(&here, "dynamic_past_end",
		        with_bug ? dynamic_past_end<1> : dynamic_past_end<0>, dim3(2), THREADS,
		        THREADS * sizeof(float), out, constant);
	default:
		return -1;
	}
}

/* ---- warps ---- */

static __global__ void warp_kernel(float *out)
{
	int lane = (int)threadIdx.x;
	double wide = lane * 1.5;
	int sum = 0;

	sum += __shfl_sync(0xffffffffu, lane, 3);                 /* 3 */
	sum += __shfl_sync(0xffffffffu, lane, 1, 8);              /* lane & ~7 | 1 */
	sum += __shfl_up_sync(0xffffffffu, lane, 2);              /* lane - 2, or lane below 2 */
	sum += __shfl_down_sync(0xffffffffu, lane, 2, 16);        /* lane + 2 within 16 */
	sum += (int)__shfl_xor_sync(0xffffffffu, wide, 31);       /* 1.5 (31 - lane), cut */
	sum += __popc(__ballot_sync(0xffffffffu, lane % 3 == 0)); /* 11 */
	sum += __all_sync(0xffffffffu, lane < 32) + __any_sync(0xffffffffu, lane == 40);
	sum += (int)__reduce_add_sync(0xffffffffu, (unsigned)lane); /* 496 */
	sum += __popc(__match_any_sync(0xffffffffu, lane / 5));     /* 5, 2 at the end */
	if (lane < 7)
		sum += __shfl_sync(0x7fu, 100, 6);                /* only these */
	out[lane] = (float)(sum + __syncthreads_count(lane < 9)); /* 9 */
}

extern "C" int planted_start_warp(float *out)
{
	return cuda_start(&here, "warp", warp_kernel, dim3(1), WARP, 0, out);
}

/* ---- matrix instructions ---- */

/* a is [m][k], b [k][n], both row-major. */
template <int load> static __global__ void product_kernel(float *c, const bf16 *a, const bf16 *b)
{
	SHARED(bf16, as, 16 * 16);
	SHARED(bf16, bs, 2 * 16 * 8); /* [n][k], or [k][n] with a second column block of 0 */
	int lane = (int)threadIdx.x, group = lane / 4, pair = lane % 4;
	uint32_t fa[4], fb[4];
	float d[4] = {};

	for (int i = lane; i < 16 * 16; i += WARP)
		as[i] = a[i];
	for (int i = lane; i < 16 * 8; i += WARP) {
		int k = i / 8, n = i % 8;

		bs[load == LOAD_LDMATRIX ? n * 16 + k : k * 8 + n] = b[i];
		bs[16 * 8 + i] = bf16{0};
	}
	__syncwarp();
	if (load == LOAD_BY_HAND) {
		for (int r = 0; r < 4; r++)
			memcpy(&fa[r], &as[(group + r % 2 * 8) * 16 + 2 * pair + r / 2 * 8], 4);
		for (int r = 0; r < 2; r++)
			fb[r] = bs[(2 * pair + r * 8) * 8 + group].bits |
			        (uint32_t)bs[(2 * pair + r * 8 + 1) * 8 + group].bits << 16;
	} else {
		ldmatrix_x4(fa, as + lane % 16 * 16 + lane / 16 * 8);
		if (load == LOAD_LDMATRIX)
			ldmatrix_x4(fb, bs + lane % 8 * 16 + lane / 8 % 2 * 8);
		else
			ldmatrix_x4_trans(fb, bs + lane * 8);
	}
	mma_bf16(d, fa, fb);
	for (int r = 0; r < 4; r++)
		c[(group + r / 2 * 8) * 8 + 2 * pair + r % 2] = d[r];
}

extern "C" int planted_start_product(float *c, const uint16_t *a, const uint16_t *b, enum fragment_load load)
{
	return cuda_start(&here, "product",
	        load == LOAD_LDMATRIX         ? product_kernel<LOAD_LDMATRIX>
	        : load == LOAD_LDMATRIX_TRANS ? product_kernel<LOAD_LDMATRIX_TRANS>
	                                      : product_kernel<LOAD_BY_HAND>,
	        dim3(1), WARP, 0, c, (const bf16 *)a, (const bf16 *)b);
}

/* ---- functions that a GPU does not round ---- */

static __global__ void inexact_kernel(float *out, const float *in)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

	out[i] = i % 2 ? expf(in[i]) : exp2_fast(in[i]);
}

extern "C" int planted_start_inexact(float *out, const float *in)
{
	return cuda_start(
	        &here, "inexact", inexact_kernel, dim3(PLANTED_COUNT / THREADS), THREADS, 0, out, in);
}

/* ---- limits ---- */

static __global__ void large_kernel(float *out, int count)
{
	SHARED_DYNAMIC(float, a);

	for (int i = (int)threadIdx.x; i < count; i += THREADS)
		a[i] = 1;
	__syncthreads();
	out[me()] = a[count - 1];
}

/* The same beside an array. */
static __global__ void beside_kernel(float *out, int count)
{
	SHARED(float, b, 4096);
	SHARED_DYNAMIC(float, a);

	for (int i = (int)threadIdx.x; i < count; i += THREADS)
		a[i] = 1;
	b[threadIdx.x] = 1;
	__syncthreads();
	out[me()] = a[count - 1] + b[threadIdx.x];
}

static int shared_start(void (*kernel)(float *, int), float *out, int bytes, int asked)
{
	cudaLaunchConfig_t config = {};
	cudaError_t error = cudaSuccess;

	config.gridDim = dim3(1);
	config.blockDim = dim3(THREADS);
	config.dynamicSmemBytes = (size_t)bytes;
	if (asked)
		error = cudaFuncSetAttribute(
		        (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
	if (!error && asked > 1)
		error = cudaFuncSetAttribute((const void *)kernel,
		        cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
	if (!error)
		error = cudaLaunchKernelEx(&config, kernel, out, bytes / 4);
	return cuda_check(error, "large");
}

extern "C" int planted_start_large(float *out, int bytes, int asked)
{
	return shared_start(large_kernel, out, bytes, asked);
}

extern "C" int planted_start_beside(float *out, int bytes, int asked)
{
	return shared_start(beside_kernel, out, bytes, asked);
}
