/* Runs the same steps within several budgets of device memory. */
#include "bench/bench_model.h"
#include "bench/rig.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "host/pool.h"
#include "placement/choice.h"

#include <string.h>

/* Runs the same steps within budgets from the minimum of the streamed plan to all that it can use. No budget
 * may be exceeded, no bit of a loss may change, and more memory should never be slower. Copies are throttled
 * (host_copy_gbps), so that the link matters on the host device too. Each round goes through all budgets, up
 * or down in turn, with a new engine for each. Times are those of the shortest single step of all rounds.
 * Other load only makes steps longer, and the clock that spends the budgets knows no other load. */

enum { BUDGETS = 9, ROUNDS = 3, WARMUP_STEPS = 1, DEFAULT_STEPS = 3, STEPS_MAX = 100 };

static const double default_copy_gbps = 0.25, learning_rate = 1e-3;

struct point {
	int64_t budget_bytes, touched_bytes;
	struct engine_memory memory;
	double predicted_s, least_s; /* times of a step */
};

struct budget_bench {
	struct model *model;
	struct bench_rows rows;
	struct pool *pool;
	struct bench_args args;
	int steps;
	struct device_speed speed; /* measured once, as in a run */
	double measured_in_s;
	double losses[WARMUP_STEPS + STEPS_MAX]; /* of the first engine; others must have the same bits */
	int has_losses, same_losses;
	struct point points[BUDGETS];
};

static struct engine_options options_of(
        const struct budget_bench *b, struct device *device, int64_t budget_bytes)
{
	struct engine_options o = bench_engine_options(b->model, &b->rows, device, b->pool, b->args.isa);

	o.device_budget_bytes = budget_bytes;
	o.check_plans = 1;
	return o;
}

/* Finds the arena's bytes with nothing resident and with everything resident, from plans alone. */
static int range_find(int64_t *least_bytes, int64_t *most_bytes, const struct budget_bench *b)
{
	struct engine_memory memory;
	struct engine *engine = NULL;
	struct device *device = NULL;
	struct engine_options o;
	int rc = bench_device_open(&device, &b->args, b->pool);

	for (int most = 0; most < 2 && !rc; most++) {
		o = options_of(b, device, 0);
		if (most)
			o.policy.resident_states = o.policy.kept_blocks = 1 << 20;
		rc = engine_open(&engine, &o);
		if (rc)
			break;
		engine_get_memory(engine, &memory);
		*(most ? most_bytes : least_bytes) = memory.device_bytes;
		engine_close(engine);
	}
	device_close(device);
	return rc;
}

static int rates_find(struct budget_bench *b)
{
	struct device *device = NULL;
	struct engine_options o;
	double begin = clock_now_s();
	int rc = bench_device_open(&device, &b->args, b->pool);

	if (rc)
		return rc;
	o = options_of(b, device, 0);
	rc = bench_speed_find(&b->speed, &o, &b->args);
	b->measured_in_s = clock_now_s() - begin;
	device_close(device);
	return rc;
}

static int steps_run(struct budget_bench *b, struct engine *engine, struct point *p)
{
	for (int i = 0; i < WARMUP_STEPS + b->steps; i++) {
		struct engine_result result;
		double begin = clock_now_s(), seconds;
		int rc = engine_step(
		        engine, &result, &b->rows.batch, 1, b->rows.batch.targets, learning_rate, NULL);

		if (rc)
			return rc;
		seconds = clock_now_s() - begin;
		if (i >= WARMUP_STEPS && (!(p->least_s > 0) || seconds < p->least_s))
			p->least_s = seconds;
		if (!b->has_losses)
			b->losses[i] = result.loss_sum;
		else if (!(b->losses[i] == result.loss_sum))
			b->same_losses = 0;
	}
	b->has_losses = 1;
	return engine_flush(engine);
}

/* Spends the budget as a run does. */
static int budget_spend(const struct budget_bench *b, struct engine_options *o, struct point *p)
{
	struct choice_limits limits = {.device_bytes = o->device_budget_bytes};
	struct choice_freedom freedom = {.residency = 1, .activations = 1, .ahead = 1, .smaller = 1};
	struct choice choice;
	int rc;

	rc = choice_find(&choice, o, &limits, &freedom, &b->speed);
	p->predicted_s = rc || choice.best < 0 ? 0 : 1e-3 * choice.list[choice.best].step_ms;
	choice_free(&choice);
	return rc;
}

static int point_run(struct budget_bench *b, struct point *p)
{
	struct device *device = NULL;
	struct engine *engine = NULL;
	struct engine_options o;
	struct device_stats stats;
	int rc = bench_device_open(&device, &b->args, b->pool);

	if (rc)
		return rc;
	o = options_of(b, device, p->budget_bytes);
	rc = budget_spend(b, &o, p);
	if (!rc)
		rc = engine_open(&engine, &o);
	if (!rc) {
		engine_get_memory(engine, &p->memory);
		rc = engine_start(engine);
	}
	if (!rc)
		rc = bench_weights_write(engine, b->model);
	if (!rc)
		rc = steps_run(b, engine, p);
	if (!rc) {
		device_get_stats(device, &stats);
		p->touched_bytes = stats.arena_touched_bytes;
	}
	engine_close(engine);
	device_close(device);
	if (!rc && (p->memory.device_bytes > p->budget_bytes || p->touched_bytes > p->memory.device_bytes))
		rc = err_set(ERR_INTERNAL,
		        "with a budget of %lld bytes the plan has %lld, but the run used %lld",
		        (long long)p->budget_bytes, (long long)p->memory.device_bytes,
		        (long long)p->touched_bytes);
	return rc;
}

