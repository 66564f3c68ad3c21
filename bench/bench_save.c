/* Compares saves, alone and beside a step, with plain writes. */
#include "bench/bench_model.h"
#include "bench/rig.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/process.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/saver.h"
#include "host/pool.h"
#include "host/slab.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Saves the state of a model in training, and compares with writing as many bytes and an fsync. Measures a
 * save alone, a save beside a training step, its effect on the step, and the export of the weights. "Raw" is
 * the best of four ways to write. One writes whole pieces through the page cache, in the first round only if
 * it is far behind. Three write past the cache from huge pages: small pieces by two threads, large ones by
 * one, and pieces by two threads into a file with reserved room. The export is compared with the last way and
 * as many bytes. Each round measures all of them in turn with new files; the first rounds have steps too. */

enum { ROUNDS = 12, PAIR_ROUNDS = 8, PAIRS = 2, PIECE_BYTES = 4 << 20, RAW_PIECES = 8 };
enum raw { RAW_CACHED, RAW_DIRECT, RAW_DIRECT_LARGE, RAW_RESERVED, RAW_COUNT, RAW_EXPORT = RAW_COUNT };

struct pair {
	double step_s, step_save_s, step_after_s; /* alone; while a save runs; the one after it */
	double disk_wait_s;
	int is_within; /* 1: the save ended before the step did */
};

struct round {
	double raw_s[RAW_COUNT], raw_export_s, save_s, save_cpu_s, export_s;
	struct pair pairs[PAIRS];
	int64_t extra_bytes, export_extra_bytes;
};

struct save_bench {
	char *dir;
	struct model *model;
	struct pool *pool;
	struct device *device;
	struct engine *engine;
	struct bench_rows rows;
	struct round rounds[ROUNDS];
	int64_t bytes, export_bytes; /* bytes of a shard file; of the weights in fp32 */
	char *pieces;                /* [RAW_PIECES][PIECE_BYTES] */
	int64_t step;
};

