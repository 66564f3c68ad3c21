/* Loads weights of a HuggingFace directory into planes, on several threads. */
#include "checkpoint/file/parallel.h"
#include "checkpoint/file/shard_reader.h"
#include "checkpoint/file/weights.h"
#include "checkpoint/hf/hf_import_parts.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

/* A job is a piece of one tensor; jobs are in the order of the files' bytes. A job moves its bytes in chunks
 * that stay in a core's cache from the read to the split. */
enum { JOB_BYTES = 16 << 20 };

/* Each chunk of a turned matrix reads all codes of the matrix. */
enum { TURNED_CHUNK_BYTES = 2 << 20 };

struct job {
	const struct hf_part *part;
	int64_t first, count; /* elements of the part's tensor of the table */
};

_Static_assert(sizeof(struct job) <= LOAD_JOB_ENTRY_BYTES && LOAD_CHUNK_BYTES <= LOAD_SCRATCH_BYTES,
        "load_memory_bytes counts them");

struct load {
	struct weights_target target;
	struct job *jobs;
	int64_t job_count;
	char *scratch; /* [workers][chunk_bytes] */
	int64_t chunk_bytes;
	struct shard_readers readers;
};

/* ---- one job ---- */

/* The byte range of elements of a tensor. */
static struct shard_range range_of(const struct hf_part *part, int64_t first, int64_t count)
{
	int64_t begin = hf_part_offset(part, first);

	if (part->coded) { /* not read by a reader: no bytes to expect */
		begin = part->tensor->begin_bytes;
		return (struct shard_range){part->file, begin, begin};
	}
	return (struct shard_range){part->file, begin, begin + count * hf_part_element_bytes(part)};
}

static void job_expect(const struct load *load, int64_t index)
{
	const struct job *job = &load->jobs[index];
	struct shard_range range;

	if (index >= load->job_count)
		return;
	range = range_of(job->part, job->first, job->count);
	shard_reader_expect(&range);
}

/* Fails with the first of `count` elements that is not finite; there is one. */
static int fail_first(const struct hf_part *part, const void *raw, int64_t first, int64_t count)
{
	int64_t width = hf_part_element_bytes(part), i;
	float value = 0;

	for (i = 0; i < count; i++) {
		hf_part_widen(part, &value, (const char *)raw + i * width, 1);
		if ((f32_bits(value) & 0x7f800000) == 0x7f800000)
			break;
	}
	return hf_part_fail_value(part, first + i, value);
}

/* 1: the tensor keeps the codes that the file has. */
static int is_stored(const struct load *load, const struct hf_part *part)
{
	return part->coded &&
	       weights_kept(&load->target, part->of) == load->target.model->tensors[part->of].stored;
}

static int load_coded(struct load *load, const struct hf_part *part, int worker, int64_t first, int64_t count)
{
	float *values = (float *)(void *)(load->scratch + worker * load->chunk_bytes);
	int64_t at = part->at + first - part->first;
	int err;

	if (is_stored(load, part))
		return hf_coded_store(part->coded, &load->target, part->of, first, at, count);
	err = hf_coded_read(part->coded, values, at, count);
	if (!err)
		err = weights_put(&load->target, FORMAT_F32, part->of, first, count, values);
	for (int64_t i = 0; i < count && err == WEIGHTS_NOT_FINITE; i++)
		if ((f32_bits(values[i]) & 0x7f800000) == 0x7f800000)
			err = hf_part_fail_value(part, first + i, values[i]);
	return err;
}

/* The bytes of a chunk: those that are read past the reader's limit are gathered in scratch. */
static int chunk_get(struct load *load, const unsigned char **src, void *to, int worker,
        const struct shard_range *chunk, const struct shard_range *whole)
{
	char *raw = load->scratch + worker * load->chunk_bytes;
	int err = 0;

	if (chunk->end_bytes - chunk->begin_bytes <= LOAD_CHUNK_BYTES)
		return shard_reader_get(&load->readers.reader[worker], src, to, chunk, whole);
	for (int64_t at = chunk->begin_bytes, end; at < chunk->end_bytes && !err; at = end) {
		char *place = raw + (at - chunk->begin_bytes);

		end = min_i64(at + LOAD_CHUNK_BYTES, chunk->end_bytes);
		err = shard_reader_get(&load->readers.reader[worker], src, place,
		        &(struct shard_range){chunk->file, at, end}, whole);
		if (!err && *src != (const unsigned char *)place)
			memcpy(place, *src, (size_t)(end - at));
	}
	*src = (const unsigned char *)raw;
	return err;
}

static int load_chunk(struct load *load, const struct job *job, int worker, int64_t first, int64_t count)
{
	const struct hf_part *part = job->part;
	void *raw = load->scratch + worker * load->chunk_bytes, *in_place;
	struct shard_range chunk = range_of(part, first, count),
	                   whole = range_of(part, job->first, job->count);
	const unsigned char *src;
	int err;

	if (part->coded)
		return load_coded(load, part, worker, first, count);
	in_place = weights_place(&load->target, part->format, part->of, first, count);
	err = chunk_get(load, &src, in_place ? in_place : raw, worker, &chunk, &whole);
	if (err)
		return err_note(err, "tensor %s", safetensors_name_show(part->tensor->name).text);
	if ((uintptr_t)src % 4) { /* the file format does not align tensors */
		memcpy(raw, src, (size_t)(chunk.end_bytes - chunk.begin_bytes));
		src = raw;
	}
	err = weights_put(&load->target, part->format, part->of, first, count, src);
	return err == WEIGHTS_NOT_FINITE ? fail_first(part, src, first, count) : err;
}

