/* Compares loading weights and checkpoints with plain reads. */
#include "bench/load_files.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/process.h"
#include "checkpoint/hf/hf_import.h"
#include "checkpoint/load.h"
#include "device/backend.h"
#include "host/pool.h"
#include "offload/engine.h"

#include <stdlib.h>
#include <string.h>

/* Loads a model's weights into the planes of an engine. Compares that with plain reads of the same files into
 * new memory, with the fastest number of threads and kind of pages. Cold: no part of the files is in the page
 * cache, though a virtual machine's host may still cache them. Warm: all of it is. Each round measures the
 * two best ways of reading, and loading. */

enum { ROUNDS_MAX = 7, CANDIDATES_MAX = 6, BEST = 2 };

static const int rounds_of[] = {[LOAD_COLD] = 3, [LOAD_WARM] = ROUNDS_MAX};

struct candidate {
	int threads;
	enum load_pages pages;
	double seconds[1 + ROUNDS_MAX];
};

struct load_bench {
	struct load_files files;
	const struct bench_args *args;
	struct pool *pool;
	struct device *device;
	struct engine *engine;
	struct candidate candidates[CANDIDATES_MAX];
	int candidate_count;
	int64_t planes_bytes;                          /* bytes that loading fills */
	int64_t over_bytes[2][ROUNDS_MAX], peak_bytes; /* memory beyond the planes, by state */
	double load_s[2][ROUNDS_MAX];
};

/* ---- loading ---- */

static int plane_write(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	return engine_write(context, tensor, plane, first, count, src);
}

static void *plane_at(void *context, int tensor, enum plane plane, int64_t first, int64_t count)
{
	return engine_plane_at(context, tensor, plane, first, count);
}

/* The frozen matrices of an adapter's run; what else there is trains. */
static void matrices_quantize(struct model *model)
{
	for (int t = 0; t < model->tensor_count; t++) {
		struct model_tensor *tensor = &model->tensors[t];

		if (tensor->layer < 0 || tensor->rank != 2)
			continue;
		tensor->trainable = 0;
		tensor->kept = weight_format_coded(CODE_NF4, CODE_SCALE_NESTED, 0);
	}
}

static int engine_prepare(struct load_bench *b)
{
	const struct engine_options o = {
	        .device = b->device,
	        .pool = b->pool,
	        .isa = b->args->isa,
	        .model = b->files.model,
	        .wrap = WRAP_TRANSFORMER,
	        .world_size = 1,
	        .policy =
	                {
	                        .offload_params = 1,
	                        .offload_gradients = 1,
	                        .offload_optimizer = 1,
	                        .activations = ACTIVATION_RECOMPUTE,
	                        .order = ORDER_LAYER_MAJOR,
	                        .prefetch_units = 1,
	                        .compute_dtype = DTYPE_BF16,
	                        .gradient_dtype = DTYPE_BF16,
	                        .micro_batches = 1,
	                        .rope_positions = 16,
	                },
	        .train = {.max_tokens = 16, .max_targets = 15},
	        .adamw = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	};
	int rc = engine_open(&b->engine, &o);

	return rc ? rc : engine_start(b->engine);
}

/* Includes the headers, as in a run. */
static int load_once(struct load_bench *b)
{
	struct plane_sink sink = {.context = b->engine,
	        .write = plane_write,
	        .at = plane_at,
	        .is_zero = 1,
	        .keeps_formats = b->files.kind == LOAD_NF4,
	        .compute_dtype = engine_units(b->engine)->compute_dtype};
	struct checkpoint *checkpoint = NULL;
	struct hf_import *import = NULL;
	int rc;

	if (b->files.kind == LOAD_CHECKPOINT) {
		rc = checkpoint_open(&checkpoint, b->files.dir);
		if (!rc)
			rc = checkpoint_load(checkpoint, &sink, NULL, 0, b->pool);
		checkpoint_close(checkpoint);
		return rc;
	}
	rc = hf_import_open(&import, b->files.dir, b->files.model);
	if (!rc)
		rc = hf_import_load(import, &sink, NULL, 0, b->pool);
	hf_import_close(import);
	return rc;
}

