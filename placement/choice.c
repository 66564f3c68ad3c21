/* Searches the fastest way to spend a budget. */
#include "placement/choice.h"

#include "placement/choice_bound.h"
#include "placement/choice_fill.h"
#include "placement/choice_hosted.h"
#include "placement/choice_whole.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

int choice_by_step(const void *a, const void *b)
{
	const struct choice_candidate *x = a, *y = b;

	return x->step_ms != y->step_ms ? (x->step_ms > y->step_ms) - (x->step_ms < y->step_ms)
	                                : (x->link_bytes > y->link_bytes) - (x->link_bytes < y->link_bytes);
}

/* Prefetch distances to try. CHOICE_AHEAD_AS_SET is tried only alone. */
static const int aheads[] = {2, 1, 3, 0};
enum { AHEAD_COUNT = sizeof(aheads) / sizeof(*aheads) };
_Static_assert(
        2 * AHEAD_COUNT <= CHOICE_WAYS, "each prefetch distance with and without inputs in host memory");

/* The numbers of resident states to try: each up to 16, then about six for each doubling, and all. Three
 * units ahead is rarely best, so it gets one number for each doubling. Without prefetch only 0 is tried,
 * because only the smallest budgets call for it. */
static int ladder_next(int states, int most, int ahead)
{
	int next = states < 16 ? states + 1 : states + states / 8;

	if (!ahead)
		return most + 1;
	if (ahead > 2 && states)
		next = 2 * states;
	return states < most && next > most ? most : next;
}

/* Numbers of states that differ by less than this share of the budget are not worth a plan each: those of
 * adapters are small. */
static const double rung_share = 1.0 / 128;

