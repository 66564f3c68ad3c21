/* Reads the bytes of shards for the threads of a load.
 *
 * Mental model. A transfer is divided into jobs, each a range of one file, in the order of the files' bytes.
 * Bytes in the page cache are read by pread directly to their place. Other bytes are read past the cache
 * (O_DIRECT) in large requests into a window of the thread, and copied from there. Either way they are copied
 * once, and the page cache does not fill with bytes that no one reads again. If a file system has no
 * O_DIRECT, ferry uses pread, requests the ranges of the next jobs ahead, and drops them afterwards.
 *
 * Measurements are in "Loading" of docs/design/machine.md.
 */
#ifndef FERRY_CHECKPOINT_FILE_SHARD_READER_H
#define FERRY_CHECKPOINT_FILE_SHARD_READER_H

#include "checkpoint/file/load_memory.h"
#include "checkpoint/file/safetensors.h"
#include "host/pool.h"

/* The reader of one thread. */
struct shard_reader {
	unsigned char *window;
	int64_t window_bytes;
	const struct safetensors *file; /* the window has its bytes [begin, end) */
	int64_t begin, end;
};

struct shard_readers {
	struct shard_reader *reader; /* [workers] */
	void *windows;
	int64_t windows_bytes;
};

struct shard_range {
	const struct safetensors *file;
	int64_t begin_bytes, end_bytes;
};

/* Allocates windows for the workers of a pool (load_window_bytes each), without touching them.
 * shard_reader_prepare gives a file that is not fully cached a second descriptor. */
int shard_readers_open(struct shard_readers *readers, const struct pool *pool);
void shard_readers_close(struct shard_readers *readers);
void shard_reader_prepare(struct safetensors *file);

/* Sets *bytes to the bytes of `range` (at most LOAD_CHUNK_BYTES): in `to`, or in the window until the next
 * call. `job` is the larger range that the caller reads piece by piece. ERR_IO. */
int shard_reader_get(struct shard_reader *reader, const unsigned char **bytes, void *to,
        const struct shard_range *range, const struct shard_range *job);

/* expect: the job will be read soon. done: it was read. */
enum { SHARD_AHEAD_JOBS = 4 };
void shard_reader_expect(const struct shard_range *job);
void shard_reader_done(const struct shard_range *job);

#endif
