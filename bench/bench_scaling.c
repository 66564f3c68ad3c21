/* `ferry bench scaling`: plans and simulates steps on more and more GPUs. */
#include "bench/bench_scaling.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "comm/world.h"
#include "model/families/open.h"
#include "placement/choice.h"
#include "placement/device_memory.h"
#include "placement/host_memory.h"
#include "placement/options.h"
#include "placement/ranks.h"
#include "placement/simulate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 1024, TOKENS = 4096, THREADS_MAX = 8 };
static const char default_models[] = "examples/models/llama-2-7b.json,examples/models/llama-2-70b.json,"
                                     "examples/models/llama-3.1-405b.json";

struct scaling {
	const struct config *config;
	struct machine *machine;
	int64_t tokens;
	int threads;
	char strategy[32], offload[96], ranks_per_node[24]; /* as given; "" if the benchmark chooses */
	json_t *rows;
	double first_rate; /* tokens/s per GPU in the model's first row that fits */
};

/* A value of a key and its word. */
struct word {
	int value;
	const char *text;
};

/* A candidate and its results. */
struct trial {
	int gpus;
	struct word strategy, offload;
	struct engine_memory memory;
	struct plan_traffic traffic;
	struct plan_time time;
	struct simulated step;
	int64_t reserve_bytes, host_bytes;
	int fits;
};

/* ---- one plan ---- */

/* Makes the configuration of a plan for the candidate. */
static int trial_config(struct config *c, const struct trial *t, const struct scaling *s, const char *model)
{
	char words[6][512];
	char *argv[6];

	snprintf(words[0], sizeof(words[0]), "model=%s", model);
	snprintf(words[1], sizeof(words[1]), "world_size=%d", t->gpus);
	snprintf(words[2], sizeof(words[2]), "sharding_strategy=%s", t->strategy.text);
	snprintf(words[3], sizeof(words[3]), "cpu_offload=%s", t->offload.text);
	snprintf(words[4], sizeof(words[4]), "max_length=%lld", (long long)s->tokens);
	snprintf(words[5], sizeof(words[5]), "ranks_per_node=%s",
	        *s->ranks_per_node ? s->ranks_per_node : "auto");
	for (int i = 0; i < 6; i++)
		argv[i] = words[i];
	return config_parse(c, VERB_PLAN, 6, argv);
}

/* Fills the device's budget with activations, and on one GPU also with resident units. With several GPUs the
 * rows with and without offload show the two extremes. A run also tries single units, smaller budgets and
 * other prefetch distances, but that takes ten times as long. */
static int trial_plan(
        struct trial *t, const struct config *c, const struct scaling *s, struct engine_options *o)
{
	struct choice_freedom freedom = {.residency = o->world_size == 1, .activations = 1};
	struct choice_limits limits = {
	        .host_bytes = host_limit_bytes(c, s->machine, machine_ranks_here(s->machine, t->gpus)),
	        .load_bytes = host_load_bytes(c, o, s->machine)};
	struct device_speed speed;
	struct device_memory device;
	struct engine *e = NULL;
	struct choice choice;
	struct host_memory host;
	int rc;

	device_memory_find(&device, c, o, s->machine);
	t->reserve_bytes = device.reserve_bytes;
	o->policy.head_rows = device_memory_head_rows(&device, o->model);
	o->device_budget_bytes = limits.device_bytes = device_memory_budget(&device);
	machine_speed(&speed, s->machine, t->gpus);
	if (o->device_budget_bytes < 0)
		return 0;
	rc = choice_find(&choice, o, &limits, &freedom, &speed);
	choice_free(&choice);
	o->device_budget_bytes = 0; /* the traffic without residency is not needed here */
	if (!rc)
		rc = engine_open(&e, o);
	if (!rc) {
		engine_get_memory(e, &t->memory);
		t->host_bytes = host_need_bytes(&t->memory, limits.load_bytes);
		rc = host_memory_find(
		        &host, c, t->host_bytes + (device.is_host ? t->memory.device_bytes : 0), s->machine);
		t->fits = !rc && host.fits &&
		          (!limits.device_bytes || t->memory.device_bytes <= limits.device_bytes);
	}
	if (!rc && t->fits) {
		engine_get_traffic(e, &t->traffic);
		rc = simulate_bound(&t->step, &t->time, e, o);
	}
	engine_close(e);
	return rc == ERR_FIT ? 0 : rc;
}

