/* Compares training steps with everything offloaded, nothing offloaded, and the device filled. */
#include "bench/bench_model.h"
#include "bench/rig.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/process.h"
#include "host/pool.h"
#include "host/topology.h"
#include "placement/choice.h"

#include <stdlib.h>
#include <string.h>

/* Runs the same model, rows and steps in three ways. "streamed" has weights, gradients and optimizer state in
 * host memory and nothing of them on the device. "resident" has all of them on the device. "filled", if that
 * does not fit or a budget is given, has as much on the device as fits, as in a run. Losses must have the
 * same bits. A setting that does not fit is a row that says so. device_beside_bytes is the device memory
 * beside the plan's arena and workspaces (code of kernels and libraries). FLOPs by the usual count
 * (model_flops_per_token), without recomputation. */

enum { WARMUP_STEPS = 2, DEFAULT_STEPS = 5, STEPS_MAX = 1000, SETTINGS_MAX = 32, MICRO_BATCHES_MAX = 1024 };

static const double learning_rate = 1e-3, measure_s_max = 25;

/* Shapes of known models, and of the 8B one with a quarter of its blocks, so that a device can hold it
 * without offload. */
static const struct {
	const char *name;
	struct bench_shape shape; /* the tokens of a micro-batch set the rows */
} models[] = {
        {"tiny", {64, 2, 4, 128, 500, 32, 0, 0, 2, 0}},
        {"0.1b", {768, 12, 12, 2048, 32000, 1024, 0, 0, 12, 0}},
        {"1b", {2048, 16, 32, 8192, 128256, 4096, 0, 1, 8, 0}},
        {"3b", {3072, 28, 24, 8192, 128256, 4096, 0, 1, 8, 0}},
        {"8b-8l", {4096, 8, 32, 14336, 128256, 4096, 0, 0, 8, 0}},
        {"8b", {4096, 32, 32, 14336, 128256, 4096, 0, 0, 8, 0}},
};
enum { MODEL_COUNT = sizeof(models) / sizeof(*models) };

enum way { STREAMED, RESIDENT, FILLED, WAYS };
static const char *const way_names[WAYS] = {"streamed", "resident", "filled"};

struct setting {
	const char *name;
	struct bench_shape shape;
	int64_t tokens, micro_batches; /* tokens of a micro-batch */
	enum way way;
	int steps;
};

struct outcome {
	struct engine_memory memory;
	struct device_stats before, after;
	double step_s[STEPS_MAX], total_s, loss_first, loss_last;
	int64_t parameters, host_peak_bytes, device_beside_bytes;
	double flops_per_token;
	int steps, fits; /* fits 0 and an empty `why`: not run */
	char why[ERR_TEXT_BYTES];
};

/* ---- one setting ---- */

struct offload_bench {
	struct model *model;
	struct bench_rows rows;
	struct host_batch *micro; /* the rows, for each micro-batch */
	struct device *device;
	struct engine *engine;
};

static void offload_bench_close(struct offload_bench *b)
{
	engine_close(b->engine);
	device_close(b->device);
	mem_free(b->micro);
	bench_rows_close(&b->rows);
	model_close(b->model);
}

static struct engine_options options_of(const struct offload_bench *b, const struct setting *s,
        const struct bench_args *args, struct pool *pool)
{
	struct engine_options o = bench_engine_options(b->model, &b->rows, b->device, pool, args->isa);

	o.policy.offload_params = o.policy.offload_gradients = o.policy.offload_optimizer =
	        s->way != RESIDENT;
	o.policy.micro_batches = (int)s->micro_batches;
	o.max_grad_norm = args->max_grad_norm;
	o.skip_nonfinite = args->max_grad_norm > 0;
	return o;
}

/* The arena's budget: the given one, or the free memory less a 64th, and less the memory of libraries. 0: no
 * limit. */
static int64_t budget_of(struct device *device, const struct bench_args *args)
{
	struct device_reserve reserves[DEVICE_RESERVES_MAX];
	int count = device_reserve_list(reserves, device_kind_of(device), NULL);
	int64_t bytes = device_free_bytes(device) / 64 * 63;

	if (args->device_budget_bytes && (!bytes || args->device_budget_bytes < bytes))
		bytes = args->device_budget_bytes;
	for (int i = 0; i < count && bytes; i++)
		bytes -= reserves[i].bytes;
	return bytes;
}