int choice_keep(struct choice *f, const struct choice_candidate *k)
{
	if (f->count == f->cap) {
		int cap = f->cap ? 2 * f->cap : 64;
		struct choice_candidate *grown = mem_resize(f->list, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		f->list = grown;
		f->cap = cap;
	}
	f->list[f->count++] = *k;
	return 0;
}

void choice_best_find(struct choice *f)
{
	double least_ms = INFINITY;

	for (int i = 0; i < f->count; i++)
		least_ms = fmin(least_ms, f->list[i].step_ms);
	for (int i = 0; i < f->count; i++) {
		const struct choice_candidate *k = &f->list[i],
		                              *best = f->best < 0 ? NULL : &f->list[f->best];

		if (k->step_ms > least_ms * (1 + 1e-6))
			continue;
		if (!best || k->link_bytes < best->link_bytes ||
		        (k->link_bytes == best->link_bytes && k->device_bytes < best->device_bytes))
			f->best = i;
	}
}

/* ---- candidates of smaller budgets ---- */

/* Steps equal to a millionth are compared by their traffic, so a bound must be longer by that. */
static int is_worse(const struct chooser *s, double bound_ms)
{
	return bound_ms > s->best_ms * (1 + 2e-6);
}

/* Plans of many micro-batches have many operations, and smaller budgets then gain little. */
enum { WALK_OPS = 1000000 };

/* Estimates list fewer operations; as many plans are tried. */
static int64_t walk_ops(const struct chooser *s)
{
	return chooser_estimates(s) ? (int64_t)WALK_OPS * s->micros / s->base->policy.micro_batches
	                            : WALK_OPS;
}

/* Whether the search of smaller budgets has taken long enough. */
static int is_long(const struct chooser *s)
{
	return s->choice->planned_count >= s->most_plans || s->listed_ops >= s->most_ops;
}

/* Keeps the activations of one block fewer, and as many weights as fit into the memory of *k without
 * weights. */
static int kept_lower(struct chooser *s, struct choice_candidate *k)
{
	int64_t device_bytes = s->device_bytes;
	int rc;

	k->weights = 0;
	rc = candidate_plan(s, k);
	s->device_bytes = k->device_bytes;
	k->kept--;
	if (!rc)
		rc = candidate_plan(s, k);
	if (s->device_bytes < k->device_bytes)
		s->device_bytes = k->device_bytes;
	if (!rc)
		rc = choice_weights_raise(s, k);
	if (!rc && is_worse(s, choice_bound_ms(choice_way_of(s, k)->bound, k)))
		k->step_ms = k->bound_ms = 0;
	else if (!rc)
		rc = candidate_judge(s, k);
	s->device_bytes = device_bytes;
	return rc;
}

/* Simulates the candidates with fewer and fewer weights. Each removed one raises the bound. */
static int weights_walk(struct chooser *s, struct choice_candidate k)
{
	int rc = 0;

	while (!rc && k.weights && k.bound_ms < s->best_ms && !is_long(s)) {
		k.weights--;
		if (is_worse(s, choice_bound_ms(choice_way_of(s, &k)->bound, &k)))
			break;
		rc = candidate_judge(s, &k);
		if (!rc && k.step_ms > 0)
			rc = choice_keep(s->choice, &k);
		if (!rc && k.step_ms > 0)
			s->best_ms = fmin(s->best_ms, k.step_ms);
	}
	return rc;
}

/* Goes from the candidate that fills the budget down through the candidates of smaller budgets with the same
 * number of states. It ends if no candidate below can beat the best. */
static int fillings_walk(struct chooser *s, const struct choice_candidate *most)
{
	struct choice_candidate k = *most;
	int rc = 0;

	if (k.bound_ms >= s->best_ms)
		return 0;
	for (;;) {
		struct choice_candidate below;

		if (k.step_ms > 0) {
			rc = choice_keep(s->choice, &k);
			s->best_ms = fmin(s->best_ms, k.step_ms);
			if (!rc)
				rc = weights_walk(s, k);
		}
		if (rc || !k.kept || is_long(s))
			return rc;
		below = k;
		below.kept--;
		if (is_worse(s,
		            choice_bound_least(choice_way_of(s, &k)->bound, &below, s->device_bytes).step_ms))
			return 0;
		rc = kept_lower(s, &k);
	}
}

/* ---- the choice ---- */

/* Finds the upper bounds of states, weights and kept blocks. */
static int most_find(struct chooser *s, const struct choice_freedom *freedom)
{
	const struct engine_options *o = s->base;
	int rc = engine_units_open(&s->map, o);

	if (rc)
		return rc;
	if (freedom->residency && plan_residency_is_open(&o->policy))
		s->units = s->map->unit_count;
	s->states = o->policy.inference ? 0 : s->units;
	s->blocks = freedom->activations ? o->model->block_group_count : 0;
	return 0;
}

/* The bytes of one more: the average over `count`. */
static double way_one_bytes(
        const struct choice_candidate *none, const struct choice_candidate *all, int count)
{
	return count ? (double)(all->device_bytes - none->device_bytes) / count : 0;
}

/* Whether bounds pay: there is much to choose, and steps to compare. */
static int is_bounded(const struct chooser *s, const struct choice_freedom *freedom)
{
	return !s->base->policy.inference && s->base->train.max_tokens && s->device_bytes > 0 &&
	       (s->units || (s->blocks && freedom->smaller));
}

static int way_find(struct chooser *s, int ahead, int spills, const struct choice_freedom *freedom)
{
	struct way *way = &s->ways[s->way_count++];
	struct choice_candidate none = {.ahead = ahead, .spills = spills}, all;
	int rc;

	*way = (struct way){.ahead = ahead, .spills = spills, .states_end = INT_MAX};
	if (spills) {
		way->weight_bytes = way[-1].weight_bytes;
		way->state_bytes = way[-1].state_bytes;
	}
	if (is_bounded(s, freedom))
		return choice_bound_open(&way->bound, s, way, spills ? way[-1].bound : NULL);
	rc = candidate_plan(s, &none);
	all = none;
	all.kept = s->blocks;
	if (!rc && s->blocks)
		rc = candidate_plan(s, &all);
	way->kept_bytes = way_one_bytes(&none, &all, s->blocks);
	all = none;
	all.weights = s->units;
	if (!rc && s->units)
		rc = candidate_plan(s, &all);
	way->weight_bytes = way_one_bytes(&none, &all, s->units);
	all = none;
	all.states = s->states;
	if (!rc && s->states)
		rc = candidate_plan(s, &all);
	way->state_bytes = way_one_bytes(&none, &all, s->states);
	return rc;
}

/* Finds the ways to stream, and their first guesses. */
static int ways_find(struct chooser *s, const struct choice_freedom *freedom)
{
	int rc = 0;

	for (int a = 0; a < (freedom->ahead ? AHEAD_COUNT : 1) && !rc; a++)
		for (int spills = 0; spills <= freedom->activations && !rc; spills++)
			rc = way_find(s, freedom->ahead ? aheads[a] : CHOICE_AHEAD_AS_SET, spills, freedom);
	return rc;
}

static int states_next(const struct chooser *s, const struct way *way, int states)
{
	double step_bytes = rung_share * (double)s->device_bytes;
	int next = ladder_next(states, s->states, way->ahead);

	while (next < s->states && (next - states) * way->state_bytes < step_bytes)
		next = ladder_next(next, s->states, way->ahead);
	return next;
}

static struct choice_candidate all_on_device(const struct chooser *s)
{
	return (struct choice_candidate){
	        .ahead = CHOICE_AHEAD_AS_SET, .states = s->states, .kept = s->blocks};
}

/* The candidate with everything on the device. */
static int all_judge(struct chooser *s)
{
	struct choice_candidate k = all_on_device(s);
	int rc = candidate_plan(s, &k);

	if (!rc && !candidate_fits(s, &k))
		choice_least_keep(s->choice, s, &k);
	if (rc || !candidate_fits(s, &k))
		return rc;
	rc = candidate_judge(s, &k);
	s->best_ms = k.step_ms;
	return rc ? rc : choice_keep(s->choice, &k);
}

/* A budget to fill: a way to stream and a number of states. Bounds are of all candidates with these. */
struct filling {
	struct way *way;
	int index, states;
	struct choice_least least;
	struct choice_candidate filled; /* device_bytes 0: not filled */
};

struct fillings {
	struct filling *list;
	int count, cap;
};

static int filling_add(struct fillings *f, struct chooser *s, struct way *way, int states)
{
	struct choice_candidate k = {.states = states, .kept = s->blocks ? s->blocks - way->spills : 0};

	if (f->count == f->cap) {
		int cap = f->cap ? 2 * f->cap : 64;
		struct filling *grown = mem_resize(f->list, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		f->list = grown;
		f->cap = cap;
	}
	f->list[f->count] = (struct filling){.way = way,
	        .index = f->count,
	        .states = states,
	        .least = choice_bound_least(way->bound, &k, s->device_bytes)};
	f->count++;
	return 0;
}

static int filling_by_bound(const void *a, const void *b)
{
	const struct filling *x = a, *y = b;

	if (x->least.step_ms != y->least.step_ms)
		return x->least.step_ms > y->least.step_ms ? 1 : -1;
	return x->index - y->index;
}

static int filling_by_host(const void *a, const void *b)
{
	const struct filling *x = a, *y = b;

	if (x->least.host_bytes != y->least.host_bytes)
		return x->least.host_bytes > y->least.host_bytes ? 1 : -1;
	return x->index - y->index;
}

static int filling_by_index(const void *a, const void *b)
{
	return ((const struct filling *)a)->index - ((const struct filling *)b)->index;
}

static int filling_judge(struct chooser *s, struct filling *f)
{
	struct choice_candidate k = {.ahead = f->way->ahead, .spills = f->way->spills, .states = f->states};
	int is_fitting, rc;

	if (f->states >= f->way->states_end || is_worse(s, f->least.step_ms))
		return 0;
	rc = choice_states_fill(s, &k, &is_fitting);
	if (rc)
		return rc;
	if (is_fitting)
		f->filled = k;
	if (is_fitting && k.step_ms > 0)
		s->best_ms = fmin(s->best_ms, k.step_ms);
	if (!is_fitting && !k.kept && !candidate_fits_device(s, &k))
		f->way->states_end = f->states;
	return 0;
}

static int fits_host(const struct chooser *s, const struct filling *f)
{
	return !s->host_bytes || f->least.host_bytes <= s->host_bytes;
}

/* Where no candidate fits the host: judges those that may need least of it first, and none that needs more
 * than the least so far. */
static int least_judge(struct fillings *f, struct chooser *s)
{
	const struct choice_candidate *least = &s->choice->least;
	int rc = 0;

	qsort(f->list, (size_t)f->count, sizeof(*f->list), filling_by_host);
	for (int i = 0; i < f->count && !rc; i++)
		if (!fits_host(s, &f->list[i]) &&
		        (!least->device_bytes || f->list[i].least.host_bytes <= least->host_bytes))
			rc = filling_judge(s, &f->list[i]);
	return rc;
}

/* Fills the budget in each way to stream with each number of states, those first that may be fastest. Leaves
 * out those that cannot be the best. */
static int fillings_judge(struct choice *filled, struct chooser *s)
{
	struct fillings f = {0};
	int rc = 0;

	for (int i = 0; i < s->way_count; i++)
		for (int states = 0; states <= s->states && !rc; states = states_next(s, &s->ways[i], states))
			rc = filling_add(&f, s, &s->ways[i], states);
	if (!rc && f.count)
		qsort(f.list, (size_t)f.count, sizeof(*f.list), filling_by_bound);
	for (int i = 0; i < f.count && !rc; i++)
		rc = fits_host(s, &f.list[i]) ? filling_judge(s, &f.list[i]) : 0;
	if (!rc && f.count && !s->choice->count && isinf(s->best_ms))
		rc = least_judge(&f, s);
	if (!rc && f.count)
		qsort(f.list, (size_t)f.count, sizeof(*f.list), filling_by_index);
	for (int i = 0; i < f.count && !rc; i++)
		if (f.list[i].filled.device_bytes)
			rc = choice_keep(filled, &f.list[i].filled);
	mem_free(f.list);
	return rc;
}

static int ways_judge(struct chooser *s, const struct choice_freedom *freedom)
{
	struct choice filled = {0};
	int rc, counts_all = !s->base->policy.inference && s->limits->device_bytes > 0,
	        walks = counts_all && freedom->smaller;

	s->best_ms = INFINITY;
	rc = counts_all ? all_judge(s) : 0;
	if (!rc && !s->way_count)
		rc = ways_find(s, freedom);
	for (int i = 0; i < s->way_count; i++)
		s->ways[i].states_end = INT_MAX;
	if (!rc)
		rc = fillings_judge(&filled, s);
	s->most_plans = 2 * s->choice->planned_count + 200;
	s->most_ops = s->listed_ops + walk_ops(s);
	if (filled.count)
		qsort(filled.list, (size_t)filled.count, sizeof(*filled.list), choice_by_step);
	for (int i = 0; i < filled.count && !rc; i++)
		rc = walks && !is_long(s) ? fillings_walk(s, &filled.list[i])
		                          : choice_keep(s->choice, &filled.list[i]);
	mem_free(filled.list);
	return rc;
}

static int estimates_find(struct chooser *s, const void *freedom)
{
	return ways_judge(s, freedom);
}

static int least_lower(struct choice_candidate *least, struct chooser *s, struct choice_candidate k)
{
	int rc = candidate_plan(s, &k);

	if (!rc && k.device_bytes < least->device_bytes)
		*least = k;
	return rc;
}

/* The candidate with the least device memory. */
static int device_least(
        struct choice_candidate *least, struct chooser *s, const struct choice_freedom *freedom)
{
	int rc = 0;

	*least = (struct choice_candidate){.device_bytes = INT64_MAX, .ahead = CHOICE_AHEAD_AS_SET};
	for (int a = 0; a < (freedom->ahead ? AHEAD_COUNT : 1) && !rc; a++)
		for (int spills = 0; spills <= freedom->activations && !rc; spills++)
			rc = least_lower(least, s,
			        (struct choice_candidate){
			                .ahead = freedom->ahead ? aheads[a] : CHOICE_AHEAD_AS_SET,
			                .spills = spills});
	return rc || s->base->policy.inference ? rc : least_lower(least, s, all_on_device(s));
}

static int micros_planned(const struct engine_options *o)
{
	return (int)max_i64(CHOICE_MICROS, CHOICE_VISITS / max_i64(o->model->config.L, 1));
}

/* Where estimates say that nothing fits the device, the least of all may still fit. */
static int least_choose(struct chooser *s, const struct choice_freedom *freedom)
{
	struct choice_candidate k;
	int rc = device_least(&k, s, freedom);

	if (!rc)
		rc = candidate_judge_whole(s, &k);
	if (rc || (s->limits->device_bytes && k.device_bytes > s->limits->device_bytes))
		return rc;
	if (!s->limits->host_bytes || k.host_bytes <= s->limits->host_bytes)
		return choice_keep(s->choice, &k);
	s->choice->least = k;
	return 0;
}

static int choose(struct choice *choice, const struct engine_options *o, const struct choice_limits *limits,
        const struct choice_freedom *freedom, const struct device_speed *speed, int is_estimate)
{
	struct device_options meta = {.pool = o->pool, .speed = *speed, .remembers = 1};
	struct chooser s = {.choice = choice, .base = o, .limits = limits};
	int rc;

	*choice = (struct choice){.best = -1};
	rc = device_open(&s.meta, "meta", &meta);
	if (!rc)
		rc = most_find(&s, freedom);
	s.device_bytes = limits->device_bytes;
	s.host_bytes = limits->host_bytes;
	s.micros = micros_planned(o);
	if (!rc)
		rc = chooser_estimates(&s) && !is_estimate ? choice_whole_find(&s, estimates_find, freedom)
		                                           : ways_judge(&s, freedom);
	if (!rc && !is_estimate && chooser_estimates(&s) && !choice->count && !choice->least.device_bytes)
		rc = least_choose(&s, freedom);
	choice_best_find(choice);
	if (!rc && freedom->activations)
		rc = choice_host(&s, is_estimate, speed->pin_bytes);
	for (int i = s.way_count - 1; i >= 0; i--)
		choice_bound_close(s.ways[i].bound);
	chooser_close(&s);
	return rc;
}

int choice_find(struct choice *choice, struct engine_options *o, const struct choice_limits *limits,
        const struct choice_freedom *freedom, const struct device_speed *speed)
{
	int rc = choose(choice, o, limits, freedom, speed, 0);

	if (!rc && choice->best >= 0)
		candidate_apply(&o->policy, &choice->list[choice->best]);
	else if (!rc && choice->least.device_bytes)
		candidate_apply(&o->policy, &choice->least);
	return rc;
}

int choice_estimate(struct choice_candidate *k, const struct engine_options *o,
        const struct choice_limits *limits, const struct choice_freedom *freedom,
        const struct device_speed *speed)
{
	struct choice choice;
	int rc = choose(&choice, o, limits, freedom, speed, 1);

	*k = rc || choice.best < 0 ? choice.least : choice.list[choice.best];
	choice_free(&choice);
	return rc;
}

/* Estimates below a limit by this share fit it. */
static const double estimate_share = 0.02;

static int64_t surely_within(const struct chooser *s, int64_t limit_bytes)
{
	return chooser_estimates(s) ? limit_bytes - (int64_t)(estimate_share * (double)limit_bytes)
	                            : limit_bytes;
}

int choice_fits(int *fits, const struct engine_options *o, const struct choice_limits *limits,
        const struct choice_freedom *freedom)
{
	struct device_options meta = {.pool = o->pool};
	struct choice choice = {0};
	struct chooser s = {.choice = &choice, .base = o, .limits = limits, .micros = micros_planned(o)};
	int rc = device_open(&s.meta, "meta", &meta);

	if (!rc)
		rc = most_find(&s, freedom);
	s.device_bytes = surely_within(&s, limits->device_bytes);
	s.host_bytes = surely_within(&s, limits->host_bytes);
	*fits = 0;
	for (int a = 0; a < (freedom->ahead ? AHEAD_COUNT : 1) && !rc && !*fits; a++)
		for (int spills = 0; spills <= freedom->activations && !rc && !*fits; spills++) {
			struct choice_candidate k = {
			        .ahead = freedom->ahead ? aheads[a] : CHOICE_AHEAD_AS_SET, .spills = spills};

			rc = candidate_plan(&s, &k);
			*fits = !rc && candidate_fits(&s, &k);
		}
	chooser_close(&s);
	return rc;
}

int choice_find_least(
        int64_t *least_bytes, struct engine_options *o, const struct choice_freedom *freedom, int is_exact)
{
	struct choice_candidate least;
	struct device_options meta = {.pool = o->pool};
	struct choice_limits none = {0};
	struct choice choice = {0};
	struct chooser s = {.choice = &choice, .base = o, .limits = &none, .micros = micros_planned(o)};
	int rc = device_open(&s.meta, "meta", &meta);

	if (!rc)
		rc = most_find(&s, freedom);
	if (!rc)
		rc = device_least(&least, &s, freedom);
	if (!rc && is_exact && chooser_estimates(&s))
		rc = candidate_judge_whole(&s, &least);
	*least_bytes = least.device_bytes;
	chooser_close(&s);
	if (!rc)
		candidate_apply(&o->policy, &least);
	return rc;
}

void choice_free(struct choice *choice)
{
	mem_free(choice->list);
	*choice = (struct choice){.best = -1};
}
