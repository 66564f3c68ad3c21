/* Bounds the host memory of loading. */
#include "checkpoint/file/load_memory.h"

#include "checkpoint/file/plane_io.h"
#include "checkpoint/file/safetensors.h"

#include "base/size.h"

enum {
	ALIGN_BYTES = 4096,
	WINDOW_LEAST_BYTES = LOAD_CHUNK_BYTES + 2 * ALIGN_BYTES,
	READER_BYTES = 64,       /* per thread */
	MESSAGE_BYTES = 128,     /* per piece and receiving rank */
	PAGES_BYTES = 256 << 10, /* rounding of allocations, and growing stacks */
};

int64_t load_window_bytes(int64_t workers)
{
	int64_t each = LOAD_WINDOWS_BYTES / workers / ALIGN_BYTES * ALIGN_BYTES;

	return max_i64(WINDOW_LEAST_BYTES, min_i64(each, LOAD_WINDOW_MOST_BYTES));
}

int64_t load_memory_bytes(const struct load_memory *l)
{
	int64_t of_a_thread = load_window_bytes(l->workers) + LOAD_SCRATCH_BYTES + READER_BYTES;
	/* A small model fills neither window nor scratch. Raw bytes are at most twice the bytes of the
	 * planes, once in a window and once in a scratch. A thread touches whole pages. */
	int64_t of_threads = l->workers * min_i64(of_a_thread, 4 * l->plane_bytes + 16 * ALIGN_BYTES);
	int64_t ranges = l->tensor_count * l->shards, pieces = ranges * PLANE_SAVED_COUNT;
	int64_t tables = ranges * (int64_t)sizeof(struct plane_range) + pieces * LOAD_PIECE_TABLE_BYTES +
	                 l->plane_bytes / SAFETENSORS_BLOCK_BYTES * LOAD_JOB_ENTRY_BYTES;
	int64_t ring =
	        l->receivers ? LOAD_RING_PIECES * (LOAD_CHUNK_BYTES + l->receivers * MESSAGE_BYTES) : 0;

	return of_threads + tables + ring + PAGES_BYTES;
}