/* Spends the budget as a run does, with the activations of the other ways. */
static int budget_spend(struct engine_options *o, const struct bench_args *args)
{
	const struct choice_freedom freedom = {.residency = 1, .ahead = 1};
	struct choice_limits limits;
	struct device_speed speed;
	struct choice choice;
	int rc;

	o->device_budget_bytes = budget_of(o->device, args);
	rc = bench_speed_find(&speed, o, args);
	if (rc)
		return rc;
	limits = (struct choice_limits){.device_bytes = o->device_budget_bytes};
	rc = choice_find(&choice, o, &limits, &freedom, &speed);
	choice_free(&choice);
	return rc;
}

/* Checks that the plan's memory is available before any of it is taken. Sets out->fits. */
static int memory_check(struct outcome *out, struct offload_bench *b, const struct bench_args *args)
{
	int64_t device_free = device_free_bytes(b->device), host_bytes, host_limit;
	struct topology machine;
	int rc = topology_read(&machine);

	if (rc)
		return rc;
	engine_get_memory(b->engine, &out->memory);
	host_bytes = out->memory.store_bytes + out->memory.staging_bytes;
	if (device_facts_of(device_kind_of(b->device))->is_host)
		host_bytes += out->memory.device_bytes;
	host_limit = args->host_budget_bytes ? args->host_budget_bytes : machine.usable_bytes / 20 * 19;
	out->fits = 1;
	if (device_free > 0 && out->memory.device_bytes > device_free)
		out->fits = 0;
	if (device_has_bytes(b->device) && host_bytes > host_limit)
		out->fits = 0;
	if (!out->fits)
		snprintf(out->why, sizeof(out->why),
		        "needs %.1f GiB of GPU memory (%.1f free) and %.1f GiB of host memory (%.1f %s; "
		        "ram_budget allows more where memory grows on demand)",
		        (double)out->memory.device_bytes * 0x1p-30, (double)device_free * 0x1p-30,
		        (double)host_bytes * 0x1p-30, (double)host_limit * 0x1p-30,
		        args->host_budget_bytes ? "is ram_budget" : "available");
	return 0;
}

/* Starts the engine and writes its weights. Clears out->fits if memory is too small. */
static int engine_prepare(struct outcome *out, struct offload_bench *b, const struct setting *s,
        const struct bench_args *args, struct pool *pool)
{
	struct engine_options o = options_of(b, s, args, pool);
	int rc = s->way == FILLED ? budget_spend(&o, args) : 0;

	if (!rc)
		rc = engine_open(&b->engine, &o);
	if (!rc)
		rc = memory_check(out, b, args);
	if (!rc && out->fits)
		rc = engine_start(b->engine);
	if (rc == ERR_NOMEM || rc == ERR_FIT) {
		out->fits = 0;
		snprintf(out->why, sizeof(out->why), "%s", err_text());
		return 0;
	}
	return rc || !out->fits || !device_has_bytes(b->device) ? rc
	                                                        : bench_weights_write(b->engine, b->model);
}

/* Seconds since `start_ns`; on a device without bytes, those of its virtual clock since `before`. */
static double seconds_since(struct offload_bench *b, int64_t start_ns, const struct device_stats *before)
{
	struct device_stats now;

	if (device_has_bytes(b->device))
		return (double)(clock_now_ns() - start_ns) * 1e-9;
	device_get_stats(b->device, &now);
	return (double)(now.now_ns - before->now_ns) * 1e-9;
}

