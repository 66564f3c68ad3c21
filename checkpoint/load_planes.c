/* Loads a checkpoint's planes into memory, block by block, on several threads. */
#include "checkpoint/file/hash.h"
#include "checkpoint/file/parallel.h"
#include "checkpoint/file/shard_reader.h"
#include "checkpoint/load_parts.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH_BYTES = LOAD_CHUNK_BYTES + 64 }; /* a chunk, and the end of a number that crosses a block */

/* The part of one entry to load: elements of a plane, and their place in the file. */
struct segment {
	enum plane plane;
	struct plane_range range;
	int file;
	int64_t begin_bytes, end_bytes;
};

/* One block of checksums; its segments are consecutive. */
struct job {
	int file;
	int64_t block, first_segment;
};

/* A segment is one plane of one range; it may begin and end in blocks that no other segment uses. */
_Static_assert((int)SCRATCH_BYTES <= (int)LOAD_SCRATCH_BYTES && sizeof(struct job) <= LOAD_JOB_ENTRY_BYTES &&
                       sizeof(struct segment) + 2 * sizeof(struct job) <= LOAD_PIECE_TABLE_BYTES,
        "load_memory_bytes counts them");

struct load {
	const struct checkpoint *checkpoint;
	const struct plane_sink *sink;
	struct segment *segments; /* sorted by file and offset */
	int64_t segment_count;
	struct job *jobs;
	int64_t job_count;
	unsigned char *scratch; /* [workers][SCRATCH_BYTES] */
	struct shard_readers readers;
	pthread_mutex_t write_lock;
};

/* A block being loaded. */
struct block {
	struct load *load;
	struct shard_range range;
	struct shard_reader *reader;
	unsigned char *scratch;
	struct hash hash;
};

/* ---- one block ---- */

static struct shard_range job_range(const struct load *load, int64_t index)
{
	const struct job *job = &load->jobs[index];
	int64_t begin = job->block * SAFETENSORS_BLOCK_BYTES;

	return (struct shard_range){load->checkpoint->files[job->file], begin,
	        begin + checkpoint_block_bytes(load->checkpoint, job->file, job->block)};
}

static void job_expect(const struct load *load, int64_t index)
{
	struct shard_range range;

	if (index >= load->job_count)
		return;
	range = job_range(load, index);
	shard_reader_expect(&range);
}

/* The host address for a segment's bytes, or NULL. */
static unsigned char *address(const struct load *load, const struct segment *s)
{
	const struct plane_sink *sink = load->sink;

	return sink->at ? sink->at(sink->context, s->range.tensor, s->plane, s->range.first, s->range.count)
	                : NULL;
}

/* Writes numbers of a segment to the sink; the first begins at byte `at`. */
static int write_numbers(
        struct load *load, const struct segment *s, int64_t at, int64_t numbers, const void *src)
{
	int width = plane_width(s->plane, load->checkpoint->manifest->state);
	int64_t each = plane_block(s->plane, load->checkpoint->manifest->state);
	int64_t first = (at - s->begin_bytes) / width * each, count = numbers * each;
	int err;

	if (count > s->range.count - first) /* the last scale may cover fewer elements */
		count = s->range.count - first;
	pthread_mutex_lock(&load->write_lock);
	err = load->sink->write(
	        load->sink->context, s->range.tensor, s->plane, s->range.first + first, count, src);
	pthread_mutex_unlock(&load->write_lock);
	return err;
}

/* Reads bytes [begin, end) of the file to `to`, and hashes them. */
static int read_bytes(struct block *b, unsigned char *to, int64_t begin, int64_t end)
{
	struct shard_range chunk = {.file = b->range.file, .begin_bytes = begin};
	int err = 0;

	for (; !err && chunk.begin_bytes < end; chunk.begin_bytes = chunk.end_bytes) {
		int64_t left = end - chunk.begin_bytes,
		        part = left < LOAD_CHUNK_BYTES ? left : LOAD_CHUNK_BYTES;
		const unsigned char *bytes;

		chunk.end_bytes = chunk.begin_bytes + part;
		err = shard_reader_get(b->reader, &bytes, to, &chunk, &b->range);
		if (err)
			return err;
		hash_kernels()->add(&b->hash, bytes, (size_t)part);
		if (bytes != to)
			memcpy(to, bytes, (size_t)part);
		to += part;
	}
	return err;
}