static double cpu_now_s(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* ---- raw ---- */

struct raw_write {
	const struct save_bench *bench;
	const char *path;
	int64_t bytes, at_once; /* at_once: pieces of one write */
	int fd, errs[2];
};

static int write_pieces(const struct raw_write *w, int64_t piece, int64_t count)
{
	int64_t at = piece * PIECE_BYTES, left = w->bytes - at, len = count * PIECE_BYTES;

	return file_write_at(w->fd, w->path, w->bench->pieces + piece % RAW_PIECES * PIECE_BYTES,
	        (size_t)(left < len ? left : len), at);
}

/* The last piece; it may be shorter, so not for O_DIRECT. */
static int64_t last_piece(const struct raw_write *w)
{
	return (w->bytes + PIECE_BYTES - 1) / PIECE_BYTES - 1;
}

/* Writes all but the last piece, or one of two threads' part of them. */
static int write_turns(const struct raw_write *w, int64_t first_turn, int64_t turns)
{
	int64_t last = last_piece(w), n = w->at_once;
	int rc = 0;

	for (int64_t p = first_turn * n; p < last && !rc; p += turns * n)
		rc = write_pieces(w, p, last - p < n ? last - p : n);
	return rc;
}

static void write_half(void *context, int64_t task, int worker)
{
	struct raw_write *w = context;

	(void)worker;
	w->errs[task] = write_turns(w, task, 2);
}

static int raw_write(const struct save_bench *b, struct pool *two, enum raw raw, double *seconds)
{
	char *path = file_join(b->dir, "raw");
	static const int64_t at_once[] = {1, 1, RAW_PIECES / 2, RAW_PIECES / 4, RAW_PIECES / 4};
	struct raw_write w = {.bench = b,
	        .path = path,
	        .bytes = raw == RAW_EXPORT ? b->export_bytes : b->bytes,
	        .at_once = at_once[raw],
	        .fd = -1};
	int64_t begin = clock_now_ns();
	int rc = path ? 0 : ERR_NOMEM;

	if (!rc) {
		w.fd = file_create(path);
		rc = w.fd < 0 ? w.fd : 0;
	}
	if (!rc && raw != RAW_CACHED)
		file_set_caching(w.fd, FILE_CACHING_OFF);
	if (!rc && raw >= RAW_RESERVED)
		rc = file_reserve(w.fd, path, w.bytes);
	if (!rc && (raw == RAW_DIRECT || raw >= RAW_RESERVED)) {
		pool_run(two, 2, write_half, &w);
		rc = w.errs[0] ? w.errs[0] : w.errs[1];
	} else if (!rc) {
		rc = write_turns(&w, 0, 1);
	}
	if (!rc && raw != RAW_CACHED)
		file_set_caching(w.fd, FILE_CACHING_ON);
	if (!rc)
		rc = write_pieces(&w, last_piece(&w), 1);
	if (!rc)
		rc = file_sync(w.fd, path);
	*seconds = (double)(clock_now_ns() - begin) * 1e-9;
	if (w.fd >= 0)
		file_abandon(w.fd, path);
	if (path)
		(void)!file_remove_tree(path);
	mem_free(path);
	return rc;
}

/* ---- saves ---- */

static int read_plane(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	return engine_read(context, tensor, plane, first, count, dst);
}

static int read_snapshot(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	return snapshot_read(context, tensor, plane, first, count, dst);
}

static int engine_at(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void **at)
{
	int rc = engine_flush(context);

	*at = rc ? NULL : engine_plane_at(context, tensor, plane, first, count);
	return rc;
}

static int snapshot_plane_at(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void **at)
{
	return snapshot_at(context, tensor, plane, first, count, at);
}

static void done_snapshot(void *context, int tensor, int64_t first)
{
	if (tensor == PLANE_SOURCE_END)
		snapshot_end(context);
	else
		snapshot_done(context, tensor, first);
}

static struct checkpoint_save save_of(
        struct save_bench *b, const struct plane_source *source, json_t *training)
{
	return (struct checkpoint_save){.output_dir = b->dir,
	        .step = b->step,
	        .model = b->model,
	        .source = source,
	        .planes = planes_of(ADAMW_STATE_F32),
	        .training = training,
	        .world = {.size = 1}};
}

static int remove_path(char *path)
{
	int rc = path ? file_remove_tree(path) : 0;

	mem_free(path);
	return rc;
}

static int save_alone(struct save_bench *b, struct round *r, json_t *training)
{
	const struct plane_source source = {.context = b->engine, .read = read_plane, .at = engine_at};
	struct checkpoint_save save = save_of(b, &source, training);
	double begin, cpu;
	char *path = NULL;
	int64_t before;
	int rc = engine_flush(b->engine);

	process_peak_reset();
	before = process_resident_bytes();
	begin = clock_now_s();
	cpu = cpu_now_s();
	if (!rc)
		rc = checkpoint_save(&save, &path);
	r->save_s = clock_now_s() - begin;
	r->save_cpu_s = cpu_now_s() - cpu;
	r->extra_bytes = process_peak_bytes() - before;
	return rc ? rc : remove_path(path);
}

static int export_alone(struct save_bench *b, struct round *r)
{
	const struct plane_source source = {.context = b->engine, .read = read_plane, .at = engine_at};
	char *dir = file_join(b->dir, "model");
	struct hf_export options = {.dir = dir, .existing = HF_EXPORT_REPLACE, .dtype = SAFETENSORS_F32};
	int64_t before, begin;
	int rc = dir ? 0 : ERR_NOMEM;

	process_peak_reset();
	before = process_resident_bytes();
	begin = clock_now_ns();
	if (!rc)
		rc = hf_export_write(&options, b->model, &source);
	r->export_s = (double)(clock_now_ns() - begin) * 1e-9;
	r->export_extra_bytes = process_peak_bytes() - before;
	return rc ? rc : remove_path(dir);
}

static int step_time(struct save_bench *b, double *seconds)
{
	struct engine_result result;
	double begin = clock_now_s();
	int rc = engine_step(b->engine, &result, &b->rows.batch, 1, b->rows.batch.targets, 1e-4, NULL);

	b->step++;
	*seconds = clock_now_s() - begin;
	return rc;
}

/* Measures a step with a save beside it, and the step after it. */
static int save_beside(struct save_bench *b, char **path, struct pair *p, json_t *training)
{
	struct snapshot *snapshot = engine_snapshot(b->engine);
	const struct plane_source source = {
	        .context = snapshot, .read = read_snapshot, .at = snapshot_plane_at, .done = done_snapshot};
	struct checkpoint_save save = save_of(b, &source, training);
	int64_t waited = snapshot_wait_ns(snapshot);
	struct checkpoint_saver *saver = NULL;
	int rc, other;

	engine_snapshot_begin(b->engine);
	rc = checkpoint_saver_start(&saver, &save);
	if (rc) {
		snapshot_end(snapshot);
		return rc;
	}
	rc = step_time(b, &p->step_save_s);
	p->is_within = checkpoint_saver_is_ready(saver);
	if (!rc)
		rc = step_time(b, &p->step_after_s);
	if (rc)
		snapshot_cancel(snapshot);
	other = checkpoint_saver_finish(saver, path);
	p->disk_wait_s = (double)(snapshot_wait_ns(snapshot) - waited) * 1e-9;
	return rc ? rc : other;
}

/* Measures each pair between two steps alone. Removes the files after the last. */
static int pairs_run(struct save_bench *b, struct round *r, json_t *training)
{
	char *paths[PAIRS] = {NULL};
	double before = 0, after = 0;
	int rc = step_time(b, &before); /* leaves pending updates and caches as after a step */

	if (!rc)
		rc = step_time(b, &before);
	for (int i = 0; i < PAIRS && !rc; i++, before = after) {
		rc = save_beside(b, &paths[i], &r->pairs[i], training);
		if (!rc)
			rc = step_time(b, &after);
		r->pairs[i].step_s = 0.5 * (before + after);
	}
	for (int i = 0; i < PAIRS; i++) {
		int other = remove_path(paths[i]);

		rc = rc ? rc : other;
	}
	return rc;
}

/* ---- figures ---- */

static double middle(const struct save_bench *b, double (*figure)(const struct round *))
{
	double values[ROUNDS];

	for (int i = 0; i < ROUNDS; i++)
		values[i] = figure(&b->rounds[i]);
	return bench_median(values, ROUNDS);
}

/* The quartiles of a figure over all pairs. */
static void quarters(double *at, const struct save_bench *b, double (*figure)(const struct pair *))
{
	double values[PAIR_ROUNDS * PAIRS];

	for (int i = 0; i < PAIR_ROUNDS * PAIRS; i++)
		values[i] = figure(&b->rounds[i / PAIRS].pairs[i % PAIRS]);
	at[1] = bench_median(values, PAIR_ROUNDS * PAIRS); /* sorts the values */
	at[0] = values[PAIR_ROUNDS * PAIRS / 4];
	at[2] = values[PAIR_ROUNDS * PAIRS * 3 / 4];
}

static double middle_pair(const struct save_bench *b, double (*figure)(const struct pair *))
{
	double at[3];

	quarters(at, b, figure);
	return at[1];
}

#define FIGURE(of, name, value)                                                                              \
	static double name(const struct of *r)                                                               \
	{                                                                                                    \
		return value;                                                                                \
	}
FIGURE(round, raw_cached_s, r->raw_s[RAW_CACHED])
FIGURE(round, raw_direct_s, r->raw_s[RAW_DIRECT])
FIGURE(round, raw_large_s, r->raw_s[RAW_DIRECT_LARGE])
FIGURE(round, raw_reserved_s, r->raw_s[RAW_RESERVED])
FIGURE(round, raw_export_s, r->raw_export_s)
FIGURE(round, save_s, r->save_s)
FIGURE(round, save_cpu_s, r->save_cpu_s)
FIGURE(round, export_s, r->export_s)
FIGURE(pair, step_s, r->step_s)
FIGURE(pair, step_save_s, r->step_save_s)
FIGURE(pair, step_of_alone, r->step_save_s / r->step_s)
FIGURE(pair, next_of_alone, r->step_after_s / r->step_s)
FIGURE(pair, disk_wait_s, r->disk_wait_s)

/* Ratio of a save's rate to the best raw rate. Both are medians, because a disk's rate changes from file to
 * file. */
static double save_of_raw(const struct save_bench *b)
{
	double (*const ways[RAW_COUNT])(const struct round *) = {
	        raw_cached_s, raw_direct_s, raw_large_s, raw_reserved_s};
	int best = 0;

	for (int i = 1; i < RAW_COUNT; i++)
		best = middle(b, ways[i]) < middle(b, ways[best]) ? i : best;
	return middle(b, ways[best]) / middle(b, save_s);
}

static int64_t most_bytes(const struct save_bench *b)
{
	int64_t most = 0;

	for (int i = 0; i < ROUNDS; i++) {
		most = b->rounds[i].extra_bytes > most ? b->rounds[i].extra_bytes : most;
		most = b->rounds[i].export_extra_bytes > most ? b->rounds[i].export_extra_bytes : most;
	}
	return most;
}

/* save_cpu_of_step is the processor time of a save as a share of all threads' time in a step. A step loses
 * this share if it leaves no thread idle. */
static json_t *report(const struct save_bench *b)
{
	double bytes = 1e-9 * (double)b->bytes, part = (double)b->export_bytes / (double)b->bytes;
	double with[3], next[3];
	int within = 0;

	quarters(with, b, step_of_alone);
	quarters(next, b, next_of_alone);
	for (int i = 0; i < PAIR_ROUNDS * PAIRS; i++)
		within += b->rounds[i / PAIRS].pairs[i % PAIRS].is_within;
	return json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:f, "
	                 "s:i, s:f, s:I, s:[{s:s, s:f, s:f, s:f}, {s:s, s:f, s:f, s:f}]}",
	        "parameters", (json_int_t)b->model->parameter_count, "state_bytes", (json_int_t)b->bytes,
	        "raw_cached_gbps", bytes / middle(b, raw_cached_s), "raw_direct_gbps",
	        bytes / middle(b, raw_direct_s), "raw_direct_large_gbps", bytes / middle(b, raw_large_s),
	        "raw_reserved_gbps", bytes / middle(b, raw_reserved_s), "save_gbps",
	        bytes / middle(b, save_s), "save_of_raw", save_of_raw(b), "save_cpu_s_per_gb",
	        middle(b, save_cpu_s) / bytes, "export_gbps", bytes * part / middle(b, export_s),
	        "export_of_raw", middle(b, raw_export_s) / middle(b, export_s), "pairs", PAIR_ROUNDS * PAIRS,
	        "step_s", middle_pair(b, step_s), "step_with_save_s", middle_pair(b, step_save_s),
	        "save_cpu_of_step",
	        middle(b, save_cpu_s) / (pool_worker_count(b->pool) * middle_pair(b, step_s)),
	        "saves_done_within_their_step", within, "disk_wait_s", middle_pair(b, disk_wait_s),
	        "extra_memory_bytes", (json_int_t)most_bytes(b), "steps", "step", "with a save", "of_alone",
	        with[1], "quarter", with[0], "three_quarters", with[2], "step", "behind it", "of_alone",
	        next[1], "quarter", next[0], "three_quarters", next[2]);
}

