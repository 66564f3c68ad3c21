/* Compares a training step with one matrix product. */
#include "bench/bench_model.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/process.h"
#include "device/backend.h"
#include "host/pool.h"
#include "offload/engine.h"

#include <string.h>

/* Runs training steps on the host device: forward, backward, clipping, AdamW. The batch is fixed and must be
 * learned. FLOPs by the usual count (model_flops_per_token). In turn with the steps it measures one large
 * matrix product on the same threads. */

static const struct {
	const char *name;
	struct bench_shape shape; /* with default rows and tokens */
} models[] = {
        {"15m", {288, 6, 6, 768, 32000, 256, 4, 1, 0, 0}},
        {"134m", {768, 12, 12, 2048, 32000, 512, 2, 0, 0, 0}},
        {"1b-4l",
                {2048, 4, 32, 8192, 128256, 512, 1, 1, 8, 0}}, /* Llama 3.2 1B with a quarter of its blocks */
        {"hybrid",
                {1024, 4, 8, 3584, 1024, 2048, 1, 1, 2, 16}}, /* layers of Qwen3.5-0.8B, a small vocabulary */
};

enum { WARMUP_STEPS = 2, DEFAULT_STEPS = 5, STEPS_MAX = 1000, PRODUCT = 1024 };

static const double learning_rate = 1e-3;

struct step_bench {
	const struct bench_shape *shape;
	struct model *model;
	struct bench_rows rows;
	struct pool *pool;
	struct device *device, *peak_device;
	struct stream *peak_stream;
	dev_addr peak_base;
	struct engine *engine;
	double loss_first, loss_last;
};

static int engine_prepare(struct step_bench *b, const struct bench_variant *v, const struct bench_args *args)
{
	struct engine_options o = bench_engine_options(b->model, &b->rows, b->device, b->pool, args->isa);
	int rc;

	o.policy.offload_params = o.policy.offload_gradients = o.policy.offload_optimizer = v->offload;
	o.policy.activations = v->activations;
	o.policy.prefetch_units = 1;
	o.policy.compute_dtype = o.policy.gradient_dtype = v->dtype;
	o.crossing = SLAB_PAGEABLE;
	rc = engine_open(&b->engine, &o);
	if (!rc)
		rc = engine_start(b->engine);
	return rc ? rc : bench_weights_write(b->engine, b->model);
}

/* Opens a second device for the product, on the same pool. */
static int peak_prepare(struct step_bench *b, enum dtype dtype)
{
	const struct device_options o = {.pool = b->pool};
	int64_t bytes = 2 * PRODUCT * PRODUCT * dtype_bytes(dtype) + 4 * PRODUCT * PRODUCT;
	struct op fill = {.kind = OP_FILL};
	int rc = device_open(&b->peak_device, "host", &o);

	if (!rc)
		rc = device_arena_open(b->peak_device, &b->peak_base, bytes);
	if (!rc)
		rc = stream_open(&b->peak_stream, b->peak_device, QUEUE_COMPUTE);
	fill.fill =
	        (struct op_fill){.dst = b->peak_base, .bytes = bytes, .value = 0x3f}; /* 0.7, bf16 or fp32 */
	if (!rc)
		rc = stream_op(b->peak_stream, &fill);
	return rc;
}

/* GFLOP/s of one product [PRODUCT, PRODUCT] x [PRODUCT, PRODUCT]^T. */
static int peak_measure(struct step_bench *b, double *gflops, enum dtype dtype)
{
	int64_t factor_bytes = PRODUCT * PRODUCT * dtype_bytes(dtype), start = clock_now_ns();
	const struct op op = {
	        .kind = OP_MATMUL,
	        .matmul =
	                {
	                        .a = b->peak_base,
	                        .b = dev_at(b->peak_base, factor_bytes),
	                        .c = dev_at(b->peak_base, 2 * factor_bytes),
	                        .m = PRODUCT,
	                        .n = PRODUCT,
	                        .k = PRODUCT,
	                        .a_stride = PRODUCT,
	                        .b_stride = PRODUCT,
	                        .c_stride = PRODUCT,
	                        .b_layout = MATMUL_TRANSPOSED,
	                        .ab_dtype = dtype,
	                        .c_dtype = DTYPE_F32,
	                },
	};
	int rc = stream_op(b->peak_stream, &op);

	if (!rc)
		rc = stream_sync(b->peak_stream);
	*gflops = 2.0 * PRODUCT * PRODUCT * PRODUCT / (double)(clock_now_ns() - start);
	return rc;
}

