/* Reads ahead in large files, through the page cache or past it. */
#include "checkpoint/file/shard_reader.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/file/parallel.h"
#include "host/slab.h"

#include <string.h>

enum { ALIGN_BYTES = 4096 };

int shard_readers_open(struct shard_readers *readers, const struct pool *pool)
{
	int64_t workers = parallel_worker_count(pool), each = load_window_bytes(workers);
	int err;

	*readers = (struct shard_readers){0};
	readers->reader = mem_alloc((size_t)workers, sizeof(*readers->reader));
	if (!readers->reader)
		return ERR_NOMEM;
	readers->windows_bytes = workers * each;
	err = slab_map(&readers->windows, readers->windows_bytes, "file read buffers");
	for (int64_t w = 0; w < workers && !err; w++)
		readers->reader[w] = (struct shard_reader){
		        .window = (unsigned char *)readers->windows + w * each, .window_bytes = each};
	if (err)
		shard_readers_close(readers);
	return err;
}

void shard_readers_close(struct shard_readers *readers)
{
	slab_unmap(readers->windows, readers->windows_bytes);
	mem_free(readers->reader);
	*readers = (struct shard_readers){0};
}

void shard_reader_prepare(struct safetensors *file)
{
	if (file->past_cache_fd < 0 &&
	        page_cache_found_bytes(file->cache, 0, file->file_bytes) < file->file_bytes)
		file->past_cache_fd = file_open_past_cache(file->fd, file->path);
}

/* If at least half of the job is cached, reading past the cache would read more from the disk. */
static int is_past_cache(const struct shard_range *job)
{
	int64_t len = job->end_bytes - job->begin_bytes;

	return job->file->past_cache_fd >= 0 &&
	       page_cache_found_bytes(job->file->cache, job->begin_bytes, len) < len / 2;
}

/* Fills the window with bytes of the job from `at` on. */
static int fill(struct shard_reader *r, const struct shard_range *job, int64_t at)
{
	int64_t begin = at / ALIGN_BYTES * ALIGN_BYTES, end = begin + r->window_bytes;
	int err;

	if (end > job->end_bytes)
		end = job->end_bytes;
	r->file = NULL;
	err = file_read_past_cache(job->file->past_cache_fd, job->file->fd, job->file->path, r->window,
	        (size_t)(end - begin), begin);
	if (err)
		return err;
	r->file = job->file;
	r->begin = begin;
	r->end = end;
	return 0;
}

int shard_reader_get(struct shard_reader *r, const unsigned char **bytes, void *to,
        const struct shard_range *range, const struct shard_range *job)
{
	int64_t len = range->end_bytes - range->begin_bytes;
	int err = 0;

	if (!is_past_cache(job)) {
		*bytes = to;
		return file_read_at(range->file->fd, range->file->path, to, (size_t)len, range->begin_bytes);
	}
	if (r->file != range->file || range->begin_bytes < r->begin || range->end_bytes > r->end)
		err = fill(r, job, range->begin_bytes);
	*bytes = r->window + (range->begin_bytes - r->begin);
	return err;
}

void shard_reader_expect(const struct shard_range *job)
{
	if (!is_past_cache(job))
		page_cache_expect(job->file->cache, job->begin_bytes, job->end_bytes - job->begin_bytes);
}

void shard_reader_done(const struct shard_range *job)
{
	page_cache_restore(job->file->cache, job->begin_bytes, job->end_bytes - job->begin_bytes);
}
