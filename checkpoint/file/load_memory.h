/* The bound of host memory while loading, in addition to the planes.
 *
 * Loaders never have a second copy of a tensor. A thread has a window of a file and a scratch of three
 * chunks. Tables list the pieces to read. A rank that reads for others has a ring of pieces in transit. Each
 * loader takes its sizes from here or asserts that it stays within them. Plans count load_memory_bytes, and
 * tests/test_checkpoint_memory.c checks real loads against it.
 */
#ifndef FERRY_CHECKPOINT_FILE_LOAD_MEMORY_H
#define FERRY_CHECKPOINT_FILE_LOAD_MEMORY_H

#include <stdint.h>

enum {
	LOAD_CHUNK_BYTES = 256 << 10,              /* a core's cache holds it from the read to its use */
	LOAD_SCRATCH_BYTES = 3 * LOAD_CHUNK_BYTES, /* per thread: raw bytes and two planes */
	LOAD_WINDOW_MOST_BYTES = 4 << 20,          /* per thread, for reads that bypass the page cache */
	LOAD_WINDOWS_BYTES = 32 << 20,             /* all threads together, as long as each has a chunk */
	LOAD_RING_PIECES = 16,                     /* pieces of one chunk, in transit to other ranks */
	LOAD_PIECE_TABLE_BYTES = 192,              /* table entries of one plane of one range */
	LOAD_JOB_ENTRY_BYTES = 32,                 /* one for every 4 MiB */
};

struct load_memory {
	int workers;          /* threads of the pool that loads */
	int64_t tensor_count; /* of the model */
	int64_t plane_bytes;  /* of the planes that the rank fills, or of all ranks' planes if it reads for
	                         them */
	int shards;           /* number of parts of a tensor if one rank reads for all, else 1 */
	int receivers; /* ranks that get each piece from the reading rank; 0: each rank reads its own */
};

/* The window of a thread, one of `workers`. */
int64_t load_window_bytes(int64_t workers);

/* The maximum memory of a load on the rank that reads most, except for rounding by the allocator. For a
 * checkpoint from N times as many ranks, tables take N times as much. */
int64_t load_memory_bytes(const struct load_memory *load);

#endif
