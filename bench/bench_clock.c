/* Compares predicted with measured step times, and writes a description of this machine. */
#include "bench/bench_model.h"
#include "bench/rig.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "device/backend.h"
#include "host/pool.h"
#include "host/topology.h"
#include "placement/machine.h"
#include "placement/measure.h"
#include "placement/simulate.h"

#include <stdlib.h>

/* Checks the clock of plans. On the host device it runs steps with all state offloaded and copies throttled
 * to several rates. It compares them with steps that the meta device's clock predicts for a machine with
 * these rates. The clock gets the throttle, the rates of memory and updates that a run measures itself
 * (placement/measure.h), and one fitted rate: that of matrix products, from the step without a throttle. Each
 * round goes through all throttles, back and forth, with the unthrottled step at both ends, because all
 * others are compared with it. The clock knows no other processes, so the shortest step counts. Steps during
 * which others used the cores count only if there are no other steps.
 *
 * Copies of a GPU cannot be throttled. There steps have one, two and four micro-batches, and the clock is
 * fitted to the first. Its rates, the overheads of kernels, host functions and pinning, and the fitted rate
 * go into a file that describes this machine (machine_file). */

enum {
	WAYS_MAX = 7,
	MICROS_MAX = 4,
	ROUNDS_MAX = 4,
	WARMUP_STEPS = 2,
	DEFAULT_STEPS = 8,
	STEPS_MAX = 100,
	FIT_ROUNDS = 40
};

/* Cores that others may use during a quiet step; the system counts in hundredths of a second. */
static const double QUIET_CORES = 0.1;

static const int64_t SAMPLE_BYTES = INT64_C(2) << 30;

/* The ways to run a step; the clock is fitted to the first. */
static const struct way {
	double copy_gbps; /* 0: no throttle */
	int micros;
} host_ways[WAYS_MAX] = {{0, 1}, {0.1, 1}, {0.15, 1}, {0.2, 1}, {0.3, 1}, {0.5, 1}, {1, 1}},
  gpu_ways[] = {{0, 1}, {0, 2}, {0, 4}};
enum { GPU_WAYS = sizeof(gpu_ways) / sizeof(*gpu_ways) };

struct clock_bench {
	struct model *model;
	struct bench_rows rows;
	struct pool *pool;
	struct bench_args args;
	const struct way *ways;
	int way_count, is_host;
	int64_t gpu_bytes, head_rows;
	int steps;       /* of each way, in as many rounds as there are steps, at most ROUNDS_MAX */
	double unfitted; /* predicted / measured time of the first way without fitting */
	double quiet_s[WAYS_MAX],
	        least_s[WAYS_MAX]; /* the shortest quiet step, and the shortest of all; 0: none */
	int quiet_count[WAYS_MAX], count[WAYS_MAX];
	double predicted_s[WAYS_MAX];
	struct device_speed speed; /* without the throttle */
};

static struct engine_options options_of(const struct clock_bench *b, struct device *device, int way)
{
	struct engine_options o = bench_engine_options(b->model, &b->rows, device, b->pool, b->args.isa);

	o.policy.micro_batches = b->ways[way].micros;
	o.policy.head_rows = b->head_rows; /* the same on the meta device */
	return o;
}

static void step_count(struct clock_bench *b, int rate, double seconds, double others_cores)
{
	if (!b->count[rate]++ || seconds < b->least_s[rate])
		b->least_s[rate] = seconds;
	if (others_cores <= QUIET_CORES && (!b->quiet_count[rate]++ || seconds < b->quiet_s[rate]))
		b->quiet_s[rate] = seconds;
}

static double measured_s(const struct clock_bench *b, int rate)
{
	return b->quiet_count[rate] ? b->quiet_s[rate] : b->least_s[rate];
}

static int steps_measure(struct clock_bench *b, int rate, int steps)
{
	struct bench_args args = b->args;
	struct device *device = NULL;
	struct engine *engine = NULL;
	struct host_batch micros[MICROS_MAX];
	struct engine_options o;
	int count = b->ways[rate].micros, rc;

	for (int i = 0; i < count; i++)
		micros[i] = b->rows.batch;
	args.copy_gbps = b->ways[rate].copy_gbps;
	rc = bench_device_open(&device, &args, b->pool);
	if (rc)
		return rc;
	o = options_of(b, device, rate);
	rc = engine_open(&engine, &o);
	if (!rc)
		rc = engine_start(engine);
	if (!rc)
		rc = bench_weights_write(engine, b->model);
	for (int i = 0; i < WARMUP_STEPS + steps && !rc; i++) {
		struct engine_result result;
		struct bench_load load;
		double begin = clock_now_s();

		bench_load_begin(&load);
		rc = engine_step(engine, &result, micros, count, count * b->rows.batch.targets, 1e-3, NULL);
		if (i >= WARMUP_STEPS)
			step_count(b, rate, clock_now_s() - begin, bench_load_end(&load));
	}
	engine_close(engine);
	device_close(device);
	return rc;
}