static int trial_run(
        struct trial *t, const struct scaling *s, struct pool *pool, struct model *model, const char *path)
{
	struct device_options device = {.pool = pool};
	struct device *meta = NULL;
	struct engine_options o;
	struct config c = {0};
	int rc = trial_config(&c, t, s, path);

	if (!rc) {
		machine_speed(&device.speed, s->machine, t->gpus);
		device.ranks_per_node = ranks_on_node(&c, s->machine, world_self(), t->gpus);
		rc = device_open(&meta, "meta", &device);
	}
	if (!rc) {
		options_of_config(&o, &c, s->machine, (int)c.gradient_accumulation_steps);
		o.device = meta;
		o.pool = pool;
		o.model = model;
		o.train.max_tokens = o.train.max_targets = o.policy.rope_positions = s->tokens;
		rc = ranks_strategy(&o, &c, world_self(), t->gpus, device.ranks_per_node);
	}
	if (!rc)
		rc = trial_plan(t, &c, s, &o);
	device_close(meta);
	config_free(&c);
	return rc;
}

/* ---- rows ---- */

/* Whether the candidate cannot be faster than the best. If everything fits on the device, offload gains
 * nothing. Replicas between nodes save only exposed collectives. */
static int trial_is_hopeless(const struct trial *t, const struct trial *best, const struct model *model)
{
	if (!best->fits)
		return 0;
	if (t->offload.value == CONFIG_OFFLOAD_ON && !best->offload.value &&
	        best->memory.kept_blocks == model->block_group_count)
		return 1;
	return t->strategy.value == CONFIG_SHARDING_HYBRID_SHARD &&
	       best->time.exposed_ns < 0.02e6 * best->step.step_ms;
}

