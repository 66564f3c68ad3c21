/* THE bound of host memory while loading, beside the planes that are filled.
 *
 * Loaders never hold a second copy of a tensor. A thread has a window of a file and a scratch of three
 * chunks; tables name the pieces that are read; a rank that reads for others has a ring of pieces under way.
 * Each loader takes its sizes from here or asserts that it stays within them, plans count load_memory_bytes,
 * and tests/test_checkpoint_memory.c holds real loads to it.
 */
#ifndef FERRY_CHECKPOINT_LOAD_MEMORY_H
#define FERRY_CHECKPOINT_LOAD_MEMORY_H

#include <stdint.h>

enum {
	LOAD_CHUNK_BYTES = 256 << 10,              /* a core's cache holds it from the read to its use */
	LOAD_SCRATCH_BYTES = 3 * LOAD_CHUNK_BYTES, /* of a thread: raw bytes and two planes */
	LOAD_WINDOW_MOST_BYTES = 4 << 20,          /* of a thread, for reads past the page cache */
	LOAD_WINDOWS_BYTES = 32 << 20,             /* of all threads, while each has a chunk's worth */
	LOAD_RING_PIECES = 16,                     /* pieces of a chunk, on their way to other ranks */
	LOAD_PIECE_TABLE_BYTES = 192,              /* table entries of one plane of one range */
	LOAD_JOB_BYTES = 32,                       /* one for every 4 MiB */
};

struct load_memory {
	int workers;          /* threads of the pool that loads */
	int64_t tensor_count; /* of the model */
	int64_t plane_bytes;  /* of the planes that the rank fills; of all ranks' where it reads for them */
	int shards;           /* among which tensors are cut where one rank reads for all, else 1 */
	int receivers; /* ranks that get each piece from the one that reads; 0: each rank reads its own */
};

/* The window of one of so many threads. */
int64_t load_window_bytes(int64_t workers);

/* The most that a load takes on the rank that reads most, up to what the allocator rounds. Of a checkpoint
 * that was written by N times as many ranks, tables take N times as much. */
int64_t load_memory_bytes(const struct load_memory *load);

#endif
