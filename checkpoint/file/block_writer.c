/* Writes a file in blocks on its own thread, hashes them, and bypasses the page cache if possible. */
#include "checkpoint/file/block_writer.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/file/hash.h"
#include "checkpoint/file/safetensors.h"
#include "host/slab.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

enum { ALIGN_BYTES = 4096, PART_BYTES = 32 << 10, THREAD_STACK_BYTES = 256 << 10 };
enum { RUN_BLOCKS = BLOCK_WRITER_SLOTS / 2 }; /* of one request; the caller fills the others */

static const int64_t block_bytes = SAFETENSORS_BLOCK_BYTES;

struct block_writer {
	char *path;
	int fd, slot_count;
	int64_t total_bytes, put_bytes;
	unsigned char *slots; /* [slot_count][block_bytes]; a slab if a thread writes, else from base/mem.h */
	struct hash hash;     /* of the block being filled */
	uint64_t *hashes;     /* NULL: not wanted */
	int64_t hash_count;
	pthread_t thread;
	int is_running;
	/* the lock protects the fields below while the thread runs; only one side waits at a time */
	pthread_mutex_t lock;
	pthread_cond_t change;
	int64_t full_count, written_count; /* the first full_count blocks of the file are full, the first
	                                      written_count written */
	int ends;
	struct err err;
};

static unsigned char *slot_of(const struct block_writer *w, int64_t block)
{
	return w->slots + block % w->slot_count * block_bytes;
}

/* ---- the thread ---- */

/* Bounds the cached pages of a file. Starts write-back of these blocks, and waits for those of one ring ago
 * and drops them. */
static int bound_cache(const struct block_writer *w, int64_t block, int64_t count)
{
	int64_t at = block * block_bytes, len = count * block_bytes, ring = w->slot_count * block_bytes;
	int err = file_write_back(w->fd, w->path, at, len);

	if (!err && at >= ring)
		err = file_drop_written(w->fd, w->path, at - ring, len);
	return err;
}

/* Number of full blocks, contiguous in the ring, for the next request. */
static int64_t run_count(const struct block_writer *w)
{
	int64_t full = w->full_count - w->written_count;
	int64_t to_end = w->slot_count - w->written_count % w->slot_count;

	full = full < to_end ? full : to_end;
	return full < RUN_BLOCKS ? full : RUN_BLOCKS;
}

static void *write_blocks(void *context)
{
	struct block_writer *w = context;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		int64_t block = w->written_count, count;
		int err = 0;

		while (w->full_count == block && !w->ends)
			pthread_cond_wait(&w->change, &w->lock);
		count = run_count(w);
		if (!count)
			break;
		if (!w->err.code) {
			pthread_mutex_unlock(&w->lock);
			err = file_write_at(w->fd, w->path, slot_of(w, block), (size_t)(count * block_bytes),
			        block * block_bytes);
			if (!err && file_get_caching(w->fd) == FILE_CACHING_ON)
				err = bound_cache(w, block, count);
			pthread_mutex_lock(&w->lock);
		}
		if (err)
			err_take(&w->err, err);
		w->written_count += count;
		pthread_cond_signal(&w->change);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Blocks all signals in the thread, so that other threads handle them. */
static int start_thread(struct block_writer *w)
{
	sigset_t all, before;
	pthread_attr_t attr;

	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->change, NULL);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	w->is_running = !pthread_create(&w->thread, &attr, write_blocks, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return w->is_running ? 0 : err_set(ERR_NOMEM, "%s: cannot start a thread to write it", w->path);
}

static void join_thread(struct block_writer *w)
{
	if (!w->is_running)
		return;
	pthread_mutex_lock(&w->lock);
	w->ends = 1;
	pthread_cond_signal(&w->change);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	w->is_running = 0;
}

/* ---- opening ---- */

static int64_t blocks_of(int64_t total_bytes)
{
	return (total_bytes + block_bytes - 1) / block_bytes;
}

static int writes_alone(int64_t total_bytes)
{
	return blocks_of(total_bytes) < BLOCK_WRITER_ALONE;
}

int64_t block_writer_memory_bytes(int64_t total_bytes)
{
	if (!writes_alone(total_bytes))
		return BLOCK_WRITER_SLOTS * block_bytes;
	return total_bytes < block_bytes ? total_bytes : block_bytes;
}

/* A ring that no file uses at the moment. It keeps its pages: getting them from the system takes a twentieth
 * of the time of a half-gigabyte file, and more in a virtual machine without free memory of its own. */
static void *_Atomic spare_ring;

static int ring_take(void **ring)
{
	*ring = atomic_exchange(&spare_ring, NULL);
	/* huge pages halve the processor's time for requests of megabytes */
	return *ring ? 0 : slab_map(ring, BLOCK_WRITER_SLOTS * block_bytes, "checkpoint write buffer");
}

static void ring_give(void *ring)
{
	void *none = NULL;

	if (ring && !atomic_compare_exchange_strong(&spare_ring, &none, ring))
		slab_unmap(ring, BLOCK_WRITER_SLOTS * block_bytes);
}

static int take_memory(struct block_writer *w, enum block_hashing hashing)
{
	int is_alone = writes_alone(w->total_bytes);
	void *slots = NULL;
	int err = 0;

	w->slot_count = is_alone ? 1 : BLOCK_WRITER_SLOTS;
	if (hashing == BLOCK_HASHING_ON) {
		w->hashes = mem_alloc((size_t)blocks_of(w->total_bytes), sizeof(*w->hashes));
		if (!w->hashes)
			return ERR_NOMEM;
		hash_kernels()->begin(&w->hash);
	}
	if (is_alone)
		slots = mem_alloc_aligned((size_t)block_writer_memory_bytes(w->total_bytes), 1, ALIGN_BYTES);
	else
		err = ring_take(&slots);
	w->slots = slots;
	return err || slots ? err : ERR_NOMEM;
}

int block_writer_open(
        struct block_writer **out, const char *path, int64_t total_bytes, enum block_hashing hashing)
{
	struct block_writer *w = mem_alloc_aligned(1, sizeof(*w), _Alignof(struct block_writer));
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
		err = file_reserve(w->fd, path, total_bytes);
		(void)!file_set_caching(w->fd, FILE_CACHING_OFF); /* a refused write turns caching on again */
		err = err ? err : start_thread(w);
	}
	if (err)
		block_writer_free(w);
	else
		*out = w;
	return err;
}