static int steps_run(struct outcome *out, struct offload_bench *b, const struct setting *s)
{
	int64_t start_ns = 0;

	b->micro = mem_alloc((size_t)s->micro_batches, sizeof(*b->micro));
	if (!b->micro)
		return ERR_NOMEM;
	for (int i = 0; i < s->micro_batches; i++)
		b->micro[i] = b->rows.batch;
	for (int i = -WARMUP_STEPS; i < s->steps; i++) {
		struct engine_result result;
		struct device_stats before;
		int64_t step_ns = clock_now_ns();
		int rc;

		device_get_stats(b->device, &before);
		if (i == 0) {
			out->before = before;
			start_ns = step_ns;
		}
		rc = engine_step(b->engine, &result, b->micro, (int)s->micro_batches,
		        s->micro_batches * b->rows.batch.targets, learning_rate, NULL);
		if (rc)
			return rc;
		out->loss_last = result.loss_sum / (double)result.targets;
		if (i == -WARMUP_STEPS)
			out->loss_first = out->loss_last;
		if (i < 0)
			continue;
		out->step_s[i] = seconds_since(b, step_ns, &before);
		out->steps = i + 1;
		if (out->steps >= 2 && (double)(clock_now_ns() - start_ns) * 1e-9 > measure_s_max)
			break;
	}
	out->total_s = seconds_since(b, start_ns, &out->before);
	device_get_stats(b->device, &out->after);
	if (device_has_bytes(b->device) && !(out->loss_last < out->loss_first - 0.02))
		return err_set(ERR_INTERNAL, "the loss of a fixed batch did not fall: %g, then %g",
		        out->loss_first, out->loss_last);
	return engine_flush(b->engine);
}

static int setting_run(
        struct outcome *out, const struct setting *s, const struct bench_args *args, struct pool *pool)
{
	struct offload_bench b = {0};
	int64_t rss_before, free_before = 0;
	int rc = bench_model_open(&b.model, &s->shape);

	memset(out, 0, sizeof(*out));
	process_peak_reset();
	rss_before = process_resident_bytes();
	if (!rc)
		rc = bench_rows_open(&b.rows, &s->shape);
	if (!rc)
		rc = bench_device_open(&b.device, args, pool);
	if (!rc) {
		free_before = device_free_bytes(b.device);
		out->parameters = b.model->parameter_count;
		out->flops_per_token = model_flops_per_token(b.model, s->shape.row_tokens);
		rc = engine_prepare(out, &b, s, args, pool);
	}
	if (!rc && out->fits)
		rc = steps_run(out, &b, s);
	if (!rc)
		out->device_beside_bytes = free_before - device_free_bytes(b.device);
	out->host_peak_bytes = process_peak_bytes() - rss_before;
	offload_bench_close(&b);
	return rc ? err_note(rc, "offload of %s, %lld tokens", s->name, (long long)s->tokens) : 0;
}

/* ---- rows of the result ---- */

static json_t *queue_figures(const struct outcome *out)
{
	json_t *busy = json_object(), *wait = json_object();

	for (int q = 0; q < QUEUE_COUNT; q++) {
		double busy_s = (double)(out->after.busy_ns[q] - out->before.busy_ns[q]) * 1e-9,
		       wait_s = (double)(out->after.wait_ns[q] - out->before.wait_ns[q]) * 1e-9;

		json_object_set_new(busy, queue_name((enum queue_kind)q), json_real(busy_s / out->total_s));
		json_object_set_new(
		        wait, queue_name((enum queue_kind)q), json_real(wait_s / out->steps * 1e3));
	}
	return json_pack("{s:o, s:o}", "busy", busy, "wait_ms", wait);
}

static json_t *row_of(struct outcome *out, const struct setting *s, const struct bench_limits *limits)
{
	json_t *row = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:i, s:i, s:b, s:I, s:I, s:I, s:I, s:I}",
	        "model", s->name, "parameters", (json_int_t)out->parameters, "layers",
	        (json_int_t)s->shape.layers, "tokens", (json_int_t)s->tokens, "row_tokens",
	        (json_int_t)s->shape.row_tokens, "micro_batches", (json_int_t)s->micro_batches, "way",
	        way_names[s->way], "resident_units", out->memory.resident_states, "resident_weight_units",
	        out->memory.resident_weights, "fits", out->fits, "device_plan_bytes",
	        (json_int_t)out->memory.device_bytes, "store_bytes", (json_int_t)out->memory.store_bytes,
	        "pinned_bytes", (json_int_t)out->memory.pinned_bytes, "h2d_bytes",
	        (json_int_t)out->memory.h2d_bytes, "d2h_bytes", (json_int_t)out->memory.d2h_bytes);
	double step_s, tokens, flops;

	if (!row || !out->fits) {
		json_object_set_new(row, "why", json_string(out->why));
		return row;
	}
	step_s = bench_median(out->step_s, out->steps);
	tokens = (double)(s->tokens * s->micro_batches);
	flops = out->flops_per_token * tokens / step_s;
	json_object_update_new(
	        row, json_pack("{s:I, s:I, s:I, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "device_peak_bytes",
	                     (json_int_t)out->after.arena_touched_bytes, "device_beside_bytes",
	                     (json_int_t)out->device_beside_bytes, "host_peak_bytes",
	                     (json_int_t)out->host_peak_bytes, "steps", out->steps, "step_s", step_s,
	                     "tokens_per_s", tokens / step_s, "model_tflops", flops * 1e-12, "of_matmul",
	                     flops / limits->product_flops_per_s, "loss_first", out->loss_first, "loss_last",
	                     out->loss_last));
	json_object_update_new(row, queue_figures(out));
	return row;
}