struct times {
	double step_s[STEPS_MAX], cpu_s[STEPS_MAX], compute_s[STEPS_MAX], update_s[STEPS_MAX],
	        peak_gflops[STEPS_MAX], of_peak[STEPS_MAX];
};

static int steps_measure(struct step_bench *b, struct times *t, int steps, enum dtype dtype)
{
	double flops = model_flops_per_token(b->model, b->shape->row_tokens) * (double)b->rows.batch.tokens;
	struct device_stats before, after;

	for (int i = -WARMUP_STEPS; i < steps; i++) {
		int at = i < 0 ? 0 : i, rc = peak_measure(b, &t->peak_gflops[at], dtype);
		struct engine_result result;
		int64_t start = clock_now_ns();
		double cpu_start = bench_cpu_s();

		device_get_stats(b->device, &before);
		if (!rc)
			rc = engine_step(b->engine, &result, &b->rows.batch, 1, b->rows.batch.targets,
			        learning_rate, NULL);
		if (rc)
			return rc;
		t->step_s[at] = (double)(clock_now_ns() - start) * 1e-9;
		t->cpu_s[at] = bench_cpu_s() - cpu_start;
		device_get_stats(b->device, &after);
		t->compute_s[at] =
		        (double)(after.busy_ns[QUEUE_COMPUTE] - before.busy_ns[QUEUE_COMPUTE]) * 1e-9;
		t->update_s[at] = (double)(after.busy_ns[QUEUE_CPU] - before.busy_ns[QUEUE_CPU]) * 1e-9;
		t->of_peak[at] = flops / t->compute_s[at] * 1e-9 / t->peak_gflops[at];
		b->loss_last = result.loss_sum / (double)result.targets;
		if (i == -WARMUP_STEPS)
			b->loss_first = b->loss_last;
	}
	if (!(b->loss_last < b->loss_first - 0.05))
		return err_set(ERR_INTERNAL, "the loss of a fixed batch did not fall: %g, then %g",
		        b->loss_first, b->loss_last);
	return engine_flush(b->engine);
}

/* Reports the bytes that a step would move over the host's memory bus if the device had its own memory, and
 * the rate of the updates. bench adam measures the machine's limit. */
static void bus_report(json_t *result, const struct step_bench *b, double update_s)
{
	struct plan_memory_traffic bus;

	plan_memory_traffic_find(&bus, engine_plan(b->engine, PLAN_TRAIN));
	json_object_set_new(result, "bus_bytes", json_integer(bus.bytes));
	json_object_set_new(result, "bus_bytes_per_param",
	        json_real((double)bus.bytes / (double)b->model->parameter_count));
	json_object_set_new(result, "update_bytes", json_integer(bus.update_bytes));
	if (bus.update_bytes)
		json_object_set_new(
		        result, "update_gbps", json_real((double)bus.update_bytes / update_s * 1e-9));
}

/* Uses the keys of the scripts in bench/peers for equal figures. */
static int report(json_t **result, const struct step_bench *b, const struct bench_variant *v, struct times *t,
        int steps, int64_t rss_before, double other_cores)
{
	int64_t tokens = b->rows.batch.tokens, rss = process_peak_bytes() - rss_before;
	double flops = model_flops_per_token(b->model, b->shape->row_tokens) * (double)tokens;
	double step_s = bench_median(t->step_s, steps), compute_s = bench_median(t->compute_s, steps);
	struct engine_memory memory;

	engine_get_memory(b->engine, &memory);
	*result =
	        json_pack("{s:I, s:I, s:s, s:b, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
	                "parameters", (json_int_t)b->model->parameter_count, "tokens", (json_int_t)tokens,
	                "compute_dtype", v->dtype == DTYPE_F32 ? "fp32" : "bf16", "cpu_offload", v->offload,
	                "steps", steps, "step_s", step_s, "cpu_s", bench_median(t->cpu_s, steps),
	                "tokens_per_s", (double)tokens / step_s, "forward_backward_s", compute_s, "gflops",
	                flops / compute_s * 1e-9, "gflops_of_step", flops / step_s * 1e-9, "matmul_gflops",
	                bench_median(t->peak_gflops, steps), "of_matmul", bench_median(t->of_peak, steps),
	                "loss_first", b->loss_first, "loss_last", b->loss_last, "other_cores", other_cores);
	if (!*result)
		return err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	json_object_set_new(*result, "device_bytes", json_integer(memory.device_bytes));
	json_object_set_new(*result, "store_bytes", json_integer(memory.store_bytes));
	bus_report(*result, b, bench_median(t->update_s, steps));
	json_object_set_new(*result, "rss_peak_less_base", json_integer(rss));
	json_object_set_new(
	        *result, "bytes_per_param", json_real((double)rss / (double)b->model->parameter_count));
	return 0;
}