/* ---- filling ---- */

/* Writes the last block, full or partly filled, on this thread. */
static int write_here(struct block_writer *w)
{
	int64_t block = (w->put_bytes - 1) / block_bytes, at = block * block_bytes;

	return file_write_at(w->fd, w->path, slot_of(w, block), (size_t)(w->put_bytes - at), at);
}

static int hand_over(struct block_writer *w)
{
	pthread_mutex_lock(&w->lock);
	w->full_count++;
	pthread_cond_signal(&w->change);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

/* Waits until the block's slot is written and free. */
static int wait_for_slot(struct block_writer *w, int64_t block)
{
	int err;

	pthread_mutex_lock(&w->lock);
	while (block - w->written_count >= w->slot_count && !w->err.code)
		pthread_cond_wait(&w->change, &w->lock);
	err = err_give(&w->err);
	pthread_mutex_unlock(&w->lock);
	return err;
}

/* Copies `part` bytes, which end within the block; next_bytes more follow them. Hashing brings them into the
 * cache. The store fetches the next bytes meanwhile, so that the next hash finds them there. */
static int put(struct block_writer *w, const unsigned char *from, int64_t part, int64_t next_bytes)
{
	int64_t block = w->put_bytes / block_bytes, within = w->put_bytes % block_bytes;
	int is_full = within + part == block_bytes, ends = w->put_bytes + part == w->total_bytes;

	if (w->hashes)
		hash_kernels()->add(&w->hash, from, (size_t)part);
	mem_copy_past_cache(slot_of(w, block) + within, from, (size_t)part, (size_t)next_bytes);
	w->put_bytes += part;
	if (!is_full && !ends)
		return 0;
	if (w->hashes) {
		w->hashes[w->hash_count++] = hash_kernels()->end(&w->hash);
		hash_kernels()->begin(&w->hash);
	}
	return w->slot_count == 1 ? write_here(w) : is_full ? hand_over(w) : 0;
}

int block_writer_append(struct block_writer *w, const void *src, int64_t len_bytes)
{
	const unsigned char *from = src;
	int err = 0;

	assert(len_bytes >= 0 && w->put_bytes + len_bytes <= w->total_bytes);
	while (!err && len_bytes) {
		int64_t within = w->put_bytes % block_bytes;
		int64_t part = len_bytes < PART_BYTES ? len_bytes : PART_BYTES;

		part = part < block_bytes - within ? part : block_bytes - within;
		if (w->is_running && !within)
			err = wait_for_slot(w, w->put_bytes / block_bytes);
		if (!err)
			err = put(w, from, part, len_bytes - part);
		from += part;
		len_bytes -= part;
	}
	return err;
}

/* Waits for the thread and writes the last, partial block. */
static int finish_thread(struct block_writer *w)
{
	int err;

	join_thread(w);
	err = err_give(&w->err);
	if (err || w->put_bytes % block_bytes == 0)
		return err;
	(void)!file_set_caching(w->fd, FILE_CACHING_ON); /* a partial block is not aligned */
	return write_here(w);
}

int block_writer_finish(struct block_writer *w)
{
	int err = 0, closed;

	if (w->put_bytes != w->total_bytes)
		return err_set(ERR_INTERNAL, "%s: received %" PRId64 " of %" PRId64 " bytes", w->path,
		        w->put_bytes, w->total_bytes);
	if (w->slot_count > 1)
		err = finish_thread(w);
	if (!err)
		err = file_sync(w->fd, w->path);
	if (err)
		return err;
	if (w->slot_count > 1) /* after fsync all pages are clean */
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
	if (w->is_running) { /* unfinished: blocks not written yet are dropped */
		pthread_mutex_lock(&w->lock);
		if (!w->err.code)
			w->err.code = ERR_STOPPED;
		pthread_mutex_unlock(&w->lock);
		join_thread(w);
	}
	if (w->fd >= 0)
		file_abandon(w->fd, w->path);
	if (w->slot_count > 1) {
		ring_give(w->slots);
		pthread_mutex_destroy(&w->lock);
		pthread_cond_destroy(&w->change);
	} else {
		mem_free(w->slots);
	}
	mem_free(w->hashes);
	mem_free(w->path);
	mem_free(w);
}
