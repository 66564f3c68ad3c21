#include "checkpoint/block_writer.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/safetensors.h"
#include "host/slab.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <xxhash.h>

enum { ALIGN_BYTES = 4096, PART_BYTES = 256 << 10, THREAD_STACK_BYTES = 256 << 10 };

static const int64_t block_bytes = SAFETENSORS_BLOCK_BYTES;

struct block_writer {
	char *path;
	int fd, slot_count, thread_count;
	int is_direct; /* past the page cache */
	int64_t total_bytes, put_bytes;
	unsigned char *slots; /* [slot_count][block_bytes]; a slab where threads write, else of base/mem.h */
	XXH3_state_t *hash;   /* of the block that is being filled; NULL: not wanted */
	uint64_t *hashes;
	int64_t hash_count;
	pthread_t threads[BLOCK_WRITER_THREADS];
	/* below: under the lock, once there are threads */
	pthread_mutex_t lock;
	pthread_cond_t change;
	int64_t full_count, taken_count;     /* blocks that are full; that a thread has taken */
	int64_t written[BLOCK_WRITER_SLOTS]; /* blocks of the slot that are done with */
	int ends;
	struct err err;
};

static unsigned char *slot_of(const struct block_writer *w, int64_t block)
{
	return w->slots + block % w->slot_count * block_bytes;
}

/* ---- threads ---- */

/* Pages of a cached file: write-back begins now, and what was begun a ring ago is waited for and dropped. */
static int bound_cache(const struct block_writer *w, int64_t block)
{
	int err = file_write_back(w->fd, w->path, block * block_bytes, block_bytes);

	if (!err && block >= w->slot_count)
		err = file_drop_written(w->fd, w->path, (block - w->slot_count) * block_bytes, block_bytes);
	return err;
}

static void *write_blocks(void *context)
{
	struct block_writer *w = context;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		int64_t block;
		int err = 0;

		while (w->taken_count == w->full_count && !w->ends)
			pthread_cond_wait(&w->change, &w->lock);
		if (w->taken_count == w->full_count)
			break;
		block = w->taken_count++;
		if (!w->err.code) {
			pthread_mutex_unlock(&w->lock);
			err = file_write_at(
			        w->fd, w->path, slot_of(w, block), (size_t)block_bytes, block * block_bytes);
			if (!err && !w->is_direct)
				err = bound_cache(w, block);
			pthread_mutex_lock(&w->lock);
		}
		if (err)
			err_take(&w->err, err);
		w->written[block % w->slot_count]++;
		pthread_cond_broadcast(&w->change);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Fewer threads than wanted will do, none will not. Signals are for the others. */
static int start_threads(struct block_writer *w)
{
	sigset_t all, before;
	pthread_attr_t attr;

	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->change, NULL);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (w->thread_count < BLOCK_WRITER_THREADS &&
	        !pthread_create(&w->threads[w->thread_count], &attr, write_blocks, w))
		w->thread_count++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return w->thread_count ? 0
	                       : err_set(ERR_NOMEM, "%s: the system gives no thread to write it", w->path);
}

static void join_threads(struct block_writer *w)
{
	if (!w->thread_count)
		return;
	pthread_mutex_lock(&w->lock);
	w->ends = 1;
	pthread_cond_broadcast(&w->change);
	pthread_mutex_unlock(&w->lock);
	for (int i = 0; i < w->thread_count; i++)
		pthread_join(w->threads[i], NULL);
	w->thread_count = 0;
}

/* ---- opening ---- */

static int take_memory(struct block_writer *w, enum block_hashing hashing)
{
	int64_t blocks = (w->total_bytes + block_bytes - 1) / block_bytes;
	int is_alone = blocks < BLOCK_WRITER_ALONE;
	void *slots = NULL;
	int err = 0;

	w->slot_count = is_alone ? 1 : BLOCK_WRITER_SLOTS;
	if (hashing == BLOCK_HASHING_ON) {
		w->hash = XXH3_createState();
		w->hashes = mem_alloc((size_t)blocks, sizeof(*w->hashes));
		if (!w->hash || !w->hashes)
			return ERR_NOMEM;
		XXH3_64bits_reset(w->hash);
	}
	if (is_alone)
		slots = mem_alloc_aligned(
		        (size_t)(w->total_bytes < block_bytes ? w->total_bytes : block_bytes), 1,
		        ALIGN_BYTES);
	else /* huge pages: requests of whole megabytes, at half of the processor's time */
		err = slab_map(&slots, w->slot_count * block_bytes, "a ring to write a file");
	w->slots = slots;
	return err || slots ? err : ERR_NOMEM;
}

int block_writer_open(
        struct block_writer **out, const char *path, int64_t total_bytes, enum block_hashing hashing)
{
	struct block_writer *w = mem_alloc(1, sizeof(*w));
	int err;

	*out = NULL;
	if (!w)
		return ERR_NOMEM;
	w->fd = -1;
	w->total_bytes = total_bytes;
	w->path = mem_strdup(path);
	err = w->path ? take_memory(w, hashing) : ERR_NOMEM;
	if (!err) {
		w->fd = file_create(path);
		err = w->fd < 0 ? w->fd : 0;
	}
	if (!err && w->slot_count > 1) {
		w->is_direct = !file_set_caching(w->fd, FILE_CACHING_OFF);
		err = start_threads(w);
	}
	if (err)
		block_writer_free(w);
	else
		*out = w;
	return err;
}

