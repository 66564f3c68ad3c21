/* Gather and scatter of rows: they move each element twice, gather with accumulate three times. */
#include "gpu/map.cuh"

extern "C" {
#include "device/op_table.h"
}

OP_TABLE_LIST(CUDA_DECLARE)

namespace
{

enum { ROWS_BLOCK = 256, ROWS_DEPTH = 4 };
enum rows_way { ROWS_PICK, ROWS_ADD, ROWS_PLACE };

/* A row has 2^lanes_log2 threads, each with ROWS_DEPTH accesses; longer rows have more blocks. ROWS_PICK
 * copies row index[r] to row r, ROWS_ADD adds it, and ROWS_PLACE copies row r to row index[r]. */
template <class T, int N, int WAY>
__global__ void __launch_bounds__(ROWS_BLOCK)
        rows_kernel(T *out, const T *from, const int32_t *index, int64_t rows, int64_t cols, int lanes_log2)
{
	const int lane = threadIdx.x & ((1 << lanes_log2) - 1);
	const int64_t row = (int64_t)blockIdx.x * (ROWS_BLOCK >> lanes_log2) + (threadIdx.x >> lanes_log2);
	const int64_t step = (int64_t)N << lanes_log2;
	span<T, N> x[ROWS_DEPTH], y[ROWS_DEPTH];
	int64_t other;

	if (row >= rows)
		return;
	other = index[row];
	out += (WAY == ROWS_PLACE ? other : row) * cols;
	from += (WAY == ROWS_PLACE ? row : other) * cols;
	for (int64_t c = blockIdx.y * step * ROWS_DEPTH + (int64_t)lane * N; c < cols;
	        c += gridDim.y * step * ROWS_DEPTH) {
#pragma unroll
		for (int i = 0; i < ROWS_DEPTH; i++)
			if (c + i * step < cols) {
				span_load(x[i], from + c + i * step);
				if (WAY == ROWS_ADD)
					span_load(y[i], out + c + i * step);
			}
#pragma unroll
		for (int i = 0; i < ROWS_DEPTH; i++)
			if (c + i * step < cols) {
				if (WAY == ROWS_ADD) {
					float sum[N];

#pragma unroll
					for (int n = 0; n < N; n++)
						sum[n] = span_get(y[i], n) + span_get(x[i], n);
					span_put(x[i], sum);
				}
				span_store(out + c + i * step, x[i]);
			}
	}
}

template <class T, int N, int WAY>
int rows_start_wide(const struct cuda_launch *at, const char *what, T *out, const T *from,
        const int32_t *index, int64_t rows, int64_t cols)
{
	const int64_t pieces = cols / N;
	int lanes_log2 = 0;
	int64_t strips;

	while ((1 << lanes_log2) < ROWS_BLOCK && (int64_t)ROWS_DEPTH << lanes_log2 < pieces)
		lanes_log2++;
	strips = ceil_div(pieces, (int64_t)ROWS_DEPTH << lanes_log2);
	return cuda_start(at, what, rows_kernel<T, N, WAY>,
	        dim3((unsigned)ceil_div(rows, ROWS_BLOCK >> lanes_log2),
	                (unsigned)(strips > 65535 ? 65535 : strips)),
	        ROWS_BLOCK, 0, out, from, index, rows, cols, lanes_log2);
}

template <class T, int WAY>
int rows_start(const struct cuda_launch *at, const char *what, dev_addr out, dev_addr from, dev_addr index,
        int64_t rows, int64_t cols)
{
	T *to = dev_ptr<T>(out);
	const T *x = dev_ptr<const T>(from);
	const int32_t *i = dev_ptr<const int32_t>(index);

	if (is_aligned(to, 16) && is_aligned(x, 16) && cols % vec_count<T> == 0)
		return rows_start_wide<T, vec_count<T>, WAY>(at, what, to, x, i, rows, cols);
	return rows_start_wide<T, 1, WAY>(at, what, to, x, i, rows, cols);
}

/* Rows of a turned table are its columns: of few columns (the rank of an adapter), each far from the next. */
template <class T>
__global__ void __launch_bounds__(ROWS_BLOCK) columns_kernel(
        T *out, const T *table, const int32_t *index, int64_t rows, int64_t cols, int64_t table_rows)
{
	const int64_t at = (int64_t)blockIdx.x * ROWS_BLOCK + threadIdx.x;

	if (at < rows * cols)
		out[at] = table[at % cols * table_rows + index[at / cols]];
}

template <class T> int columns_start(const struct cuda_launch *at, const struct op_gather *o)
{
	return cuda_start(at, "gather", columns_kernel<T>,
	        dim3((unsigned)ceil_div(o->rows * o->cols, ROWS_BLOCK)), ROWS_BLOCK, 0, dev_ptr<T>(o->out),
	        dev_ptr<const T>(o->table), dev_ptr<const int32_t>(o->index), o->rows, o->cols,
	        o->table_rows);
}

} // namespace

extern "C" int cuda_gather(const struct cuda_launch *at, const struct op_gather *o)
{
	if (o->is_turned)
		return o->dtype == DTYPE_BF16 ? columns_start<bf16>(at, o) : columns_start<float>(at, o);
	auto start = o->dtype == DTYPE_BF16
	                     ? o->accumulate ? rows_start<bf16, ROWS_ADD> : rows_start<bf16, ROWS_PICK>
	             : o->accumulate ? rows_start<float, ROWS_ADD>
	                             : rows_start<float, ROWS_PICK>;

	return start(at, "gather", o->out, o->table, o->index, o->rows, o->cols);
}

extern "C" int cuda_scatter(const struct cuda_launch *at, const struct op_scatter *o)
{
	auto start = o->dtype == DTYPE_BF16 ? rows_start<bf16, ROWS_PLACE> : rows_start<float, ROWS_PLACE>;

	return start(at, "scatter", o->out, o->x, o->index, o->rows, o->cols);
}