/* ---- the whole benchmark ---- */

/* The shape of a Llama-style model with about so many bytes of state. */
static struct bench_shape shape_of(int64_t bytes)
{
	struct bench_shape s = {.hidden = 768,
	        .layers = 1,
	        .heads = 12,
	        .intermediate = 2048,
	        .vocab = 8192,
	        .row_tokens = 256,
	        .rows = 1};
	int64_t block, ends;

	if (bytes < INT64_C(300) << 20)
		s = (struct bench_shape){.hidden = 64,
		        .layers = 1,
		        .heads = 4,
		        .intermediate = 192,
		        .vocab = 512,
		        .row_tokens = 32,
		        .rows = 1};
	block = 4 * s.hidden * s.hidden + 3 * s.hidden * s.intermediate;
	ends = 2 * s.hidden * s.vocab;
	if (bytes / 12 > ends + block)
		s.layers = (bytes / 12 - ends + block / 2) / block;
	return s;
}

static int open_all(struct save_bench *b, const struct bench_args *args, int64_t bytes)
{
	const struct bench_shape shape = shape_of(bytes);
	struct engine_options o = {
	        .isa = args->isa,
	        .wrap = WRAP_TRANSFORMER,
	        .world_size = 1,
	        .policy = {.offload_params = 1,
	                .offload_gradients = 1,
	                .offload_optimizer = 1,
	                .activations = ACTIVATION_KEEP,
	                .order = ORDER_LAYER_MAJOR,
	                .forward_prefetch = 1,
	                .prefetch_units = 1,
	                .compute_dtype = DTYPE_F32,
	                .gradient_dtype = DTYPE_F32,
	                .state = ADAMW_STATE_F32,
	                .micro_batches = 1,
	                .rope_positions = shape.row_tokens},
	        .train = {.max_tokens = shape.rows * shape.row_tokens,
	                .max_targets = shape.rows * shape.row_tokens},
	        .adamw = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1,
	};
	void *pieces = NULL;
	int rc = bench_model_open(&b->model, &shape);

	if (!rc)
		rc = bench_rows_open(&b->rows, &shape);
	if (!rc)
		rc = slab_map(&pieces, (int64_t)RAW_PIECES * PIECE_BYTES, "bytes to write");
	b->pieces = pieces;
	if (!rc)
		rc = pool_open(&b->pool, args->threads);
	if (!rc)
		rc = bench_device_open(&b->device, args, b->pool);
	o.pool = b->pool;
	o.device = b->device;
	o.model = b->model;
	if (!rc)
		rc = engine_open(&b->engine, &o);
	if (!rc)
		rc = engine_start(b->engine);
	if (rc)
		return rc;
	b->bytes = 12 * b->model->parameter_count;
	b->export_bytes = 4 * b->model->parameter_count;
	memset(b->pieces, 0x5a, (size_t)RAW_PIECES * PIECE_BYTES);
	return bench_weights_write(b->engine, b->model);
}

