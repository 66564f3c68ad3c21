/* How the threads of a load read the bytes of shards.
 *
 * Mental model. A transfer is cut into jobs, each a range of one file; jobs stand in the order of the files'
 * bytes. What the page cache has is read by pread straight to where it goes. What it does not have is read
 * past it (O_DIRECT) into a window of the thread's own, in large requests, and handed out from there: the
 * bytes are copied once either way, and the page cache is not filled with what nobody reads again. Where a
 * file system cannot do that, pread it is, with the ranges of the next jobs asked of the system ahead, and
 * dropped again behind.
 *
 * Source: measured on the way here, see "Loading" in docs/design/machine.md.
 */
#ifndef FERRY_CHECKPOINT_SHARD_READER_H
#define FERRY_CHECKPOINT_SHARD_READER_H

#include "checkpoint/load_memory.h"
#include "checkpoint/safetensors.h"
#include "host/pool.h"

/* Of one thread. */
struct shard_reader {
	unsigned char *window;
	int64_t window_bytes;
	const struct safetensors *file; /* whose bytes [begin, end) the window holds */
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

/* Windows for the workers of a pool (load_window_bytes each), not touched before they are used. Files whose
 * pages are not all cached get a second descriptor. */
int shard_readers_open(struct shard_readers *readers, const struct pool *pool);
void shard_readers_close(struct shard_readers *readers);
void shard_reader_prepare(struct safetensors *file);

/* Bytes of `range` (at most LOAD_CHUNK_BYTES) are at *bytes: in `to`, or in the window until the next call.
 * `job` is what the caller reads one piece after another. ERR_IO. */
int shard_reader_get(struct shard_reader *reader, const unsigned char **bytes, void *to,
        const struct shard_range *range, const struct shard_range *job);

/* A job that will be read soon; one that was read. */
enum { SHARD_AHEAD_JOBS = 4 };
void shard_reader_expect(const struct shard_range *job);
void shard_reader_done(const struct shard_range *job);

#endif