static int load_measure(struct load_bench *b, double *seconds, int64_t *over_bytes)
{
	int64_t before, start, peak;
	int rc = engine_prepare(b);

	if (!rc)
		rc = bench_memory_warm(b->files.bytes, b->pool);
	process_peak_reset();
	before = process_resident_bytes();
	start = clock_now_ns();
	if (!rc)
		rc = load_once(b);
	*seconds = (double)(clock_now_ns() - start) * 1e-9;
	peak = process_peak_bytes() - before;
	*over_bytes = peak - b->planes_bytes;
	if (peak > b->peak_bytes)
		b->peak_bytes = peak;
	engine_close(b->engine);
	b->engine = NULL;
	return rc;
}

/* ---- both in turn ---- */

/* Candidates: the threads of loading, and twice as many. For warm reads, which are faster, also one thread
 * and both kinds of pages. */
static void candidates_list(struct load_bench *b, enum load_state state)
{
	b->candidate_count = 0;
	for (int threads = 1; threads <= 2 * b->args->threads; threads++) {
		int is_tried = threads == b->args->threads || threads == 2 * b->args->threads ||
		               (threads == 1 && state == LOAD_WARM);

		for (int pages = LOAD_PAGES_SMALL; is_tried && pages <= LOAD_PAGES_HUGE; pages++)
			if (state == LOAD_WARM || pages == LOAD_PAGES_HUGE)
				b->candidates[b->candidate_count++] =
				        (struct candidate){threads, (enum load_pages)pages, {0}};
	}
}

static int candidate_measure(struct load_bench *b, struct candidate *c, enum load_state state, int round)
{
	int64_t cached;
	int rc = load_files_set(&b->files, state, &cached);

	if (!rc)
		rc = bench_memory_warm(b->files.bytes, b->pool);
	if (!rc)
		rc = load_files_read(&b->files, &c->seconds[1 + round], c->threads, c->pages);
	return rc;
}

static int by_first_round(const void *a, const void *b)
{
	double x = ((const struct candidate *)a)->seconds[0], y = ((const struct candidate *)b)->seconds[0];

	return (x > y) - (x < y);
}

static int load_prepare_and_measure(struct load_bench *b, enum load_state state, int round)
{
	int64_t cached;
	int rc = load_files_set(&b->files, state, &cached);

	return rc ? rc : load_measure(b, &b->load_s[state][round], &b->over_bytes[state][round]);
}

/* Reading and loading come first in turn. */
static int round_measure(struct load_bench *b, enum load_state state, int round)
{
	int rc = round % 2 ? load_prepare_and_measure(b, state, round) : 0;

	for (int i = 0; i < BEST && !rc; i++)
		rc = candidate_measure(b, &b->candidates[i], state, round);
	return rc || round % 2 ? rc : load_prepare_and_measure(b, state, round);
}

static double least_s(const double *seconds, int rounds)
{
	double least = seconds[0];

	for (int r = 1; r < rounds; r++)
		least = seconds[r] < least ? seconds[r] : least;
	return least;
}

/* Reports the best round of each. If freed memory goes back to a virtual machine's host, the next user may
 * wait ten times as long for it, whether that is reading or loading. */
static json_t *state_row(const struct load_bench *b, enum load_state state)
{
	const struct candidate *best = &b->candidates[0];
	int rounds = rounds_of[state];
	double load_s = least_s(b->load_s[state], rounds), raw_s = least_s(best->seconds + 1, rounds);
	double gb = 1e-9 * (double)b->files.bytes;
	int64_t over = b->over_bytes[state][0];

	for (int i = 1; i < BEST; i++) {
		double seconds = least_s(b->candidates[i].seconds + 1, rounds);

		if (seconds >= raw_s)
			continue;
		best = &b->candidates[i];
		raw_s = seconds;
	}
	for (int r = 1; r < rounds; r++)
		over = b->over_bytes[state][r] > over ? b->over_bytes[state][r] : over;
	return json_pack("{s:s, s:i, s:s, s:f, s:f, s:f, s:I}", "page_cache",
	        state == LOAD_COLD ? "cold" : "warm", "raw_threads", best->threads, "raw_pages",
	        best->pages == LOAD_PAGES_HUGE ? "huge" : "small", "raw_gbps", gb / raw_s, "load_gbps",
	        gb / load_s, "of_raw", raw_s / load_s, "peak_over_planes_bytes", (json_int_t)over);
}

