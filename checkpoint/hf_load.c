/* Loads weights of a HuggingFace directory into planes, on several threads. */
#include "checkpoint/convert.h"
#include "checkpoint/hf_import_parts.h"
#include "checkpoint/parallel.h"
#include "checkpoint/shard_reader.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A job is a piece of one tensor; jobs are in the order of the files' bytes. A job moves its bytes in chunks
 * that stay in a core's cache from the read to the split. */
enum {
	JOB_BYTES = 16 << 20,
	CHUNK_COUNT = LOAD_CHUNK_BYTES / 2,
};

struct job {
	const struct hf_place *place;
	int tensor;
	int64_t first, count;
};

/* Memory of one thread. The planes are for elements without an address in the sink. */
struct scratch {
	char raw[LOAD_CHUNK_BYTES];
	uint16_t hi[CHUNK_COUNT];
	int16_t lo[CHUNK_COUNT];
};

_Static_assert(sizeof(struct scratch) <= LOAD_SCRATCH_BYTES && sizeof(struct job) <= LOAD_JOB_ENTRY_BYTES,
        "load_memory_bytes counts them");

struct load {
	const struct convert_kernels *kernels;
	const struct plane_sink *sink;
	struct job *jobs;
	int64_t job_count;
	struct scratch *scratch; /* [workers] */
	struct shard_readers readers;
	pthread_mutex_t write_lock;
};

/* ---- one job ---- */

static int64_t job_offset(const struct job *job)
{
	return job->place->tensor->begin_bytes + job->first * hf_place_element_bytes(job->place);
}

/* The byte range of elements of a tensor. */
static struct shard_range range_of(const struct hf_place *place, int64_t first, int64_t count)
{
	int64_t width = hf_place_element_bytes(place);
	int64_t begin = place->tensor->begin_bytes + first * width;

	return (struct shard_range){place->file, begin, begin + count * width};
}

static void job_expect(const struct load *load, int64_t index)
{
	const struct job *job = &load->jobs[index];
	struct shard_range range;

	if (index >= load->job_count)
		return;
	range = range_of(job->place, job->first, job->count);
	shard_reader_expect(&range);
}

static void *address(const struct load *load, enum plane plane, const struct job *job)
{
	const struct plane_sink *sink = load->sink;

	return sink->at ? sink->at(sink->context, job->tensor, plane, job->first, job->count) : NULL;
}

static int write_plane(
        struct load *load, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	int err;

	pthread_mutex_lock(&load->write_lock);
	err = load->sink->write(load->sink->context, tensor, plane, first, count, src);
	pthread_mutex_unlock(&load->write_lock);
	return err;
}

/* Fails with the first of `count` elements that is not finite; there is one. */
static int fail_first(const struct hf_place *place, const void *raw, int64_t first, int64_t count)
{
	int64_t width = hf_place_element_bytes(place), i;
	float value = 0;

	for (i = 0; i < count; i++) {
		hf_place_widen(place, &value, (const char *)raw + i * width, 1);
		if ((f32_bits(value) & 0x7f800000) == 0x7f800000)
			break;
	}
	return hf_import_fail_value(place, first + i, value);
}

/* Splits `count` elements at `src` into planes. lo may be NULL for formats that fit in hi. */
static int split(const struct load *load, enum format format, uint16_t *hi, int16_t *lo, const void *src,
        int64_t count)
{
	switch (format) {
	case FORMAT_F32:
		return load->kernels->f32(hi, lo, src, count);
	case FORMAT_F16:
		return load->kernels->f16(hi, lo, src, count);
	case FORMAT_BF16:
		if (src != hi)
			memcpy(hi, src, (size_t)count * sizeof(*hi));
		if (lo)
			memset(lo, 0, (size_t)count * sizeof(*lo));
		return load->kernels->bf16(hi, count);
	default: /* all formats of weights are above */
		break;
	}
	assert(!"a format of weights");
	return 1;
}

