/* Weights from codes and the scales of their blocks: reads half a byte or a byte an element, and scales from
 * the caches. */
#include "gpu/kernel.cuh"

extern "C" {
#include "device/op_move.h"
}

OP_MOVE_LIST(CUDA_DECLARE)

namespace
{

/* A thread takes EACH elements that lie side by side; so one division finds its scales. */
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

/* The value of the code of element i, whose byte is bytes[i] or bytes[i / 2]. */
template <int CODE> static __device__ float value_at(const uint8_t *bytes, const float *table, int i)
{
	if (CODE == CODE_I8)
		return (float)(int8_t)bytes[i];
	if (CODE == CODE_E4M3)
		return e4m3_value(bytes[i]);
	int is_high = (i & 1) ^ (CODE == CODE_E2M1 ? 0 : 1);
	return table[bytes[i / 2] >> 4 * is_high & 15];
}

/* A block has a row and COLS columns. is_wide: EACH elements and their codes are one access each. */
template <class T, int CODE, int SCALE>
static __global__ void __launch_bounds__(THREADS) expand_kernel(T *dst, const uint8_t *codes,
        const void *scales, const float *outer, int64_t cols, int64_t block_rows, int64_t block_cols,
        int64_t column_blocks, int is_wide, struct tables tables)
{
	constexpr int BYTES = CODE == CODE_I8 || CODE == CODE_E4M3 ? EACH : EACH / 2;
	SHARED(float, of_code, 16);
	SHARED(float, of_scale, MAP_COUNT);
	int64_t row = blockIdx.x / column_blocks,
	        first = blockIdx.x % column_blocks * COLS + threadIdx.x * EACH;
	int64_t scale_row = row / block_rows * ((cols - 1) / block_cols + 1);

	if (threadIdx.x < 16)
		of_code[threadIdx.x] = tables.of_code[threadIdx.x];
	if (SCALE == CODE_SCALE_NESTED)
		of_scale[threadIdx.x] = tables.of_scale[threadIdx.x];
	__syncthreads();
	if (first >= cols)
		return;
	int count = first + EACH < cols ? EACH : (int)(cols - first);
	int64_t block = first / block_cols, left = (block + 1) * block_cols - first;
	float scale = scale_at<SCALE>(scales, outer, of_scale, scale_row + block);
	vec<uint8_t, BYTES> bytes = {};
	vec<T, vec_count<T>> out[EACH / vec_count<T>];

	codes += row * ((cols * BYTES + EACH - 1) / EACH) + first * BYTES / EACH;
	dst += row * cols + first;
	if (is_wide)
		bytes = *(const vec<uint8_t, BYTES> *)codes;
#pragma unroll
	for (int i = 0; i < BYTES; i++)
		if (!is_wide && i * EACH / BYTES < count)
			bytes.at[i] = codes[i];
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		if (!left && i < count) {
			scale = scale_at<SCALE>(scales, outer, of_scale, scale_row + ++block);
			left = block_cols;
		}
		left--;
		out[i / vec_count<T>].at[i % vec_count<T>] =
		        from_float<T>(__fmul_rn(value_at<CODE>(bytes.at, of_code, i), scale));
	}
#pragma unroll
	for (int i = 0; i < EACH; i++) {
		if (is_wide && i % vec_count<T> == 0)
			*(vec<T, vec_count<T>> *)(dst + i) = out[i / vec_count<T>];
		if (!is_wide && i < count)
			dst[i] = out[i / vec_count<T>].at[i % vec_count<T>];
	}
}

template <class T, int CODE, int SCALE>
int expand_start(const struct cuda_launch *at, const struct op_expand *o)
{
	int64_t column_blocks = ceil_div(o->cols, COLS);
	int is_wide = o->cols % EACH == 0 && is_aligned(dev_ptr<T>(o->dst), 16) &&
	              is_aligned(dev_ptr<const uint8_t>(o->codes), EACH);
	struct tables tables;

	for (int i = 0; i < 16; i++)
		tables.of_code[i] = code_values(o->code)[i];
	for (int i = 0; i < MAP_COUNT; i++)
		tables.of_scale[i] = nested_map()[i];
	return cuda_start(at, "expand", expand_kernel<T, CODE, SCALE>,
	        dim3((unsigned)(column_blocks * o->rows)), THREADS, 0, dev_ptr<T>(o->dst),
	        dev_ptr<const uint8_t>(o->codes), dev_ptr<const uint8_t>(o->scales),
	        SCALE == CODE_SCALE_NESTED ? dev_ptr<const float>(o->outer) : nullptr, o->cols, o->block_rows,
	        o->block_cols, column_blocks, is_wide, tables);
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