static int step_predict(double *seconds, struct clock_bench *b, int rate)
{
	struct device_options options = {.pool = b->pool, .speed = b->speed};
	struct device *device = NULL;
	struct engine *engine = NULL;
	struct simulated step;
	struct engine_options o;
	int rc;

	if (b->ways[rate].copy_gbps > 0)
		options.speed.h2d_bytes = options.speed.d2h_bytes = 1e9 * b->ways[rate].copy_gbps;
	rc = device_open(&device, "meta", &options);
	if (rc)
		return rc;
	o = options_of(b, device, rate);
	rc = engine_open(&engine, &o);
	if (!rc)
		rc = engine_start(engine);
	if (!rc)
		rc = simulate_step(&step, engine, &o, NULL);
	if (!rc)
		*seconds = 1e-3 * step.step_ms;
	engine_close(engine);
	device_close(device);
	return rc;
}

/* Finds by halving the rate of products at which the first way takes the measured time. */
static int speed_fit(struct clock_bench *b, double measured_s)
{
	double slow = 1e6, fast = 1e15, f32_of_bf16 = b->speed.matmul_flops_f32 / b->speed.matmul_flops_bf16;
	int rc = step_predict(&b->unfitted, b, 0);

	b->unfitted /= measured_s;
	for (int i = 0; i < FIT_ROUNDS && !rc; i++) {
		double middle = 0.5 * (slow + fast), predicted_s;

		b->speed.matmul_flops_bf16 = middle;
		b->speed.matmul_flops_f32 = middle * f32_of_bf16;
		rc = step_predict(&predicted_s, b, 0);
		*(!rc && predicted_s > measured_s ? &slow : &fast) = middle;
	}
	return rc;
}

/* Measures products in fp32, which have another rate on a GPU. */
static int f32_measure(struct clock_bench *b, struct engine_options o)
{
	struct device_speed speed = b->speed;
	int rc;

	o.policy.compute_dtype = DTYPE_F32;
	rc = measure_block(&speed, &o, b->gpu_bytes / 4 < SAMPLE_BYTES ? b->gpu_bytes / 4 : SAMPLE_BYTES);
	if (!rc)
		b->speed.matmul_flops_f32 = speed.matmul_flops_f32;
	return rc;
}

static int rates_measure(struct clock_bench *b)
{
	struct bench_args unthrottled = b->args;
	struct device *device = NULL;
	struct engine_options o;
	int rc;

	unthrottled.copy_gbps = 0;
	rc = bench_device_open(&device, &unthrottled, b->pool);
	if (rc)
		return rc;
	b->is_host = device_facts_of(device_kind_of(device))->is_host;
	b->ways = b->is_host ? host_ways : gpu_ways;
	b->way_count = b->is_host ? WAYS_MAX : GPU_WAYS;
	b->gpu_bytes = b->is_host ? 0 : device_free_bytes(device);
	b->head_rows = model_head_rows(b->model->config.V, device_facts_of(device_kind_of(device))->piece);
	o = options_of(b, device, 0);
	if (b->is_host)
		simulate_host_speed(&b->speed, pool_worker_count(b->pool), 0);
	rc = measure_speed(&b->speed, &o, 0);
	if (!rc && !b->is_host)
		rc = f32_measure(b, o);
	device_close(device);
	return rc;
}

static int bench_open(struct clock_bench *b, const struct bench_args *args)
{
	const struct bench_shape *shape;
	int rc;

	device_register(&backend_meta);
	b->args = *args;
	if (args->count > STEPS_MAX)
		return err_set(ERR_INPUT, "a benchmark of %lld steps is too long; at most %d",
		        (long long)args->count, STEPS_MAX);
	b->steps = args->count ? (int)args->count : DEFAULT_STEPS;
	rc = bench_shape_find(&shape, args->models);
	if (!rc)
		rc = pool_open(&b->pool, args->threads);
	if (!rc)
		rc = bench_model_open(&b->model, shape);
	if (!rc)
		rc = bench_rows_open(&b->rows, shape);
	return rc ? rc : rates_measure(b);
}