/* ---- filling ---- */

/* The block that is filled, or a part of one at the file's end, is written by this thread. */
static int write_here(struct block_writer *w)
{
	int64_t block = (w->put_bytes - 1) / block_bytes, at = block * block_bytes;

	return file_write_at(w->fd, w->path, slot_of(w, block), (size_t)(w->put_bytes - at), at);
}

static int hand_over(struct block_writer *w)
{
	pthread_mutex_lock(&w->lock);
	w->full_count++;
	pthread_cond_broadcast(&w->change);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

/* Waits until the slot's earlier blocks are written. */
static int wait_for_slot(struct block_writer *w, int64_t block)
{
	int64_t before = block / w->slot_count;
	int err;

	pthread_mutex_lock(&w->lock);
	while (w->written[block % w->slot_count] < before && !w->err.code)
		pthread_cond_wait(&w->change, &w->lock);
	err = err_give(&w->err);
	pthread_mutex_unlock(&w->lock);
	return err;
}

int block_writer_room(struct block_writer *w, void **at, int64_t *room_bytes)
{
	int64_t block = w->put_bytes / block_bytes, within = w->put_bytes % block_bytes;
	int64_t left = w->total_bytes - w->put_bytes;
	int err = w->thread_count && !within ? wait_for_slot(w, block) : 0;

	*at = slot_of(w, block) + within;
	*room_bytes = block_bytes - within < left ? block_bytes - within : left;
	return err;
}

int block_writer_put(struct block_writer *w, int64_t len_bytes)
{
	int64_t block = w->put_bytes / block_bytes, within = w->put_bytes % block_bytes;
	int is_full = within + len_bytes == block_bytes, ends = w->put_bytes + len_bytes == w->total_bytes;

	assert(len_bytes >= 0 && within + len_bytes <= block_bytes);
	assert(w->put_bytes + len_bytes <= w->total_bytes);
	if (!len_bytes)
		return 0;
	w->put_bytes += len_bytes;
	if (w->hash) {
		XXH3_64bits_update(w->hash, slot_of(w, block) + within, (size_t)len_bytes);
		if (is_full || ends) {
			w->hashes[w->hash_count++] = XXH3_64bits_digest(w->hash);
			XXH3_64bits_reset(w->hash);
		}
	}
	if (w->slot_count == 1)
		return is_full || ends ? write_here(w) : 0;
	return is_full ? hand_over(w) : 0;
}

int block_writer_append(struct block_writer *w, const void *src, int64_t len_bytes)
{
	const unsigned char *from = src;
	int err = 0;

	while (!err && len_bytes) {
		int64_t part;
		void *at;

		err = block_writer_room(w, &at, &part);
		if (err)
			break;
		part = part < len_bytes ? part : len_bytes;
		part = part < PART_BYTES ? part : PART_BYTES;
		memcpy(at, from, (size_t)part);
		err = block_writer_put(w, part);
		from += part;
		len_bytes -= part;
	}
	return err;
}

/* The end of a file that threads wrote. */
static int finish_threads(struct block_writer *w)
{
	int err;

	join_threads(w);
	err = err_give(&w->err);
	if (err || w->put_bytes % block_bytes == 0)
		return err;
	if (w->is_direct)
		file_set_caching(w->fd, FILE_CACHING_ON);
	return write_here(w);
}

int block_writer_finish(struct block_writer *w)
{
	int err = 0, closed;

	if (w->put_bytes != w->total_bytes)
		return err_set(ERR_INTERNAL, "%s: %" PRId64 " of %" PRId64 " bytes were given", w->path,
		        w->put_bytes, w->total_bytes);
	if (w->slot_count > 1)
		err = finish_threads(w);
	if (!err)
		err = file_sync(w->fd, w->path);
	if (err)
		return err;
	if (w->slot_count > 1) /* the pages are clean now */
		err = file_drop_written(w->fd, w->path, 0, w->total_bytes);
	if (err)
		return err;
	closed = file_close(w->fd, w->path);
	w->fd = -1;
	return closed;
}

int64_t block_writer_bytes(const struct block_writer *w)
{
	return w->put_bytes;
}

const uint64_t *block_writer_hashes(const struct block_writer *w, int64_t *block_count)
{
	*block_count = w->hash_count;
	return w->hashes;
}

void block_writer_free(struct block_writer *w)
{
	if (!w)
		return;
	if (w->thread_count) { /* unfinished: what is not written yet need not be */
		pthread_mutex_lock(&w->lock);
		if (!w->err.code)
			w->err.code = ERR_STOPPED;
		pthread_mutex_unlock(&w->lock);
		join_threads(w);
	}
	if (w->fd >= 0)
		file_abandon(w->fd, w->path);
	if (w->slot_count > 1) {
		slab_unmap(w->slots, w->slot_count * block_bytes);
		pthread_mutex_destroy(&w->lock);
		pthread_cond_destroy(&w->change);
	} else {
		mem_free(w->slots);
	}
	XXH3_freeState(w->hash);
	mem_free(w->hashes);
	mem_free(w->path);
	mem_free(w);
}