static void close_all(struct save_bench *b)
{
	engine_close(b->engine);
	device_close(b->device);
	pool_close(b->pool);
	slab_unmap(b->pieces, (int64_t)RAW_PIECES * PIECE_BYTES);
	bench_rows_close(&b->rows);
	model_close(b->model);
	if (b->dir)
		(void)!file_remove_tree(b->dir);
	mem_free(b->dir);
}

/* Changes the order from round to round, because the first one finds a rested disk, without removed files to
 * process. */
static int round_run(struct save_bench *b, struct pool *two, int round, json_t *training)
{
	enum { TURNS = 6 };
	struct round *r = &b->rounds[round];
	int rc = 0;

	for (int turn = 0; turn < TURNS && !rc; turn++) {
		int which = (turn + round) % TURNS;

		rc = which == 0   ? raw_write(b, two, RAW_DIRECT_LARGE, &r->raw_s[RAW_DIRECT_LARGE])
		     : which == 1 ? save_alone(b, r, training)
		     : which == 2 ? raw_write(b, two, RAW_DIRECT, &r->raw_s[RAW_DIRECT])
		     : which == 3 ? raw_write(b, two, RAW_RESERVED, &r->raw_s[RAW_RESERVED])
		     : which == 4 ? raw_write(b, two, RAW_EXPORT, &r->raw_export_s)
		                  : export_alone(b, r);
	}
	r->raw_s[RAW_CACHED] = b->rounds[0].raw_s[RAW_CACHED];
	if (!rc && (!round || r->raw_s[RAW_CACHED] < 2 * r->raw_s[RAW_DIRECT]))
		rc = raw_write(b, two, RAW_CACHED, &r->raw_s[RAW_CACHED]);
	return rc || round >= PAIR_ROUNDS ? rc : pairs_run(b, r, training);
}