/* Loads bytes [begin, end) of a segment without an address. A number may cross the border of two blocks. The
 * first block then writes it, and reads its last bytes once more. */
static int convert_bytes(struct block *b, const struct segment *s, int64_t begin, int64_t end)
{
	enum adamw_state state = b->load->checkpoint->manifest->state;
	int64_t width = plane_width(s->plane, state), most = plane_bytes(s->plane, state, PLANE_PIECE_COUNT);
	int64_t head = (width - (begin - s->begin_bytes) % width) % width, part;
	int err = head ? read_bytes(b, b->scratch, begin, begin + head) : 0;

	if (most > LOAD_CHUNK_BYTES)
		most = LOAD_CHUNK_BYTES;
	for (int64_t at = begin + head; !err && at < end; at += part) {
		int64_t rest;

		part = end - at < most ? end - at : most;
		rest = (width - part % width) % width; /* of a number that goes on after `part` */
		err = read_bytes(b, b->scratch, at, at + part);
		if (!err && rest)
			err = file_read_at(b->range.file->fd, b->range.file->path, b->scratch + part,
			        (size_t)rest, at + part);
		if (!err)
			err = write_numbers(b->load, s, at, (part + rest) / width, b->scratch);
	}
	return err;
}

/* Hashes bytes that are not loaded. */
static int pass_bytes(struct block *b, int64_t begin, int64_t end)
{
	int64_t part;
	int err = 0;

	for (int64_t at = begin; !err && at < end; at += part) {
		part = end - at < LOAD_CHUNK_BYTES ? end - at : LOAD_CHUNK_BYTES;
		err = read_bytes(b, b->scratch, at, at + part);
	}
	return err;
}

static int load_block(struct block *b, const struct job *job)
{
	const struct load *load = b->load;
	int64_t at = b->range.begin_bytes, end = b->range.end_bytes, part_end;
	int err = 0;

	hash_kernels()->begin(&b->hash);
	for (int64_t i = job->first_segment; !err && at < end; at = part_end) {
		const struct segment *s = NULL;
		unsigned char *to;

		while (i < load->segment_count && load->segments[i].file == job->file &&
		        load->segments[i].end_bytes <= at)
			i++;
		if (i < load->segment_count && load->segments[i].file == job->file)
			s = &load->segments[i];
		part_end = !s ? end : s->begin_bytes > at ? s->begin_bytes : s->end_bytes;
		if (part_end > end)
			part_end = end;
		if (!s || s->begin_bytes > at)
			err = pass_bytes(b, at, part_end);
		else if ((to = address(load, s)))
			err = read_bytes(b, to + (at - s->begin_bytes), at, part_end);
		else
			err = convert_bytes(b, s, at, part_end);
	}
	if (!err && hash_kernels()->end(&b->hash) !=
	                    load->checkpoint->manifest->files[job->file].hashes[job->block])
		err = checkpoint_fail_block(load->checkpoint, job->file, job->block);
	return err;
}

static int load_job(void *context, int64_t index, int worker)
{
	struct load *load = context;
	struct block block = {.load = load,
	        .range = job_range(load, index),
	        .reader = &load->readers.reader[worker],
	        .scratch = load->scratch + (int64_t)worker * SCRATCH_BYTES};
	int err;

	job_expect(load, index + SHARD_AHEAD_JOBS);
	err = load_block(&block, &load->jobs[index]);
	shard_reader_done(&block.range);
	return err;
}

/* ---- all blocks ---- */

static int compare_segments(const void *a, const void *b)
{
	const struct segment *left = a, *right = b;

	if (left->file != right->file)
		return left->file < right->file ? -1 : 1;
	return left->begin_bytes < right->begin_bytes ? -1 : left->begin_bytes > right->begin_bytes;
}