/* Bytes of an element in scratch. */
static int64_t scratch_width(const struct load *load, const struct hf_part *part)
{
	return !part->coded            ? hf_part_element_bytes(part)
	       : is_stored(load, part) ? 1
	                               : (int64_t)sizeof(float);
}

/* Elements of a job or chunk of at most `bytes`: whole granules, at least one. */
static int64_t most_of(const struct load *load, const struct hf_part *part, int64_t bytes)
{
	int64_t least = part->coded && part->coded->is_turned ? TURNED_CHUNK_BYTES : 0,
	        most = max_i64(bytes, least) / scratch_width(load, part),
	        granule = weights_granule(&load->target, part->of);

	return max_i64(most / granule, 1) * granule;
}

static int load_job(void *context, int64_t index, int worker)
{
	struct load *load = context;
	const struct job *job = &load->jobs[index];
	struct shard_range range = range_of(job->part, job->first, job->count);
	int64_t most = most_of(load, job->part, LOAD_CHUNK_BYTES);
	int err = 0;

	if (job->first % weights_granule(&load->target, job->part->of))
		err = err_set(ERR_UNSUPPORTED, "tensor %s begins inside a block of its format in memory, %s",
		        safetensors_name_show(job->part->tensor->name).text,
		        weights_kept(&load->target, job->part->of)->name);
	job_expect(load, index + SHARD_AHEAD_JOBS);
	for (int64_t at = 0, count; !err && at < job->count; at += count) {
		count = min_i64(most, job->count - at);
		err = load_chunk(load, job, worker, job->first + at, count);
	}
	shard_reader_done(&range);
	return err;
}

/* ---- all jobs ---- */

static int compare_jobs(const void *a, const void *b)
{
	const struct job *left = a, *right = b;
	int64_t from = hf_part_offset(left->part, left->first),
	        to = hf_part_offset(right->part, right->first);

	if (left->part->file_index != right->part->file_index)
		return left->part->file_index < right->part->file_index ? -1 : 1;
	return from < to ? -1 : from > to;
}

/* Lists the jobs of a range, or only counts them: jobs NULL. */
static int64_t jobs_of(const struct load *load, struct job *jobs, const struct hf_import *import,
        const struct plane_range *range)
{
	int64_t parts, made = 0, end = range->first + range->count;
	const struct hf_part *part = hf_layout_parts(&import->layout, range->tensor, &parts);

	for (int64_t i = 0; i < parts; i++) {
		int64_t most = most_of(load, &part[i], JOB_BYTES);
		int64_t to = min_i64(end, part[i].first + part[i].count);

		for (int64_t at = max_i64(range->first, part[i].first); at < to; at += most, made++)
			if (jobs)
				jobs[made] = (struct job){&part[i], at, min_i64(most, to - at)};
	}
	return made;
}

static int make_jobs(struct load *load, const struct hf_import *import, const struct plane_range *ranges,
        int64_t range_count)
{
	int64_t count = 0;

	for (int64_t r = 0; r < range_count; r++)
		count += jobs_of(load, NULL, import, &ranges[r]);
	load->jobs = mem_alloc((size_t)count, sizeof(*load->jobs));
	if (!load->jobs)
		return ERR_NOMEM;
	for (int64_t r = 0; r < range_count; r++)
		load->job_count += jobs_of(load, load->jobs + load->job_count, import, &ranges[r]);
	load->chunk_bytes = LOAD_CHUNK_BYTES;
	for (int64_t i = 0; i < load->job_count; i++) {
		const struct hf_part *part = load->jobs[i].part;

		load->chunk_bytes = max_i64(
		        load->chunk_bytes, most_of(load, part, LOAD_CHUNK_BYTES) * scratch_width(load, part));
	}
	qsort(load->jobs, (size_t)load->job_count, sizeof(*load->jobs), compare_jobs);
	return 0;
}

static int load_ranges(struct hf_import *import, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count, struct pool *pool)
{
	struct load load = {0};
	int err;

	weights_target_open(&load.target, sink, import->model);
	err = make_jobs(&load, import, ranges, range_count);
	if (!err) {
		load.scratch = mem_alloc((size_t)parallel_worker_count(pool), (size_t)load.chunk_bytes);
		err = load.scratch ? shard_readers_open(&load.readers, pool) : ERR_NOMEM;
	}
	if (!err) {
		for (int f = 0; f < import->dir->file_count; f++)
			shard_reader_prepare(import->dir->files[f]);
		for (int64_t i = 0; i < SHARD_AHEAD_JOBS; i++)
			job_expect(&load, i);
		err = parallel_run(pool, load.job_count, load_job, &load);
	}
	weights_target_close(&load.target);
	shard_readers_close(&load.readers);
	mem_free(load.scratch);
	mem_free(load.jobs);
	return err;
}

int hf_import_load(struct hf_import *import, const struct plane_sink *sink, const struct plane_range *ranges,
        int64_t range_count, struct pool *pool)
{
	const struct model *model = import->model;
	struct plane_range *all;
	int err;

	if (ranges)
		return load_ranges(import, sink, ranges, range_count, pool);
	all = mem_alloc((size_t)model->tensor_count, sizeof(*all));
	if (!all)
		return ERR_NOMEM;
	for (int t = 0; t < model->tensor_count; t++)
		all[t] = (struct plane_range){t, 0, model->tensors[t].count};
	err = load_ranges(import, sink, all, model->tensor_count, pool);
	mem_free(all);
	return err;
}