int bench_save(json_t **result, const struct bench_args *args)
{
	int64_t bytes = args->count ? args->count : INT64_C(1) << 30;
	struct save_bench b = {0};
	struct bench_load load;
	json_t *training = json_object();
	struct pool *two = NULL;
	double seconds, busy;
	int rc = 0;

	if (bytes < 4096 || bytes > INT64_C(1) << 38)
		rc = err_set(ERR_INPUT,
		        "saving %lld bytes is not supported; set count to 4096 bytes to 256 GiB",
		        (long long)bytes);
	if (!rc) {
		b.dir = mem_printf("%s/ferry-bench-save-%d",
		        args->models && *args->models ? args->models : ".", (int)getpid());
		rc = b.dir ? file_make_dir(b.dir) : ERR_NOMEM;
	}
	if (!rc)
		rc = open_all(&b, args, bytes);
	if (!rc)
		rc = pool_open(&two, 2);
	if (!rc)
		rc = step_time(&b, &seconds);
	bench_load_begin(&load);
	for (int i = 0; i < ROUNDS && !rc; i++)
		rc = round_run(&b, two, i, training);
	busy = bench_load_end(&load);
	if (!rc)
		*result = report(&b);
	if (!rc && (!*result || json_object_set_new(*result, "other_cores", json_real(busy))))
		rc = err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	pool_close(two);
	close_all(&b);
	json_decref(training);
	return rc;
}
