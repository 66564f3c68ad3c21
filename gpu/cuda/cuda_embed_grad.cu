/* The gradient of an embedding: rows of dy summed by index, in ascending order.
 *
 * First a stable counting sort of the row numbers by index, into scratch; then each run of equal indices is
 * summed, columns side by side. The sort's blocks share out the table's rows, and each reads all indices
 * twice: 8 bytes a row and block, from L2, and 4 written. The sum moves dy once, and each row of grad that
 * occurs twice.
 */
#include "gpu/cuda/map.cuh"

namespace
{

enum {
	SORT_BLOCK = 512,
	SORT_WARPS = SORT_BLOCK / WARP,
	SORT_EACH = 4,                      /* indices that a thread has at once */
	SORT_TILE = SORT_BLOCK * SORT_EACH, /* and a block */
	SORT_KEYS = 4096,                   /* table rows of a block, at most */
	SUM_BLOCK = 256,
	SUM_POSITIONS = 8, /* of the sorted rows, that a warp looks at */
	SUM_DEPTH = 8,     /* rows of dy that a lane has in flight */
};

/* scratch, an element per row: the row numbers, sorted by index and ascending where it is equal; the first
 * of each index is stored as ~row. Rows that are skipped leave as many SORT_NONE at the end. */
const int32_t SORT_NONE = INT32_MIN;

struct sort_shape {
	const int32_t *index;
	int64_t rows, skip_index;
};

/* Sum over the threads before this one; *total is that over all. `part` has SORT_WARPS + 1 elements. */
__device__ int32_t block_sum_before(int32_t x, int32_t *part, int32_t *total)
{
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	int32_t sum = x, before = 0;

	for (int away = 1; away < WARP; away *= 2) {
		int32_t other = __shfl_up_sync(0xffffffffu, sum, away);

		sum += lane >= away ? other : 0;
	}
	__syncthreads(); /* part may be in use */
	if (lane == WARP - 1)
		part[warp] = sum;
	__syncthreads();
	*total = 0;
	for (int w = 0; w < SORT_WARPS; w++) {
		before += w < warp ? part[w] : 0;
		*total += part[w];
	}
	return before + sum - x;
}

/* Counts of the keys from low on, into count; returns how many rows this thread saw with smaller keys. */
__device__ int32_t sort_count(const struct sort_shape &s, int32_t *count, int64_t low, int64_t keys)
{
	int32_t below = 0;

	for (int64_t r = threadIdx.x; r < s.rows; r += SORT_TILE) {
		int32_t key[SORT_EACH];

#pragma unroll
		for (int i = 0; i < SORT_EACH; i++)
			key[i] = r + i * SORT_BLOCK < s.rows ? s.index[r + i * SORT_BLOCK] : -1;
#pragma unroll
		for (int i = 0; i < SORT_EACH; i++) {
			if (key[i] < 0 || key[i] == s.skip_index)
				continue;
			if (key[i] < low)
				below++;
			else if (key[i] < low + keys)
				atomicAdd(&count[key[i] - low], 1);
		}
	}
	return below;
}

/* Writes to list and list_key, in order, the rows of the tile at `first` whose key is the block's; returns
 * their number. The caller keeps list unread by now. */
__device__ int32_t sort_pick(const struct sort_shape &s, int32_t *list, int32_t *list_key, int32_t *part,
        int64_t first, int64_t low, int64_t keys)
{
	const int lane = threadIdx.x % WARP;
	const int64_t start = first + threadIdx.x / WARP * (WARP * SORT_EACH) + lane;
	int32_t key[SORT_EACH], found = 0, before, total;
	uint32_t mine[SORT_EACH];

#pragma unroll
	for (int i = 0; i < SORT_EACH; i++)
		key[i] = start + i * WARP < s.rows ? s.index[start + i * WARP] : -1;
#pragma unroll
	for (int i = 0; i < SORT_EACH; i++) {
		mine[i] = __ballot_sync(
		        0xffffffffu, key[i] >= low && key[i] < low + keys && key[i] != s.skip_index);
		found += __popc(mine[i]);
	}
	before = block_sum_before(lane == 0 ? found : 0, part, &total);
	before = __shfl_sync(0xffffffffu, before, 0);
#pragma unroll
	for (int i = 0; i < SORT_EACH; i++) {
		if (mine[i] >> lane & 1) {
			int32_t at = before + __popc(mine[i] & ((1u << lane) - 1));

			list[at] = (int32_t)(start + i * WARP);
			list_key[at] = (int32_t)(key[i] - low);
		}
		before += __popc(mine[i]);
	}
	return total;
}

/* Warp 0 moves the list to its places. next[key] is the place of the key's next row, or, before the first,
 * ~place. */
__device__ void sort_place(
        int32_t *order, int32_t *next, const int32_t *list, const int32_t *list_key, int32_t count)
{
	const int lane = threadIdx.x;

	for (int32_t first = 0; first < count; first += WARP) {
		const int is_there = first + lane < count;
		const int32_t key = is_there ? list_key[first + lane] : -1 - lane;
		const uint32_t same = __match_any_sync(0xffffffffu, key);
		const int32_t rank = __popc(same & ((1u << lane) - 1));
		const int32_t at = is_there ? next[key] : 0, place = at < 0 ? ~at : at;

		if (is_there) {
			int32_t row = list[first + lane];

			order[place + rank] = at < 0 && rank == 0 ? ~row : row;
		}
		__syncwarp();
		if (is_there && rank == 0)
			next[key] = place + __popc(same);
		__syncwarp();
	}
}

/* Block b sorts the rows whose index is one of `keys` from b * keys on. */
__global__ void __launch_bounds__(SORT_BLOCK)
        sort_kernel(int32_t *order, struct sort_shape s, int64_t keys, int64_t table_rows)
{
	SHARED(int32_t, next, SORT_KEYS);
	SHARED(int32_t, list, SORT_TILE);
	SHARED(int32_t, list_key, SORT_TILE);
	SHARED(int32_t, part, SORT_WARPS);
	const int64_t low = blockIdx.x * keys;
	const int32_t each = (int32_t)((keys + SORT_BLOCK - 1) / SORT_BLOCK), from = threadIdx.x * each;
	int32_t below, sum = 0, total, place;

	for (int32_t k = threadIdx.x; k < keys; k += SORT_BLOCK)
		next[k] = 0;
	__syncthreads();
	block_sum_before(sort_count(s, next, low, keys), part, &below); /* its barriers end the counting */
	for (int32_t k = from; k < from + each && k < keys; k++)
		sum += next[k];
	place = below + block_sum_before(sum, part, &total);
	for (int32_t k = from; k < from + each && k < keys; k++) {
		int32_t count = next[k];

		next[k] = ~place;
		place += count;
	}
	for (int64_t first = 0; first < s.rows && total; first += SORT_TILE) {
		int32_t count = sort_pick(s, list, list_key, part, first, low, keys);

		__syncthreads();
		if (threadIdx.x < WARP)
			sort_place(order, next, list, list_key, count);
	}
	if (low + keys >= table_rows)
		for (int64_t p = below + total + threadIdx.x; p < s.rows; p += SORT_BLOCK)
			order[p] = SORT_NONE;
}

/* grad += the rows of dy from position p of order on, as far as they have one index. */
template <class T, int N>
__device__ __forceinline__ void sum_run(
        float *grad, const T *dy, const int32_t *order, int64_t p, int64_t rows, int64_t cols)
{
	span<float, N> out;
	float sum[N];
	int32_t row[SUM_DEPTH];
	span<T, N> x[SUM_DEPTH];

	span_load(out, grad);
#pragma unroll
	for (int n = 0; n < N; n++)
		sum[n] = span_get(out, n);
	for (int64_t q = p, more = 1; more; q += SUM_DEPTH) {
#pragma unroll
		for (int i = 0; i < SUM_DEPTH; i++)
			row[i] = q + i < rows ? order[q + i] : -1;
		row[0] = q == p ? ~row[0] : row[0];
#pragma unroll
		for (int i = 0; i < SUM_DEPTH; i++) {
			more = more && row[i] >= 0;
			row[i] = more ? row[i] : -1;
			if (more)
				span_load(x[i], dy + row[i] * cols);
		}
#pragma unroll
		for (int i = 0; i < SUM_DEPTH; i++)
			if (row[i] >= 0) {
#pragma unroll
				for (int n = 0; n < N; n++)
					sum[n] += span_get(x[i], n);
			}
	}
	span_put(out, sum);
	span_store(grad, out);
}

/* A warp has 32 * N columns of the runs that begin at SUM_POSITIONS positions. */
template <class T, int N>
__global__ void __launch_bounds__(SUM_BLOCK) sum_kernel(float *grad, const T *dy, const int32_t *index,
        const int32_t *order, int64_t rows, int64_t cols, int64_t strips)
{
	const int64_t task = (int64_t)blockIdx.x * (SUM_BLOCK / WARP) + threadIdx.x / WARP;
	const int64_t p = task / strips * SUM_POSITIONS;
	const int64_t col = (task % strips * WARP + threadIdx.x % WARP) * N;
	int32_t first[SUM_POSITIONS];

	if (col >= cols)
		return;
#pragma unroll
	for (int i = 0; i < SUM_POSITIONS; i++) {
		first[i] = p + i < rows ? order[p + i] : SORT_NONE;
		first[i] = first[i] < 0 && first[i] != SORT_NONE ? index[~first[i]] : -1;
	}
#pragma unroll
	for (int i = 0; i < SUM_POSITIONS; i++)
		if (first[i] >= 0)
			sum_run<T, N>(grad + first[i] * cols + col, dy + col, order, p + i, rows, cols);
}

template <class T, int N> int sum_start(const struct cuda_launch *at, const struct op_embed_grad *o)
{
	const int64_t strips = ceil_div(o->cols, WARP * N), tasks = ceil_div(o->rows, SUM_POSITIONS) * strips;

	return cuda_start(at, "embed_grad", sum_kernel<T, N>,
	        dim3((unsigned)ceil_div(tasks, SUM_BLOCK / WARP)), SUM_BLOCK, 0, dev_ptr<float>(o->grad),
	        dev_ptr<const T>(o->dy), dev_ptr<const int32_t>(o->index), dev_ptr<const int32_t>(o->scratch),
	        o->rows, o->cols, strips);
}

template <class T> int sum_start_either(const struct cuda_launch *at, const struct op_embed_grad *o)
{
	if (is_aligned(dev_ptr<void>(o->grad), 16) && is_aligned(dev_ptr<void>(o->dy), 16) &&
	        o->cols % vec_count<T> == 0)
		return sum_start<T, vec_count<T>>(at, o);
	return sum_start<T, 1>(at, o);
}

} // namespace

extern "C" int cuda_embed_grad(const struct cuda_launch *at, const struct op *op)
{
	const struct op_embed_grad *o = &op->embed_grad;
	const struct sort_shape s = {dev_ptr<const int32_t>(o->index), o->rows, o->skip_index};
	int64_t keys = ceil_div(o->table_rows, at->sm_count > 0 ? at->sm_count : 1);
	int rc;

	if (keys > SORT_KEYS)
		keys = SORT_KEYS;
	rc = cuda_start(at, "embed_grad", sort_kernel, dim3((unsigned)ceil_div(o->table_rows, keys)),
	        SORT_BLOCK, 0, dev_ptr<int32_t>(o->scratch), s, keys, o->table_rows);
	if (rc)
		return rc;
	return o->dtype == DTYPE_BF16 ? sum_start_either<bf16>(at, o) : sum_start_either<float>(at, o);
}
