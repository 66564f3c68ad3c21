/* The gradient of an embedding: rows of dy summed by index, in ascending order. */
#include "gpu/map.cuh"
#include "gpu/mma.cuh"

extern "C" {
#include "device/op_table.h"
}

OP_TABLE_LIST(CUDA_DECLARE)

/* First the row numbers are sorted by index, into scratch. Then each run of equal indices is summed, with
 * columns side by side. The blocks of the sort divide the indices among themselves, and each block reads all
 * of them: 4 bytes for a row and block, from L2, and 4 written. A block that finds more than SORT_LIST rows
 * reads them three times. The sum reads dy once, and reads and writes each row of grad that occurs. */

namespace
{

enum {
	SORT_BLOCK = 512,
	SORT_WARPS = SORT_BLOCK / WARP,
	SORT_ROWS = SORT_BLOCK / 4,         /* rows of a block, on average, ... */
	SORT_BLOCKS_LOG2 = 7,               /* ... up to so many blocks */
	SORT_EACH = 4,                      /* indices that a thread has at once */
	SORT_TILE = SORT_BLOCK * SORT_EACH, /* indices of a block at once */
	SORT_LIST = SORT_BLOCK,             /* rows that can be sorted by comparing each with each */
	SORT_KEYS = 4096,                   /* indices of a block, at most */
};

/* scratch, an element per row: the row numbers, sorted by (index % blocks, index), and in ascending order if
 * these are equal. The first row of each index is stored as ~row. Skipped rows leave as many SORT_NONE at the
 * end.
 */
const int32_t SORT_NONE = INT32_MIN;

/* Block b has the indices with b in their lower `blocks_log2` bits, because frequent tokens are neighbours in
 * a vocabulary. The other bits are the key. */
struct sort_shape {
	const int32_t *index;
	int64_t rows, skip_index;
	int blocks_log2;
};

__device__ __forceinline__ int32_t sort_block(const struct sort_shape &s, int32_t index)
{
	return index & ((1 << s.blocks_log2) - 1);
}

/* Index of row r; -1 beyond the last row, or if it is skipped. */
__device__ __forceinline__ int32_t sort_index(const struct sort_shape &s, int64_t r)
{
	int32_t index = r < s.rows ? s.index[r] : -1;

	return index == s.skip_index ? -1 : index;
}

/* Sum over the threads before this one; *total is the sum over all. `part` has SORT_WARPS elements. */
__device__ int32_t sort_sum_before(int32_t x, int32_t *part, int32_t *total)
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

/* Puts the block's rows into the list, in any order, until it is full; *found counts all of them. Returns how
 * many rows of earlier blocks this thread saw. */
__device__ int32_t sort_find(const struct sort_shape &s, int64_t *list, int32_t *found)
{
	const int AT_ONCE = 2 * SORT_EACH;
	const int32_t self = blockIdx.x;
	int32_t before = 0;

	for (int64_t r = threadIdx.x; r < s.rows; r += SORT_BLOCK * AT_ONCE) {
		int32_t index[AT_ONCE];

#pragma unroll
		for (int i = 0; i < AT_ONCE; i++)
			index[i] = sort_index(s, r + i * SORT_BLOCK);
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			if (index[i] < 0)
				continue;
			before += sort_block(s, index[i]) < self;
			if (sort_block(s, index[i]) == self) {
				int32_t at = atomicAdd(found, 1);

				if (at < SORT_LIST)
					list[at] = (int64_t)index[i] << 32 | (r + i * SORT_BLOCK);
			}
		}
	}
	return before;
}

/* A short list: the place of a row is the number of smaller ones. */
__device__ void sort_short(int32_t *order, const int64_t *list, int32_t count)
{
	const int32_t at = threadIdx.x;
	int32_t place = 0, is_first = 1;
	int64_t mine;

	if (at >= count)
		return;
	mine = list[at];
	for (int32_t i = 0; i < count; i++) {
		int64_t other = list[i];

		place += other < mine;
		is_first = is_first && !(other < mine && other >> 32 == mine >> 32);
	}
	order[place] = is_first ? ~(int32_t)mine : (int32_t)mine;
}

/* Writes the block's rows in the tile at `first` to row and key, in order, and returns their number. At its
 * second barrier all threads are done with the tile before. */