static int is_same_plan(const struct engine_memory *a, const struct engine_memory *b)
{
	return a->device_bytes == b->device_bytes && a->resident_states == b->resident_states &&
	       a->resident_weights == b->resident_weights && a->kept_blocks == b->kept_blocks &&
	       a->h2d_bytes == b->h2d_bytes && a->d2h_bytes == b->d2h_bytes;
}

/* Budgets with the same plan share the shortest step. */
static void same_plans_join(struct budget_bench *b)
{
	for (int i = 1; i < BUDGETS; i++)
		for (int j = 0; j < i; j++) {
			struct point *p = &b->points[i], *q = &b->points[j];

			if (is_same_plan(&p->memory, &q->memory))
				p->least_s = q->least_s = p->least_s < q->least_s ? p->least_s : q->least_s;
		}
}

/* *worst: lowest ratio of a budget's tokens/s to the best of a smaller budget. */
static json_t *points_json(struct budget_bench *b, double *worst)
{
	json_t *rows = json_array();
	double best = 0;

	same_plans_join(b);
	*worst = 1;
	for (int i = 0; rows && i < BUDGETS; i++) {
		struct point *p = &b->points[i];
		double rate = (double)b->rows.batch.tokens / p->least_s;

		if (best > 0 && rate < *worst * best)
			*worst = rate / best;
		best = rate > best ? rate : best;
		json_array_append_new(rows,
		        json_pack("{s:I,s:I,s:I,s:i,s:i,s:i,s:I,s:f,s:f,s:f,s:f}", "budget_bytes",
		                (json_int_t)p->budget_bytes, "arena_bytes",
		                (json_int_t)p->memory.device_bytes, "peak_bytes",
		                (json_int_t)p->touched_bytes, "states", p->memory.resident_states, "weights",
		                p->memory.resident_weights, "kept_blocks", p->memory.kept_blocks,
		                "crossing_bytes", (json_int_t)(p->memory.h2d_bytes + p->memory.d2h_bytes),
		                "predicted_ms", 1e3 * p->predicted_s, "step_ms", 1e3 * p->least_s,
		                "tokens_per_s", rate, "of_best_before", rate / best));
	}
	return rows;
}

static int bench_open(struct budget_bench *b, const struct bench_args *args)
{
	const struct bench_shape *shape;
	int rc;

	b->args = *args;
	if (!(b->args.copy_gbps > 0))
		b->args.copy_gbps = default_copy_gbps;
	b->steps = args->count ? (int)args->count : DEFAULT_STEPS;
	b->same_losses = 1;
	if (args->count > STEPS_MAX)
		return err_set(ERR_INPUT, "a benchmark of %lld steps is too long; at most %d",
		        (long long)args->count, STEPS_MAX);
	rc = bench_shape_find(&shape, args->models);
	if (!rc)
		rc = pool_open(&b->pool, args->threads);
	if (!rc)
		rc = bench_model_open(&b->model, shape);
	return rc ? rc : bench_rows_open(&b->rows, shape);
}

int bench_budget(json_t **result, const struct bench_args *args)
{
	struct budget_bench *b = mem_alloc(1, sizeof(*b));
	int64_t least = 0, most = 0;
	struct bench_load load;
	double worst = 0;
	json_t *rows = NULL;
	int rc = b ? bench_open(b, args) : ERR_NOMEM;

	if (!rc)
		rc = range_find(&least, &most, b);
	if (!rc)
		rc = rates_find(b);
	bench_load_begin(&load);
	for (int i = 0; i < BUDGETS && !rc; i++)
		b->points[i].budget_bytes = least + (most - least) * i / (BUDGETS - 1);
	for (int round = 0; round < ROUNDS && !rc; round++)
		for (int i = 0; i < BUDGETS && !rc; i++)
			rc = point_run(b, &b->points[round % 2 ? BUDGETS - 1 - i : i]);
	if (!rc) {
		rows = points_json(b, &worst);
		*result = json_pack("{s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:i,s:b,s:f,s:f,s:o}", "parameters",
		        (json_int_t)b->model->parameter_count, "tokens", (json_int_t)b->rows.batch.tokens,
		        "copy_gbps", b->args.copy_gbps, "product_gflops", 1e-9 * b->speed.matmul_flops_bf16,
		        "memory_gbps", 1e-9 * b->speed.memory_bytes, "host_memory_gbps",
		        1e-9 * b->speed.host_memory_bytes, "host_update_gbps",
		        1e-9 * b->speed.host_update_bytes, "measured_in_ms", 1e3 * b->measured_in_s, "steps",
		        ROUNDS * b->steps, "same_losses", b->same_losses, "worst_of_best_before", worst,
		        "others_busy_cores", bench_load_end(&load), "budgets", rows);
		rc = *result ? 0 : err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	}
	if (!rc && !b->same_losses)
		rc = err_set(ERR_INTERNAL, "losses differ between budgets");
	if (b) {
		bench_rows_close(&b->rows);
		model_close(b->model);
		pool_close(b->pool);
	}
	mem_free(b);
	return rc;
}