/* Adds the ratio of two ways' rates if both ran. */
static int pair_add(
        json_t *pairs, const char *name, struct outcome *one, struct outcome *other, const struct setting *s)
{
	json_t *pair;

	if (!one->steps || !other->steps)
		return 0;
	pair = json_pack("{s:s, s:I, s:I, s:s, s:f}", "model", s->name, "tokens", (json_int_t)s->tokens,
	        "micro_batches", (json_int_t)s->micro_batches, "rate", name, "ratio",
	        bench_median(other->step_s, other->steps) / bench_median(one->step_s, one->steps));
	if (one->steps == other->steps)
		json_object_set_new(pair, "same_losses",
		        json_boolean(
		                one->loss_first == other->loss_first && one->loss_last == other->loss_last));
	return json_array_append_new(pairs, pair)
	               ? err_set(ERR_NOMEM, "out of memory for a benchmark's result")
	               : 0;
}

/* Sets one bit for each way. ERR_INPUT. */
static int ways_find(unsigned *ways, const char *list);

/* Runs all ways of one model and size. Skips "filled" if the whole model fits, unless it is asked for. */
static int ways_run(json_t *rows, json_t *pairs, struct setting *s, const struct bench_args *args,
        struct pool *pool, const struct bench_limits *limits)
{
	struct outcome *out = mem_alloc(WAYS, sizeof(*out));
	unsigned wanted = 0;
	int rc = out ? ways_find(&wanted, args->ways) : ERR_NOMEM;

	for (int way = 0; way < WAYS && !rc; way++) {
		s->way = (enum way)way;
		if (!(wanted >> way & 1))
			continue;
		if (way == FILLED && out[RESIDENT].fits && !args->device_budget_bytes)
			continue;
		rc = setting_run(&out[way], s, args, pool);
		if (!rc && json_array_append_new(rows, row_of(&out[way], s, limits)))
			rc = err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	}
	if (!rc)
		rc = pair_add(pairs, "streamed of resident", &out[STREAMED], &out[RESIDENT], s);
	if (!rc)
		rc = pair_add(pairs, "filled of resident", &out[FILLED], &out[RESIDENT], s);
	if (!rc)
		rc = pair_add(pairs, "filled of streamed", &out[FILLED], &out[STREAMED], s);
	mem_free(out);
	return rc;
}

/* ---- arguments ---- */

/* Gets the next word of a comma-separated list; 0 at its end. */
static int list_next(const char **list, char *word, size_t word_bytes)
{
	size_t len;

	while (**list == ',' || **list == ' ')
		++*list;
	len = strcspn(*list, ", ");
	snprintf(word, word_bytes, "%.*s", (int)len, *list);
	*list += len;
	return len > 0;
}

static int ways_find(unsigned *ways, const char *list)
{
	char word[32];

	*ways = 0;
	if (!list || !*list || !strcmp(list, "all"))
		*ways = (1u << WAYS) - 1;
	else
		while (list_next(&list, word, sizeof(word))) {
			int way = 0;

			while (way < WAYS && strcmp(way_names[way], word))
				way++;
			if (way == WAYS)
				return err_set(ERR_INPUT,
				        "unknown way '%s'; available: streamed, resident, filled", word);
			*ways |= 1u << way;
		}
	return 0;
}