static int read_chunk(struct load *load, const struct job *job, int worker, uint16_t *hi, int16_t *lo,
        int64_t first, int64_t count)
{
	const struct hf_place *place = job->place;
	int is_hi = place->format == FORMAT_BF16; /* same bytes: read directly to their place */
	void *raw = load->scratch[worker].raw;
	struct shard_range chunk = range_of(place, first, count),
	                   whole = range_of(place, job->first, job->count);
	const unsigned char *src;
	int err = shard_reader_get(
	        &load->readers.reader[worker], &src, is_hi ? (void *)hi : raw, &chunk, &whole);

	if (err)
		return err_note(err, "tensor %s", safetensors_name_show(place->tensor->name).text);
	if ((uintptr_t)src % 4) { /* the file format does not align tensors */
		memcpy(raw, src, (size_t)(chunk.end_bytes - chunk.begin_bytes));
		src = raw;
	}
	return split(load, place->format, hi, lo, src, count) ? fail_first(place, src, first, count) : 0;
}

static int load_job(void *context, int64_t index, int worker)
{
	struct load *load = context;
	const struct job *job = &load->jobs[index];
	struct scratch *scratch = &load->scratch[worker];
	struct shard_range range = range_of(job->place, job->first, job->count);
	int needs_lo = !format_fits(job->place->format, DTYPE_BF16) || !load->sink->is_zero;
	uint16_t *hi = address(load, PLANE_HI, job);
	int16_t *lo = needs_lo ? address(load, PLANE_LO, job) : NULL;
	int64_t most = LOAD_CHUNK_BYTES / hf_place_element_bytes(job->place);
	int err = 0;

	job_expect(load, index + SHARD_AHEAD_JOBS);
	for (int64_t at = 0, count; !err && at < job->count; at += count) {
		uint16_t *to_hi = hi ? hi + at : scratch->hi;
		int16_t *to_lo = lo ? lo + at : needs_lo ? scratch->lo : NULL;

		count = job->count - at < most ? job->count - at : most;
		err = read_chunk(load, job, worker, to_hi, to_lo, job->first + at, count);
		if (!err && !hi)
			err = write_plane(load, job->tensor, PLANE_HI, job->first + at, count, to_hi);
		if (!err && !lo && needs_lo)
			err = write_plane(load, job->tensor, PLANE_LO, job->first + at, count, to_lo);
	}
	shard_reader_done(&range);
	return err;
}

/* ---- all jobs ---- */

static int compare_jobs(const void *a, const void *b)
{
	const struct job *left = a, *right = b;
	int64_t from = job_offset(left), to = job_offset(right);

	if (left->place->file_index != right->place->file_index)
		return left->place->file_index < right->place->file_index ? -1 : 1;
	return from < to ? -1 : from > to;
}

static int64_t jobs_of(const struct hf_place *place, int64_t count)
{
	int64_t most = JOB_BYTES / hf_place_element_bytes(place);

	return (count + most - 1) / most;
}

static int make_jobs(struct load *load, const struct hf_import *import, const struct plane_range *ranges,
        int64_t range_count)
{
	int64_t count = 0;

	for (int64_t r = 0; r < range_count; r++)
		count += jobs_of(&import->places[ranges[r].tensor], ranges[r].count);
	load->jobs = mem_alloc((size_t)count, sizeof(*load->jobs));
	if (!load->jobs)
		return ERR_NOMEM;
	for (int64_t r = 0; r < range_count; r++) {
		const struct hf_place *place = &import->places[ranges[r].tensor];
		int64_t most = JOB_BYTES / hf_place_element_bytes(place);

		for (int64_t at = 0; at < ranges[r].count; at += most) {
			int64_t left = ranges[r].count - at;

			load->jobs[load->job_count++] = (struct job){
			        place, ranges[r].tensor, ranges[r].first + at, left < most ? left : most};
		}
	}
	qsort(load->jobs, (size_t)load->job_count, sizeof(*load->jobs), compare_jobs);
	return 0;
}

static int load_ranges(struct hf_import *import, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count, struct pool *pool)
{
	struct load load = {.kernels = convert_kernels(), .sink = sink};
	int err = make_jobs(&load, import, ranges, range_count);

	if (!err) {
		load.scratch = mem_alloc((size_t)parallel_worker_count(pool), sizeof(*load.scratch));
		err = load.scratch ? shard_readers_open(&load.readers, pool) : ERR_NOMEM;
	}
	if (!err) {
		pthread_mutex_init(&load.write_lock, NULL);
		for (int f = 0; f < import->dir->file_count; f++)
			shard_reader_prepare(import->dir->files[f]);
		for (int64_t i = 0; i < SHARD_AHEAD_JOBS; i++)
			job_expect(&load, i);
		err = parallel_run(pool, load.job_count, load_job, &load);
		pthread_mutex_destroy(&load.write_lock);
	}
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
