/* Tries activations in host memory. */
#include "placement/choice_hosted.h"

#include "base/err.h"
#include "base/size.h"
#include "placement/choice_candidate.h"
#include "placement/host_memory.h"
#include "placement/simulate.h"

#include <math.h>

enum { TRIALS = 60, TRIAL_OPS = 300000 /* operations of all plans together */, AHEAD_MOST = 3 };

struct hoster {
	const struct engine_options *base;
	const struct choice_limits *limits;
	struct device *meta;
	struct unit_map *map;
	int blocks, states, units; /* the most of each */
	int trials;
	int64_t ops;
};

/* The memory of a candidate, and its step if it fits; else step_ms is 0. */
static int candidate_try(struct hoster *h, struct choice_candidate *k)
{
	struct engine_options o = *h->base;
	struct engine *engine = NULL;
	struct engine_memory m;
	struct simulated step;
	struct plan_time time;
	int rc;

	o.device = h->meta;
	o.units = h->map;
	o.device_budget_bytes = 0;
	o.check_plans = 0;
	candidate_apply(&o.policy, k);
	k->step_ms = k->bound_ms = 0;
	h->trials++;
	rc = engine_open(&engine, &o);
	if (rc)
		return rc;
	engine_get_memory(engine, &m);
	k->device_bytes = m.device_bytes;
	k->host_bytes = host_need_bytes(&m, h->limits->load_bytes);
	k->link_bytes = m.h2d_bytes + m.d2h_bytes;
	k->weights_stay = m.resident_weights;
	h->ops += engine_plan(engine, PLAN_TRAIN)->op_count;
	if (k->device_bytes <= h->limits->device_bytes &&
	        (!h->limits->host_bytes || k->host_bytes <= h->limits->host_bytes)) {
		rc = simulate_bound(&step, &time, engine, &o);
		k->step_ms = rc ? 0 : step.step_ms;
		k->bound_ms = 1e-6 * (double)time.bound_ns;
		k->binds = time.binds;
	}
	engine_close(engine);
	return rc;
}

static int is_over(const struct hoster *h)
{
	return h->trials >= TRIALS || h->ops >= TRIAL_OPS;
}

/* Takes *k in place of *best if it fits and is shorter. */
static int try_better(struct hoster *h, struct choice_candidate *best, struct choice_candidate k)
{
	int rc = is_over(h) ? 0 : candidate_try(h, &k);

	if (!rc && k.step_ms > 0 && k.step_ms < best->step_ms)
		*best = k;
	return rc;
}

/* Other ways to stream: fewer or more units fetched ahead, where that is free, and block inputs on the GPU or
 * in host memory. */
static int way_change(struct hoster *h, struct choice_candidate *best)
{
	int rc = 0, most = best->ahead == CHOICE_AHEAD_AS_SET ? 0 : AHEAD_MOST;

	for (int i = 0; i < 2 * (most + 1) && !rc; i++) {
		struct choice_candidate k = *best;

		k.ahead = most ? i / 2 : k.ahead;
		k.spills = i % 2;
		if (k.ahead != best->ahead || k.spills != best->spills)
			rc = try_better(h, best, k);
	}
	return rc;
}

/* Moves each number up and down by a part of its range, and again while steps get shorter. */
static int climb(struct hoster *h, struct choice_candidate *best, int divisor)
{
	double before = best->step_ms + 1;
	int rc = 0;

	while (!rc && best->step_ms < before && !is_over(h)) {
		const int most[] = {h->blocks, h->states, h->blocks, h->units};
		int number;

		before = best->step_ms;
		for (int i = 0; i < 8 && !rc; i++) {
			struct choice_candidate k = *best;
			int *const of[] = {&k.hosted, &k.states, &k.kept, &k.weights};
			int by = (int)max_i64(most[i / 2] / divisor, 1);

			number = *of[i / 2] + (i % 2 ? -by : by);
			number = (int)min_i64(max_i64(number, i / 2 == 0), most[i / 2]);
			if (number == *of[i / 2])
				continue;
			*of[i / 2] = number;
			k.hosted = (int)min_i64(k.hosted, h->blocks - k.kept);
			k.weights = (int)min_i64(k.weights, h->units - k.states);
			if (k.hosted > 0)
				rc = try_better(h, best, k);
		}
	}
	return rc;
}

/* Where to begin: all, a quarter, or a sixteenth of the blocks that the choice's best candidate computes
 * again are in host memory, if need be with less of the rest on the GPU. */
static int begin(struct hoster *h, struct choice_candidate *best, const struct choice_candidate *from)
{
	int rc = 0;

	for (int shift = 0; shift <= 4 && !rc; shift += 2)
		for (int less = 0; less < 4 && !rc; less++) {
			struct choice_candidate k = *from;
			double before = best->step_ms;

			k.kept = less >= 2 ? 0 : (int)max_i64(k.kept - 2 * less, 0);
			k.weights = less ? 0 : k.weights;
			k.states = less == 3 ? k.states * 3 / 4 : k.states;
			k.hosted = (h->blocks - k.kept) >> shift;
			if (k.hosted > 0)
				rc = try_better(h, best, k);
			if (best->step_ms < before)
				break;
		}
	return rc;
}

static int search(struct choice *choice, struct hoster *h)
{
	struct choice_candidate before = choice->list[choice->best], best = {.step_ms = INFINITY};
	int rc = begin(h, &best, &before);

	if (!rc && best.hosted)
		rc = way_change(h, &best);
	for (int divisor = 4; divisor <= 64 && !rc && best.hosted; divisor *= 2)
		rc = climb(h, &best, divisor);
	if (rc || !(best.step_ms <= (1 - CHOICE_HOSTED_GAIN) * before.step_ms))
		return rc;
	rc = choice_keep(choice, &best);
	if (!rc)
		choice->best = choice->count - 1;
	return rc;
}

int choice_host(struct choice *choice, const struct engine_options *o, const struct choice_limits *limits,
        int residency, const struct device_speed *speed)
{
	struct device_options meta = {.pool = o->pool, .speed = *speed, .remembers = 1};
	struct hoster h = {.base = o, .limits = limits, .blocks = o->model->block_group_count};
	int rc;

	if (choice->best < 0 || limits->device_is_host || !limits->device_bytes || o->policy.inference ||
	        !o->train.max_tokens || choice->list[choice->best].step_ms <= 0 ||
	        choice->list[choice->best].kept >= h.blocks)
		return 0;
	rc = device_open(&h.meta, "meta", &meta);
	if (!rc)
		rc = engine_units_open(&h.map, o);
	if (!rc && residency && plan_residency_is_open(&o->policy))
		h.units = h.states = h.map->unit_count;
	if (!rc)
		rc = search(choice, &h);
	choice->planned_count += h.trials;
	unit_map_close(h.map);
	device_close(h.meta);
	return rc;
}