/* Skips cold files on a file system in memory, which has none. */
static int state_measure(json_t *rows, struct load_bench *b, enum load_state state)
{
	int64_t cached;
	int rc = load_files_set(&b->files, state, &cached);

	if (!rc && state == LOAD_COLD && cached > b->files.bytes / 8)
		return 0;
	candidates_list(b, state);
	for (int i = 0; i < b->candidate_count && !rc; i++)
		rc = candidate_measure(b, &b->candidates[i], state, -1);
	qsort(b->candidates, (size_t)b->candidate_count, sizeof(*b->candidates), by_first_round);
	for (int round = 0; round < rounds_of[state] && !rc; round++)
		rc = round_measure(b, state, round);
	if (!rc && json_array_append_new(rows, state_row(b, state)))
		rc = err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	return rc;
}

/* With bf16 files lo stays zero and untouched. */
static int64_t planes_bytes(const struct load_files *files)
{
	int64_t parameters = files->model->parameter_count, bytes = 0;

	for (int t = 0; t < files->model->tensor_count && files->kind == LOAD_NF4; t++) {
		const struct model_tensor *m = &files->model->tensors[t];

		bytes += m->kept ? code_bytes(m->kept->code, m->count) + weight_format_scale_bytes(m->kept,
		                                                                 model_tensor_rows(m),
		                                                                 model_tensor_cols(m))
		                 : 2 * m->count;
	}
	if (files->kind == LOAD_NF4)
		return bytes;
	if (files->kind == LOAD_CHECKPOINT)
		return files->bytes;
	return files->bytes > 3 * parameters ? 4 * parameters : 2 * parameters;
}

static int load(json_t **result, const struct bench_args *args, enum load_kind kind, int64_t bytes)
{
	static const char *const kinds[] = {"safetensors in bf16", "safetensors in fp32", "ferry checkpoint",
	        "safetensors in bf16, quantized to nf4"};
	struct load_bench b = {.args = args};
	struct device_options o = {0};
	json_t *rows = json_array();
	int rc = 0;

	if (args->count)
		bytes = args->count;
	if (bytes < 1 || bytes > INT64_C(1) << 40)
		rc = err_set(ERR_INPUT, "loading %lld bytes is not supported; set count to 1 byte to 1 TiB",
		        (long long)bytes);
	if (!rc)
		rc = load_files_open(&b.files, kind, args->models, bytes);
	if (!rc)
		rc = pool_open(&b.pool, args->threads);
	o.pool = b.pool;
	device_register(&backend_host);
	if (!rc)
		rc = device_open(&b.device, "host", &o);
	if (!rc && kind == LOAD_NF4)
		matrices_quantize(b.files.model);
	if (!rc)
		b.planes_bytes = planes_bytes(&b.files);
	for (int state = LOAD_COLD; state <= LOAD_WARM && !rc; state++)
		rc = state_measure(rows, &b, (enum load_state)state);
	if (!rc)
		*result = json_pack("{s:s, s:I, s:i, s:i, s:I, s:I, s:O}", "files", kinds[kind],
		        "files_bytes", (json_int_t)b.files.bytes, "files_count", b.files.count, "threads",
		        args->threads, "planes_bytes", (json_int_t)b.planes_bytes, "peak_bytes",
		        (json_int_t)b.peak_bytes, "runs", rows);
	if (!rc && !*result)
		rc = err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	device_close(b.device);
	pool_close(b.pool);
	load_files_close(&b.files);
	json_decref(rows);
	return rc;
}

int bench_load(json_t **result, const struct bench_args *args)
{
	return load(result, args, LOAD_BF16, INT64_C(2) << 30);
}

int bench_load_f32(json_t **result, const struct bench_args *args)
{
	return load(result, args, LOAD_F32, INT64_C(4) << 30);
}

int bench_load_checkpoint(json_t **result, const struct bench_args *args)
{
	return load(result, args, LOAD_CHECKPOINT, INT64_C(2) << 30);
}

int bench_load_nf4(json_t **result, const struct bench_args *args)
{
	return load(result, args, LOAD_NF4, INT64_C(2) << 30);
}