__device__ int32_t sort_pick(
        const struct sort_shape &s, int32_t *row, int32_t *key, int32_t *part, int64_t first)
{
	const int lane = threadIdx.x % WARP;
	const int64_t start = first + threadIdx.x / WARP * (WARP * SORT_EACH) + lane;
	int32_t index[SORT_EACH], found = 0, before, total;
	uint32_t mine[SORT_EACH];

#pragma unroll
	for (int i = 0; i < SORT_EACH; i++)
		index[i] = sort_index(s, start + i * WARP);
#pragma unroll
	for (int i = 0; i < SORT_EACH; i++) {
		mine[i] = __ballot_sync(
		        0xffffffffu, index[i] >= 0 && sort_block(s, index[i]) == (int32_t)blockIdx.x);
		found += __popc(mine[i]);
	}
	before = sort_sum_before(lane == 0 ? found : 0, part, &total);
	before = __shfl_sync(0xffffffffu, before, 0);
#pragma unroll
	for (int i = 0; i < SORT_EACH; i++) {
		if (mine[i] >> lane & 1) {
			int32_t at = before + __popc(mine[i] & ((1u << lane) - 1));

			row[at] = (int32_t)(start + i * WARP);
			key[at] = index[i] >> s.blocks_log2;
		}
		before += __popc(mine[i]);
	}
	return total;
}

/* One warp moves rows to their places. next[key] is the place of the key's next row, or ~place before the
 * first row.
 */
__device__ void sort_place(
        int32_t *order, int32_t *next, const int32_t *row, const int32_t *key, int32_t count)
{
	const int lane = threadIdx.x;

	for (int32_t first = 0; first < count; first += WARP) {
		const int is_there = first + lane < count;
		const int32_t k = is_there ? key[first + lane] : -1;
		const uint32_t same = __match_any_sync(0xffffffffu, k);
		const int32_t rank = __popc(same & ((1u << lane) - 1));
		const int32_t at = is_there ? next[k] : 0, place = at < 0 ? ~at : at;

		if (is_there)
			order[place + rank] = at < 0 && rank == 0 ? ~row[first + lane] : row[first + lane];
		__syncwarp();
		if (is_there && rank == 0)
			next[k] = place + __popc(same);
		__syncwarp();
	}
}

/* A long list: keys are counted, then rows are placed in order, tile by tile. */
__device__ void sort_long(int32_t *order, const struct sort_shape &s)
{
	SHARED(int32_t, next, SORT_KEYS);
	SHARED(int32_t, row, SORT_TILE);
	SHARED(int32_t, key, SORT_TILE);
	SHARED(int32_t, part, SORT_WARPS);
	const int EACH = SORT_KEYS / SORT_BLOCK;
	const int from = threadIdx.x * EACH;
	int32_t sum = 0, total, place;

	for (int k = threadIdx.x; k < SORT_KEYS; k += SORT_BLOCK)
		next[k] = 0;
	__syncthreads();
	for (int64_t r = threadIdx.x; r < s.rows; r += SORT_BLOCK) {
		int32_t index = sort_index(s, r);

		if (index >= 0 && sort_block(s, index) == (int32_t)blockIdx.x)
			atomicAdd(&next[index >> s.blocks_log2], 1);
	}
	__syncthreads();
	for (int k = from; k < from + EACH; k++)
		sum += next[k];
	place = sort_sum_before(sum, part, &total);
	for (int k = from; k < from + EACH; k++) {
		int32_t count = next[k];

		next[k] = ~place;
		place += count;
	}
	for (int64_t first = 0; first < s.rows; first += SORT_TILE) {
		int32_t count = sort_pick(s, row, key, part, first);

		__syncthreads();
		if (threadIdx.x < WARP)
			sort_place(order, next, row, key, count);
	}
}

__global__ void __launch_bounds__(SORT_BLOCK) sort_kernel(int32_t *order, struct sort_shape s)
{
	SHARED(int64_t, list, SORT_LIST);
	SHARED(int32_t, found, 1);
	SHARED(int32_t, part, SORT_WARPS);
	int32_t before;

	if (threadIdx.x == 0)
		*found = 0;
	__syncthreads();
	sort_sum_before(sort_find(s, list, found), part, &before); /* its barriers also end sort_find */
	if (*found <= SORT_LIST)
		sort_short(order + before, list, *found);
	else
		sort_long(order + before, s);
	if (blockIdx.x == gridDim.x - 1)
		for (int64_t p = before + *found + threadIdx.x; p < s.rows; p += SORT_BLOCK)
			order[p] = SORT_NONE;
}

/* ---- sums ---- */

enum {
	SUM_BLOCK = 256,
	SUM_WARPS = SUM_BLOCK / WARP,
	SUM_EACH = 8,                         /* positions of the sorted rows that a warp looks at */
	SUM_POSITIONS = SUM_WARPS * SUM_EACH, /* the same of a block */
	SUM_DEPTH = 8,                        /* rows in flight of a lane */
	LONG_ROWS = 2 * SUM_WARPS,            /* rows of a long run that a block adds at once */
	LONG_STAGES = 4,                      /* pieces of so many rows in flight */
};

