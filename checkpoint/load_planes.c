#include "checkpoint/crew.h"
#include "checkpoint/load_parts.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdlib.h>
#define XXH_STATIC_LINKING_ONLY /* for a state without an allocation of its own */
#include <xxhash.h>

enum {
	CHUNK_BYTES = 256 << 10,          /* a core's cache holds it from the read to the checksum */
	SCRATCH_BYTES = CHUNK_BYTES + 64, /* and the rest of a number */
	AHEAD_JOBS = 8,                   /* blocks asked of the system before they are read */
};

/* What is wanted of one entry: elements of a plane, and where they begin in their file. */
struct segment {
	enum plane plane;
	struct plane_range range;
	int file;
	int64_t begin_bytes, end_bytes;
};

/* One block of checksums; segments that lie in it stand together. */
struct job {
	int file;
	int64_t block, first_segment;
};

struct load {
	const struct checkpoint *checkpoint;
	const struct plane_sink *sink;
	struct segment *segments; /* by file and place */
	int64_t segment_count;
	struct job *jobs;
	int64_t job_count;
	unsigned char *scratch; /* [workers][SCRATCH_BYTES] */
	pthread_mutex_t write_lock;
};

/* ---- one block ---- */

static void job_expect(const struct load *load, int64_t index)
{
	const struct job *job;

	if (index >= load->job_count)
		return;
	job = &load->jobs[index];
	page_cache_expect(load->checkpoint->files[job->file]->cache, job->block * SAFETENSORS_BLOCK_BYTES,
	        checkpoint_block_bytes(load->checkpoint, job->file, job->block));
}

/* Where a segment's bytes go in host memory. */
static unsigned char *address(const struct load *load, const struct segment *s)
{
	const struct plane_sink *sink = load->sink;

	return sink->at ? sink->at(sink->context, s->range.tensor, s->plane, s->range.first, s->range.count)
	                : NULL;
}

/* Hands over the numbers of a segment from byte `at` on, where one begins. */
static int write_numbers(
        struct load *load, const struct segment *s, int64_t at, int64_t numbers, const void *src)
{
	int width = plane_width(s->plane, load->checkpoint->manifest->state);
	int64_t each = PLANES_SCALE >> s->plane & 1 ? PLANE_BLOCK_COUNT : 1;
	int64_t first = (at - s->begin_bytes) / width * each, count = numbers * each;
	int err;

	if (count > s->range.count - first) /* the last scale may be of fewer */
		count = s->range.count - first;
	pthread_mutex_lock(&load->write_lock);
	err = load->sink->write(
	        load->sink->context, s->range.tensor, s->plane, s->range.first + first, count, src);
	pthread_mutex_unlock(&load->write_lock);
	return err;
}

static int read_bytes(
        const struct load *load, XXH3_state_t *hash, int file, unsigned char *to, int64_t begin, int64_t end)
{
	const struct safetensors *shard = load->checkpoint->files[file];
	int64_t part;
	int err = 0;

	for (int64_t at = begin; !err && at < end; at += part, to += part) {
		part = end - at < CHUNK_BYTES ? end - at : CHUNK_BYTES;
		err = file_read_at(shard->fd, shard->path, to, (size_t)part, at);
		if (!err && hash)
			XXH3_64bits_update(hash, to, (size_t)part);
	}
	return err;
}

/* Bytes [begin, end) of a segment that has no address. Nothing keeps numbers from lying across the border of
 * two blocks: such a one is the former block's to hand over, which reads its last bytes once more. */
static int stage_bytes(struct load *load, XXH3_state_t *hash, const struct segment *s, unsigned char *scratch,
        int64_t begin, int64_t end)
{
	enum plane_state state = load->checkpoint->manifest->state;
	int64_t width = plane_width(s->plane, state), most = plane_bytes(s->plane, state, PLANE_PIECE_COUNT);
	int64_t head = (width - (begin - s->begin_bytes) % width) % width, part;
	int err = head ? read_bytes(load, hash, s->file, scratch, begin, begin + head) : 0;

	if (most > CHUNK_BYTES)
		most = CHUNK_BYTES;
	for (int64_t at = begin + head; !err && at < end; at += part) {
		int64_t rest;

		part = end - at < most ? end - at : most;
		rest = (width - part % width) % width; /* of a number that goes on in the next block */
		err = read_bytes(load, hash, s->file, scratch, at, at + part);
		if (!err && rest)
			err = read_bytes(load, NULL, s->file, scratch + part, at + part, at + part + rest);
		if (!err)
			err = write_numbers(load, s, at, (part + rest) / width, scratch);
	}
	return err;
}