static void step_bench_close(struct step_bench *b)
{
	engine_close(b->engine);
	stream_close(b->peak_stream);
	device_close(b->peak_device);
	device_close(b->device);
	pool_close(b->pool);
	model_close(b->model);
	bench_rows_close(&b->rows);
}

int bench_step(json_t **result, const struct bench_args *args, const struct bench_shape *shape,
        struct bench_variant v)
{
	struct step_bench b = {.shape = shape};
	struct device_options o = {0};
	struct times *t = mem_alloc(1, sizeof(*t));
	int64_t rss_before = process_resident_bytes();
	int steps = args->count ? (int)args->count : DEFAULT_STEPS, rc = t ? 0 : ERR_NOMEM;
	struct bench_load load;

	if (args->count > STEPS_MAX)
		rc = err_set(ERR_INPUT, "a benchmark of %lld steps is too long; at most %d",
		        (long long)args->count, STEPS_MAX);
	if (!rc)
		rc = bench_model_open(&b.model, shape);
	if (!rc)
		rc = bench_rows_open(&b.rows, shape);
	if (!rc)
		rc = pool_open(&b.pool, args->threads);
	o.pool = b.pool;
	device_register(&backend_host);
	if (!rc)
		rc = device_open(&b.device, "host", &o);
	if (!rc)
		rc = engine_prepare(&b, &v, args);
	if (!rc)
		rc = peak_prepare(&b, v.dtype);
	bench_load_begin(&load);
	if (!rc)
		rc = steps_measure(&b, t, steps, v.dtype);
	if (!rc)
		rc = report(result, &b, &v, t, steps, rss_before, bench_load_end(&load));
	step_bench_close(&b);
	mem_free(t);
	return rc;
}

/* The bit of a way's name; -1: unknown. */
static int way_find(const char *word, size_t length)
{
	static const char *const names[] = {"bf16", "resident", "recompute"};

	for (int i = 0; i < (int)(sizeof(names) / sizeof(*names)); i++)
		if (strlen(names[i]) == length && !strncmp(names[i], word, length))
			return i;
	return -1;
}

static int variant_find(struct bench_variant *v, const char *ways)
{
	int set[3] = {0};

	for (const char *w = ways && strcmp(ways, "all") ? ways : ""; *w; w += *w == ',') {
		size_t length = strcspn(w, ",");
		int way = way_find(w, length);

		if (way < 0)
			return err_set(ERR_INPUT, "unknown way '%.*s'; available: bf16, resident, recompute",
			        (int)length, w);
		set[way] = 1;
		w += length;
	}
	*v = (struct bench_variant){
	        set[0] ? DTYPE_BF16 : DTYPE_F32, !set[1], set[2] ? ACTIVATION_RECOMPUTE : ACTIVATION_KEEP};
	return 0;
}

int bench_step_model(json_t **result, const struct bench_args *args)
{
	const char *name = args->models && *args->models ? args->models : models[0].name;
	struct bench_variant variant;
	struct bench_shape shape;
	int rc = variant_find(&variant, args->ways);

	for (size_t i = 0; i < sizeof(models) / sizeof(*models) && !rc; i++)
		if (!strcmp(models[i].name, name)) {
			shape = models[i].shape;
			rc = bench_batch_find(&shape.rows, &shape.row_tokens, args->tokens);
			return rc ? rc : bench_step(result, args, &shape, variant);
		}
	return rc ? rc : err_set(ERR_INPUT, "unknown model '%s'; available: 15m, 134m, 1b-4l, hybrid", name);
}