/* Counts the entries that a range touches; if load->segments exists, also adds a segment for each. */
static int64_t add_segments(struct load *load, enum plane plane, struct plane_range range)
{
	enum adamw_state state = load->checkpoint->manifest->state;
	int64_t added = 0, part;

	for (; range.count; range.first += part, range.count -= part, added++) {
		const struct checkpoint_entry *entry =
		        checkpoint_find_entry(load->checkpoint, range.tensor, plane, range.first);
		int64_t within = range.first - entry->range.first, begin;

		part = entry->range.count - within < range.count ? entry->range.count - within : range.count;
		if (!load->segments)
			continue;
		begin = entry->begin_bytes + plane_bytes(plane, state, within);
		load->segments[load->segment_count++] =
		        (struct segment){plane, {range.tensor, range.first, part}, entry->file, begin,
		                begin + plane_bytes(plane, state, part)};
	}
	return added;
}

static int64_t add_all_segments(struct load *load, const struct plane_range *ranges, int64_t range_count)
{
	const struct manifest *manifest = load->checkpoint->manifest;
	int64_t count = ranges ? range_count : manifest->tensor_count, added = 0;

	for (int p = 0; p < PLANE_SAVED_COUNT; p++)
		for (int64_t i = 0; i < count; i++) {
			int tensor = ranges ? ranges[i].tensor : (int)i;

			if (manifest->tensors[tensor].planes & 1u << p)
				added += add_segments(load, (enum plane)p,
				        ranges ? ranges[i]
				               : (struct plane_range){
				                         tensor, 0, manifest->tensors[tensor].count});
		}
	return added;
}

static int make_segments(struct load *load, const struct plane_range *ranges, int64_t range_count)
{
	int64_t count = add_all_segments(load, ranges, range_count);

	load->segments = mem_alloc((size_t)count, sizeof(*load->segments));
	if (!load->segments)
		return ERR_NOMEM;
	add_all_segments(load, ranges, range_count);
	qsort(load->segments, (size_t)count, sizeof(*load->segments), compare_segments);
	return 0;
}

/* Makes one job for each block with bytes of a segment. */
static int make_jobs(struct load *load)
{
	int64_t count = 0;

	for (int64_t i = 0; i < load->segment_count; i++)
		count += (load->segments[i].end_bytes - 1) / SAFETENSORS_BLOCK_BYTES -
		         load->segments[i].begin_bytes / SAFETENSORS_BLOCK_BYTES + 1;
	load->jobs = mem_alloc((size_t)count, sizeof(*load->jobs));
	if (!load->jobs)
		return ERR_NOMEM;
	for (int64_t i = 0; i < load->segment_count; i++) {
		const struct segment *s = &load->segments[i];
		int64_t block = s->begin_bytes / SAFETENSORS_BLOCK_BYTES;
		const struct job *last = load->job_count ? &load->jobs[load->job_count - 1] : NULL;

		if (last && last->file == s->file && last->block == block)
			block++;
		for (; block * SAFETENSORS_BLOCK_BYTES < s->end_bytes; block++)
			load->jobs[load->job_count++] = (struct job){s->file, block, i};
	}
	return 0;
}

int checkpoint_load(struct checkpoint *checkpoint, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count, struct pool *pool)
{
	struct load load = {.checkpoint = checkpoint, .sink = sink};
	int err = make_segments(&load, ranges, range_count);

	checkpoint_forget_blocks(checkpoint);
	if (!err)
		err = make_jobs(&load);
	if (!err) {
		load.scratch = mem_alloc((size_t)parallel_worker_count(pool), SCRATCH_BYTES);
		err = load.scratch ? shard_readers_open(&load.readers, pool) : ERR_NOMEM;
	}
	if (!err) {
		pthread_mutex_init(&load.write_lock, NULL);
		for (int f = 0; f < checkpoint->manifest->file_count; f++)
			if (checkpoint->files[f])
				shard_reader_prepare(checkpoint->files[f]);
		for (int64_t i = 0; i < SHARD_AHEAD_JOBS; i++)
			job_expect(&load, i);
		err = parallel_run(pool, load.job_count, load_job, &load);
		pthread_mutex_destroy(&load.write_lock);
	}
	shard_readers_close(&load.readers);
	mem_free(load.scratch);
	mem_free(load.jobs);
	mem_free(load.segments);
	return err;
}