static int settings_of_model(
        struct setting *list, int *count, const char *name, const char *tokens, const struct bench_args *args)
{
	int model = 0;
	char word[32], *end;

	while (model < MODEL_COUNT && strcmp(models[model].name, name))
		model++;
	if (model == MODEL_COUNT)
		return err_set(
		        ERR_INPUT, "unknown model '%s'; available: tiny, 0.1b, 1b, 3b, 8b-8l, 8b", name);
	while (list_next(&tokens, word, sizeof(word))) {
		struct setting *s = &list[*count];
		int64_t n = strtoll(word, &end, 10);

		if (*end || n < 2 || n > 1 << 24)
			return err_set(ERR_INPUT,
			        "micro_batch_tokens: '%s' must be a number from 2 to 16777216", word);
		if (++*count > SETTINGS_MAX)
			return err_set(
			        ERR_INPUT, "models, micro_batch_tokens: more than %d settings", SETTINGS_MAX);
		*s = (struct setting){.name = models[model].name,
		        .shape = models[model].shape,
		        .micro_batches = args->micro_batches ? args->micro_batches : 1,
		        .steps = (int)args->count};
		if (!s->steps)
			s->steps = DEFAULT_STEPS;
		if (s->shape.row_tokens > n)
			s->shape.row_tokens = n;
		s->shape.rows = n / s->shape.row_tokens;
		s->tokens = s->shape.rows * s->shape.row_tokens; /* whole rows */
	}
	return 0;
}

static int settings_of(
        struct setting *list, int *count, const struct bench_args *args, enum device_kind device)
{
	int is_host = device_facts_of(device)->is_host, rc = 0;
	const char *names = args->models && *args->models ? args->models : is_host ? "0.1b" : "0.1b,1b,8b-8l";
	const char *tokens = args->tokens && *args->tokens ? args->tokens : is_host ? "256" : "4096,16384";
	char name[32];

	*count = 0;
	if (args->micro_batches < 0 || args->micro_batches > MICRO_BATCHES_MAX)
		return err_set(ERR_INPUT, "gradient_accumulation_steps=%lld is too large; at most %d",
		        (long long)args->micro_batches, MICRO_BATCHES_MAX);
	if (args->count > STEPS_MAX)
		return err_set(ERR_INPUT, "a benchmark of %lld steps is too long; at most %d",
		        (long long)args->count, STEPS_MAX);
	while (!rc && list_next(&names, name, sizeof(name)))
		rc = settings_of_model(list, count, name, tokens, args);
	return rc;
}

int bench_offload(json_t **result, const struct bench_args *args)
{
	json_t *rows = json_array(), *pairs = json_array();
	struct setting *settings = mem_alloc(SETTINGS_MAX + 1, sizeof(*settings));
	struct bench_limits limits = {0};
	struct pool *pool = NULL;
	enum device_kind device = DEVICE_HOST;
	int count = 0, rc = settings ? 0 : ERR_NOMEM;

	if (!rc)
		rc = pool_open(&pool, args->threads);
	if (!rc)
		rc = bench_device_find(&device, args, pool);
	if (!rc)
		rc = settings_of(settings, &count, args, device);
	if (!rc)
		rc = bench_limits_measure(&limits, args, pool,
		        !strcmp(settings[0].name, "tiny") ? BENCH_TINY_TOKENS - 1 : 0, DTYPE_BF16);
	for (int i = 0; i < count && !rc; i++)
		rc = ways_run(rows, pairs, &settings[i], args, pool, &limits);
	if (!rc)
		*result = json_pack("{s:s, s:s, s:s, s:f, s:i, s:f, s:f, s:O, s:O}", "device",
		        device_facts_of(device)->name, "compute_dtype", "bf16", "activations", "recompute",
		        "max_grad_norm", args->max_grad_norm, "threads", args->threads, "matmul_tflops",
		        limits.product_flops_per_s * 1e-12, "copy_gbps", limits.copy_bytes_per_s * 1e-9,
		        "settings", rows, "pairs", pairs);
	if (!rc && !*result)
		rc = err_set(ERR_NOMEM, "out of memory for a benchmark's result");
	json_decref(rows);
	json_decref(pairs);
	mem_free(settings);
	pool_close(pool);
	return rc;
}