static json_t *rows_json(struct clock_bench *b, double *worst)
{
	json_t *rows = json_array();

	*worst = 0;
	for (int i = 0; rows && i < b->way_count; i++) {
		double share = b->predicted_s[i] / measured_s(b, i), off = share > 1 ? share - 1 : 1 - share;

		*worst = off > *worst ? off : *worst;
		json_array_append_new(rows,
		        json_pack("{s:f,s:i,s:f,s:f,s:f,s:i,s:i}", "copy_gbps", b->ways[i].copy_gbps,
		                "micro_batches", b->ways[i].micros, "measured_ms", 1e3 * measured_s(b, i),
		                "predicted_ms", 1e3 * b->predicted_s[i], "predicted_of_measured", share,
		                "steps", b->count[i], "quiet_steps", b->quiet_count[i]));
	}
	return rows;
}

/* Writes a description of this machine for machine=FILE. */
static int machine_save(const struct clock_bench *b)
{
	struct topology *t = mem_alloc(1, sizeof(*t));
	struct machine m = {.name = "this machine",
	        .gpu_count = !b->is_host,
	        .gpu_memory_bytes = b->gpu_bytes ? b->gpu_bytes + DEVICE_CONTEXT_BYTES : 0,
	        .host_reserve_bytes = INT64_C(4) << 30};
	int rc = t ? topology_read(t) : ERR_NOMEM;

	if (!rc) {
		m.host_memory_bytes = t->ram_bytes;
		machine_of_speed(&m, &b->speed);
		rc = machine_write(&m, "measured by ferry bench clock; products as a step reached them",
		        b->args.machine_file);
	}
	mem_free(t);
	return rc;
}

/* Adds the overheads of a GPU. */
static void overheads_json(json_t *result, const struct device_speed *s)
{
	if (s->host_computes)
		return;
	json_object_set_new(result, "fp32_gflops", json_real(1e-9 * s->matmul_flops_f32));
	json_object_set_new(result, "h2d_gbps", json_real(1e-9 * s->h2d_bytes));
	json_object_set_new(result, "d2h_gbps", json_real(1e-9 * s->d2h_bytes));
	json_object_set_new(
	        result, "copies_gbps", s->copies_bytes > 0 ? json_real(1e-9 * s->copies_bytes) : json_null());
	json_object_set_new(result, "launch_us", json_real(1e6 * s->launch_s));
	json_object_set_new(result, "call_us", json_real(1e6 * s->call_s));
	json_object_set_new(result, "pin_gbps", json_real(1e-9 * s->pin_bytes));
}

int bench_clock(json_t **result, const struct bench_args *args)
{
	struct clock_bench *b = mem_alloc(1, sizeof(*b));
	struct bench_load load;
	double worst = 0;
	int rc = b ? bench_open(b, args) : ERR_NOMEM;
	int rounds = rc ? 0 : b->steps < ROUNDS_MAX ? b->steps : ROUNDS_MAX;

	bench_load_begin(&load);
	for (int round = 0; round < rounds && !rc; round++)
		for (int i = 0; i <= b->way_count && !rc; i++) {
			int way = i % b->way_count;

			rc = steps_measure(b, round % 2 && way ? b->way_count - way : way,
			        b->steps * (round + 1) / rounds - b->steps * round / rounds);
		}
	if (!rc)
		rc = speed_fit(b, measured_s(b, 0));
	for (int i = 0; b && i < b->way_count && !rc; i++)
		rc = step_predict(&b->predicted_s[i], b, i);
	if (!rc && args->machine_file)
		rc = machine_save(b);
	if (!rc) {
		json_t *rows = rows_json(b, &worst);

		*result = json_pack("{s:I,s:I,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:o}", "parameters",
		        (json_int_t)b->model->parameter_count, "tokens", (json_int_t)b->rows.batch.tokens,
		        "steps", b->steps, "fitted_gflops", 1e-9 * b->speed.matmul_flops_bf16, "memory_gbps",
		        1e-9 * b->speed.memory_bytes, "host_memory_gbps", 1e-9 * b->speed.host_memory_bytes,
		        "host_update_gbps", 1e-9 * b->speed.host_update_bytes, "worst_off", worst,
		        "others_busy_cores", bench_load_end(&load), "rates", rows);
		if (*result) {
			json_object_set_new(*result, "predicted_before_fit", json_real(b->unfitted));
			overheads_json(*result, &b->speed);
		}
		rc = *result ? 0 : err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	}
	if (b) {
		bench_rows_close(&b->rows);
		model_close(b->model);
		pool_close(b->pool);
	}
	mem_free(b);
	return rc;
}