/* Blocks on a multiprocessor, at least: as many as registers allow without spills. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
enum { SUM_BLOCKS = 3 };
#else
enum { SUM_BLOCKS = 4 };
#endif

template <class T> struct sum_shape {
	float *grad;
	const T *dy;
	const int32_t *index, *order;
	int32_t rows;         /* row numbers are int32 */
	int64_t cols, strips; /* a strip: 32 N columns */
	int64_t turned_rows;  /* grad is [cols, turned_rows]; 0: it is not turned. Only with N = 1 */
};

template <class T, int N>
__device__ __forceinline__ float *sum_at(const struct sum_shape<T> &s, int64_t row, int64_t col)
{
	if (N == 1 && s.turned_rows)
		return s.grad + col * s.turned_rows + row;
	return s.grad + row * s.cols + col;
}

/* The row at position p of a run that began before; -1: the run has ended. */
__device__ __forceinline__ int32_t sum_row(const int32_t *order, int32_t p, int32_t rows)
{
	int32_t row = p < rows ? order[p] : -1;

	return row < 0 ? -1 : row;
}

/* One warp adds the `count` rows that its lanes hold, in order, to its columns of grad. */
template <class T, int N>
__device__ __forceinline__ void sum_short(
        float *grad, const T *dy, int32_t row, int count, int64_t cols, int is_there)
{
	span<float, N> out;
	float sum[N];

	if (is_there)
		span_load(out, grad);
#pragma unroll
	for (int n = 0; n < N; n++)
		sum[n] = span_get(out, n);
	for (int done = 0; done < count; done += SUM_DEPTH) {
		span<T, N> x[SUM_DEPTH];

#pragma unroll
		for (int i = 0; i < SUM_DEPTH; i++) {
			int64_t r = __shfl_sync(0xffffffffu, row, (done + i) % WARP);

			if (done + i < count && is_there)
				span_load(x[i], dy + r * cols);
		}
#pragma unroll
		for (int i = 0; i < SUM_DEPTH; i++)
			if (done + i < count) {
#pragma unroll
				for (int n = 0; n < N; n++)
					sum[n] += span_get(x[i], n);
			}
	}
	span_put(out, sum);
	if (is_there)
		span_store(grad, out);
}

/* A long run that passes through shared memory, with LONG_STAGES pieces in flight. */
template <class T> struct sum_run {
	T *shared;         /* [LONG_STAGES, LONG_ROWS, 32 N] */
	int32_t next, end; /* position to fetch; end of the run, INT32_MAX: not known yet */
};

/* Starts copying the next LONG_ROWS rows, or the rest, to a stage; a warp copies two. */
template <class T, int N>
__device__ __forceinline__ void sum_fetch(
        const struct sum_shape<T> &s, struct sum_run<T> &run, int stage, int64_t col)
{
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	int32_t row, count = 0;

	if (run.end == INT32_MAX) {
		uint32_t ended;

		row = lane < LONG_ROWS ? sum_row(s.order, run.next + lane, s.rows) : -1;
		ended = __ballot_sync(0xffffffffu, row < 0);
		count = __ffs(ended) - 1;
		if (count < LONG_ROWS)
			run.end = run.next + count;
	}
	for (int r = warp; r < count; r += SUM_WARPS) {
		const int64_t from = __shfl_sync(0xffffffffu, row, r);
		T *to = run.shared + ((stage * LONG_ROWS + r) * WARP + lane) * N;

		if (col < s.cols) {
			if (N > 1)
				cp_async_16(to, s.dy + from * s.cols + col, 16);
			else
				*to = s.dy[from * s.cols + col];
		}
	}
	cp_async_commit();
	run.next += LONG_ROWS;
}

/* The block adds the run from position p on to row `to` of grad; a thread has a column. */
template <class T, int N>
__device__ void sum_long(const struct sum_shape<T> &s, T *shared, int32_t p, int64_t to, int64_t strip)
{
	const int COLS = WARP * N, lane = threadIdx.x % WARP, tid = threadIdx.x;
	const int64_t col = strip * COLS + lane * N, own = strip * COLS + tid;
	const int is_adding = tid < COLS && own < s.cols;
	struct sum_run<T> run = {
		shared, p + 1, INT32_MAX
	};
	float sum = 0;

	for (int stage = 0; stage < LONG_STAGES - 1; stage++)
		sum_fetch<T, N>(s, run, stage, col);
	if (is_adding) /* the first row is stored as ~row */
		sum = *sum_at<T, N>(s, to, own) + to_float(s.dy[~s.order[p] * s.cols + own]);
	p++;
	for (int stage = 0; p < run.end; p += LONG_ROWS, stage = (stage + 1) % LONG_STAGES) {
		const T *from = shared + stage * LONG_ROWS * COLS + tid;

		cp_async_wait<LONG_STAGES - 2>();
		__syncthreads(); /* this stage is there, and the one before is free */
		sum_fetch<T, N>(s, run, (stage + LONG_STAGES - 1) % LONG_STAGES, col);
		if (is_adding && run.end - p >= LONG_ROWS) {
#pragma unroll
			for (int r = 0; r < LONG_ROWS; r++)
				sum += to_float(from[r * COLS]);
		} else if (is_adding) {
			for (int r = 0; r < run.end - p; r++)
				sum += to_float(from[r * COLS]);
		}
	}
	cp_async_wait<0>();
	__syncthreads(); /* shared is free */
	if (is_adding)
		*sum_at<T, N>(s, to, own) = sum;
}

