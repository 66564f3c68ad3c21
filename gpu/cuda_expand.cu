/* Weights from codes and the scales of their blocks: reads half a byte or a byte an element, and scales from
 * the caches. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

namespace
{

/* A thread takes EACH elements in a row, so that it reads 4 codes of 8 bits or 8 of 4 at once. */
enum { THREADS = 256, EACH = 8, COLS = EACH * THREADS, MAP_COUNT = 256 };

/* Values of codes and of NESTED scales, by value: a kernel needs no other memory. */
struct tables {
	float of_code[16];
	float of_scale[MAP_COUNT];
};

template <int SCALE>
static __device__ float scale_at(const void *scales, const float *outer, const float *map, int64_t at)
{
	if (SCALE == CODE_SCALE_F32)
		return ((const float *)scales)[at];
	uint8_t code = ((const uint8_t *)scales)[at];
	if (SCALE == CODE_SCALE_E8M0)
		return __uint_as_float(code == 255 ? 0x7fc00000u : code ? (uint32_t)code << 23 : 0x00400000u);
	return __fadd_rn(__fmul_rn(map[code], outer[1 + at / NESTED_BLOCK]), outer[0]);
}

static __device__ float e4m3_value(uint8_t code)
{
	uint32_t sign = (uint32_t)(code & 0x80) << 24, rest = code & 0x7f;
	float least = __fmul_rn((float)rest, 0.001953125f);

	if (rest == 0x7f)
		return __uint_as_float(0x7fc00000u);
	return rest < 8 ? __uint_as_float(__float_as_uint(least) | sign)
	                : __uint_as_float(sign | ((rest << 20) + (120u << 23)));
}

/* The code of column c, whose byte is at codes[c] or codes[c / 2]. */
template <int CODE> static __device__ float value_at(const uint8_t *codes, const float *table, int64_t c)
{
	if (CODE == CODE_I8)
		return (float)(int8_t)codes[c];
	if (CODE == CODE_E4M3)
		return e4m3_value(codes[c]);
	int is_high = (int)(c & 1) ^ (CODE == CODE_E2M1 ? 0 : 1);
	return table[codes[c / 2] >> 4 * is_high & 15];
}

/* A block has a row and COLS columns. */
template <class T, int CODE, int SCALE>
static __global__ void __launch_bounds__(THREADS)
        expand_kernel(T *dst, const uint8_t *codes, const void *scales, const float *outer, int64_t cols,
                int64_t block_rows, int64_t block_cols, int64_t column_blocks, struct tables tables)
{
	SHARED(float, of_code, 16);
	SHARED(float, of_scale, MAP_COUNT);
	int64_t row = blockIdx.x / column_blocks, first = blockIdx.x % column_blocks * COLS + threadIdx.x * 2;
	int64_t scale = row / block_rows * ((cols - 1) / block_cols + 1);
	int64_t row_bytes = CODE == CODE_I8 || CODE == CODE_E4M3 ? cols : (cols + 1) / 2;

	if (threadIdx.x < 16)
		of_code[threadIdx.x] = tables.of_code[threadIdx.x];
	if (SCALE == CODE_SCALE_NESTED)
		of_scale[threadIdx.x] = tables.of_scale[threadIdx.x];
	__syncthreads();
	codes += row * row_bytes;
	for (int i = 0; i < EACH / 2; i++) {
		int64_t c = first + i * 2 * THREADS;

		for (int64_t at = c; at < c + 2 && at < cols; at++)
			dst[row * cols + at] = from_float<T>(__fmul_rn(value_at<CODE>(codes, of_code, at),
			        scale_at<SCALE>(scales, outer, of_scale, scale + at / block_cols)));
	}
}

template <class T, int CODE, int SCALE>
int expand_start(const struct cuda_launch *at, const struct op_expand *o)
{
	int64_t column_blocks = ceil_div(o->cols, COLS);
	struct tables tables;

	for (int i = 0; i < 16; i++)
		tables.of_code[i] = code_values(o->code)[i];
	for (int i = 0; i < MAP_COUNT; i++)
		tables.of_scale[i] = nested_map()[i];
	return cuda_start(at, "expand", expand_kernel<T, CODE, SCALE>,
	        dim3((unsigned)(column_blocks * o->rows)), THREADS, 0, dev_ptr<T>(o->dst),
	        dev_ptr<const uint8_t>(o->codes), dev_ptr<const uint8_t>(o->scales),
	        SCALE == CODE_SCALE_NESTED ? dev_ptr<const float>(o->outer) : nullptr, o->cols, o->block_rows,
	        o->block_cols, column_blocks, tables);
}

template <class T, int CODE> int expand_scaled(const struct cuda_launch *at, const struct op_expand *o)
{
	switch (o->scale) {
	case CODE_SCALE_F32:
		return expand_start<T, CODE, CODE_SCALE_F32>(at, o);
	case CODE_SCALE_E8M0:
		return expand_start<T, CODE, CODE_SCALE_E8M0>(at, o);
	default:
		return expand_start<T, CODE, CODE_SCALE_NESTED>(at, o);
	}
}

template <class T> int expand_coded(const struct cuda_launch *at, const struct op_expand *o)
{
	switch (o->code) {
	case CODE_I8:
		return expand_scaled<T, CODE_I8>(at, o);
	case CODE_E4M3:
		return expand_scaled<T, CODE_E4M3>(at, o);
	case CODE_E2M1:
		return expand_scaled<T, CODE_E2M1>(at, o);
	default: /* tables of bitsandbytes */
		return expand_scaled<T, CODE_NF4>(at, o);
	}
}

} // namespace

extern "C" int cuda_expand(const struct cuda_launch *at, const struct op_expand *o)
{
	return o->dst_dtype == DTYPE_F32 ? expand_coded<float>(at, o) : expand_coded<bf16>(at, o);
}