/* Finds the fastest candidate. If none fits, keeps the last one tried, the one with the most offload. */
static int row_find(struct trial *best, const struct scaling *s, struct pool *pool, struct model *model,
        const char *path, int gpus)
{
	struct word strategies[] = {
	        {CONFIG_SHARDING_FULL_SHARD, "FULL_SHARD"}, {CONFIG_SHARDING_HYBRID_SHARD, "HYBRID_SHARD"}};
	struct word offloads[] = {{0, "off"}, {CONFIG_OFFLOAD_ON, "on"}};
	int strategy_count = gpus > machine_ranks_here(s->machine, gpus) ? 2 : 1, offload_count = 2, rc = 0;

	if (*s->strategy) {
		strategies[0] = (struct word){(int)s->config->sharding_strategy, s->strategy};
		strategy_count = 1;
	}
	if (*s->offload) {
		offloads[0] = (struct word){s->config->cpu_offload, s->offload};
		offload_count = 1;
	}
	*best = (struct trial){.gpus = gpus};
	for (int i = 0; i < strategy_count; i++)
		for (int j = 0; j < offload_count && !rc; j++) {
			struct trial t = {.gpus = gpus, .strategy = strategies[i], .offload = offloads[j]};

			if (trial_is_hopeless(&t, best, model))
				continue;
			rc = trial_run(&t, s, pool, model, path);
			if (!rc &&
			        (t.fits ? !best->fits || t.step.step_ms < best->step.step_ms : !best->fits))
				*best = t;
		}
	return rc;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int row_add(struct scaling *s, const struct trial *t, const char *path)
{
	double rate = t->fits ? 1e3 * (double)t->step.tokens / t->step.step_ms / t->gpus : 0;
	json_t *row = json_pack("{s:s,s:i,s:s,s:s,s:b,s:I,s:I}", "model", base_name(path), "gpus", t->gpus,
	        "strategy", t->strategy.text, "offload", t->offload.text, "fits", t->fits, "device_bytes",
	        (json_int_t)(t->memory.device_bytes + t->reserve_bytes), "host_bytes",
	        (json_int_t)t->host_bytes);
	int rc = row ? 0 : ERR_NOMEM;

	if (!s->first_rate)
		s->first_rate = rate;
	if (!rc && t->fits)
		rc = json_object_update_new(
		        row, json_pack("{s:f,s:f,s:f,s:f,s:f,s:s,s:I,s:I}", "step_ms", t->step.step_ms,
		                     "tokens_per_s", rate * t->gpus, "efficiency", rate / s->first_rate,
		                     "collective_ms", 1e-6 * (double)t->time.sent_ns, "exposed_ms",
		                     1e-6 * (double)t->time.exposed_ns, "bound_by", t->time.binds,
		                     "sent_node_bytes", (json_int_t)t->traffic.node_bytes,
		                     "sent_network_bytes", (json_int_t)t->traffic.network_bytes));
	if (!rc)
		rc = json_array_append(s->rows, row);
	json_decref(row);
	return rc ? err_set(ERR_NOMEM, "out of memory for a table") : 0;
}

/* The rows of a model, found by several threads; each takes the next free one. */
struct rows {
	const struct scaling *s;
	struct model *model;
	const char *path;
	struct trial best[32]; /* for 1, 2, 4 ... GPUs */
	int rc[32];
	struct err why[32];
	int count;
	atomic_int next;
};

static void *rows_find(void *argument)
{
	struct rows *r = argument;
	struct pool *pool = NULL;
	int rc = pool_open(&pool, 1);

	for (int i = atomic_fetch_add(&r->next, 1); i < r->count; i = atomic_fetch_add(&r->next, 1)) {
		r->rc[i] = rc ? rc : row_find(&r->best[i], r->s, pool, r->model, r->path, 1 << i);
		if (r->rc[i])
			err_take(&r->why[i], r->rc[i]);
	}
	pool_close(pool);
	return NULL;
}

static int model_scale(struct scaling *s, const char *path)
{
	int64_t most = s->config->bench_count ? s->config->bench_count : GPUS_MAX;
	pthread_t threads[THREADS_MAX];
	struct rows r = {.s = s, .path = path};
	int rc = model_open_path(&r.model, path), started = 0;

	s->first_rate = 0;
	while (r.count < 31 && 1 << r.count <= most)
		r.count++;
	while (!rc && started < s->threads - 1 && !pthread_create(&threads[started], NULL, rows_find, &r))
		started++;
	if (!rc)
		rows_find(&r);
	while (started)
		pthread_join(threads[--started], NULL);
	for (int i = 0; i < r.count && !rc; i++) {
		rc = r.rc[i];
		if (rc)
			err_give(&r.why[i]);
		else
			rc = row_add(s, &r.best[i], path);
	}
	model_close(r.model);
	return rc;
}

static int models_scale(struct scaling *s)
{
	const char *given = s->config->bench_models, *list = given && *given ? given : default_models;
	char *copy = mem_strdup(list), *rest = NULL;
	int rc = copy ? 0 : ERR_NOMEM;

	for (char *path = copy ? strtok_r(copy, ",", &rest) : NULL; path && !rc;
	        path = strtok_r(NULL, ",", &rest))
		rc = model_scale(s, path);
	mem_free(copy);
	return rc && list == default_models
	               ? err_note(rc, "bench scaling: name models with models=CONFIG.json,...")
	               : rc;
}

static void key_take(char *text, size_t text_bytes, const struct config *c, const char *key)
{
	snprintf(text, text_bytes, "%s", config_was_set(c, key) ? config_text(c, key) : "");
}

int bench_scaling(json_t **result, const struct config *config)
{
	struct scaling s = {.config = config, .tokens = TOKENS, .rows = json_array()};
	int64_t begin_ns = clock_now_ns();
	int rc = s.rows ? 0 : ERR_NOMEM, threads = pool_default_threads();

	s.threads = threads < THREADS_MAX ? threads : THREADS_MAX;
	*result = NULL;
	if (!rc && !config->machine)
		rc = err_set(ERR_INPUT, "bench scaling: set machine=FILE to a description of the machines "
		                        "(see examples/machines)");
	if (!rc && config->bench_tokens && *config->bench_tokens)
		s.tokens = strtoll(config->bench_tokens, NULL, 10);
	if (!rc && s.tokens < 1)
		rc = err_set(ERR_INPUT, "bench scaling: micro_batch_tokens=%s is not a number of tokens",
		        config->bench_tokens);
	key_take(s.strategy, sizeof(s.strategy), config, "sharding_strategy");
	key_take(s.offload, sizeof(s.offload), config, "cpu_offload");
	key_take(s.ranks_per_node, sizeof(s.ranks_per_node), config, "ranks_per_node");
	if (!rc)
		rc = machine_read(&s.machine, config->machine);
	if (!rc)
		rc = models_scale(&s);
	if (!rc)
		*result = json_pack("{s:s,s:I,s:I,s:f,s:O}", "machine", s.machine->name, "gpus_of_a_node",
		        (json_int_t)machine_ranks_here(s.machine, CONFIG_AUTO), "tokens_of_a_gpu",
		        (json_int_t)s.tokens, "seconds", 1e-9 * (double)(clock_now_ns() - begin_ns),
		        "scaling", s.rows);
	if (!rc && !*result)
		rc = err_set(ERR_NOMEM, "out of memory for a table");
	json_decref(s.rows);
	machine_free(s.machine);
	return rc;
}