/* A block has one strip of the runs that begin at SUM_POSITIONS positions: a warp adds each short run, then
 * all warps add each long one. */
template <class T, int N>
__global__ void __launch_bounds__(SUM_BLOCK, SUM_BLOCKS) sum_kernel(struct sum_shape<T> s)
{
	SHARED(T, shared, LONG_STAGES * LONG_ROWS * WARP * N);
	SHARED(uint32_t, is_long, SUM_WARPS);
	const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
	const int64_t strip = blockIdx.x % s.strips, col = (strip * WARP + lane) * N;
	const int32_t block_p = (int32_t)(blockIdx.x / s.strips) * SUM_POSITIONS,
	              p = block_p + warp * SUM_EACH;
	const int32_t mine = lane < SUM_EACH && p + lane < s.rows ? s.order[p + lane] : SORT_NONE;
	const int is_first = mine < 0 && mine != SORT_NONE;
	const int32_t to = is_first ? s.index[~mine] : 0;
	uint32_t starts = __ballot_sync(0xffffffffu, is_first), longs = 0;

	for (; starts; starts &= starts - 1) {
		const int i = __ffs(starts) - 1;
		const int32_t first = __shfl_sync(0xffffffffu, mine, i);
		const int64_t grad_row = __shfl_sync(0xffffffffu, to, i);
		const int32_t row = lane ? sum_row(s.order, p + i + lane, s.rows) : ~first;
		const uint32_t ended = __ballot_sync(0xffffffffu, row < 0);

		if (ended)
			sum_short<T, N>(sum_at<T, N>(s, grad_row, col), s.dy + col, row, __ffs(ended) - 1,
			        s.cols, col < s.cols);
		else
			longs |= 1u << i;
	}
	if (lane == 0)
		is_long[warp] = longs;
	__syncthreads();
	for (int w = 0; w < SUM_WARPS; w++)
		for (longs = is_long[w]; longs; longs &= longs - 1) {
			const int32_t at = block_p + w * SUM_EACH + __ffs(longs) - 1;

			sum_long<T, N>(s, shared, at, s.index[~s.order[at]], strip);
		}
}

template <class T, int N> int sum_start(const struct cuda_launch *at, const struct op_embed_grad *o)
{
	const struct sum_shape<T> s = {
		dev_ptr<float>(o->grad), dev_ptr<const T>(o->dy), dev_ptr<const int32_t>(o->index),
		        dev_ptr<const int32_t>(o->scratch), (int32_t)o->rows, o->cols,
		        ceil_div(o->cols, WARP *N), o->is_turned ? o->table_rows : 0
	};

	return cuda_start(at, "embed_grad", sum_kernel<T, N>,
	        dim3((unsigned)(ceil_div(o->rows, SUM_POSITIONS) * s.strips)), SUM_BLOCK, 0, s);
}

template <class T> int sum_start_either(const struct cuda_launch *at, const struct op_embed_grad *o)
{
	if (!o->is_turned && is_aligned(dev_ptr<void>(o->grad), 16) && is_aligned(dev_ptr<void>(o->dy), 16) &&
	        o->cols % vec_count<T> == 0)
		return sum_start<T, vec_count<T>>(at, o);
	return sum_start<T, 1>(at, o);
}

} // namespace

extern "C" int cuda_embed_grad(const struct cuda_launch *at, const struct op_embed_grad *o)
{
	struct sort_shape s = {dev_ptr<const int32_t>(o->index), o->rows, o->skip_index, 0};
	int rc;

	while (s.blocks_log2 < SORT_BLOCKS_LOG2 && o->rows > (int64_t)SORT_ROWS << s.blocks_log2)
		s.blocks_log2++;
	while (o->table_rows > (int64_t)SORT_KEYS << s.blocks_log2)
		s.blocks_log2++;
	rc = cuda_start(at, "embed_grad", sort_kernel, dim3(1u << s.blocks_log2), SORT_BLOCK, 0,
	        dev_ptr<int32_t>(o->scratch), s);
	if (rc)
		return rc;
	return o->dtype == DTYPE_BF16 ? sum_start_either<bf16>(at, o) : sum_start_either<float>(at, o);
}