/* Bytes that nobody wants, for the checksum. */
static int pass_bytes(const struct load *load, XXH3_state_t *hash, int file, unsigned char *scratch,
        int64_t begin, int64_t end)
{
	int64_t part;
	int err = 0;

	for (int64_t at = begin; !err && at < end; at += part) {
		part = end - at < CHUNK_BYTES ? end - at : CHUNK_BYTES;
		err = read_bytes(load, hash, file, scratch, at, at + part);
	}
	return err;
}

static int load_block(struct load *load, const struct job *job, unsigned char *scratch)
{
	const struct checkpoint *checkpoint = load->checkpoint;
	int64_t at = job->block * SAFETENSORS_BLOCK_BYTES, part_end;
	int64_t end = at + checkpoint_block_bytes(checkpoint, job->file, job->block);
	XXH3_state_t hash;
	int err = 0;

	XXH3_64bits_reset(&hash);
	for (int64_t i = job->first_segment; !err && at < end; at = part_end) {
		const struct segment *s;
		unsigned char *to;

		while (i < load->segment_count && load->segments[i].file == job->file &&
		        load->segments[i].end_bytes <= at)
			i++;
		s = i < load->segment_count && load->segments[i].file == job->file ? &load->segments[i]
		                                                                   : NULL;
		part_end = !s ? end : s->begin_bytes > at ? s->begin_bytes : s->end_bytes;
		if (part_end > end)
			part_end = end;
		if (!s || s->begin_bytes > at)
			err = pass_bytes(load, &hash, job->file, scratch, at, part_end);
		else if ((to = address(load, s)))
			err = read_bytes(load, &hash, job->file, to + (at - s->begin_bytes), at, part_end);
		else
			err = stage_bytes(load, &hash, s, scratch, at, part_end);
	}
	if (!err && XXH3_64bits_digest(&hash) != checkpoint->manifest->files[job->file].hashes[job->block])
		err = checkpoint_fail_block(checkpoint, job->file, job->block);
	return err;
}

static int load_job(void *context, int64_t index, int worker)
{
	struct load *load = context;
	const struct job *job = &load->jobs[index];
	int err;

	job_expect(load, index + AHEAD_JOBS);
	err = load_block(load, job, load->scratch + (int64_t)worker * SCRATCH_BYTES);
	page_cache_restore(load->checkpoint->files[job->file]->cache, job->block * SAFETENSORS_BLOCK_BYTES,
	        checkpoint_block_bytes(load->checkpoint, job->file, job->block));
	return err;
}

/* ---- all of them ---- */

static int compare_segments(const void *a, const void *b)
{
	const struct segment *left = a, *right = b;

	if (left->file != right->file)
		return left->file < right->file ? -1 : 1;
	return left->begin_bytes < right->begin_bytes ? -1 : left->begin_bytes > right->begin_bytes;
}

/* Counts the entries that a range touches, or, with segments there, adds what it wants of each. */
static int64_t add_segments(struct load *load, enum plane plane, struct plane_range range)
{
	enum plane_state state = load->checkpoint->manifest->state;
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

	for (int p = 0; p < PLANE_COUNT; p++)
		for (int64_t i = 0; i < count && manifest->planes & 1u << p; i++)
			added += add_segments(load, (enum plane)p,
			        ranges ? ranges[i]
			               : (struct plane_range){(int)i, 0, manifest->tensors[i].count});
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

/* The blocks that hold something of a segment, once each. */
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
		load.scratch = mem_alloc((size_t)crew_worker_count(pool), SCRATCH_BYTES);
		err = load.scratch ? 0 : ERR_NOMEM;
	}
	if (!err) {
		pthread_mutex_init(&load.write_lock, NULL);
		for (int64_t i = 0; i < AHEAD_JOBS; i++)
			job_expect(&load, i);
		err = crew_run(pool, load.job_count, load_job, &load);
		pthread_mutex_destroy(&load.write_lock);
	}
	mem_free(load.scratch);
	mem_free(load.jobs);
	mem_free(load.segments);
	return err;
}
