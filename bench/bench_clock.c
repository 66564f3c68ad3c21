/* Predicted beside measured steps, with throttled copies. */
#include "bench/bench_model.h"
#include "bench/rig.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "device/backend.h"
#include "host/pool.h"
#include "placement/measure.h"
#include "placement/simulate.h"

#include <stdlib.h>
#include <string.h>

/* Is the clock of plans right? Steps with all state offloaded, on the host device with its copies throttled
 * to one rate after another, beside the step that the meta device's clock predicts for a machine of these
 * rates. What is told to the clock: the throttle; the rates of memory and of updates that a run measures for
 * itself (placement/measure.h); and a rate of matrix products at which the step whose copies are not
 * throttled takes what it was measured to take. Nothing else is fitted. Throttles are gone through once a
 * round, back and forth, with the unthrottled step, to which all others are compared, at both ends. The clock
 * knows no other processes: so the shortest step of all rounds counts, and of steps during which others used
 * the cores only where there are no others. */

enum { RATES = 7, ROUNDS = 4, WARMUP_STEPS = 2, DEFAULT_STEPS = 2, STEPS_MAX = 100, FIT_ROUNDS = 40 };

/* Cores that others may use during a step that counts; the system counts in hundredths of a second. */
static const double QUIET_CORES = 0.1;

/* 1e9 bytes a second; 0: as fast as memory, to which the clock is fitted. */
static const double rates[RATES] = {0, 0.1, 0.15, 0.2, 0.3, 0.5, 1};

struct clock_bench {
	struct model *model;
	struct bench_rows rows;
	struct pool *pool;
	struct bench_args args;
	int steps;
	double quiet_s[RATES], least_s[RATES]; /* the shortest step, among quiet ones and of all; 0: none */
	int quiet_count[RATES], count[RATES];
	double predicted_s[RATES];
	struct device_speed speed; /* but for the copies' */
};

static struct engine_options options_of(const struct clock_bench *b, struct device *device)
{
	return bench_engine_options(b->model, &b->rows, device, b->pool, b->args.isa);
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

static int steps_measure(struct clock_bench *b, int rate)
{
	struct bench_args args = b->args;
	struct device *device = NULL;
	struct engine *engine = NULL;
	struct engine_options o;
	int rc;

	args.copy_gbps = rates[rate];
	rc = bench_device_open(&device, &args, b->pool);
	if (rc)
		return rc;
	o = options_of(b, device);
	rc = engine_open(&engine, &o);
	if (!rc)
		rc = engine_start(engine);
	if (!rc)
		rc = bench_weights_write(engine, b->model);
	for (int i = 0; i < WARMUP_STEPS + b->steps && !rc; i++) {
		struct engine_result result;
		struct bench_load load;
		double begin = clock_now_s();

		bench_load_begin(&load);
		rc = engine_step(engine, &result, &b->rows.batch, 1, b->rows.batch.targets, 1e-3, NULL);
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

	if (rates[rate] > 0)
		options.speed.h2d_bytes = options.speed.d2h_bytes = 1e9 * rates[rate];
	rc = device_open(&device, "meta", &options);
	if (rc)
		return rc;
	o = options_of(b, device);
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

/* The rate of products at which the step without copies is as long as it was; by halving. */
static int speed_fit(struct clock_bench *b, double measured_s)
{
	double slow = 1e6, fast = 1e15;
	int rc = 0;

	for (int i = 0; i < FIT_ROUNDS && !rc; i++) {
		double middle = 0.5 * (slow + fast), predicted_s;

		b->speed.matmul_flops_bf16 = b->speed.matmul_flops_f32 = middle;
		rc = step_predict(&predicted_s, b, 0);
		*(!rc && predicted_s > measured_s ? &slow : &fast) = middle;
	}
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
	o = options_of(b, device);
	simulate_host_speed(&b->speed, pool_worker_count(b->pool), 0);
	rc = measure_speed(&b->speed, &o, 0);
	device_close(device);
	return rc;
}

static int bench_open(struct clock_bench *b, const struct bench_args *args)
{
	const struct bench_shape *shape;
	int rc;

	device_register(&backend_meta);
	b->args = *args;
	b->steps = args->count ? (int)args->count : DEFAULT_STEPS;
	if (args->count > STEPS_MAX)
		return err_set(ERR_INPUT, "a benchmark of %lld steps: at most %d", (long long)args->count,
		        STEPS_MAX);
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
	for (int i = 0; rows && i < RATES; i++) {
		double share = b->predicted_s[i] / measured_s(b, i), off = share > 1 ? share - 1 : 1 - share;

		*worst = off > *worst ? off : *worst;
		json_array_append_new(rows, json_pack("{s:f,s:f,s:f,s:f,s:i,s:i}", "copy_gbps", rates[i],
		                                    "measured_ms", 1e3 * measured_s(b, i), "predicted_ms",
		                                    1e3 * b->predicted_s[i], "predicted_of_measured", share,
		                                    "steps", b->count[i], "quiet_steps", b->quiet_count[i]));
	}
	return rows;
}

int bench_clock(json_t **result, const struct bench_args *args)
{
	struct clock_bench *b = mem_alloc(1, sizeof(*b));
	struct bench_load load;
	double worst = 0;
	int rc = b ? bench_open(b, args) : ERR_NOMEM;

	bench_load_begin(&load);
	for (int round = 0; round < ROUNDS && !rc; round++)
		for (int i = 0; i <= RATES && !rc; i++) {
			int rate = i % RATES;

			rc = steps_measure(b, round % 2 && rate ? RATES - rate : rate);
		}
	if (!rc)
		rc = speed_fit(b, measured_s(b, 0));
	for (int i = 0; i < RATES && !rc; i++)
		rc = step_predict(&b->predicted_s[i], b, i);
	if (!rc) {
		json_t *rows = rows_json(b, &worst);

		*result = json_pack("{s:I,s:I,s:i,s:f,s:f,s:f,s:f,s:f,s:f,s:o}", "parameters",
		        (json_int_t)b->model->parameter_count, "tokens", (json_int_t)b->rows.batch.tokens,
		        "steps", ROUNDS * b->steps, "fitted_gflops", 1e-9 * b->speed.matmul_flops_f32,
		        "memory_gbps", 1e-9 * b->speed.memory_bytes, "host_memory_gbps",
		        1e-9 * b->speed.host_memory_bytes, "host_update_gbps",
		        1e-9 * b->speed.host_update_bytes, "worst_off", worst, "others_busy_cores",
		        bench_load_end(&load), "rates", rows);
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
