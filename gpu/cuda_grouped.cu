/* Products of rows with the matrices of their experts. Where an expert's rows begin is read on the device.
 * Here: any dtype, shape and alignment; bf16 mostly runs on tensor cores (cuda_grouped_mma.cu). */
#include "gpu/grouped.cuh"
#include "gpu/product.cuh"

OP_EXPERTS_LIST(CUDA_DECLARE)

namespace
{

template <class T, class C>
__global__ void __launch_bounds__(THREADS) grouped_rows_kernel(C *c, const T *a, const T *b, const T *bias,
        const int32_t *first, grouped_sizes o, int64_t row_tiles, int b_is_turned)
{
	SHARED(float, a_panel, DEPTH *ROW);
	SHARED(float, b_panel, DEPTH *ROW);
	int64_t tiles_n = (o.n + TILE - 1) / TILE, e = 0, row0 = 0;

	for (int64_t tile = blockIdx.x; tile < row_tiles * tiles_n; tile += gridDim.x) {
		if (!tile_find(&e, &row0, first, o.experts, tile / tiles_n, TILE))
			continue;
		int64_t count = first[e + 1] - first[e];
		product_out out = {count, o.n, o.n, o.accumulate};
		side of_a = {count, o.k, o.k, 1}, of_b = {o.n, o.k, b_is_turned ? o.k : o.n, b_is_turned};

		product_tile(a_panel, b_panel, c + first[e] * o.n, a + first[e] * o.k, b + e * o.n * o.k,
		        bias ? bias + e * o.n : bias, out, of_a, of_b, row0, tile % tiles_n * TILE);
	}
}

template <class T, class C>
__global__ void __launch_bounds__(THREADS) grouped_weights_kernel(
        C *c, const T *a, const T *b, const T *bias, const int32_t *first, grouped_sizes o, int64_t, int)
{
	SHARED(float, a_panel, DEPTH *ROW);
	SHARED(float, b_panel, DEPTH *ROW);
	int64_t tiles_n = (o.n + TILE - 1) / TILE, tiles = (o.m + TILE - 1) / TILE * tiles_n;

	for (int64_t tile = blockIdx.x; tile < o.experts * tiles; tile += gridDim.x) {
		int64_t e = tile / tiles, count = first[e + 1] - first[e], own = tile % tiles;
		product_out out = {o.m, o.n, o.n, o.accumulate};
		side of_a = {o.m, count, o.m, 0}, of_b = {o.n, count, o.n, 0};

		product_tile(a_panel, b_panel, c + e * o.m * o.n, a + first[e] * o.m, b + first[e] * o.n,
		        bias, out, of_a, of_b, own / tiles_n * TILE, own % tiles_n * TILE);
	}
}

template <class T, class C> int grouped_start(const struct cuda_launch *at, const struct op_grouped *o)
{
	grouped_sizes sizes = {o->experts, o->m, o->n, o->k, o->accumulate};
	int64_t row_tiles = ceil_div(o->rows, TILE) + o->experts;
	int is_rows = o->of == GROUPED_ROWS;
	int64_t tiles = ceil_div(o->n, TILE) * (is_rows ? row_tiles : o->experts * ceil_div(o->m, TILE));

	if (tiles > INT32_MAX)
		tiles = INT32_MAX;
	return cuda_start(at, "grouped", is_rows ? grouped_rows_kernel<T, C> : grouped_weights_kernel<T, C>,
	        dim3((unsigned)tiles), THREADS, 0, dev_ptr<C>(o->c), dev_ptr<const T>(o->a),
	        dev_ptr<const T>(o->b), dev_ptr<const T>(o->bias), dev_ptr<const int32_t>(o->first), sizes,
	        row_tiles, (int)(o->b_layout == MATMUL_TRANSPOSED));
}

/* A block has COLSUM_BLOCK columns of an expert; a thread sums one of them over all rows, in double. */
enum { COLSUM_BLOCK = 64 };

template <class T>
__global__ void __launch_bounds__(COLSUM_BLOCK)
        grouped_colsum_kernel(float *sum, const T *x, const int32_t *first, int64_t cols)
{
	const int64_t c = (int64_t)blockIdx.x * COLSUM_BLOCK + threadIdx.x, e = blockIdx.y;
	double total = 0;

	if (c >= cols)
		return;
	for (int64_t r = first[e]; r < first[e + 1]; r++)
		total += to_float(x[r * cols + c]);
	sum[e * cols + c] = (float)(sum[e * cols + c] + total);
}

template <class T> int grouped_colsum_start(const struct cuda_launch *at, const struct op_grouped_colsum *o)
{
	return cuda_start(at, "grouped_colsum", grouped_colsum_kernel<T>,
	        dim3((unsigned)ceil_div(o->cols, COLSUM_BLOCK), (unsigned)o->experts), COLSUM_BLOCK, 0,
	        dev_ptr<float>(o->sum), dev_ptr<const T>(o->x), dev_ptr<const int32_t>(o->first), o->cols);
}

} // namespace

extern "C" int cuda_grouped_colsum(const struct cuda_launch *at, const struct op_grouped_colsum *o)
{
	return o->dtype == DTYPE_F32 ? grouped_colsum_start<float>(at, o) : grouped_colsum_start<bf16>(at, o);
}

extern "C" int cuda_grouped(const struct cuda_launch *at, const struct op_grouped *o)
{
	if (grouped_mma_fits(at, o))
		return grouped_mma_start(at, o);
	if (o->ab_dtype == DTYPE_F32)
		return grouped_start<float, float>(at, o);
	return o->c_dtype == DTYPE_F32 ? grouped_start<bf16, float>(at, o) : grouped_start<bf16, bf16>(at, o);
}
